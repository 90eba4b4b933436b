"""Write a directory as git objects: a git tree, and beside it a tree of the attributes that git cannot store.

This module does not know commits or refs. If the caller gives the trees of an earlier state and the paths that changed since, the
recorder lists only directories that contain a change and reads only changed files. It reuses the existing objects for everything
else.
"""

import io
import os
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
import pygit2

from agentfs_files.trees.directory_tree import Directory
from agentfs_files.trees.stored_tree import Stored, is_possible, store, stream
from agentfs_files.trees.tree_source import Step, TreeEntry
from agentfsd.exchange.repository import Items, Repository, Trees, check_name, damaged

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TREE, FILE, EXECUTABLE, LINK = 0o040000, 0o100644, 0o100755, 0o120000
ENTRIES, DIRECTORIES = b"entries", b"directories"

_STREAM_FROM_BYTES = 8 << 20


class ChangedPaths:
    """The paths that changed, and every directory on the way to them."""

    def __init__(self, paths: Iterable[bytes]) -> None:
        self.paths = frozenset(paths)
        self.directories = {b""}
        for path in self.paths:
            while path not in self.directories:
                self.directories.add(path)
                path = path.rpartition(b"/")[0]


class Recorder:
    """Write the tree of a source directory.

    Args:
        repository: the repository that receives the objects.
        source: the directory to record.
        base: the trees of an earlier state, whose objects can be reused.
        changed: the paths that changed since *base*; None if they are not known, and then every directory is listed.
        step: called after each entry with the number of entries so far.
    """

    def __init__(
        self, repository: Repository, source: Directory, base: Trees | None = None, changed: ChangedPaths | None = None,
        step: Step = lambda done, total: None,
    ) -> None:  # fmt: skip
        self._repository, self._source, self._step = repository, source, step
        self._base = base if base is not None and base.attributes is not None else None
        self._changed = changed if self._base is not None else None
        self._done = 0

    def record(self) -> Trees:
        root = self._source.root()
        old = self._base
        before = _Before(self._repository, old.content, old.attributes) if old is not None else _Before(self._repository)
        content, attributes = self._directory(root, before, [store(root, b"")])
        return Trees(content if content is not None else self._repository.write_tree({}), attributes)

    def _directory(self, directory: TreeEntry, before: "_Before", said: list[Stored]) -> tuple[pygit2.Oid | None, pygit2.Oid]:
        """Return the object numbers of the content and attribute trees. The content is None if git would store nothing."""
        content: Items = {}
        inner: Items = {}
        for entry in self._source.children(directory):
            said.append(store(entry, entry.name))
            self._done += 1
            self._step(self._done, 0)
            if entry.is_dir:
                tree, attributes = self._inner(entry, before)
                if tree is not None:
                    content[entry.name] = (TREE, tree)
                inner[entry.name] = (TREE, attributes)
            elif entry.is_file:
                mode = EXECUTABLE if entry.mode & stat.S_IXUSR else FILE
                content[entry.name] = (mode, before.blob(entry, self._changed) or self._file(entry))
            elif entry.is_link:
                content[entry.name] = (LINK, self._repository.write_blob(entry.target))
        beside: Items = {ENTRIES: (FILE, self._repository.write_blob(msgspec.json.encode(said)))}
        if inner:
            beside[DIRECTORIES] = (TREE, self._repository.write_tree(inner))
        return self._repository.write_tree(content) if content else None, self._repository.write_tree(beside)

    def _inner(self, entry: TreeEntry, before: "_Before") -> tuple[pygit2.Oid | None, pygit2.Oid]:
        content, attributes = before.directory(entry.name)
        if attributes is not None and self._changed is not None and entry.path not in self._changed.directories:
            return content, attributes
        return self._directory(entry, _Before(self._repository, content, attributes), [])

    def _file(self, entry: TreeEntry) -> pygit2.Oid:
        data = stream(self._source.chunks(entry), entry.size)
        if entry.size < _STREAM_FROM_BYTES:
            return self._repository.write_blob(b"".join(data))
        return self._repository.git.create_blob_fromiobase(_Joined(data))


class _Joined(io.RawIOBase):
    """Present an iterator of byte strings as a file that can be read once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        self._rest = self._rest or next(self._pieces, b"")
        part, self._rest = self._rest[: len(view)], self._rest[len(view) :]
        view[: len(part)] = part
        return len(part)


class _Before:
    """One directory as the earlier state recorded it."""

    def __init__(self, repository: Repository, content: pygit2.Oid | None = None, attributes: pygit2.Oid | None = None) -> None:
        self._repository = repository
        self._content = repository.read_tree(content)
        beside = repository.read_tree(attributes)
        self._inner = repository.read_tree(beside[DIRECTORIES][1]) if DIRECTORIES in beside else {}
        self._entries_blob = beside.get(ENTRIES)
        self._said: dict[bytes, Stored] | None = None

    def directory(self, name: bytes) -> tuple[pygit2.Oid | None, pygit2.Oid | None]:
        mode, oid = self._content.get(name, (0, None))
        return (oid if mode == TREE else None), self._inner.get(name, (0, None))[1]

    def blob(self, entry: TreeEntry, changed: ChangedPaths | None) -> pygit2.Oid | None:
        """Return the recorded object of a file whose content did not change; None if the file must be read."""
        mode, oid = self._content.get(entry.name, (0, None))
        if oid is None or mode not in (FILE, EXECUTABLE):
            return None
        if changed is not None and entry.path in changed.paths:
            return None
        said = self._entries().get(entry.name)
        if said is None or (said.size, said.mtime_ns) != (entry.size, entry.mtime_ns):
            return None  # written in the branch, or changed in the lower
        return oid if changed is not None or (entry.mtime_ns or 0) % 1_000_000_000 else None

    def _entries(self) -> dict[bytes, Stored]:
        if self._said is None:
            self._said = read_entries(self._repository, self._entries_blob[1]) if self._entries_blob else {}
        return self._said


def read_entries(repository: Repository, blob: pygit2.Oid) -> dict[bytes, Stored]:
    """Return the recorded attributes of each name in a directory. The entry of the root directory itself has the name b"".

    Raises:
        Refusal: the blob cannot be read, or it holds impossible attributes.
    """
    try:
        found = msgspec.json.decode(repository.read_blob(blob), type=list[Stored])
        said = {stored.path_bytes(): stored for stored in found}
    except (ValueError, RecursionError) as exc:  # msgspec's errors are ValueErrors
        raise damaged(f"what {repository.path} says of attributes cannot be read: {exc}") from exc
    for name, stored in said.items():
        if name:
            check_name(name)
        if not is_possible(stored):
            raise damaged(f"{repository.path} gives {os.fsdecode(name)!r} attributes that no file can have")
    return said
