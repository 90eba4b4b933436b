"""Writes what an integration adds into the files of a harness, and takes it back: byte for byte if nobody has edited them since.

A record of each change lies in the home of the state directories. It holds where something was inserted, and nothing of the file.
"""

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from dataclasses import asdict, dataclass
from typing import Any, Literal

from agentfsd.cli.agents import quick_hook
from agentfsd.cli.agents.settings_changes import Added, NotJson, NotToml, SettingsChange
from agentfsd.cli.command_base import Failure

Done = Literal["added", "updated", "there", "removed", "removed ours", "absent"]
State = Literal["installed", "outdated", "absent", "unreadable"]


@dataclass(frozen=True, slots=True)
class _Record:
    """How a file was changed. ``digest`` is that of the file after it; ``made``: the directories that were made for it.
    ``names``: the entries that were added.
    """

    existed: bool
    digest: str
    spans: tuple[tuple[int, int], ...]
    made: tuple[str, ...]
    names: tuple[str, ...]


def install(change: SettingsChange, *, dry_run: bool = False) -> Done:
    """Add a change to its file, or bring an older form of it up to date.

    Raises:
        Failure: The file cannot be read or extended.
    """
    path = _real(change.path)
    before, known = _text(path), _record(path)
    with _explained(change.path):
        if before is not None and change.is_in(before, _names(known)):
            return "there"
        old = _cleared(change, path, before)
        made = change.added(old)
    if not dry_run:
        existed = known.existed if known is not None and old != (before or "") else before is not None
        directories = known.made if known is not None and before is not None else _make_directories(path)
        _write(path, made.text, before)
        is_exact = known is not None and before is not None and known.digest == _digest(before)
        names = made.names if is_exact else made.names.union(_names(known))
        _keep(path, _Record(existed, _digest(made.text), made.spans, tuple(directories), tuple(sorted(names))))
    return "added" if old == (before or "") else "updated"


def remove(change: SettingsChange, *, dry_run: bool = False) -> Done:
    """Take a change back: exactly, if the file is as it was left; else only what is ours.

    Raises:
        Failure: The file cannot be read.
    """
    path = _real(change.path)
    text, known = _text(path), _record(path)
    if text is None:
        if known is not None and not dry_run:
            _forget(path)
        return "absent"
    is_untouched = known is not None and known.digest == _digest(text)
    with _explained(change.path):
        after = _cleared(change, path, text)
    if after == text:
        return "absent"
    if not dry_run:
        if known is not None and not known.existed and not after.strip("{} \t\r\n"):
            os.unlink(path)
            for directory in reversed(known.made):
                with contextlib.suppress(OSError):  # somebody has put something into it
                    os.rmdir(directory)
        else:
            _write(path, after, text)
        _forget(path)
    return "removed" if is_untouched else "removed ours"


def state(change: SettingsChange) -> State:
    """Return whether a change is in its file."""
    try:
        path = _real(change.path)
        text, names = _text(path), _names(_record(path))
        if text is None:
            return "absent"
        if change.is_in(text, names):
            return "installed"
        return "absent" if change.without(text, names) == text else "outdated"
    except (Failure, NotJson, NotToml, OSError):
        return "unreadable"


def _cleared(change: SettingsChange, path: str, text: str | None) -> str:
    """Return a file's text without what is ours."""
    known = _record(path)
    if text is not None and known is not None and known.digest == _digest(text):
        return Added(text, known.spans).taken_back()
    return change.without(text, _names(known)) if text else ""


def _names(record: _Record | None) -> tuple[str, ...]:
    return record.names if record is not None else ()


@contextlib.contextmanager
def _explained(path: str) -> Any:
    try:
        yield
    except (NotJson, NotToml) as exc:
        raise Failure(
            f"{path} cannot be changed: {exc}", "nothing was written; change the file by hand, or mend it first"
        ) from exc


# -- files


def _real(path: str) -> str:
    return os.path.realpath(path)  # settings are often symlinks into a directory under version control


def _text(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as exc:
        raise Failure(f"{path} is no UTF-8", "nothing was written; mend the file first") from exc


def _make_directories(path: str) -> list[str]:
    made, directory = [], os.path.dirname(path)
    while not os.path.isdir(directory):
        made.append(directory)
        directory = os.path.dirname(directory)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return made[::-1]


def _write(path: str, text: str, before: str | None) -> None:
    """Replace a file in one step. Its mode and owner stay."""
    directory = os.path.dirname(path)
    fd, temporary = tempfile.mkstemp(prefix=".agentfsd-", dir=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            if before is not None:
                found = os.stat(path)
                os.fchmod(fd, stat.S_IMODE(found.st_mode))
                if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(fd, found.st_uid, found.st_gid)
            else:
                os.fchmod(fd, 0o666 & ~_umask())
            os.fsync(fd)
        if _text(path) != before:
            raise Failure(f"{path} was changed by somebody else at the same moment", "try again")
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# -- records


def _record_path(path: str) -> str:
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:24]
    return os.path.join(os.path.dirname(quick_hook.log_path()), "agents", f"{name}.json")


def _record(path: str) -> _Record | None:
    try:
        with open(_record_path(path), encoding="utf-8") as file:
            said = json.load(file)
        spans = tuple((int(start), int(end)) for start, end in said["spans"])
        return _Record(
            bool(said["existed"]), str(said["digest"]), spans, tuple(map(str, said["made"])), tuple(map(str, said["names"]))
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _keep(path: str, record: _Record) -> None:
    place = _record_path(path)
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    said = {"path": path, **asdict(record)}
    _write(place, json.dumps(said) + "\n", _text(place))


def _forget(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_record_path(path))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
