"""Snapshots as commits in a bare repository outside the root, written with libgit2. No git program is needed.

Each commit's tree is the directory, plus a manifest for what git cannot store: owners, times, full modes, empty directories, hard
links, extended attributes. Commits have no parent, so one can be deleted without affecting another.
"""

import hashlib
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Final
from uuid import UUID

import msgspec

from agentfs_files.filesystem.filesystem_errors import SnapshotCreationError, SnapshotNotFoundError, SnapshotRestoreError
from agentfs_files.filesystem.records import SnapshotStrategy
from agentfs_files.snapshots import file_contents
from agentfs_files.snapshots.build import Into
from agentfs_files.snapshots.git_names import MANIFEST, to_git
from agentfs_files.snapshots.index import Index, decode, encode
from agentfs_files.snapshots.indexed_strategy import IndexedStrategy
from agentfs_files.snapshots.snapshot_tree import Scan, SnapshotEntry, capture
from agentfs_host.descent import Descent

_Items = dict[bytes, tuple[int, bytes]]  # name in git -> (mode in git, object)
_DIRECTORY, _FILE, _PROGRAM, _LINK = 0o040000, 0o100644, 0o100755, 0o120000
_COMMIT_OBJECT, _TREE_OBJECT = 1, 2
_REFS: Final = "refs/snapshots/"
_WHOLE: Final = 4 << 20  # larger files are streamed
_AUTHOR: Final = "agentfs <agentfs@localhost>"


class GitStrategy(IndexedStrategy):
    kind = SnapshotStrategy.GIT
    is_exact = True

    def __init__(self, git_dir: str) -> None:
        """Open the repository, or create it if there is none."""
        try:
            import pygit2
        except ImportError as exc:
            raise SnapshotCreationError("snapshots by git need pygit2: pip install 'agentfsd[git]'") from exc

        self.git_dir = git_dir
        self.home = os.path.join(git_dir, "agentfs")
        is_there = os.path.exists(os.path.join(git_dir, "HEAD"))
        try:
            self._git = pygit2.Repository(git_dir) if is_there else pygit2.init_repository(git_dir, bare=True)
        except pygit2.GitError as exc:
            raise SnapshotCreationError(f"{git_dir} is not a git repository: {exc}") from exc
        os.makedirs(self.home, mode=0o700, exist_ok=True)
        self._kept: dict[str, set[bytes]] = {}  # commit -> all objects it needs

    def keep(self, beneath: Descent, snapshot_id: UUID, tag: str | None, index: Index) -> tuple[str, list[SnapshotEntry]]:
        entries, top = self._write_trees(self._write_files(beneath, index))
        top[MANIFEST] = (_FILE, self._git.create_blob(encode(entries)).raw)
        tree = self._git.write(_TREE_OBJECT, _tree(top))
        stamp = f"{_AUTHOR} {int(time.time())} +0000"
        text = f"tree {tree}\nauthor {stamp}\ncommitter {stamp}\n\n{_message(tag, snapshot_id)}"
        commit = str(self._git.write(_COMMIT_OBJECT, text.encode("utf-8", "replace")))
        self._git.references.create(_REFS + str(snapshot_id), commit)
        return commit, entries

    def load(self, ref: str) -> list[SnapshotEntry]:
        _, _, manifest = self._skeleton(ref)
        try:
            return decode(b"".join(self._read(manifest)))
        except (ValueError, msgspec.MsgspecError) as exc:
            raise SnapshotRestoreError(f"the manifest of commit {ref} in {self.git_dir} is damaged: {exc}") from exc

    def fill(self, ref: str, files: Sequence[SnapshotEntry], into: Into) -> None:
        try:
            for entry in files:
                with into(entry) as fd:
                    file_contents.write(fd, self._read(entry.content), is_sparse=entry.is_sparse)
        except KeyError as exc:
            raise SnapshotRestoreError(f"an object is missing in {self.git_dir}: {exc.args[0]}") from exc

    def holds(self, ref: str, entry: SnapshotEntry, fd: int) -> bool:
        digest = hashlib.sha1(b"blob %d\0" % entry.size, usedforsecurity=False)
        for data in file_contents.chunks(fd):
            digest.update(data)
        return digest.digest() == entry.content

    def is_same(self, ref: str, entry: SnapshotEntry, other_ref: str, other: SnapshotEntry) -> bool:
        return entry.content == other.content

    def delete(self, ref: str, remaining: Iterable[str]) -> None:
        """Delete a snapshot and the objects that only it needs. Objects that another program has packed stay."""
        objects = self._objects(ref)
        for name in list(self._git.references):
            if name.startswith(_REFS) and str(self._git.references[name].target) == ref:
                self._git.references.delete(name)
        for other in remaining:
            objects -= self._objects(other)
        self._kept.pop(ref, None)
        for oid in objects:
            try:
                os.unlink(self._loose(oid))
            except FileNotFoundError:
                pass

    # -- writing

    def _write_files(self, beneath: Descent, index: Index) -> list[SnapshotEntry]:
        """Write the contents of all files and symlinks to the repository, and return the entries."""
        scan = Scan(beneath, index.known())
        entries = []
        for entry in scan:
            kept: SnapshotEntry | None = entry
            if entry.is_file and not entry.content:
                kept = capture(beneath, entry.path, scan.horizon_ns, self._write_blob)
            elif entry.is_link and not entry.content:
                kept = msgspec.structs.replace(entry, content=self._git.create_blob(entry.target).raw)
            if kept is not None:
                entries.append(kept)
        return entries

    def _write_blob(self, fd: int) -> tuple[bytes, int]:
        size = os.fstat(fd).st_size
        if size <= _WHOLE:
            data = os.read(fd, size + 1)
            return self._git.create_blob(data).raw, len(data)
        with open(fd, "rb", closefd=False) as file:
            return self._git.create_blob_fromiobase(file).raw, file.tell()

    def _write_trees(self, entries: list[SnapshotEntry]) -> tuple[list[SnapshotEntry], _Items]:
        """Return the entries, with each directory's tree as its content, and the items of the top tree. git stores no empty
        directory.
        """
        inside: dict[bytes, _Items] = {entry.path: {} for entry in entries if entry.is_dir}
        done = []
        for entry in reversed(entries):
            mode = _mode(entry)
            if entry.is_dir and entry.path and inside[entry.path]:
                entry = msgspec.structs.replace(entry, content=self._git.write(_TREE_OBJECT, _tree(inside[entry.path])).raw)
            if entry.content and mode and entry.path:
                inside[entry.parent][to_git(entry.name)] = (mode, entry.content)
            done.append(entry)
        done.reverse()
        return done, inside[b""]

    # -- reading

    def _skeleton(self, ref: str) -> tuple[bytes, bytes, bytes]:
        """Return commit, tree and manifest of a snapshot."""
        try:
            commit = bytes.fromhex(ref)
            text = b"".join(self._read(commit))
        except (ValueError, KeyError) as exc:
            raise SnapshotNotFoundError(f"there is no commit {ref} in {self.git_dir}") from exc
        try:
            tree = bytes.fromhex(text.removeprefix(b"tree ")[:40].decode("ascii"))
            _, found, rest = b"".join(self._read(tree)).partition(b" %s\0" % MANIFEST)
        except (ValueError, KeyError) as exc:
            raise SnapshotRestoreError(f"commit {ref} in {self.git_dir} is damaged") from exc
        if not found:
            raise SnapshotNotFoundError(f"commit {ref} in {self.git_dir} is not a snapshot")
        return commit, tree, rest[:20]

    def _read(self, oid: bytes) -> Iterator[bytes]:
        """Yield an object: in pieces from its own file, or as a whole if it was packed. Raises KeyError if it is missing.

        libgit2 would hold all of it in memory, and never returns from a truncated file.
        """
        try:
            file = open(self._loose(oid), "rb")  # noqa: SIM115  # the reader closes it
        except FileNotFoundError:
            return iter((self._git.read(oid.hex())[1],))
        return _inflate(file, oid)

    def _objects(self, ref: str) -> set[bytes]:
        """Return all objects that a commit needs."""
        if ref not in self._kept:
            self._kept[ref] = {entry.content for entry in self.load(ref) if entry.content} | set(self._skeleton(ref))
        return set(self._kept[ref])

    def _loose(self, oid: bytes) -> str:
        name = oid.hex()
        return os.path.join(self.git_dir, "objects", name[:2], name[2:])


def _inflate(file: BinaryIO, oid: bytes) -> Iterator[bytes]:
    with file:
        inflate, digest, is_header = zlib.decompressobj(), hashlib.sha1(usedforsecurity=False), True
        try:
            while not inflate.eof:
                packed = inflate.unconsumed_tail or file.read(file_contents.CHUNK)
                data = inflate.decompress(packed, file_contents.CHUNK)
                if not packed and not data:
                    break
                digest.update(data)
                yield data.partition(b"\0")[2] if is_header else data
                is_header = False
        except zlib.error as exc:
            raise SnapshotRestoreError(f"{file.name} is damaged: {exc}") from exc
        if digest.digest() != oid:
            raise SnapshotRestoreError(f"{file.name} is damaged, or cut off")


def _mode(entry: SnapshotEntry) -> int:
    """Return the mode in git; 0 for a type that git cannot store."""
    if entry.is_dir:
        return _DIRECTORY
    if entry.is_link:
        return _LINK
    return 0 if not entry.is_file else _PROGRAM if entry.mode & 0o100 else _FILE


def _tree(items: _Items) -> bytes:
    """Build a tree object by hand, because pygit2 refuses names that are not UTF-8. Git sorts directories as if their names ended
    in a slash.
    """
    ordered = sorted(items.items(), key=lambda item: item[0] + b"/" if item[1][0] == _DIRECTORY else item[0])
    return b"".join(b"%o %s\0%s" % (mode, name, oid) for name, (mode, oid) in ordered)


def _message(tag: str | None, snapshot_id: UUID) -> str:
    title = " ".join((tag or "snapshot").split()) or "snapshot"
    return f"{title}\n\nAgentfs-Snapshot: {snapshot_id}\n".replace("\0", " ")
