"""A branch of a running agentfsd as a file system: through its mount where this process sees one, over the socket where not.

Snapshots, restore and diff are the daemon's, and take the same time however many files there are. A daemon that was restarted is
found again by the next operation.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import UUID

from agentfs_client import locate, wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, DaemonGoneError, NotFoundError
from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.backends.branch_descriptors import open_fd
from agentfs_files.backends.branch_gone import UNREACHED, SafeSink, SafeSource, gone, is_gone
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
from agentfs_host.mount_table import FSTYPE, Mounted, mount_at

if TYPE_CHECKING:
    from agentfs_files.archive.unpack import Archive
    from agentfs_files.trees.tree_source import TreeSource

_CONTROL_DIR = ".agentfs"

_T = TypeVar("_T")


class BranchFilesystem(BaseFilesystem):
    """``branch``: by name or id; None is the one that this process is bound to, else ``main``. ``create`` makes it where it is
    missing, from the ref ``source`` (None: ``main`` as it is then).

    ``mount`` says which mount, else it is AGENTFS_MOUNT's, the one around the current directory, or the only one; ``socket`` is
    the path of a daemon's socket, for where nothing of the mount is to be seen. ``root`` is the mount point, and ``/`` over the
    socket. With ``count_files`` snapshots know how many files they hold, and diff() how many are the same: that takes as long as
    there are files, and without it those numbers are 0.

    Threads may share it; over the socket they are answered one after the other. A forked child reaches the daemon by itself.

    As long as it is open it counts as a user of the mount: close() it. NotFoundError when there is no such mount or branch;
    DaemonGoneError, which is a RuntimeError, when the daemon is out of reach.
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
        read_only: bool = False,
        mount_point: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(read_only=read_only, mount_point=mount_point, limits=limits)
        if mount is not None and socket is not None:
            raise ValueError("give mount or socket, not both: a socket says which daemon is meant")
        self._mount = None if mount is None else os.path.abspath(mount)
        self._socket = None if socket is None else os.path.abspath(socket)
        self._tree: HostFilesystem | RemoteTree | None = None
        self._client: ControlClient | None = None
        self._root = "/"
        self._reaching = threading.Lock()
        self._is_closed, self._counts = False, count_files
        self._restored = ("", "")  # what the daemon called the newest snapshot then, and which one that was restored
        client = self._converse()
        try:
            found = _branch_of(client, branch, source, create=create)
            self._id, self._name = found.id, found.name
            self._tree = self._choose(client, found)
        except BaseException:
            self.close()
            raise

    # -- reaching the daemon

    def _converse(self) -> ControlClient:
        """A new conversation; which mount it is about is settled by the first one."""
        if self._is_closed:
            raise ValueError("I/O operation on closed file system")
        if self._socket is not None:
            self._client = ControlClient.connect(self._socket)
            return self._client
        found = locate.find(self._mount)
        self._client, self._mount = found.connect(), found.mountpoint
        return self._client

    def _choose(self, client: ControlClient, found: wire.Branch) -> HostFilesystem | RemoteTree:
        """The mount, when this process sees it and may look at the branch there."""
        mounted = mount_at(self._mount) if self._mount is not None else None
        root = self._shown_at(client, found, mounted) if mounted is not None and mounted.fstype == FSTYPE else None
        if root is not None:
            try:
                tree = HostFilesystem(root, limits=self.limits)
            except OSError:
                pass  # somebody else's mount, which this process may not enter
            else:
                self._root = self._mount or root
                return tree
        self._root = "/"
        return RemoteTree(client, found.id, self.limits)

    @staticmethod
    def _shown_at(client: ControlClient, found: wire.Branch, mounted: Mounted) -> str | None:
        """Where this branch is shown, and no other ever will be; None for nowhere."""
        control = os.path.join(mounted.mountpoint, _CONTROL_DIR)
        if not client.hello.bound:
            return os.path.join(control, "branches", found.name)
        is_private = mounted.root != "/" or mount_at(control) is not None
        return mounted.mountpoint if is_private else None  # there the process sees another branch when it is bound anew

    def _reach(self) -> tuple[ControlClient, HostFilesystem | RemoteTree]:
        """The daemon and the branch as they can be reached now."""
        with self._reaching:
            if self._client is not None and self._tree is not None and self._client.is_usable:
                return self._client, self._tree
            self._let_go()
            try:
                client = self._converse()
                found = client.show_branch(self._id)
                self._name, self._tree = found.name, self._choose(client, found)
            except NotFoundError as exc:
                self._let_go()
                raise DaemonGoneError(exc.errno or errno.ENOENT, exc.code, exc.message, exc.hint) from exc
            except BaseException:
                self._let_go()
                raise
            return client, self._tree

    def _let_go(self) -> None:
        """The tree closes itself when no other thread is in it any more."""
        if self._client is not None:
            self._client.close()
        self._tree = self._client = None

    def _give_up(self, client: ControlClient) -> None:
        """That conversation has failed; another thread may have begun a new one."""
        with self._reaching:
            if self._client is client:
                self._let_go()

    def _do(self, act: Callable[[HostFilesystem | RemoteTree], _T], path: str, *, changes: bool = False) -> _T:
        """Does something with the branch's files."""
        _check_no_control(path, changes)
        return self._attempt(lambda _, tree: act(tree), changes=changes)

    def _ask(self, act: Callable[[ControlClient], _T], *, changes: bool = False) -> _T:
        return self._attempt(lambda client, _: act(client), changes=changes)

    def _attempt(self, act: Callable[[ControlClient, HostFilesystem | RemoteTree], _T], *, changes: bool) -> _T:
        """What has not reached a daemon that is gone is done with the one after it; what only looks, in any case."""
        reached = self._reach()
        try:
            return act(*reached)
        except OSError as exc:
            if not is_gone(exc):
                raise
            self._give_up(reached[0])
            if changes and exc.errno not in UNREACHED:
                raise gone("nobody can say whether that was still done") from exc
        reached = self._reach()
        try:
            return act(*reached)
        except OSError as exc:
            if isinstance(exc, AgentFSError) or not is_gone(exc):
                raise
            raise gone("is it being restarted?") from exc

    def close(self) -> None:
        """Frees the mount and ends the conversation; the branch and its snapshots stay. May be called again."""
        self._is_closed = True
        if self._tree is not None:
            self._tree.close()
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- what it is

    @property
    def root(self) -> str:
        return self._root

    @property
    def branch(self) -> str:
        """The branch's name."""
        return self._name

    @property
    def branch_id(self) -> str:
        return self._id

    @property
    def is_mounted(self) -> bool:
        """Whether files go through the mount; else they go over the socket."""
        return isinstance(self._reach()[1], HostFilesystem)

    def open_fd(self, path: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of a regular file, as os.open() gives it; the caller's, who closes it.

        Where the daemon forwards descriptors (`agentfsd interpose`), it is the content's own: reading and writing do not ask the
        daemon, locks and os.fstat() are about the content object, and for durable names there is ControlClient.sync_fd().
        Elsewhere it is the mount's. NotForwardedError where there is neither.
        """
        where = self._normalize(path)
        self._check_opening(where, flags)
        changes = bool(flags & (os.O_CREAT | os.O_TRUNC))
        _check_no_control(where, changes)

        def act(client: ControlClient, tree: HostFilesystem | RemoteTree) -> int:
            mount = tree if isinstance(tree, HostFilesystem) else None
            return open_fd(RemoteFiles(client, self._id), mount, where, flags, mode)

        return self._attempt(act, changes=changes)

    # -- what BaseFilesystem asks for

    def _stat(self, path: str) -> FileStat:
        return self._do(lambda tree: tree._stat(path), path)

    def _stat_name(self, path: str) -> FileStat:
        return self._do(lambda tree: tree._stat_name(path), path)

    def _scan(self, path: str) -> list[FileEntry]:
        return self._do(lambda tree: list(tree._scan(path)), path)

    def _walk(self, path: str, depth: int | None = None) -> Iterator[str]:
        return iter(self._do(lambda tree: list(tree._walk(path, depth)), path))

    def _open_read(self, path: str) -> Source:
        return SafeSource(self._do(lambda tree: tree._open_read(path), path))

    def _open_write(self, path: str, mode: WriteMode) -> Sink:
        return SafeSink(self._do(lambda tree: tree._open_write(path, mode), path, changes=True))

    def _move(self, source: str, destination: str) -> None:
        if destination.split("/")[0] == _CONTROL_DIR:
            raise refusal(errno.EPERM, destination)
        self._do(lambda tree: tree._move(source, destination), source, changes=True)

    def _make_directory(self, path: str) -> None:
        self._do(lambda tree: tree._make_directory(path), path, changes=True)

    def _remove_file(self, path: str) -> None:
        self._do(lambda tree: tree._remove_file(path), path, changes=True)

    def _remove_tree(self, path: str) -> None:
        self._do(lambda tree: tree._remove_tree(path), path, changes=True)

    # -- archives

    def _locate(self, path: str) -> bytes | None:
        return self._reach()[1]._locate(path)

    def _archive_tree(self) -> "AbstractContextManager[TreeSource]":
        return self._reach()[1]._archive_tree()

    def _replace_all(self, archive: "Archive") -> int:
        """Only what differs is written. A snapshot, which is gone afterwards, is what is gone back to when that fails."""
        if archive.find(os.fsencode(_CONTROL_DIR)) is not None:
            raise ArchiveError(f"{archive.path} is refused: it holds {_CONTROL_DIR}, which at the root is agentfsd's own")
        before = self.snapshot()
        try:
            count = self._reach()[1]._overwrite(archive)
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
            pass  # it stays, and harms nobody

    # -- snapshots

    def snapshot(self, *, tag: str | None = None) -> FilesystemSnapshot:
        """O(1), unless files are counted. ``commit_ref`` is its id, which every command of agentfsd takes."""
        try:
            made = self._ask(lambda client: client.create_snapshot(self._id, tag=tag or ""), changes=True)
        except DaemonGoneError:
            raise
        except AgentFSError as exc:
            raise SnapshotCreationError(sentence("no snapshot could be taken", exc)) from exc
        record = self._record(made)
        if not self._counts:
            return record
        found = self._ask(lambda client: RemoteFiles(client, made.id).count())
        return replace(record, file_count=found.files, total_bytes=found.size_bytes)

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        """O(1). What was there before is kept in a snapshot of its own: `agentfsd undo` brings it back."""
        self._check_writable("")
        check_ours(snapshot)
        try:
            self._ask(lambda client: client.restore(snapshot.commit_ref, self._id))
        except DaemonGoneError:
            raise
        except NotFoundError as exc:
            raise SnapshotNotFoundError(sentence(f"there is no snapshot {snapshot.commit_ref}", exc)) from exc
        except AgentFSError as exc:
            raise SnapshotRestoreError(sentence(f"snapshot {snapshot.commit_ref} could not be restored", exc)) from exc
        self._restored = (self._last(), snapshot.commit_ref)

    def diff(self, base: FilesystemSnapshot | None, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        """*base* None: what the branch lies over. Takes as long as there are changes; with ``count_files`` as there are names."""
        found = self._compare(base, target, lambda client, old, new: client.changed_files(new, old, count=self._counts))
        added, modified, deleted = (paths(names) for names in (found.added, found.modified, found.deleted))
        return FilesystemDiff(added, modified, deleted, max(0, found.unchanged))

    def patch(self, base: FilesystemSnapshot | None = None, target: FilesystemSnapshot | None = None) -> str:
        """What diff() names, as git shows it; what is no UTF-8 is replaced."""
        found = self._compare(base, target, lambda client, old, new: client.patches(new, old))
        return b"".join(file.patch for file in found).decode("utf-8", "replace")

    def _compare(
        self, base: FilesystemSnapshot | None, target: FilesystemSnapshot | None,
        ask: Callable[[ControlClient, str | None, str], _T],
    ) -> _T:  # fmt: skip
        """*ask* is given the refs of both sides."""
        for snapshot in (base, target):
            if snapshot is not None:
                check_ours(snapshot)
        old = base.commit_ref if base is not None else None
        new = target.commit_ref if target is not None else self._id
        try:
            return self._ask(lambda client: ask(client, old, new))
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
        return self._ask(lambda client: client.show_branch(self._id)).last

    def _meant(self, number: str) -> str:
        """Of snapshots between which nothing changed, the daemon takes the newest: for us it is the one that was restored."""
        return self._restored[1] if number == self._restored[0] else number

    def log(self) -> list[FilesystemSnapshot]:
        """The snapshots in the branch's history, the newest first, whoever took them."""
        return [self._record(found) for found in self._ask(lambda client: client.log(self._id))]

    def find_snapshot(self, ref: str) -> FilesystemSnapshot:
        """A snapshot by its name or id. SnapshotNotFoundError."""
        try:
            return self._record(self._ask(lambda client: client.show_snapshot(ref)))
        except NotFoundError as exc:
            raise SnapshotNotFoundError(sentence(f"there is no snapshot {ref}", exc)) from exc

    def delete_snapshot(self, snapshot: FilesystemSnapshot) -> None:
        """Frees what only it held. SnapshotNotFoundError."""
        check_ours(snapshot)
        try:
            self._ask(lambda client: client.delete_snapshot(snapshot.commit_ref), changes=True)
        except NotFoundError as exc:
            raise SnapshotNotFoundError(sentence(f"there is no snapshot {snapshot.commit_ref}", exc)) from exc

    def discard(self, *, keep: bool = True) -> None:
        """Throws the branch away with its changes (``main`` is empty of changes then); with *keep* `agentfsd undo` can bring it
        back. This object is closed then."""
        self._ask(lambda client: client.discard(self._id, keep=keep), changes=True)
        self.close()

    def _record(self, found: wire.BranchSnapshot) -> FilesystemSnapshot:
        return record_of(found, self._meant(found.parent), self._root)


def _check_no_control(path: str, changes: bool) -> None:
    if path == _CONTROL_DIR or path.startswith(_CONTROL_DIR + "/"):
        raise refusal(errno.EPERM if changes else errno.ENOENT, path)


def _branch_of(client: ControlClient, branch: str | None, source: str | None, *, create: bool) -> wire.Branch:
    try:
        return client.show_branch(branch)
    except NotFoundError:
        if not create or branch is None:
            raise
    return client.create_branch(branch, source)
