"""The command `rewind`, which goes back to the files of an earlier turn of an agent's session."""

import sys
from collections import Counter
from typing import Any

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.cli import shell_completion
from agentfsd.cli.agents import session_turns
from agentfsd.cli.agents.session_turns import SteppedSession
from agentfsd.cli.command_base import Failure, client, json_option, mount_option
from agentfsd.cli.output import printing


@click.command()
@click.option(
    "--to",
    "turn",
    metavar="TURN",
    help="The turn: the files become what they were before its prompt; 3.2: before its second call.",
)
@click.option("--session", metavar="SESSION", help="The session, or how its name begins; by default the only one.")
@click.option(
    "--branch",
    "new",
    metavar="NAME",
    shell_complete=shell_completion.branches,
    help="Make this new branch of that state, and leave the session's branch as it is.",
)
@click.option("--list", "listing", is_flag=True, help="Only show the turns.")
@mount_option
@json_option
def rewind(turn: str | None, session: str | None, new: str | None, listing: bool, named: str | None, as_json: bool) -> None:
    """Go back to the files of an earlier turn of a session.

    The files of the session's branch become what they were before the prompt of TURN, whoever changed them: the agent's
    tools, its shell commands, or you. The session may go on meanwhile, and is told. `agentfsd undo` takes it back. Without
    --to, you choose on the terminal. The hooks that `agentfsd agent install` sets up take the snapshots. Ignored and
    uncommitted files are covered, the conversation is not: rewind that in the agent.

    \b
    Example:
      agentfsd rewind
      agentfsd rewind --list
      agentfsd rewind --to 2
      agentfsd rewind --to 2 --branch second-try
    """
    with client(named) as daemon:
        found = session_turns.sessions(daemon)
        if listing or (as_json and turn is None):
            _list(daemon, [session_turns.choose(found, session)] if session else found, as_json)
            return
        is_asked = turn is None
        if is_asked and not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise Failure("without a terminal a turn has to be named", "agentfsd rewind --to TURN; --list shows the turns")
        chosen = _pick_session(found) if is_asked and session is None else session_turns.choose(found, session)
        step = chosen.at(turn) if turn is not None else _pick_turn(daemon, chosen)
        if step is None:
            return
        if is_asked and new is None:
            new = _pick_way(step)
        _branch_off(daemon, step, new, as_json) if new else _restore(daemon, step, as_json)


def _restore(daemon: ControlClient, step: wire.SessionStep, as_json: bool) -> None:
    counts = session_turns.since(daemon, step)
    if counts is None:
        raise Failure(f"{step.branch}, the branch of that turn, is gone", "--branch NAME makes a new branch of that state")
    daemon.restore(step.snapshot_id, step.branch_id)
    if as_json:
        printing.as_json({"restored": _compared(step, counts)})
        return
    printing.say(f"{step.branch} is as before {_named(step)}; that took back: {session_turns.counted(counts)}")
    whose = "outside the branch, " if daemon.hello.bound else ""  # a bound process may not undo
    printing.note(f"{whose}`agentfsd undo` brings the later state back")


def _branch_off(daemon: ControlClient, step: wire.SessionStep, name: str, as_json: bool) -> None:
    made = daemon.create_branch(name, step.snapshot_id)
    if as_json:
        printing.as_json({"branch": made.name, "from": _described(step)})
        return
    printing.say(f"branch {made.name} is as before {_named(step)}; {step.branch} stays as it is")
    printing.note(f"go on there: agentfsd run -b {made.name} -- COMMAND")


# -- showing


def _named(step: wire.SessionStep) -> str:
    place = f"call {step.call} of turn {step.turn}" if step.call else f"turn {step.turn}"
    return f"{place} ({step.title})" if step.title else place


def _described(step: wire.SessionStep) -> dict[str, Any]:
    return {
        "session": step.session, "agent": step.agent, "branch": step.branch, "turn": step.turn, "call": step.call,
        "title": step.title, "created_ns": step.created_ns, "snapshot": step.snapshot,
    }  # fmt: skip


def _compared(step: wire.SessionStep, counts: Counter[str] | None) -> dict[str, Any]:
    return {**_described(step), "changed_since": None if counts is None else dict(counts)}


def _list(daemon: ControlClient, shown: list[SteppedSession], as_json: bool) -> None:
    if as_json:
        printing.as_json([_compared(step, session_turns.since(daemon, step)) for each in shown for step in each.prompts])
        return
    if not shown:
        printing.note("no session of an agent has a turn here: `agentfsd agent install` has a harness take snapshots")
    for each in shown:
        printing.say(
            f"session {each.name} of {each.last.agent or 'an agent'}, in branch {session_turns.place(daemon, each.last)}"
        )
        _table(daemon, each)


def _table(daemon: ControlClient, session: SteppedSession) -> None:
    rows = [
        (str(step.turn), step.title, printing.when(step.created_ns), session_turns.counted(session_turns.since(daemon, step)))
        for step in session.prompts
    ]
    printing.table(("turn", "prompt", "when", "changed since"), rows, spare=("when",))


# -- choosing on a terminal


def _pick_session(found: list[SteppedSession]) -> SteppedSession:
    if len(found) < 2:
        return session_turns.choose(found, None)
    rows = [
        (str(number), each.last.branch, each.last.agent, str(len(each.prompts)), printing.when(each.last.created_ns), each.name)
        for number, each in enumerate(found, 1)
    ]
    printing.table(("no.", "branch", "agent", "turns", "last step", "session"), rows, spare=("last step", "agent"))
    number = click.prompt("Which session", type=click.IntRange(1, len(found)), default=len(found))
    return found[number - 1]


def _pick_turn(daemon: ControlClient, session: SteppedSession) -> wire.SessionStep | None:
    if not session.prompts:
        raise Failure(f"session {session.name} has no turn yet", "it gets one with its next prompt")
    _table(daemon, session)
    turn = click.prompt("Back to before which turn (Enter: stay)", default="", show_default=False)
    return session.at(turn.strip()) if turn.strip() else None


def _pick_way(step: wire.SessionStep) -> str | None:
    question = f"Enter: put the files of {step.branch} back; or the name of a new branch to go on from there"
    return click.prompt(question, default="", show_default=False).strip() or None
