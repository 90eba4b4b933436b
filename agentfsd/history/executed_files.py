"""Finds changed files that run on the user's side once they are in the real directory: hooks, commands in settings, setuid files.

It knows no request. It reads content only where the name does not decide: git's configuration and attributes.
"""

import re
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from agentfsd.core import inode_stat
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.tree import Inode, Tree
from agentfsd.core.whole_contents import content_of
from agentfsd.history.executed_paths import why_by_path

_MOST_BYTES = 1 << 20
_SETID = stat.S_ISUID | stat.S_ISGID
_CAPABILITIES = b"security.capability"
_SECTION = re.compile(rb"^\s*\[\s*([^\]\"\s]+)[^\]]*\]")
_COMMAND_SECTIONS = (b"filter", b"include", b"includeif", b"credential", b"difftool", b"mergetool", b"browser", b"man", b"gpg")
_COMMAND_KEYS = re.compile(
    rb"^\s*(fsmonitor|hookspath|sshcommand|askpass|editor|pager|gitproxy|command|textconv|driver|external|program|helper|uploadpack"
    rb"|receivepack|vcs|update\s*=\s*\"?!|worktree|attributesfile|templatedir)\b",
    re.IGNORECASE,
)
_ALIAS_COMMAND = re.compile(rb"=\s*\"?\s*!")
_DRIVER = re.compile(rb"\s(filter|merge|diff)=(?!(union|text|binary|ours)(\s|$))\S+")


class ExecutedFile(NamedTuple):
    """A path, and the reason why a program runs the file."""

    path: bytes
    why: str


def find_executed(old: Tree, new: Tree, changed: Iterable[bytes], patterns: Sequence[str]) -> list[ExecutedFile]:
    """Find the *changed* paths, sorted, whose name or new content makes a program execute something.

    Content and attributes count only if *old* did not have them already. *patterns* of names are as in .gitignore.
    """
    files = []
    for path in sorted(set(changed)):
        why = why_executed(old, new, path, patterns)
        files += [ExecutedFile(path, why)] if why else []
    return files


def why_executed(old: Tree, new: Tree, path: bytes, patterns: Sequence[str]) -> str:
    """Return why a program runs a changed file, as find_executed() does; "" if none does."""
    inode = _at(new, path)
    if inode is None or inode.is_dir:
        return ""
    return why_by_path(path, patterns) or _why(old, inode, path)


def _why(before: Tree, new: Inode, path: bytes) -> str:
    if not new.is_file:
        return ""
    if new.mode & _SETID and _has_new_bits(_at(before, path), new):
        return "setuid or setgid"
    keeps_xattrs = new.xattrs is None and new.lower_path == path
    if not keeps_xattrs and _CAPABILITIES in all_xattrs(new.tree, new):
        return "has capabilities"
    name = path.rpartition(b"/")[2]
    if name == b".gitattributes" and _new_lines(_at(before, path), new, _with_drivers):
        return "names a driver that git runs"
    if path in (b".git/config", b".git/config.worktree") or path.endswith(b"/.git/config"):
        return "configures commands for git" if _new_lines(_at(before, path), new, _with_commands) else ""
    return ""


def _has_new_bits(old: Inode | None, new: Inode) -> bool:
    return old is None or not old.is_file or bool(new.mode & _SETID & ~old.mode) or not _same_file(old, new)


def _same_file(old: Inode, new: Inode) -> bool:
    return bool(old.id == new.id and old.lower_path == new.lower_path)


def _new_lines(old: Inode | None, new: Inode, of_interest: Callable[[bytes], set[bytes]]) -> bool:
    return bool(of_interest(_content(new)) - (of_interest(_content(old)) if old is not None and old.is_file else set()))


def _with_drivers(text: bytes) -> set[bytes]:
    return {line.strip() for line in text.split(b"\n") if _DRIVER.search(line) and not line.lstrip().startswith(b"#")}


def _with_commands(text: bytes) -> set[bytes]:
    """Return the settings that make git run a command, or read other settings, each with its section."""
    paths, section = set(), b""
    for line in text.split(b"\n"):
        header = _SECTION.match(line)
        if header:
            section, line = header.group(1).lower(), line[header.end() :]
        setting = line.strip()
        if not setting or setting[:1] in b"#;":
            continue
        in_section = section.partition(b".")[0] in _COMMAND_SECTIONS or (section == b"alias" and _ALIAS_COMMAND.search(line))
        if in_section or _COMMAND_KEYS.match(line):
            paths.add(section + b"\0" + setting)
    return paths


def _content(inode: Inode) -> bytes:
    """Return a file's content. A file above _MOST_BYTES is not read, and counts as a git configuration with an include."""
    if inode_stat.data_stat(inode).st_size > _MOST_BYTES:
        return b"[include]\npath\n"
    return content_of(inode)


def _at(tree: Tree, path: bytes) -> Inode | None:
    try:
        return tree.walk(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
