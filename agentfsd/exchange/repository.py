"""Open a bare repository; read and write its trees byte for byte; find snapshots and recorded attributes in it.

A snapshot is a commit whose trailers describe the snapshot. Git cannot store empty directories, full modes, owners, times,
xattrs, hard links and special files. For each commit, `refs/notes/agentfs` therefore holds a tree that mirrors the directories.
Its blobs named `entries` hold the attributes of the names in one directory. Commits share the blobs of directories that did not
change.
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
    """The two trees of a commit: git's own, and the tree of attributes (None if agentfsd did not record the commit)."""

    content: pygit2.Oid
    attributes: pygit2.Oid | None


Oid: TypeAlias = pygit2.Oid  # Oid and Items are re-exported for modules that must not import pygit2
Commit: TypeAlias = pygit2.Commit

_O = TypeVar("_O", pygit2.Tree, pygit2.Blob, pygit2.Commit)

Items = dict[bytes, tuple[int, pygit2.Oid]]  # name -> (mode, object)


class Repository:
    """A local bare repository. Only `move` changes refs, and only after all objects have been written."""

    def __init__(self, path: str, git: pygit2.Repository, is_new: bool) -> None:
        self.path, self.git, self._is_new = path, git, is_new
        self._kept: dict[str, pygit2.Oid] | None = None
        self._noted = 0

    @classmethod
    def open(cls, path: str, *, make: bool) -> "Repository":
        """Open the bare repository at *path*.

        Args:
            path: directory of the repository.
            make: whether to create a repository if there is none.

        Raises:
            Refusal: there is no repository at *path*, it cannot be opened, or it has a working tree.
        """
        is_new = not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path))
        if is_new and not make:
            raise Refusal(errno.ENOENT, "no-repository", f"there is no git repository at {path}")
        try:
            git = pygit2.init_repository(path, bare=True, initial_head="main") if is_new else pygit2.Repository(path)
        except (pygit2.GitError, KeyError) as exc:
            raise Refusal(errno.EINVAL, "no-repository", f"{path} is not a git repository: {exc}") from exc
        except KeyboardInterrupt:  # it comes right after the call
            if is_new:
                shutil.rmtree(path, ignore_errors=True)
            raise
        if make and not git.is_bare:
            raise Refusal(
                errno.EINVAL, "not-bare", f"{path} has a working tree, which would not follow its branches",
                "name a bare repository, or a path where one can be made; or its URL with --push",
            )  # fmt: skip
        return cls(path, git, is_new)

    def undo(self) -> None:
        """Delete the repository if open() created it. Call this when the operation that needed it failed."""
        if self._is_new:
            shutil.rmtree(self.path, ignore_errors=True)

    # -- objects

    def read_tree(self, oid: pygit2.Oid | None) -> Items:
        if oid is None:
            return {}
        items = {entry.raw_name or b"": (int(entry.filemode), entry.id) for entry in self._object(oid, pygit2.Tree)}
        for name in items:
            check_name(name)
        return items

    def read_blob(self, oid: pygit2.Oid) -> memoryview:
        """Return the content of a blob. libgit2 holds all of it in memory."""
        return memoryview(self._object(oid, pygit2.Blob))

    def blob_size(self, oid: pygit2.Oid) -> int:
        return self._object(oid, pygit2.Blob).size

    def _object(self, oid: pygit2.Oid | str, kind: type[_O]) -> _O:
        try:
            item = self.git[oid]
        except (KeyError, pygit2.GitError) as exc:
            raise damaged(f"{self.path} lacks the object {oid}") from exc
        if not isinstance(item, kind):
            raise damaged(f"the object {oid} of {self.path} is no {kind.__name__.lower()}")
        return item

    def write_tree(self, items: Items) -> pygit2.Oid:
        """Write a tree object by hand, because pygit2 refuses names that are not UTF-8. Git sorts directories as if their names
        ended in a slash.
        """
        ordered = sorted(items.items(), key=lambda item: item[0] + b"/" * (item[1][0] in _GIT_TREE_MODES[:1]))
        return self.git.write(ObjectType.TREE, b"".join(b"%o %s\0%s" % (mode, name, oid.raw) for name, (mode, oid) in ordered))

    def write_blob(self, data: bytes) -> pygit2.Oid:
        return self.git.create_blob(data)

    def commit(self, oid: pygit2.Oid | str) -> pygit2.Commit:
        return self._object(oid, pygit2.Commit)

    # -- what is there

    def commits(self, prefixes: tuple[str, ...] = ("refs/heads/", "refs/tags/")) -> Iterator[pygit2.Commit]:
        """Yield every commit that refs with these prefixes reach, parents before children."""
        walker = self.git.walk(None, SortMode.TOPOLOGICAL | SortMode.REVERSE)
        for name in self.git.references:
            target = self.target(name)
            if name.startswith(prefixes) and target is not None:
                walker.push(target.id)
        yield from walker

    def snapshots(self, prefixes: tuple[str, ...]) -> dict[str, pygit2.Oid]:
        """Return the commits that are snapshots, by snapshot id."""
        commits = {}
        for commit in self.commits(prefixes):
            number = trailer(commit, SNAPSHOT)
            if number:
                commits[number] = commit.id
        return commits

    def refs(self, prefix: str) -> dict[str, pygit2.Commit]:
        """Return the commits of all refs below *prefix*, by the rest of their names."""
        commits = {}
        for name in sorted(self.git.references):
            target = self.target(name) if name.startswith(prefix) else None
            if target is not None:
                commits[name.removeprefix(prefix)] = target
        return commits

    def target(self, name: str) -> pygit2.Commit | None:
        """Return the commit that a ref points to, directly or through a tag; None if there is none."""
        try:
            commit = self.git.references[name].peel(pygit2.Commit)
        except (KeyError, pygit2.GitError):
            return None
        return commit if isinstance(commit, pygit2.Commit) else None

    def has(self, oid: pygit2.Oid) -> bool:
        return oid in self.git

    def point_head(self, prefix: str) -> None:
        """Point HEAD of a new repository to an existing branch, so that a clone checks something out."""
        if self.git.head_is_unborn:
            for name in self.refs(prefix):
                self.git.set_head(prefix + name)
                return

    def find(self, ref: str) -> pygit2.Commit:
        """Return the commit that a branch, tag or any other git revision names.

        Raises:
            Refusal: there is no such commit.
        """
        try:
            commit = self.git.revparse_single(ref).peel(pygit2.Commit)
        except (KeyError, ValueError, pygit2.GitError) as exc:
            raise Refusal(errno.ENOENT, "no-such-ref", f"there is no {ref!r} in {self.path}", "`git log --all` shows") from exc
        assert isinstance(commit, pygit2.Commit)
        return commit

    # -- attributes that git cannot store

    def trees(self, commit: pygit2.Commit) -> Trees:
        return Trees(commit.tree_id, self._attributes().get(str(commit.id)))

    def keep_attributes(self, commit: pygit2.Oid, attributes: pygit2.Oid) -> None:
        """Remember the attribute tree of a commit in memory until `write_notes` stores it."""
        self._attributes()[str(commit)] = attributes

    def join_attributes(self, ref: str) -> None:
        """Add the attributes that another notes ref records."""
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
        """Write the remembered attributes to the notes ref, if there are new ones.

        Args:
            merged: another notes ref, which becomes a second parent, so that a push to its remote is a fast-forward.
        """
        kept = self._attributes()
        old, other = self.target(NOTES), self.target(merged) if merged else None
        goes_on = other is None or (old is not None and (old.id == other.id or self.git.descendant_of(old.id, other.id)))
        if goes_on and len(kept) == self._noted:
            return
        items = self.read_tree(old.tree_id) if old is not None else {}  # keep notes that people wrote
        inner = self.write_tree({name.encode(): (_TREE_MODE, oid) for name, oid in kept.items()})
        items[_KEPT] = (_TREE_MODE, inner)
        parents = [note.id for note in (old, other) if note is not None]
        who = pygit2.Signature("agentfsd", "agentfs@localhost")
        tree = self.write_tree(items)
        self.move(NOTES, self.git.create_commit(None, who, who, "What git cannot say\n", tree, parents[: 1 if goes_on else 2]))
        self._noted = len(kept)

    def move(self, ref: str, oid: pygit2.Oid) -> bool:
        """Point a ref to a commit. Return False if it already points there."""
        old = self.target(ref)
        if old is not None and old.id == oid:
            return False
        self.git.references.create(ref, oid, force=True)
        return True


def damaged(what: str) -> Refusal:
    return Refusal(errno.EIO, "damaged-repository", what, "`git fsck` says more")


def check_name(name: bytes) -> None:
    """Refuse a name that would lead out of its directory. A repository may come from anywhere.

    Raises:
        Refusal: *name* is such a name.
    """
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
        raise damaged(f"a tree holds the name {os.fsdecode(name[:200])!r}")


def trailer(commit: pygit2.Commit, key: str) -> str:
    """Return the value of a commit's trailer, "" if the commit does not have it."""
    return unquote(commit.message_trailers.get(key, ""))


def trailer_line(key: str, value: str) -> str:
    """Return a trailer as one line, whatever *value* contains."""
    return f"{key}: {''.join(char if char.isprintable() and char != '%' else quote(char) for char in value)}\n"


unquoted = unquote  # the inverse of ref_name()


def ref_name(name: str) -> str:
    """Escape the name of a branch or snapshot for git, which refuses two dots, and a dot or `.lock` at the end."""
    name = name.replace("..", ".%2E").replace("..", ".%2E")
    if name.endswith(".lock"):
        name = name.removesuffix(".lock") + "%2Elock"
    return name.removesuffix(".") + "%2E" if name.endswith(".") else name


def plain_name(name: str) -> str:
    """Return the valid branch name that is most similar to a name from git."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-")
    return plain[:128] or "imported"


def is_dotgit(path: bytes) -> bool:
    """Tell whether git refuses to store the last name of *path*: `.git`, or a name that HFS+ or NTFS treat as `.git`."""
    for part in path.rpartition(b"/")[2].split(b"\\"):
        text = unicodedata.normalize("NFC", _IGNORED_BY_HFS.sub("", part.decode("utf-8", "replace"))).lower()
        if text.partition(":")[0].rstrip(" .") in (".git", "git~1"):
            return True
    return False
