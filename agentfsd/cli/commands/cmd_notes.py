"""The command `notes`, which lists, writes, answers and settles notes about branches."""

import difflib
import re
import sys

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Failure, Group, client, converse, json_option, mount_option, plain
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import note_lines, printing

_MOST_BYTES = 1 << 16  # read of standard input: more than the daemon takes
_MOST_NUMBER = (1 << 63) - 1
_ONE_ARGUMENT = "the text is one argument: put it in quotation marks"
_LINES = re.compile(r"([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?")


class _Notes(Group):
    """`notes BRANCH` is `notes list BRANCH`, unless the word may be a misspelt command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:  # fmt: skip
        if args[0] not in self.commands and not difflib.get_close_matches(args[0], self.commands):
            args = ["list", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_Notes, invoke_without_command=True)
@click.option("--all", "with_resolved", is_flag=True, help="Also those that are resolved.")
@mount_option
@json_option
@click.pass_context
def notes(ctx: click.Context, with_resolved: bool, named: str | None, as_json: bool) -> None:
    """Say what you think of a branch; agents answer.

    A note is about a branch, or about a file or some lines in it. It stays with the branch until somebody resolves or removes it.
    The agent in the branch is told of it at its next step, and reads and answers it with the same commands. A process in a branch
    has the notes of its own branch alone; it can resolve or remove none in which a person has said something.

    \b
    Example:
      agentfsd notes add fix-1 --path src/app.py --line 12 "why twice?"
      agentfsd notes list fix-1
      agentfsd notes reply 3 "once was not enough: see the test"
      agentfsd notes resolve 3
    """
    if ctx.invoked_subcommand is not None:
        if with_resolved or as_json:
            raise click.UsageError(f"options go after the word: agentfsd notes {ctx.invoked_subcommand} ...")
        ctx.obj = named  # given before the word `add`, say
        return
    _list(named, None, with_resolved, as_json)


@notes.command("list")
@click.argument("branch", required=False, shell_complete=shell_completion.branches)
@click.option("--all", "with_resolved", is_flag=True, help="Also those that are resolved.")
@click.option("--full", is_flag=True, help="Print whole texts, the lines that they are about, and the answers.")
@mount_option
@json_option
def list_(branch: str | None, with_resolved: bool, full: bool, named: str | None, as_json: bool) -> None:
    """List the notes of a branch, the open ones first.

    Without BRANCH, it is the branch that you are in. A note about lines says where they are now: lines that have changed are
    outdated.

    \b
    Example:
      agentfsd notes list fix-1
      agentfsd notes list fix-1 --full
      agentfsd notes list fix-1 --all --json
    """
    _list(named or click.get_current_context().obj, branch, with_resolved, as_json, full=full)


def _list(named: str | None, branch: str | None, with_resolved: bool, as_json: bool, *, full: bool = False) -> None:
    with client(named) as daemon:
        found = daemon.list_notes(branch, resolved=with_resolved)
        others = _elsewhere(daemon) if not found and branch is None and not as_json else ""
        name = branch or daemon.hello.branch
    if as_json:
        printing.as_json(plain(found))
    elif not found:
        printing.note(f"branch {name} has no {'' if with_resolved else 'open '}notes{others}")
    elif full:
        for note in found:
            for line in note_lines.whole(note):
                printing.say(line)
    else:
        printing.table(note_lines.HEADERS, note_lines.rows(found), spare=("when", "by", "answers"))


def _elsewhere(daemon: ControlClient) -> str:
    """Say which other branches have open notes."""
    if daemon.hello.bound:
        return ""
    with_notes = [f"{each.name} ({each.notes})" for each in daemon.list_branches(count=False) if each.notes]
    return f"; `agentfsd notes list BRANCH` shows those of {', '.join(with_notes)}" if with_notes else ""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
    return [] if ctx.params.get(param.name or "") else shell_completion.branches(ctx, param, incomplete)


@notes.command()
@click.argument("words", metavar="[BRANCH] TEXT", nargs=-1, required=True, shell_complete=_complete)
@click.option(
    "--path", metavar="PATH", type=click.Path(path_type=bytes), shell_complete=shell_completion.files,
    help="The file or directory that it is about.",
)  # fmt: skip
@click.option("--line", "lines", metavar="N[-M]", help="The line of PATH that it is about, or several lines.")
@mount_option
@json_option
def add(words: tuple[str, ...], path: bytes | None, lines: str | None, named: str | None, as_json: bool) -> None:
    """Add a note to a branch.

    Without BRANCH, it is the branch that you are in. With - in the place of TEXT, the text is read from standard input. The lines
    count from 1 in the file as the branch has it now.

    \b
    Example:
      agentfsd notes add fix-1 "please add a test"
      agentfsd notes add fix-1 --path src/app.py --line 12-15 "why twice?"
      agentfsd notes add fix-1 - < review.txt
    """
    if len(words) > 2:
        raise click.UsageError(_ONE_ARGUMENT)
    first, last = _numbers(lines)
    if lines and path is None:
        raise click.UsageError("--line needs --path, which says the file")
    text = _text(words[-1])
    mount, daemon = converse(lambda: mount_finder.find(named or click.get_current_context().obj, revive=True))
    with daemon:
        if len(words) == 1 and not daemon.hello.bound and words[0] in {each.name for each in daemon.list_branches(count=False)}:
            raise click.UsageError(f"{words[0]} is a branch: say what you think of it")
        where = mount_finder.in_workspace(mount, path) if path is not None else b""
        where = b"" if where == b"." else where
        made = daemon.add_note(text, words[0] if len(words) == 2 else None, path=where, line=first, last_line=last)
    if as_json:
        printing.as_json(plain(made))
    else:
        printing.say(f"note {made.id} about {_about(made)}")


def _about(note: wire.BranchNote) -> str:
    return f"{note_lines.place(note)} in {note.branch}" if note.path_bytes else f"branch {note.branch}"


def _numbers(lines: str | None) -> tuple[int, int]:
    if lines is None:
        return 0, 0
    match = _LINES.fullmatch(lines)
    if match is None:
        raise click.UsageError(f"--line {lines} is no line: give a number from 1 on, such as 12, or two, such as 12-15")
    first = int(match[1])
    return first, int(match[2] or first)


def _text(word: str) -> str:
    if word != "-":
        return word
    read = sys.stdin.buffer.read(_MOST_BYTES)
    try:
        return read.decode()
    except UnicodeDecodeError as exc:
        if len(read) == _MOST_BYTES and exc.start > _MOST_BYTES - 4:
            return read[: exc.start].decode()  # far too long: the daemon says so
        raise Failure("standard input is no text in UTF-8", "convert it first, such as with iconv") from exc


_NUMBER = click.argument("number", metavar="ID", type=click.IntRange(1, _MOST_NUMBER))


@notes.command()
@_NUMBER
@click.argument("words", metavar="TEXT", nargs=-1, required=True)
@mount_option
def reply(number: int, words: tuple[str, ...], named: str | None) -> None:
    """Answer a note.

    With - in the place of TEXT, the text is read from standard input.

    \b
    Example:
      agentfsd notes reply 3 "done: it is called once now"
    """
    if len(words) > 1:
        raise click.UsageError(_ONE_ARGUMENT)
    with client(named or click.get_current_context().obj) as daemon:
        answered = daemon.reply_note(number, _text(words[0]))
    printing.say(f"answered note {answered.id} about {_about(answered)}")


@notes.command()
@_NUMBER
@mount_option
def resolve(number: int, named: str | None) -> None:
    """Settle a note: it is no longer open.

    A process in a branch settles only notes that were written in that branch, and that no person has answered.

    \b
    Example:
      agentfsd notes resolve 3
    """
    with client(named or click.get_current_context().obj) as daemon:
        daemon.resolve_note(number)
    printing.say(f"note {number} is resolved; `agentfsd notes reopen {number}` opens it again")


@notes.command()
@_NUMBER
@mount_option
def reopen(number: int, named: str | None) -> None:
    """Open a note again that was settled.

    The agent is told of it once more.

    \b
    Example:
      agentfsd notes reopen 3
    """
    with client(named or click.get_current_context().obj) as daemon:
        daemon.resolve_note(number, resolved=False)
    printing.say(f"note {number} is open")


@notes.command()
@_NUMBER
@mount_option
def remove(number: int, named: str | None) -> None:
    """Remove a note and its answers for good.

    A process in a branch removes only notes that were written in that branch, and that no person has answered.

    \b
    Example:
      agentfsd notes remove 3
    """
    with client(named or click.get_current_context().obj) as daemon:
        daemon.remove_note(number)
    printing.say(f"removed note {number}")
