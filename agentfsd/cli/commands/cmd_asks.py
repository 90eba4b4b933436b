"""The command `asks`, which shows and answers processes that wait because a rule says `ask`."""

import sys
from typing import cast

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import NotFoundError
from agentfsd.cli import path_answers, shell_completion
from agentfsd.cli.command_base import Group, client, json_option, mount_option, plain
from agentfsd.cli.output import printing


@click.group(cls=Group, invoke_without_command=True)
@mount_option
@json_option
@click.pass_context
def asks(ctx: click.Context, named: str | None, as_json: bool) -> None:
    """Show and answer processes that wait for permission.

    A process waits if a rule says `ask` about the path that it wants to use (see `agentfsd rules`). Its system call waits for the
    answer. After the time in the setting asks.timeout, the daemon denies it.

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
            [
                (
                    str(each.id),
                    f"{path_answers.age_s(each)} s",
                    each.branch,
                    f"{each.command} ({each.pid})",
                    path_answers.wish(each),
                )
                for each in waiting
            ],
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
        printing.say(path_answers.answer(daemon, number, answer == "allow", cast(path_answers.Lasts, lasts)))


@asks.command()
@click.option("-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Only this branch.")
@mount_option
def follow(branch: str | None, named: str | None) -> None:
    """Wait for questions and answer them one by one.

    On a terminal, answer each question with one letter and Enter. Elsewhere the questions are only printed. End with Ctrl-C.

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
    printing.note(path_answers.sentence(question))
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        printing.detail(path_answers.how_to(question))
        return
    letters = click.Choice(list(path_answers.KEYS))
    letter = click.prompt(path_answers.PROMPT, default="", show_default=False, type=letters, show_choices=False, err=True)
    chosen = path_answers.KEYS[letter]
    if chosen is not None:
        try:
            printing.say(path_answers.answer(daemon, question.id, *chosen))
        except NotFoundError as exc:  # it came too late
            printing.note(exc.message)
