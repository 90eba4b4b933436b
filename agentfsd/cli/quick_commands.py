"""The commands that hooks and scripts run for every step of an agent, without the command line's libraries.

Loading those takes four times as long as Python's own start. A command line that is not plain (an option that is not listed here,
a terminal to print on, a mount that is not found at once) is left to the full command line, which prints the same.
"""

import os
import sys
from _collections_abc import Callable, Iterable, Sequence

TYPE_CHECKING = False  # typing takes as long to load as an answer does; checkers know the name
if TYPE_CHECKING:
    from agentfsd.cli.quick_daemon import JsonReply

_Fields = dict[str, object]
_lines: list[bytes] = []  # what is to be printed: nothing is, before all of it is known

_DIGITS = 10  # more than a process id has
_AS_JSON = "json"  # a field that is not sent
_PATIENCE_S = 2.0  # a daemon that has not told its status by then may hang: the full command line says so


class _Command:
    """A command line that is handled here, and its request.

    Args:
        op: The name of the request.
        words: The fields of its arguments, in order; those after *least* may be missing.
        least: How many arguments it must have.
        options: The fields of its options with a value.
        flags: The fields of its options without one.
        repeats: Whether the request may be sent again if the daemon ended before it answered.
        show: Prints the reply.
    """

    def __init__(
        self, op: str, words: Sequence[str], least: int, options: dict[str, str], flags: dict[str, str],
        show: Callable[["JsonReply", _Fields], None], *, repeats: bool = False, given: _Fields | None = None,
    ) -> None:  # fmt: skip
        self.op, self.words, self.least, self.options, self.flags = op, words, least, options, flags
        self.show, self.repeats, self.given = show, repeats, given or {}

    def fields(self, arguments: Sequence[str]) -> tuple[_Fields, str | None] | None:
        """Return the fields of the request and the value of -m; None if the arguments are not plain."""
        fields: _Fields = {}
        words: list[str] = []
        rest, mount = list(arguments), None
        while rest:
            word = rest.pop(0)
            name, is_joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
            if word in self.flags:
                fields[self.flags[word]] = True
            elif name in self.options or name in ("-m", "--mount"):
                if not is_joined and not rest:
                    return None
                value = value if is_joined else rest.pop(0)
                if name in self.options:
                    fields[self.options[name]] = value
                else:
                    mount = value
            elif word.startswith("-"):
                return None
            else:
                words.append(word)
        if not self.least <= len(words) <= len(self.words):
            return None
        fields.update(zip(self.words, words, strict=False))
        return fields, mount


def run(arguments: Sequence[str]) -> int | None:
    """Carry out a command line and return the exit code; None, with nothing done, if it is not one for this module."""
    if arguments[:1] == ["hook"]:
        from agentfsd.cli.agents import quick_hook

        return quick_hook.run(arguments[1:])
    if sys.stdout is None or "--" in arguments or any(" " in word for word in arguments[:2]):
        return None
    if list(arguments) == ["--version"]:
        return _version()
    command, rest = _COMMANDS.get(" ".join(arguments[:2])), arguments[2:]
    if command is None:
        command, rest = _COMMANDS.get(arguments[0] if arguments else ""), arguments[1:]
    if command is None or not all(map(str.isprintable, arguments)) or sys.stdout.isatty() or os.environ.get("AGENTFS_DEBUG"):
        return None
    asked = command.fields(rest)
    return None if asked is None or not _made_fit(asked[0]) else _carry_out(command, *asked)


def _carry_out(command: _Command, fields: _Fields, mount: str | None) -> int | None:
    from agentfsd.cli import quick_daemon

    place = quick_daemon.socket_of(mount)
    if place is None:
        return None
    request = {"op": command.op, "version": quick_daemon.VERSION} | command.given | fields
    request.pop(_AS_JSON, None)
    try:
        reply = quick_daemon.ask(place, request, _PATIENCE_S if command.op == "status" else None)
    except quick_daemon.Lost:
        return None if command.repeats else _lost()
    if reply is None:
        return None
    if reply.op == "error":
        return _refused(reply.message, reply.hint)
    try:
        command.show(reply, fields)
    except (AttributeError, KeyError):  # a daemon of another version leaves a field out
        if command.repeats:
            _lines.clear()
            return None
        raise
    return _write()


def _write() -> int:
    try:
        sys.stdout.buffer.write(b"".join(_lines))
        sys.stdout.flush()
    except BrokenPipeError:  # the program that reads our output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as exc:  # the disk is full, for example
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _refused(exc.strerror or str(exc), "")
    return 0


def _version() -> int:
    from agentfsd import __version__

    _say_ready(f"agentfsd, version {__version__}")
    return _write()


def _made_fit(fields: _Fields) -> bool:
    """Convert process ids. Return False if one is no number: the full command line says so."""
    if "pid" not in fields:
        return True
    number = str(fields["pid"])
    if not (number.isascii() and number.isdigit() and len(number) < _DIGITS):
        return False
    fields["pid"] = int(number)
    return True


def _refused(message: str, hint: str) -> int:
    from agentfsd.cli.output import plain_lines

    _tell(plain_lines.refusal(message, hint))
    return 1


def _tell(lines: Iterable[str]) -> None:
    sys.stderr.buffer.writelines(line.encode() + b"\n" for line in lines)
    sys.stderr.flush()


def _lost() -> int:
    return _refused(
        "the daemon closed the connection",
        "`agentfsd status` shows whether it is back; what was asked of it last may have been done all the same",
    )


def _say(text: str) -> None:
    from agentfsd.escape import printable

    _lines.append(printable(text).encode() + b"\n")


def _say_ready(text: str) -> None:
    _lines.append(text.encode("utf-8", "surrogateescape") + b"\n")


def _json(value: object) -> None:
    import json

    _say_ready(json.dumps(value, indent=2, ensure_ascii=True))


# -- what each command prints


def _snapshot(reply: "JsonReply", fields: _Fields) -> None:
    from agentfsd.cli.output import plain_lines

    _say(plain_lines.took_snapshot(reply.snapshot))


def _branch(reply: "JsonReply", fields: _Fields) -> None:
    from agentfsd.cli.output import plain_lines

    _say(plain_lines.made_branch(reply.branch, str(fields.get("source", ""))))


def _bound(reply: "JsonReply", fields: _Fields) -> None:
    from agentfsd.cli.output import plain_lines

    _say(plain_lines.bound(fields["pid"], fields["branch"]))


def _unbound(reply: "JsonReply", fields: _Fields) -> None:
    from agentfsd.cli.output import plain_lines

    _say(plain_lines.unbound(fields["pid"]))


def _done(reply: "JsonReply", fields: _Fields) -> None:
    _say(reply.message)


def _branches(reply: "JsonReply", fields: _Fields) -> None:
    if _AS_JSON in fields:
        _json(reply.branches)
        return
    from agentfsd.cli.output import plain_lines

    for line in plain_lines.branches(reply.branches):
        _say(line)


def _status(reply: "JsonReply", fields: _Fields) -> None:
    if _AS_JSON in fields:
        _json(reply)
        return
    from agentfsd.control import status_text

    _say_ready(status_text.status(reply).rstrip("\n"))  # type: ignore[arg-type]  # it has the fields of one


def _changes(reply: "JsonReply", fields: _Fields) -> None:
    if _AS_JSON in fields:
        _json(reply)
        return
    from agentfsd.cli.output import plain_lines
    from agentfsd.control import status_text

    for change in reply.changes:
        _say_ready(plain_lines.changed(change))
    told = [status_text.in_repository(repository.path_bytes, repository.sentence) for repository in reply.repositories]
    _tell(map(plain_lines.noted, told))


_BRANCH = {"-b": "branch", "--branch": "branch"}
_JSON = {"--json": _AS_JSON}
_COMMANDS = {
    "snapshot create": _Command("snapshot.create", ("name",), 0, _BRANCH | {"--tag": "tag"}, {"--keep": "keep"}, _snapshot),
    "branch create": _Command("branch.create", ("name",), 1, {"--from": "source"}, {}, _branch),
    "branch list": _Command("branch.list", (), 0, {}, _JSON, _branches, repeats=True),
    "bind": _Command("branch.bind", ("pid", "branch"), 2, {}, {}, _bound, repeats=True),
    "unbind": _Command("branch.unbind", ("pid",), 1, {}, {}, _unbound, repeats=True),
    "restore": _Command("restore", ("ref",), 1, _BRANCH, {}, _done),
    "status": _Command("status", (), 0, {}, _JSON, _status, repeats=True),
    "diff": _Command(
        "diff", ("b",), 0, {}, _JSON | {"--own": "own", "--all": "internal"}, _changes,
        repeats=True, given={"histories": True, "internal": False},
    ),
}  # fmt: skip
