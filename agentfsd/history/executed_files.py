"""Finds changed files that run on the user's side once they are in the real directory: hooks, commands in settings, setuid files.

It knows no request. It reads content only where the name does not decide: git's configuration (executed_git.py) and attributes.
"""

import re
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.tree import Inode, Tree
from agentfsd.history.executed_git import at, has_new, why_git_runs
from agentfsd.history.executed_paths import why_by_path

_SETID = stat.S_ISUID | stat.S_ISGID
_CAPABILITIES = b"security.capability"
_DRIVER = re.compile(rb"\s(filter|merge|diff)=(?!(union|text|binary|ours)(\s|$))\S+")


class ExecutedFile(NamedTuple):
    """A path, and the reason why a program runs the file."""

    path: bytes
    why: str


def find_executed(
    old: Tree, new: Tree, changed: Iterable[bytes], patterns: Sequence[str], places: Sequence[str]
) -> list[ExecutedFile]:
    """Find the *changed* paths, sorted, whose name or new content makes a program execute something.

    Content and attributes count only if *old* did not have them already. *patterns* of names are as in .gitignore. *places* are
    absolute paths at which the workspace may be.
    """
    files = []
    for path in sorted(set(changed)):
        why = why_executed(old, new, path, patterns, places)
        files += [ExecutedFile(path, why)] if why else []
    return files


def why_executed(old: Tree, new: Tree, path: bytes, patterns: Sequence[str], places: Sequence[str]) -> str:
    """Return why a program runs a changed file, as find_executed() does; "" if none does."""
    inode = at(new, path)
    if inode is None or inode.is_dir:
        return ""
    return why_by_path(path, patterns) or why_git_runs(old, new, path, inode, places) or _why(old, inode, path)


def _why(before: Tree, new: Inode, path: bytes) -> str:
    if not new.is_file:
        return ""
    if new.mode & _SETID and _has_new_bits(at(before, path), new):
        return "setuid or setgid"
    keeps_xattrs = new.xattrs is None and new.lower_path == path
    if not keeps_xattrs and _CAPABILITIES in all_xattrs(new.tree, new):
        return "has capabilities"
    name = path.rpartition(b"/")[2]
    is_attributes = name == b".gitattributes" or path.endswith(b".git/info/attributes")
    if is_attributes and has_new(at(before, path), new, _with_drivers):
        return "names a driver that git runs"
    return ""


def _has_new_bits(old: Inode | None, new: Inode) -> bool:
    return old is None or not old.is_file or bool(new.mode & _SETID & ~old.mode) or not _same_file(old, new)


def _same_file(old: Inode, new: Inode) -> bool:
    return bool(old.id == new.id and old.lower_path == new.lower_path)


def _with_drivers(text: bytes) -> set[bytes]:
    return {line.strip() for line in text.split(b"\n") if _DRIVER.search(line) and not line.lstrip().startswith(b"#")}
