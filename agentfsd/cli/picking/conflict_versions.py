"""Reads versions of paths with conflicts, and lets a person settle one in an editor or in git's merge tool."""

import hashlib
import os
import shlex
import subprocess
import tempfile
from typing import Literal

import msgspec

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfsd.cli import git_environment
from agentfsd.cli.command_base import Failure

Side = Literal["base", "ours", "theirs", "now"]

_SHELL = "/bin/sh"
_NAME_BYTES = 255  # of a file
_ENDING_BYTES = 32  # that are kept of a long ending, for a tool that goes by it


def read(daemon: ControlClient, path: bytes, side: Side, branch: str | None) -> wire.ConflictVersionReply:
    """Return a version of a path with all of its content."""
    found = daemon.conflict_version(path, side, branch)
    parts = [found.data]
    size = len(found.data)
    while found.kind == "file" and size < found.size and parts[-1]:
        parts.append(daemon.conflict_version(path, side, branch, offset=size).data)
        size += len(parts[-1])
    return msgspec.structs.replace(found, data=b"".join(parts))


def edit(daemon: ControlClient, path: bytes, branch: str | None) -> None:
    """Open a file with conflict markers in the person's editor, and take the result as the decision.

    Raises:
        Failure: It is no file, or too large, the editor failed, or the result is refused: it stays in a file then.
    """
    now = _editable(daemon, path, branch)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="agentfsd-resolve-") as place:
        merged = os.path.join(os.fsencode(place), _name(path))
        _write(merged, now.data)
        _run([_SHELL, "-c", f'{editor} "$@"', editor, merged], None)
        _take(daemon, path, branch, now.data, merged)


def use_tool(daemon: ControlClient, path: bytes, branch: str | None) -> None:
    """Open a conflict in the merge tool of git's configuration, and take the result as the decision.

    The tool's command (mergetool.NAME.cmd) gets BASE, LOCAL, REMOTE and MERGED, as `git mergetool` gives them; LOCAL is the
    target's version.

    Raises:
        Failure: No tool is configured, a version is no file, or too large, the tool failed, or the result is refused: it stays in
            a file then.
    """
    name, command = _tool()
    now = _editable(daemon, path, branch)
    with tempfile.TemporaryDirectory(prefix="agentfsd-resolve-") as place:
        stem, dot, ending = _name(path).rpartition(b".")
        stem, ending = (stem, dot + ending) if stem else (dot + ending, b"")
        names = {"MERGED": os.path.join(os.fsencode(place), _name(path))}
        _write(names["MERGED"], now.data)
        for word, side in _SIDES.items():
            more = b"_" + word.encode() + ending[:_ENDING_BYTES]
            names[word] = os.path.join(os.fsencode(place), stem[: _NAME_BYTES - len(more)] + more)
            version = read(daemon, path, side, branch)
            _write(names[word], version.data if version.kind == "none" else _file(version, path).data)
        _run([_SHELL, "-c", command, name], {word: os.fsdecode(value) for word, value in names.items()})
        _take(daemon, path, branch, now.data, names["MERGED"])


_SIDES: dict[str, Side] = {"BASE": "base", "LOCAL": "ours", "REMOTE": "theirs"}


def _tool() -> tuple[str, str]:
    name = _git_setting("merge.tool")
    if not name:
        raise Failure("git's configuration names no merge tool", "git config --global merge.tool NAME, and mergetool.NAME.cmd")
    command = _git_setting(f"mergetool.{name}.cmd")
    if not command:
        raise Failure(
            f"git's configuration has no command for the merge tool {name!r}",
            f'git config --global mergetool.{name}.cmd \'TOOL "$BASE" "$LOCAL" "$REMOTE" "$MERGED"\'',
        )
    return name, command


def _git_setting(name: str) -> str:
    """Read a setting of the person: the repository's own configuration belongs to the workspace, and does not count."""
    said = ""
    for scope in ("--system", "--global"):
        done = subprocess.run(
            ["git", "config", scope, "--includes", "--get", name], capture_output=True, text=True, check=False,
            cwd="/", env=git_environment.own(),
        )  # fmt: skip
        said = done.stdout.rstrip("\n") or said
    return said


def _file(version: wire.ConflictVersionReply, path: bytes) -> wire.ConflictVersionReply:
    shown = path.decode("utf-8", "backslashreplace")
    if version.kind != "file":
        raise Failure(f"{shown} is no file on every side", "take --ours or --theirs, or make it as it should be, and --mark it")
    return version


def _editable(daemon: ControlClient, path: bytes, branch: str | None) -> wire.ConflictVersionReply:
    """Read a file as it is now, if it is not too large to be sent back."""
    now = _file(daemon.conflict_version(path, "now", branch), path)
    if now.size > wire.MAX_DATA_BYTES:
        raise Failure(
            f"{path.decode('utf-8', 'backslashreplace')} is larger than {wire.MAX_DATA_BYTES} bytes: nothing was decided",
            "edit it in the branch, and --mark it",
        )
    return now


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def _write(place: bytes, content: bytes) -> None:
    with open(place, "wb") as file:
        file.write(content)


def _run(command: list[str | bytes], more: dict[str, str] | None) -> None:
    code = subprocess.run(command, check=False, env=os.environ | more if more else None).returncode
    if code:
        raise Failure(f"{shlex.quote(os.fsdecode(command[3]))} ended with {code}: nothing was decided")


def _take(daemon: ControlClient, path: bytes, branch: str | None, seen: bytes, merged: bytes) -> None:
    try:
        with open(merged, "rb") as file:
            content = file.read()
    except OSError as exc:
        hint = "if the file should be gone, remove it in the branch, and --mark it"
        raise Failure(f"the edited file cannot be read: {exc.strerror}: nothing was decided", hint) from None
    try:
        if len(content) > wire.MAX_DATA_BYTES:
            raise Failure(
                f"the file is larger than {wire.MAX_DATA_BYTES} bytes: nothing was decided",
                "put it into the branch, and --mark it",
            )
        daemon.resolve([path], "edited", branch, content=content, seen=hashlib.sha256(seen).hexdigest())
    except (Failure, AgentFSError) as exc:
        if content == seen:
            raise
        raise Failure(exc.message, f"{exc.hint}; what you made of it is in {_set_aside(path, content)}") from exc


def _set_aside(path: bytes, content: bytes) -> str:
    """Keep what a person has edited, and return where."""
    place = os.path.join(os.fsencode(tempfile.mkdtemp(prefix="agentfsd-edited-")), _name(path))
    _write(place, content)
    return shlex.quote(os.fsdecode(place))
