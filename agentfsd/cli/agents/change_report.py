"""What a tool has changed, in a few lines that a model reads: deleted files first. It imports nothing that takes long."""

import os
from _collections_abc import Sequence

from agentfsd.cli.agents.ignored_paths import IgnoredPaths
from agentfsd.escape import quoted

TYPE_CHECKING = False  # typing takes as long to load as an answer does; checkers know the name
if TYPE_CHECKING:
    from agentfsd.cli.quick_daemon import JsonReply

MOST = 400  # changes that are looked at
_NAMES = 8  # that a line has
_VERBS = {
    "A": "added",
    "M": "modified",
    "D": "deleted",
    "R": "renamed",
    "T": "type changed",
    "m": "mode changed",
    "x": "attributes",
}


def report(reply: "JsonReply", root: str, named: Sequence[str], git: IgnoredPaths) -> str:
    """Return what has changed since a step; "" if nothing has.

    Args:
        reply: The daemon's answer to StepChanges.
        root: Where the workspace is seen.
        named: The paths that the tool was asked to change, absolute or relative to the current directory.
        git: Tells which paths git ignores.
    """
    changes = reply.changes
    outside = [path for path in named if not _is_within(os.path.abspath(path), root)]
    lines = [] if not outside else [f"OUTSIDE the workspace, so not in the branch and not undone by a rewind: {_list(outside)}"]
    if changes:
        paths = {change.path_bytes: change for change in changes}
        ignored = git.among({path: change.status != "D" for path, change in paths.items()})
        deleted = [path for path, change in paths.items() if change.status == "D"]
        left = {path: change for path, change in paths.items() if change.status != "D"}
        more = sum(reply.counts.values()) - len(changes)  # that are not listed; deleted paths are listed first
        about = _deleted(deleted, ignored, is_all=reply.counts.get("D", 0) <= len(deleted))
        lines = [_total(reply), *lines, *about, *_others(left, ignored, root, named, is_all=not more)]
        if more:
            lines.append(f"{more} of these paths are not described here: `agentfsd diff` shows all.")
        if any(change.status == "D" for change in changes):
            lines.append(f"`agentfsd restore {reply.step.snapshot} PATH` brings a path back as it was before this call.")
    return "\n".join(lines)


def _total(reply: "JsonReply") -> str:
    counts = {_VERBS.get(status, status): number for status, number in reply.counts.items()}
    total = sum(counts.values())
    parts = ", ".join(f"{number} {verb}" for verb, number in sorted(counts.items()))
    return f"agentfsd: {total} path{'' if total == 1 else 's'} changed while this ran: {parts}."


def _deleted(gone: list[bytes], ignored: set[bytes], *, is_all: bool) -> list[str]:
    lost = [path for path in gone if path in ignored]
    known = [path for path in gone if path not in ignored]
    lines = [f"DELETED: {_names(known, is_all)}"] if known else []
    return [*lines, *([f"DELETED, and git has no copy (it ignores them): {_names(lost, is_all)}"] if lost else [])]


def _others(left: "dict[bytes, JsonReply]", ignored: set[bytes], root: str, named: Sequence[str], *, is_all: bool) -> list[str]:
    wanted = {os.fsencode(os.path.relpath(os.path.abspath(path), root)) for path in named}
    seen = [path for path in left if path not in ignored]
    beside = [path for path in seen if wanted and path not in wanted and not _holds(path, wanted)]
    lines = [f"NOT NAMED in this call, but changed: {_gathered(beside, is_all)}"] if beside else []
    if hidden := [path for path in left if path in ignored]:
        lines.append(f"Changed, and ignored by git: {_gathered(hidden, is_all)}")
    for status, verb in _VERBS.items():
        if some := [path for path in seen if left[path].status == status and path not in beside]:
            lines.append(f"{verb}: {_renamed(left, some, is_all) if status == 'R' else _gathered(some, is_all)}")
    return lines


def _renamed(left: "dict[bytes, JsonReply]", paths: Sequence[bytes], is_all: bool) -> str:
    return _first([f"{quoted(left[path].old_path_bytes)} -> {quoted(path)}" for path in paths], is_all)


def _holds(path: bytes, wanted: set[bytes]) -> bool:
    return any(each.startswith(path + b"/") for each in wanted)  # a directory that was made for a named file


def _gathered(paths: list[bytes], is_all: bool) -> str:
    """Return the names of a line: of many files in one directory only that."""
    if len(paths) <= _NAMES:
        return _names(paths, is_all)
    tops: dict[bytes, int] = {}
    for path in paths:
        top, slash, _ = path.partition(b"/")
        tops[top + slash] = tops.get(top + slash, 0) + 1
    form = b"%s (%d)" if is_all else b"%s (at least %d)"
    return _names([top if count == 1 else form % (top, count) for top, count in tops.items()], is_all)


def _names(paths: Sequence[bytes], is_all: bool = True) -> str:
    return _first(list(map(quoted, paths)), is_all)


def _first(shown: Sequence[str], is_all: bool) -> str:
    more = f" and {'' if is_all else 'at least '}{len(shown) - _NAMES} more" if len(shown) > _NAMES else ""
    return ", ".join(shown[:_NAMES]) + more


def _list(paths: Sequence[str]) -> str:
    return _names([os.fsencode(path) for path in paths])


def _is_within(path: str, root: str) -> bool:
    place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return any(each == root or each.startswith(root.rstrip("/") + "/") for each in (path, place))
