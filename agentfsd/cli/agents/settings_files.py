"""Writes what an integration adds into the files of a harness, and takes it back: byte for byte if nobody has edited them since.

A record of each change lies in the home of the state directories. It holds where something was inserted, and nothing of the file.
"""

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from typing import Any, Literal

from agentfsd.cli.agents import quick_hook
from agentfsd.cli.agents.replaced_files import make_directories, missing_directories, text_of, write
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
    before, known = text_of(path), _record(path)
    with _explained(change.path):
        if before is not None and change.is_in(before, _names(known)):
            return "there"
        old = _cleared(change, path, before)
        made = change.added(old)
    if not dry_run:
        existed = known.existed if known is not None and old != (before or "") else before is not None
        missing = missing_directories(path)
        earlier = known.made if known is not None and not existed else ()
        is_exact = known is not None and before is not None and known.digest == _digest(before)
        names = made.names if is_exact else made.names.union(_names(known))
        directories = (*earlier, *(each for each in missing if each not in earlier))
        # The record comes first: whatever is killed, what is in the file has one.
        _keep(path, _Record(existed, _digest(made.text), made.spans, directories, tuple(sorted(names))))
        try:
            make_directories(missing)
            write(path, made.text, before)
        except BaseException:
            _keep(path, known) if known is not None else _forget(path)
            raise
    return "added" if old == (before or "") else "updated"


def remove(change: SettingsChange, *, dry_run: bool = False) -> Done:
    """Take a change back: exactly, if the file is as it was left; else only what is ours.

    Raises:
        Failure: The file cannot be read.
    """
    path = _real(change.path)
    text, known = text_of(path), _record(path)
    if text is None:
        if known is not None and not dry_run:
            _remove_directories(known)
            _forget(path)
        return "absent"
    is_untouched = known is not None and known.digest == _digest(text)
    with _explained(change.path):
        after = _cleared(change, path, text)
    if not dry_run:
        if after != text:
            _put_back(change, path, text, after)
        _forget(path)
    if after == text:
        return "absent"
    return "removed" if is_untouched else "removed ours"


def _put_back(change: SettingsChange, path: str, text: str, after: str) -> None:
    known = _record(path)
    is_left_over = not known.existed and not after.strip("{} \t\r\n") if known is not None else change.is_whole(text)
    if not is_left_over:
        write(path, after, text)
        return
    os.unlink(path)
    if known is not None:
        _remove_directories(known)


def _remove_directories(known: _Record) -> None:
    for directory in reversed(known.made):
        with contextlib.suppress(OSError):  # somebody has put something into it, or removed it
            os.rmdir(directory)


def state(change: SettingsChange) -> State:
    """Return whether a change is in its file."""
    try:
        path = _real(change.path)
        text, names = text_of(path), _names(_record(path))
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
    write(place, json.dumps(said) + "\n", text_of(place))


def _forget(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_record_path(path))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
