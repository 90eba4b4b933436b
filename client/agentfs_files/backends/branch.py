"""A branch of a running agentfsd as a file system: through its mount if this process sees one, else over the socket.

The daemon does snapshots, restore and diff, in a time that does not depend on the number of files. After a restart of the daemon,
the next operation connects again.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, DaemonGoneError, NotFoundError
from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.backends.branch_bulk import ReadAlready, archive_tree, batches, small_contents, tree_for_many
from agentfs_files.backends.branch_descriptors import open_fd
from agentfs_files.backends.branch_gone import SafeSink, SafeSource
from agentfs_files.backends.branch_reach import CONTROL_DIR, BranchReach
from agentfs_files.backends.branch_records import check_ours, paths, record_of, sentence, uuid_of
from agentfs_files.backends.branch_remote import RemoteTree
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.filesystem.file_results import FileEntry, FileStat, WriteMode
from agentfs_files.filesystem.file_streams import Sink, Source
from agentfs_files.filesystem.filesystem_errors import (
    ArchiveError,
    SnapshotCreationError,
    SnapshotError,
    SnapshotNotFoundError,
    SnapshotRestoreError,
)
from agentfs_files.filesystem.records import FilesystemDiff, FilesystemSnapshot
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS, Limits
from agentfs_files.filesystem.virtual_paths import refusal
from agentfs_files.remote_files import RemoteFiles

if TYPE_CHECKING:
    from agentfs_files.archive.unpack import Archive
    from agentfs_files.trees.tree_source import TreeSource

_T = TypeVar("_T")


class BranchFilesystem(BaseFilesystem):
    """The files of a branch.

    Args:
        branch: name or id; None means the branch that this process is bound to, else ``main``.
        create: whether to create a missing branch.
        source: the ref to create it from; None means the present ``main``.
        mount: the mount to use; else AGENTFS_MOUNT, the one around the current directory, or the only one.
        socket: path of a daemon's socket, for processes that see no mount.
        count_files: whether snapshots count their files, and diff() counts equal files. This takes time for every file. If false,
            these numbers are 0.
        keep_rules: keep the branch's rules by path, as a process that is bound to it must. If there are any when the branch is
            reached, files go over the socket. False: see all files, as a person does outside all branches.

    ``root`` is the mount point; over the socket it is ``/``. Threads may share the object; over the socket the daemon answers
    them one after the other. A forked child connects by itself. While open, the object counts as a user of the mount, so close()
    it.

    Raises:
        NotFoundError: there is no such mount or branch.
        DaemonGoneError: the daemon cannot be reached. This is also a RuntimeError.
    """

    def __init__(
        self,
        branch: str | None = None,
        *,
        mount: str | os.PathLike[str] | None = None,
        socket: str | os.PathLike[str] | None = None,
        create: bool = False,
        source: str | None = None,
        count_files: bool = False,
        keep_rules: bool = True,
        read_only: bool = False,
        mount_point: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(read_only=read_only, mount_point=mount_point, limits=limits)
        self._way = BranchReach(mount, socket, self.limits, keeps_rules=keep_rules)
        self._counts = count_files
        self._restored = ("", "")  # (the daemon's newest snapshot at the last restore, the snapshot restored then)
        self._way.begin(branch, source, create=create)

    def close(self) -> None:
        """Release the mount and end the conversation. The branch and its snapshots stay. May be called again."""
        self._way.close()

    # -- what it is

    @property
    def root(self) -> str:
        return self._way.root

    @property
    def branch(self) -> str:
        """Name of the branch."""
        return self._way.name

    @property
    def branch_id(self) -> str:
        return self._way.branch_id

    @property
    def is_mounted(self) -> bool:
        """Whether file operations use the mount; otherwise they use the socket."""
        return isinstance(self._way.reach()[1], HostFilesystem)

    def check_there(self) -> None:
        """Raise NotFoundError if the branch has been discarded, and DaemonGoneError if the daemon cannot be reached."""
        self._last()

    def open_fd(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Return a descriptor of a regular file, like os.open(). The caller closes it.

        If the daemon forwards descriptors (`agentfsd interpose`), this is a descriptor of the content object: reads and writes
        bypass the daemon, locks and os.fstat() concern the content object, and ControlClient.sync_fd() makes the name durable.
        Otherwise it is a descriptor of the mount.

        Raises:
            NotForwardedError: neither is available.
        """
        where = self._normalize(path)
        self._check_opening(where, flags)
        changes = bool(flags & (os.O_CREAT | os.O_TRUNC))
        _check_no_control(where, changes)

        def act(client: ControlClient, tree: HostFilesystem | RemoteTree) -> int:
            mount = tree if isinstance(tree, HostFilesystem) else None
            return open_fd(RemoteFiles(client, self.branch_id), mount, where, flags, mode)

        return self._way.attempt(act, changes=changes)

    # -- what BaseFilesystem asks for

    def _do(self, act: Callable[[HostFilesystem | RemoteTree], _T], path: str, *, changes: bool = False) -> _T:
        """Perform an operation on the branch's files."""
        _check_no_control(path, changes)
        return self._way.attempt(lambda _, tree: act(tree), changes=changes)

    def _stat(self, path: str) -> FileStat:
        return self._do(lambda tree: tree._stat(path), path)

    def _stat_name(self, path: str) -> FileStat:
        return self._do(lambda tree: tree._stat_name(path), path)

    def _scan(self, path: str) -> list[FileEntry]:
        return self._do(lambda tree: list(tree._scan(path)), path)

    def _walk(self, path: str, depth: int | None = None) -> Iterator[str]:
        _check_no_control(path, False)

        def act(client: ControlClient, tree: HostFilesystem | RemoteTree) -> list[str]:
            return list(tree_for_many(client, tree, self.branch_id)._walk(path, depth))

        return iter(self._way.attempt(act, changes=False))

    def _contents(self, paths: Iterable[str]) -> Iterator[tuple[str, Source]]:
        for some in batches(paths):
            for path, content in zip(some, self._small(some), strict=True):
                if content is None:
                    yield from super()._contents([path])
                else:
                    yield path, ReadAlready(content)

    def _small(self, paths: list[str]) -> list[bytes | None]:
        return self._way.attempt(lambda client, tree: small_contents(client, tree, self.branch_id, paths), changes=False)

    def _open_read(self, path: str) -> Source:
        return SafeSource(self._do(lambda tree: tree._open_read(path), path))

    def _open_write(self, path: str, mode: WriteMode) -> Sink:
        return SafeSink(self._do(lambda tree: tree._open_write(path, mode), path, changes=True))

    def _move(self, source: str, destination: str) -> None:
        if destination.split("/")[0] == CONTROL_DIR:
            raise refusal(errno.EPERM, destination)
        self._do(lambda tree: tree._move(source, destination), source, changes=True)

    def _make_directory(self, path: str) -> None:
        self._do(lambda tree: tree._make_directory(path), path, changes=True)

    def _remove_file(self, path: str) -> None:
        self._do(lambda tree: tree._remove_file(path), path, changes=True)

    def _remove_tree(self, path: str) -> None:
        _check_no_control(path, True)
        self._way.attempt(lambda client, _: RemoteTree(client, self.branch_id)._remove_tree(path), changes=True)

    # -- archives

    def _locate(self, path: str) -> bytes | None:
        return self._way.reach()[1]._locate(path)

    def _archive_tree(self) -> "AbstractContextManager[TreeSource]":
        client, tree = self._way.reach()
        return archive_tree(client, tree, self.branch_id) if isinstance(tree, HostFilesystem) else tree._archive_tree()

    def _replace_all(self, archive: "Archive") -> int:
        """Write only the files that differ. Before that take a snapshot, to restore if the import fails, and delete it
        afterwards.
        """
        if archive.find(os.fsencode(CONTROL_DIR)) is not None:
            raise ArchiveError(f"{archive.path} is refused: it holds {CONTROL_DIR}, which at the root is agentfsd's own")
        before = self.snapshot()
        try:
            count = self._way.reach()[1]._overwrite(archive)
        except BaseException as exc:
            self._go_back(before, exc)
            raise
        self._forget(before)
        return count

    def _go_back(self, snapshot: FilesystemSnapshot, failure: BaseException) -> None:
        try:
            self.restore(snapshot)
        except (AgentFSError, SnapshotError) as exc:
            what = (
                f"the import failed ({failure}), and so did going back ({exc}); snapshot {snapshot.commit_ref} has what was there"
            )
            raise OSError(errno.EIO, what) from exc
        self._forget(snapshot)

    def _forget(self, snapshot: FilesystemSnapshot) -> None:
        try:
            self.delete_snapshot(snapshot)
        except (AgentFSError, SnapshotNotFoundError):
            pass  # the snapshot stays, which does no harm

    # -- snapshots

    def snapshot(self, *, tag: str | None = None, keep: bool = False) -> FilesystemSnapshot:
        """Take a snapshot in O(1), unless files are counted. ``commit_ref`` is its id, which every agentfsd command accepts. With
        *keep*, retention does not delete it.
        """
        try:
            made = self._way.ask(lambda client: client.create_snapshot(self.branch_id, tag=tag or "", keep=keep), changes=True)
        except DaemonGoneError:
            raise
        except AgentFSError as exc:
            raise SnapshotCreationError(sentence("no snapshot could be taken", exc)) from exc
        record = self._record(made)
        if not self._counts:
            return record
        counted = self._way.ask(lambda client: RemoteFiles(client, made.id).count())
        return replace(record, file_count=counted.files, total_bytes=counted.size_bytes)

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        """Restore a snapshot in O(1). The previous state is kept in a snapshot: `agentfsd undo` brings it back."""
        self._check_writable("")
        check_ours(snapshot)
        try:
            self._way.ask(lambda client: client.restore(snapshot.commit_ref, self.branch_id))
        except DaemonGoneError:
            raise
        except NotFoundError as exc:
            raise SnapshotNotFoundError(sentence(f"there is no snapshot {snapshot.commit_ref}", exc)) from exc
        except AgentFSError as exc:
            raise SnapshotRestoreError(sentence(f"snapshot {snapshot.commit_ref} could not be restored", exc)) from exc
        self._restored = (self._last(), snapshot.commit_ref)

    def diff(self, base: FilesystemSnapshot | None, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        """Compare two states. Takes time for each change; with ``count_files`` for each name.

        Args:
            base: a snapshot; None means what the branch was created over.
            target: a snapshot; None means the present state.
        """
        changes = self._compare(base, target, lambda client, old, new: client.changed_files(new, old, count=self._counts))
        added, modified, deleted = (paths(names) for names in (changes.added, changes.modified, changes.deleted))
        return FilesystemDiff(added, modified, deleted, max(0, changes.unchanged))

    def diff_with_git(
        self, base: FilesystemSnapshot | None = None, target: FilesystemSnapshot | None = None
    ) -> tuple[FilesystemDiff, list[str]]:
        """Compare two states like diff(), without git's own files, and say in sentences what was committed with git."""
        changes = self._compare(
            base, target, lambda client, old, new: client.changed_files(new, old, histories=True, internal=False)
        )
        added, modified, deleted = (paths(names) for names in (changes.added, changes.modified, changes.deleted))
        git = [f"{one.path}: {one.sentence}" if one.path else one.sentence for one in changes.repositories]
        return FilesystemDiff(added, modified, deleted, 0), git

    def patch(
        self, base: FilesystemSnapshot | None = None, target: FilesystemSnapshot | None = None, *, internal: bool = True
    ) -> str:
        """Return the changes of diff() as a git patch. Bytes that are not UTF-8 are replaced. Without *internal*, git's own
        files are left out.
        """
        found = self._compare(base, target, lambda client, old, new: client.patches(new, old, internal=internal))
        return b"".join(file.patch for file in found).decode("utf-8", "replace")

    def _compare(
        self, base: FilesystemSnapshot | None, target: FilesystemSnapshot | None,
        ask: Callable[[ControlClient, str | None, str], _T],
    ) -> _T:  # fmt: skip
        """Call *ask* with the refs of both sides."""
        for snapshot in (base, target):
            if snapshot is not None:
                check_ours(snapshot)
        old = base.commit_ref if base is not None else None
        new = target.commit_ref if target is not None else self.branch_id
        try:
            return self._way.ask(lambda client: ask(client, old, new))
        except DaemonGoneError:
            raise
        except NotFoundError as exc:
            raise SnapshotNotFoundError(sentence("a snapshot that is to be compared is gone", exc)) from exc
        except AgentFSError as exc:
            raise SnapshotError(sentence("they cannot be compared", exc)) from exc

    @property
    def current_snapshot_id(self) -> UUID | None:
        last = self._meant(self._last())
        return uuid_of(last) if last else None

    def _last(self) -> str:
        return self._way.ask(lambda client: client.show_branch(self.branch_id)).last

    def _meant(self, number: str) -> str:
        """Map the daemon's snapshot to the one that was restored. Of snapshots without changes between them the daemon reports
        the newest.
        """
        return self._restored[1] if number == self._restored[0] else number

    def log(self) -> list[FilesystemSnapshot]:
        """Return the snapshots in the branch's history, newest first, whoever took them."""
        return [self._record(found) for found in self._way.ask(lambda client: client.log(self.branch_id))]

    def find_snapshot(self, ref: str) -> FilesystemSnapshot:
        """Return a snapshot by name or id. Raises SnapshotNotFoundError."""
        try:
            return self._record(self._way.ask(lambda client: client.show_snapshot(ref)))
        except NotFoundError as exc:
            raise SnapshotNotFoundError(sentence(f"there is no snapshot {ref}", exc)) from exc

    def delete_snapshot(self, snapshot: FilesystemSnapshot) -> None:
        """Delete a snapshot, and free the content that only it held. Raises SnapshotNotFoundError."""
        check_ours(snapshot)
        try:
            self._way.ask(lambda client: client.delete_snapshot(snapshot.commit_ref), changes=True)
        except NotFoundError as exc:
            raise SnapshotNotFoundError(sentence(f"there is no snapshot {snapshot.commit_ref}", exc)) from exc

    # -- notes

    def notes(self, *, resolved: bool = False) -> list[wire.BranchNote]:
        """Return the open notes about the branch, oldest first; with *resolved*, then the others."""
        return self._way.ask(lambda client: client.list_notes(self.branch_id, resolved=resolved))

    def add_note(self, text: str, *, path: str = "", line: int = 0, last_line: int = 0) -> wire.BranchNote:
        """Add a note about the branch, a path in it, or lines of a file. See ControlClient.add_note()."""
        where = os.fsencode(self._normalize(path)) if path else b""
        return self._way.ask(
            lambda client: client.add_note(text, self.branch_id, path=where, line=line, last_line=last_line), changes=True
        )

    def reply_note(self, number: int, text: str) -> wire.BranchNote:
        """Answer a note."""
        return self._way.ask(lambda client: client.reply_note(number, text), changes=True)

    def resolve_note(self, number: int, *, resolved: bool = True) -> wire.BranchNote:
        """Settle a note, or open it again. A process that is bound to the branch may do so with notes of its own only."""
        return self._way.ask(lambda client: client.resolve_note(number, resolved=resolved))

    def discard(self, *, keep: bool = True) -> None:
        """Delete the branch with its changes, and close this object. ``main`` is not deleted but emptied. With *keep*, `agentfsd
        undo` can bring the changes back.
        """
        self._way.ask(lambda client: client.discard(self.branch_id, keep=keep), changes=True)
        self.close()

    def _record(self, snapshot: wire.BranchSnapshot) -> FilesystemSnapshot:
        return record_of(snapshot, self._meant(snapshot.parent), self.root)


def _check_no_control(path: str, changes: bool) -> None:
    if path == CONTROL_DIR or path.startswith(CONTROL_DIR + "/"):
        raise refusal(errno.EPERM if changes else errno.ENOENT, path)
