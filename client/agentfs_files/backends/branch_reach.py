"""The way to a branch: a conversation with its daemon, which is begun again after a restart, and the branch's files."""

import errno
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from agentfs_client import locate, wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, DaemonGoneError, InvalidRequestError, NotFoundError
from agentfs_files.backends.branch_gone import UNREACHED, gone, is_gone
from agentfs_files.backends.branch_remote import RemoteTree
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.filesystem.size_limits import Limits
from agentfs_host.mount_table import Mounted, mount_at, shows_branches

CONTROL_DIR = ".agentfs"

_T = TypeVar("_T")


class BranchReach:
    """Reaches one branch through its mount if this process sees one, else over the socket. Threads may share it.

    Where the branch has rules by path, and this process is bound to no branch, the way is a conversation that keeps these rules.

    Attributes:
        branch_id: The branch's id, after begin().
        name: Its name, when it was last reached.
        root: The mount point; "/" over the socket.
    """

    def __init__(
        self, mount: str | os.PathLike[str] | None, socket: str | os.PathLike[str] | None, limits: Limits, *, keeps_rules: bool
    ) -> None:  # fmt: skip
        if mount is not None and socket is not None:
            raise ValueError("give mount or socket, not both: a socket says which daemon is meant")
        self._mount = None if mount is None else os.path.abspath(mount)
        self._socket = None if socket is None else os.path.abspath(socket)
        self._limits, self._keeps_rules = limits, keeps_rules
        self._seen_at: tuple[str, ...] = ()
        self._tree: HostFilesystem | RemoteTree | None = None
        self._client: ControlClient | None = None
        self._reaching = threading.Lock()
        self._is_closed = False
        self.branch_id = self.name = ""
        self.root = "/"

    def begin(self, branch: str | None, source: str | None, *, create: bool) -> None:
        """Find the branch, and make it from *source* if it is missing and *create* is true. AgentFSError."""
        client = self._converse()
        try:
            info = _branch_of(client, branch, source, create=create)
            self.branch_id, self.name = info.id, info.name
            self._tree = self._choose(client, info)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the mount and end the conversation. May be called again."""
        self._is_closed = True
        if self._tree is not None:
            self._tree.close()
        self._let_go()

    def _converse(self) -> ControlClient:
        """Begin a new conversation. The first one decides which mount to use."""
        if self._is_closed:
            raise ValueError("I/O operation on closed file system")
        if self._socket is not None:
            self._client = ControlClient.connect(self._socket)
            return self._client
        mount = self._find_mount()
        self._client, self._mount = mount.connect(), mount.mountpoint
        self._seen_at = tuple(filter(None, (mount.mountpoint, mount.lower)))
        return self._client

    def _find_mount(self) -> locate.Mount:
        """Find the mount, or say how a caller in Python names one."""
        try:
            return locate.find(self._mount)
        except InvalidRequestError as exc:
            hint = exc.hint.replace("with -m:", "with mount=:")
            raise InvalidRequestError(exc.errno or errno.EINVAL, exc.code, f"{exc.message}; {hint}", hint) from None

    def _choose(self, client: ControlClient, branch: wire.Branch) -> HostFilesystem | RemoteTree:
        """Return the mount's directory if this process sees the mount and may read the branch there; else the remote tree."""
        if self._keeps_rules and not client.hello.bound and client.list_rules(branch.id):
            client.obey_rules(branch.id)
            self.root = "/"
            return RemoteTree(client, branch.id, self._limits)
        mounted = mount_at(self._mount) if self._mount is not None else None
        root = self._shown_at(client, branch, mounted) if mounted is not None and shows_branches(mounted) else None
        if root is not None:
            try:
                tree = HostFilesystem(root, limits=self._limits, shown_at=self._seen_at)
            except OSError:
                pass  # another user's mount, which this process may not enter
            else:
                self.root = self._mount or root
                return tree
        self.root = "/"
        return RemoteTree(client, branch.id, self._limits)

    @staticmethod
    def _shown_at(client: ControlClient, found: wire.Branch, mounted: Mounted) -> str | None:
        """Return a directory that shows this branch and will never show another; None if there is none."""
        control = os.path.join(mounted.mountpoint, CONTROL_DIR)
        if not client.hello.bound:
            return os.path.join(control, "branches", found.name)
        is_private = mounted.root != "/" or mount_at(control) is not None
        return mounted.mountpoint if is_private else None  # the shared mount shows another branch if this process is bound to one

    def reach(self) -> tuple[ControlClient, HostFilesystem | RemoteTree]:
        """Return a working connection and the branch's files."""
        with self._reaching:
            if self._client is not None and self._tree is not None and self._client.is_usable:
                return self._client, self._tree
            self._let_go()
            try:
                client = self._converse()
                branch = client.show_branch(self.branch_id)
                self.name, self._tree = branch.name, self._choose(client, branch)
            except NotFoundError as exc:
                self._let_go()
                raise DaemonGoneError(exc.errno or errno.ENOENT, exc.code, exc.message, exc.hint) from exc
            except BaseException:
                self._let_go()
                raise
            return client, self._tree

    def _let_go(self) -> None:
        """Drop the tree, which closes itself when the last thread has left it."""
        if self._client is not None:
            self._client.close()
        self._tree = self._client = None

    def _give_up(self, client: ControlClient) -> None:
        """Drop a conversation that failed, unless another thread has already begun a new one."""
        with self._reaching:
            if self._client is client:
                self._let_go()

    def ask(self, act: Callable[[ControlClient], _T], *, changes: bool = False) -> _T:
        """Ask the daemon, as attempt() does."""
        return self.attempt(lambda client, _: act(client), changes=changes)

    def attempt(self, act: Callable[[ControlClient, HostFilesystem | RemoteTree], _T], *, changes: bool) -> _T:
        """Perform an operation, and repeat it with a restarted daemon if the first one ended. A change is repeated only if it did
        not reach the first daemon.
        """
        reached = self.reach()
        try:
            return act(*reached)
        except OSError as exc:
            if not is_gone(exc):
                raise
            self._give_up(reached[0])
            if changes and exc.errno not in UNREACHED:
                raise gone("nobody can say whether that was still done") from exc
        reached = self.reach()
        try:
            return act(*reached)
        except OSError as exc:
            if isinstance(exc, AgentFSError) or not is_gone(exc):
                raise
            raise gone("is it being restarted?") from exc


def _branch_of(client: ControlClient, branch: str | None, source: str | None, *, create: bool) -> wire.Branch:
    try:
        return client.show_branch(branch)
    except NotFoundError:
        if not create or branch is None:
            raise
    return client.create_branch(branch, source)
