"""Finds changed files of git directories that make git run a program: settings, hooks, and ways that lead git elsewhere.

Each directory with a name HEAD counts as a git directory: a ``.git`` file or link, or a person who enters it, may lead git there.
"""

import stat
from collections.abc import Callable, Sequence
from typing import Any

from agentfsd.core import inode_stat
from agentfsd.core.tree import Inode, Tree
from agentfsd.core.whole_contents import content_of
from agentfsd.history.git_settings import running
from agentfsd.repositories.git_config import GitSetting

_MOST_BYTES = 1 << 20
_SETTINGS = (b"config", b"config.worktree")
_DECIDING = frozenset((*_SETTINGS, b"commondir", b"HEAD"))  # the files of a git directory that why_git_runs() looks into
_PARTS = frozenset((*_SETTINGS, b"commondir", b"hooks", b"info", b"modules", b"worktrees"))

_CONFIGURES, _LEADS, _HOOK = "configures commands for git", "leads git to other settings", "run by git"


def why_git_runs(old: Tree, new: Tree, path: bytes, inode: Inode, places: Sequence[str]) -> str:
    """Return why a changed path makes git run a program; "" if it does not.

    Args:
        old: What there was before: only what is new counts.
        new: The tree with the change.
        path: The path.
        inode: The file or symbolic link that *new* has there.
        places: Absolute paths at which the workspace may be.
    """
    directory, _, name = path.rpartition(b"/")
    if stat.S_ISLNK(inode.mode):
        is_way = name == b".git" or b".git" in directory.split(b"/") or (name in _PARTS and _is_git(new, directory))
        return _LEADS if is_way else ""
    if name == b".git":
        return "" if _leads_within(new, directory, inode, places) else _LEADS
    return _why_in_git(old, new, directory, name) if inode.is_file else ""


def _why_in_git(old: Tree, new: Tree, directory: bytes, name: bytes) -> str:
    above, _, last = directory.rpartition(b"/")
    if last == b"hooks" and _is_git(new, above):
        return "" if name.endswith(b".sample") else _HOOK
    if name not in _DECIDING or not _is_git(new, directory):
        return ""
    if name == b"commondir":
        is_usual = above.rpartition(b"/")[2] == b"worktrees" and _content(at(new, _join(directory, name))).strip() == b"../.."
        return "" if is_usual else _LEADS
    was_git = _is_git(old, directory)
    if name == b"HEAD" and not was_git:
        if any(_configures(None, new, directory, each) for each in _SETTINGS):
            return _CONFIGURES
        return _HOOK if _has_hooks(new, _join(directory, b"hooks")) else ""
    return _CONFIGURES if name in _SETTINGS and _configures(old if was_git else None, new, directory, name) else ""


def _configures(old: Tree | None, new: Tree, directory: bytes, name: bytes) -> bool:
    path = _join(directory, name)
    before = at(old, path) if old is not None else None

    def found(text: bytes) -> set[GitSetting]:
        return {each for each in running(text) if not _is_worktree_within(each, directory)}

    return has_new(before, at(new, path), found)


def _is_worktree_within(setting: GitSetting, directory: bytes) -> bool:
    """Return whether a setting says where the files of a submodule are, in the same tree."""
    return (setting.section, setting.key) == (b"core", b"worktree") and _followed(directory, setting.value) is not None


def has_new(old: Inode | None, new: Inode | None, of_interest: Callable[[bytes], set[Any]]) -> bool:
    """Return whether the content of a file has something *of_interest* that it had not before. None: there is no file."""
    return bool(of_interest(_content(new)) - of_interest(_content(old)))


def _has_hooks(tree: Tree, path: bytes) -> bool:
    directory = at(tree, path)
    if directory is None or not directory.is_dir:
        return directory is not None
    return any(not name.endswith(b".sample") for name in tree.names(directory))


def _leads_within(tree: Tree, directory: bytes, inode: Inode, places: Sequence[str]) -> bool:
    """Return whether a ``.git`` file leads to a git directory of the same tree, whose own files are looked at."""
    kind, _, target = _content(inode).rstrip(b"\r\n").partition(b": ")
    if kind != b"gitdir":
        return not inode.is_file  # else git refuses it, but perhaps not every program
    for place in places:
        if target.startswith(place.encode() + b"/"):
            directory, target = b"", target[len(place.encode()) :].lstrip(b"/")
    leads_to = _followed(directory, target)
    return leads_to is not None and _is_git(tree, leads_to)


def _followed(directory: bytes, target: bytes) -> bytes | None:
    """Return the path to which a relative path from a directory leads; None if that is or may be outside the tree."""
    if target.startswith(b"/"):
        return None
    above, names = directory.split(b"/") if directory else [], target.split(b"/")
    while names and names[0] in (b"..", b"."):
        if names.pop(0) == b"..":
            if not above:
                return None
            above.pop()
    return None if b".." in names else b"/".join([*above, *names])


def _is_git(tree: Tree, directory: bytes) -> bool:
    return at(tree, _join(directory, b"HEAD")) is not None


def _join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def _content(inode: Inode | None) -> bytes:
    """Return a file's content. A file above _MOST_BYTES is not read, and counts as a git configuration with an include."""
    if inode is None or not inode.is_file:
        return b""
    if inode_stat.data_stat(inode).st_size > _MOST_BYTES:
        return b"[include]\npath\n"
    return content_of(inode)


def at(tree: Tree, path: bytes) -> Inode | None:
    """Find the inode at a path; None if there is none."""
    try:
        return tree.walk(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
