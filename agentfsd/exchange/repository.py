"""The bare repository: opening it, tree objects byte for byte, which snapshots it holds, and what git cannot say.

A snapshot is a commit with trailers that say what it was. What git has no words for (empty directories, modes, owners, times,
xattrs, hard links, special files) is kept beside each commit: `refs/notes/agentfs` holds, for each commit, a tree with the shape
of the directories, whose blobs `entries` say it for the names in one directory. So directories that did not change share it.
"""

import errno
import os
import re
import shutil
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar
from urllib.parse import quote, unquote

import pygit2
from pygit2.enums import ObjectType, SortMode

from agentfsd.domain_errors import Refusal

NOTES = "refs/notes/agentfs"
SNAPSHOT, BRANCH, TAG, STATE = "Agentfs-Snapshot", "Agentfs-Branch", "Agentfs-Tag", "Agentfs-State"

_KEPT = b"attributes"
_TREE_MODE = 0o040000
_GIT_TREE_MODES = (_TREE_MODE, 0o160000)
_IGNORED_BY_HFS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


@dataclass(frozen=True, slots=True)
class Trees:
    """What one commit holds: git's own tree, and the one beside it (None where only git knew of it)."""

    content: pygit2.Oid
    attributes: pygit2.Oid | None


Oid: TypeAlias = pygit2.Oid  # these two for those who must not know pygit2
Commit: TypeAlias = pygit2.Commit

_O = TypeVar("_O", pygit2.Tree, pygit2.Blob, pygit2.Commit)

Items = dict[bytes, tuple[int, pygit2.Oid]]  # name -> (mode, object)


class Repository:
    """A bare repository on this machine. Refs are changed by nobody but `move`, when all objects are there."""

    def __init__(self, path: str, git: pygit2.Repository, is_new: bool) -> None:
        self.path, self.git, self._is_new = path, git, is_new
        self._kept: dict[str, pygit2.Oid] | None = None
        self._noted = 0

    @classmethod
    def open(cls, path: str, *, make: bool) -> "Repository":
        """Refusal when there is none (*make*: one is made), or one with a working tree."""
        is_new = not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path))
        if is_new and not make:
            raise Refusal(errno.ENOENT, "no-repository", f"there is no git repository at {path}")
        try:
            git = pygit2.init_repository(path, bare=True, initial_head="main") if is_new else pygit2.Repository(path)
        except (pygit2.GitError, KeyError) as exc:
            raise Refusal(errno.EINVAL, "no-repository", f"{path} is no git repository: {exc}") from exc
        if make and not git.is_bare:
            raise Refusal(
                errno.EINVAL, "not-bare", f"{path} has a working tree, which would not follow its branches",
                "name a bare repository, or a path where one can be made; or its URL with --push",
            )  # fmt: skip
        return cls(path, git, is_new)

    def undo(self) -> None:
        """Takes a repository away that was made for what has just failed."""
        if self._is_new:
            shutil.rmtree(self.path, ignore_errors=True)

    # -- objects

    def read_tree(self, oid: pygit2.Oid | None) -> Items:
        if oid is None:
            return {}
        found = {entry.raw_name or b"": (int(entry.filemode), entry.id) for entry in self._object(oid, pygit2.Tree)}
        for name in found:
            check_name(name)
        return found

    def read_blob(self, oid: pygit2.Oid) -> memoryview:
        """git has it in memory as a whole."""
        return memoryview(self._object(oid, pygit2.Blob))

    def blob_size(self, oid: pygit2.Oid) -> int:
        return self._object(oid, pygit2.Blob).size

    def _object(self, oid: pygit2.Oid | str, kind: type[_O]) -> _O:
        try:
            found = self.git[oid]
        except (KeyError, pygit2.GitError) as exc:
            raise damaged(f"{self.path} lacks the object {oid}") from exc
        if not isinstance(found, kind):
            raise damaged(f"the object {oid} of {self.path} is no {kind.__name__.lower()}")
        return found

    def write_tree(self, items: Items) -> pygit2.Oid:
        """By hand, since pygit2 takes no names that are not UTF-8. git sorts directories as if their names ended in a slash."""
        ordered = sorted(items.items(), key=lambda item: item[0] + b"/" * (item[1][0] in _GIT_TREE_MODES[:1]))
        return self.git.write(ObjectType.TREE, b"".join(b"%o %s\0%s" % (mode, name, oid.raw) for name, (mode, oid) in ordered))

    def write_blob(self, data: bytes) -> pygit2.Oid:
        return self.git.create_blob(data)

    def commit(self, oid: pygit2.Oid | str) -> pygit2.Commit:
        return self._object(oid, pygit2.Commit)

    # -- what is there

    def commits(self, prefixes: tuple[str, ...] = ("refs/heads/", "refs/tags/")) -> Iterator[pygit2.Commit]:
        """Every commit that those refs reach, parents before children."""
        walker = self.git.walk(None, SortMode.TOPOLOGICAL | SortMode.REVERSE)
        for name in self.git.references:
            target = self.target(name)
            if name.startswith(prefixes) and target is not None:
                walker.push(target.id)
        yield from walker

    def snapshots(self, prefixes: tuple[str, ...]) -> dict[str, pygit2.Oid]:
        """The commits that are snapshots, by the snapshot's id."""
        found = {}
        for commit in self.commits(prefixes):
            number = trailer(commit, SNAPSHOT)
            if number:
                found[number] = commit.id
        return found

    def refs(self, prefix: str) -> dict[str, pygit2.Commit]:
        """The commits of all refs below a prefix, by what follows it."""
        found = {}
        for name in sorted(self.git.references):
            target = self.target(name) if name.startswith(prefix) else None
            if target is not None:
                found[name.removeprefix(prefix)] = target
        return found

    def target(self, name: str) -> pygit2.Commit | None:
        """The commit that a ref leads to; None for what leads to none."""
        try:
            found = self.git.references[name].peel(pygit2.Commit)
        except (KeyError, pygit2.GitError):
            return None
        return found if isinstance(found, pygit2.Commit) else None

    def has(self, oid: pygit2.Oid) -> bool:
        return oid in self.git

    def point_head(self, prefix: str) -> None:
        """HEAD of a new repository leads to a branch that exists, so that a clone shows something."""
        if self.git.head_is_unborn:
            for name in self.refs(prefix):
                self.git.set_head(prefix + name)
                return

    def find(self, ref: str) -> pygit2.Commit:
        """A branch, tag, or any other word that git has for a commit."""
        try:
            found = self.git.revparse_single(ref).peel(pygit2.Commit)
        except (KeyError, ValueError, pygit2.GitError) as exc:
            raise Refusal(errno.ENOENT, "no-such-ref", f"there is no {ref!r} in {self.path}", "`git log --all` shows") from exc
        assert isinstance(found, pygit2.Commit)
        return found

    # -- what git cannot say

    def trees(self, commit: pygit2.Commit) -> Trees:
        return Trees(commit.tree_id, self._attributes().get(str(commit.id)))

    def keep_attributes(self, commit: pygit2.Oid, attributes: pygit2.Oid) -> None:
        """In memory, until `move` writes them down."""
        self._attributes()[str(commit)] = attributes

    def join_attributes(self, ref: str) -> None:
        """Takes those of another notes ref in as well."""
        self._attributes().update(self._read_attributes(ref))

    def _attributes(self) -> dict[str, pygit2.Oid]:
        if self._kept is None:
            self._kept = self._read_attributes(NOTES)
            self._noted = len(self._kept)
        return self._kept

    def _read_attributes(self, ref: str) -> dict[str, pygit2.Oid]:
        notes = self.target(ref)
        kept = self.read_tree(notes.tree_id).get(_KEPT) if notes is not None else None
        return {name.decode(): oid for name, (_, oid) in self.read_tree(kept[1]).items()} if kept else {}

    def write_notes(self, merged: str = "") -> None:
        """*merged*: another notes ref, whose history becomes part of this one's, so that a push goes forward."""
        kept = self._attributes()
        old, other = self.target(NOTES), self.target(merged) if merged else None
        goes_on = other is None or (old is not None and (old.id == other.id or self.git.descendant_of(old.id, other.id)))
        if goes_on and len(kept) == self._noted:
            return
        items = self.read_tree(old.tree_id) if old is not None else {}  # notes that people made are kept
        inner = self.write_tree({name.encode(): (_TREE_MODE, oid) for name, oid in kept.items()})
        items[_KEPT] = (_TREE_MODE, inner)
        parents = [found.id for found in (old, other) if found is not None]
        who = pygit2.Signature("agentfsd", "agentfs@localhost")
        tree = self.write_tree(items)
        self.move(NOTES, self.git.create_commit(None, who, who, "What git cannot say\n", tree, parents[: 1 if goes_on else 2]))
        self._noted = len(kept)

    def move(self, ref: str, oid: pygit2.Oid) -> bool:
        """Points a ref to a commit; False when it does so already."""
        old = self.target(ref)
        if old is not None and old.id == oid:
            return False
        self.git.references.create(ref, oid, force=True)
        return True


def damaged(what: str) -> Refusal:
    return Refusal(errno.EIO, "damaged-repository", what, "`git fsck` says more")


def check_name(name: bytes) -> None:
    """A repository may come from anywhere: Refusal for a name that leads out of its directory."""
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
        raise damaged(f"a tree holds the name {os.fsdecode(name[:200])!r}")


def trailer(commit: pygit2.Commit, key: str) -> str:
    """ "" when a commit has no such trailer."""
    return unquote(commit.message_trailers.get(key, ""))


def trailer_line(key: str, value: str) -> str:
    """One line, whatever is in the value."""
    return f"{key}: {''.join(char if char.isprintable() and char != '%' else quote(char) for char in value)}\n"


unquoted = unquote  # what `ref_name` was given


def ref_name(name: str) -> str:
    """The name of a branch or snapshot as git takes it: two dots, a dot or `.lock` at the end are escaped."""
    name = name.replace("..", ".%2E").replace("..", ".%2E")
    if name.endswith(".lock"):
        name = name.removesuffix(".lock") + "%2Elock"
    return name.removesuffix(".") + "%2E" if name.endswith(".") else name


def plain_name(name: str) -> str:
    """As near to a name from git as the name of a branch can be."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-")
    return plain[:128] or "imported"


def is_dotgit(path: bytes) -> bool:
    """Whether the last name is one that git never holds: `.git`, and what HFS+ or NTFS take for it."""
    for part in path.rpartition(b"/")[2].split(b"\\"):
        text = unicodedata.normalize("NFC", _IGNORED_BY_HFS.sub("", part.decode("utf-8", "replace"))).lower()
        if text.partition(":")[0].rstrip(" .") in (".git", "git~1"):
            return True
    return False
