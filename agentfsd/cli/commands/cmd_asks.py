"""The command `asks`, which shows and answers processes that wait because a rule says `ask`."""

import sys
import time
from typing import Literal, cast

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import NotFoundError
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Group, client, json_option, mount_option, plain
from agentfsd.cli.output import printing

_Lasts = Literal["once", "session", "rule"]
_KEYS: dict[str, tuple[bool, _Lasts] | None] = {
    "a": (True, "once"), "s": (True, "session"), "r": (True, "rule"), "d": (False, "once"), "n": (False, "session"), "": None,
}  # fmt: skip

_DONE: dict[tuple[bool, _Lasts], str] = {
    (True, "once"): "allowed until that process ends",
    (False, "once"): "denied this time",
    (True, "session"): "allowed to the branch until the daemon ends or rules change",
    (False, "session"): "denied to the branch until the daemon ends or rules change",
    (True, "rule"): "allowed for good, by a rule",
    (False, "rule"): "denied for good, by a rule",
}


@click.group(cls=Group, invoke_without_command=True)
@mount_option
@json_option
@click.pass_context
def asks(ctx: click.Context, named: str | None, as_json: bool) -> None:
    """Show and answer processes that wait for permission.

    A rule says `ask` about the path that such a process wants to use (see `agentfsd rules`). Its system call waits for the
    answer, at most as long as the setting asks.timeout says; then it is denied.

    \b
    Example:
      agentfsd asks
      agentfsd asks answer 3 allow
      agentfsd asks follow
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = named  # given before the word `answer`, say
        return
    with client(named) as daemon:
        waiting = daemon.list_asks()
    if as_json:
        printing.as_json(plain(waiting))
    elif waiting:
        printing.table(
            ("id", "since", "branch", "process", "wants to"),
            [(str(each.id), f"{_age_s(each)} s", each.branch, f"{each.command} ({each.pid})", _wish(each)) for each in waiting],
        )
    else:
        printing.note("no process waits for permission")


@asks.command()
@click.argument("number", metavar="ID", type=int, shell_complete=shell_completion.asks)
@click.argument("answer", type=click.Choice(["allow", "deny"]))
@click.option(
    "--for", "lasts", type=click.Choice(["once", "session", "rule"]), default="once", show_default=True,
    help="once: this process and this path, until the process ends (deny: only this time); session: every process "
    "of the branch, until the daemon ends or rules change; rule: for good, by a rule of the branch about this path.",
)  # fmt: skip
@mount_option
def answer(number: int, answer: str, lasts: str, named: str | None) -> None:
    """Answer a process that waits.

    \b
    Example:
      agentfsd asks answer 3 allow
      agentfsd asks answer 4 deny --for session
    """
    with client(named or click.get_current_context().obj) as daemon:
        _answer(daemon, number, answer == "allow", cast(_Lasts, lasts))


@asks.command()
@click.option("-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Only this branch.")
@mount_option
def follow(branch: str | None, named: str | None) -> None:
    """Wait for questions and answer them one by one.

    On a terminal each question takes one letter and Enter. Elsewhere they are only printed. Ends with Ctrl-C.

    \b
    Example:
      agentfsd asks follow
    """
    known: set[int] = set()
    with client(named or click.get_current_context().obj) as daemon:
        while True:
            for question in daemon.list_asks(branch, wait=True, known=sorted(known)):
                if question.id not in known:
                    known.add(question.id)
                    _meet(daemon, question)


def _meet(daemon: ControlClient, question: wire.PathQuestion) -> None:
    printing.note(f"{question.command} ({question.pid}) in {question.branch} wants to {_wish(question)}")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        printing.detail(f"answer it: agentfsd asks answer {question.id} allow")
        return
    prompt = "  [a]llow until it ends, for the [s]ession, by a [r]ule; [d]eny this time, [n]ever; Enter: leave it"
    letter = click.prompt(prompt, default="", show_default=False, type=click.Choice(list(_KEYS)), show_choices=False, err=True)
    chosen = _KEYS[letter]
    if chosen is not None:
        try:
            _answer(daemon, question.id, *chosen)
        except NotFoundError as exc:  # it came too late
            printing.note(exc.message)


def _answer(daemon: ControlClient, number: int, allow: bool, lasts: _Lasts) -> None:
    question = daemon.answer_ask(number, allow=allow, lasts=lasts)
    printing.say(f"{_DONE[allow, lasts]}: {question.command} ({question.pid}) wants to {_wish(question)}")


def _wish(question: wire.PathQuestion) -> str:
    return f"{question.what} {question.path}"


def _age_s(question: wire.PathQuestion) -> int:
    return max(0, int(time.time() - question.asked_ns / 1e9))
