"""Real descriptors: which file of the backing file system a process gets for a file of a branch, and what follows from it.

A process that holds one reads and writes without asking the daemon. So the daemon keeps the file open as long as anybody has it
(a write lease tells), no kernel caches its attributes, and a snapshot clones it for the sealed layer. It never knows a request.
"""

import errno
import os
import secrets
import stat
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

import trio

from agentfsd.core import copyup, data, external_writers, inode_stat
from agentfsd.core.branch_events import BranchEvent
from agentfsd.core.copyup import Copy, is_owned
from agentfsd.core.inode_attributes import CAPABILITIES
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import Refusal
from agentfsd.handoff import forwarding_settings
from agentfsd.handoff.forwarding_settings import ForwardingSettings
from agentfsd.metadata.transaction import Transaction

Source = Literal["own", "lower", "snapshot"]

_SET_ID = stat.S_ISUID | stat.S_ISGID
_ALWAYS_OURS = (
    os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
)  # handled before the open, or added here
_FLAGS_MOST = (1 << 31) - 1  # open(2) takes an int
_SWEEP = 500  # loans looked at in one go: some 3 us each
_TRIES = 5
_SOON_S = 0.0005


class WantedDescriptor(NamedTuple):
    """The descriptor that a process asks for: ``flags`` of open(2); ``copies``: whether content may be copied up for it.

    With the setting *require_reflink*, nothing is copied.
    """

    flags: int
    require_reflink: bool = False
    copies: bool = True

    @property
    def writes(self) -> bool:
        """Whether the process may write through it."""
        return self.flags & os.O_ACCMODE != os.O_RDONLY


def declined(why: str, hint: str = "use the mount", number: int = errno.EAGAIN) -> Refusal:
    """Return the refusal of a descriptor. The file can still be read and written through the mount."""
    return Refusal(number, "not-forwarded", why, hint)


class GivenDescriptor(NamedTuple):
    """A descriptor for another process. The caller passes ``fd`` on and closes it."""

    fd: int
    source: Source


class ForwardedFile:
    """A file of which a descriptor was given out.

    ``tree``: the inode's tree at that time. ``may_map``: some process may have the file mapped.
    """

    __slots__ = ("may_map", "opener", "since_ns", "tree", "writes")

    def __init__(self, tree: Tree, opener: int) -> None:
        self.tree, self.opener = tree, opener
        self.since_ns = 0
        self.writes = self.may_map = False


async def copy_up(inode: Inode, max_copy_bytes: int | None = None) -> None:
    """Copy a file's content into the branch, in a thread. What other processes write meanwhile is not lost.

    Raises:
        Refusal: More than *max_copy_bytes* would have to be copied.
    """
    copy = Copy(inode, max_copy_bytes)
    try:
        await trio.to_thread.run_sync(_run, copy)
    except BaseException:
        copy.abandon()
        raise
    copy.install()


def check_mode(mode: int) -> None:
    """Refuse a file whose mode a write changes (setuid, setgid)."""
    if mode & _SET_ID:
        raise declined("a write takes this file's setuid bits away", "write through the mount")


def _check_privileges(inode: Inode) -> None:
    check_mode(inode.mode)
    if CAPABILITIES in (inode.xattrs or ()):
        raise declined("a write takes this file's capabilities away", "write through the mount")


def _run(copy: Copy) -> None:
    try:
        copy.run()
    except OSError as exc:
        if exc.errno != errno.EFBIG:
            raise
        raise declined(str(exc.strerror), number=errno.EFBIG) from None


class Forwarding:
    """Gives out real descriptors. ``why_not`` is the reason why this daemon gives out none, or ""."""

    def __init__(
        self,
        overlay: Overlay,
        write_back: Callable[[], Awaitable[None]],
        pages_back_soon: Callable[[Inode, float], bool],
        why_not: str,
        most: int,
        read_only: bool = False,
    ) -> None:
        """Prepare to give out descriptors.

        Args:
            write_back: Returns when the kernel has written back all changed pages.
            pages_back_soon: Returns whether the kernel has written back the pages of one file; it blocks the event loop for about
                the given number of seconds at most.
            why_not: The reason why no descriptors are given out; "" for none.
            most: The maximum number of files at a time.
            read_only: Whether nothing may be changed here, not even where content lies.
        """
        self.overlay, self.why_not = overlay, why_not
        self.settings: ForwardingSettings = forwarding_settings.load(overlay.store)
        self.given = 0  # descriptors, ever
        self._write_back, self._pages_back_soon, self._most = write_back, pages_back_soon, most
        self._read_only = read_only
        self._expected: dict[int, Inode | None] = {}
        self._loans: OrderedDict[Inode, ForwardedFile] = OrderedDict()  # the one looked at longest ago first
        for inode in external_writers.left_over(overlay.trees):
            self._enter(inode, 0, os.O_RDWR)

    def __len__(self) -> int:
        return len(self._loans)

    @property
    def kind(self) -> str:
        """cap.fd_forwarding of the AgentFS specification."""
        return "shim" if self.settings.enabled and not self.why_not else "off"

    def set(self, name: str, value: str) -> None:
        """Change a setting. Raises Refusal as forwarding_settings.check()."""
        with self.overlay.store.transaction() as tx:
            self.put(tx, name, value)

    def put(self, tx: Transaction, name: str, value: str) -> None:
        """Store a setting as part of a larger transaction."""
        forwarding_settings.write(self.overlay.store, name, value)
        tx.set(self, settings=forwarding_settings.load(self.overlay.store))

    def check_possible(self, wanted: WantedDescriptor | None = None) -> None:
        """Check whether this daemon gives out descriptors at all, and any as *wanted*, whatever the file.

        Raises:
            Refusal: It does not.
        """
        if self.why_not:
            raise declined(self.why_not)
        if not self.settings.enabled:
            raise declined("real descriptors are not given out here", "`agentfsd interpose set enabled=on`", errno.EPERM)
        if wanted is None:
            return
        if not 0 <= wanted.flags <= _FLAGS_MOST:
            raise Refusal(errno.EINVAL, "bad-flags", f"{wanted.flags} are not flags of open(2)", "give flags such as os.O_RDWR")
        if wanted.flags & os.O_DIRECT:
            raise declined("direct input and output goes through the mount", "leave O_DIRECT out")
        if len(self._loans) >= self._most:
            self.sweep(len(self._loans))
            if len(self._loans) >= self._most:
                raise declined(f"{self._most} files are open by descriptors already", number=errno.EMFILE)

    # -- giving

    async def give(self, inode: Inode, wanted: WantedDescriptor, opener: int) -> GivenDescriptor:
        """Give out a descriptor like one that open(2) of the file returns. The caller has checked *opener*'s permission.

        Raises:
            OSError: There is none. Nothing has changed, except that content may have been copied up. EFBIG: the content would
            have to be copied, and is too large.
        """
        given = self.give_at_once(inode, wanted, opener)
        if given is not None:
            return given
        for _ in range(_TRIES):  # a snapshot may come in between, at each await
            if not is_owned(inode):
                copyup.check_writable(inode.tree)
                await copy_up(inode, self._limit(wanted))
                continue
            self._enter(inode, opener, wanted.flags)
            self.overlay.events.file_changed(inode, data=True)
            await self._write_back()
            self.check(inode, wanted)
            if is_owned(inode):
                self._enter(inode, opener, wanted.flags)  # nobody had it yet: a sweep may have ended the loan meanwhile
                return self._reopen(inode, wanted)
        raise declined("the file is being changed", "try again")

    def give_at_once(self, inode: Inode, wanted: WantedDescriptor, opener: int) -> GivenDescriptor | None:
        """Give out a descriptor without waiting; None when that needs to wait (then use give())."""
        self.check(inode, wanted)
        if inode.tree.read_only:
            return self._give_reader(inode, wanted)
        if not is_owned(inode):
            if not wanted.writes and not (wanted.copies and self.copies_for_readers):
                return self._give_reader(inode, wanted)
            copyup.check_writable(inode.tree)
            if data.copy_size(inode) >= copyup.THREAD_BYTES:
                return None
            copy = Copy(inode, self._limit(wanted))
            _run(copy)
            copy.install()
        self._enter(inode, opener, wanted.flags)
        if not self._pages_back_soon(inode, _SOON_S):  # what a mapping has changed comes to us before the descriptor is used
            return None
        return self._reopen(inode, wanted)

    def _limit(self, wanted: WantedDescriptor) -> int:
        """Return how many bytes may be copied."""
        forbidden = wanted.require_reflink or self.settings.require_reflink or not wanted.copies
        return 0 if forbidden else self.settings.max_copy_bytes

    def _reopen(self, inode: Inode, wanted: WantedDescriptor) -> GivenDescriptor:
        if inode.file is None:
            raise OSError(errno.ESTALE, "the file has gone meanwhile")
        if wanted.writes:
            _check_privileges(inode)  # of what was just copied up they are known now
        fd = inode.file.reopen(wanted.flags & ~_ALWAYS_OURS)
        self.given += 1
        return GivenDescriptor(fd, "own")

    @property
    def copies_for_readers(self) -> bool:
        return self.settings.eager_upperization and not self._read_only

    def check(self, inode: Inode, wanted: WantedDescriptor) -> None:
        """Check whether a descriptor of that file can be given out at any cost. OSError when not."""
        self.check_possible(wanted)
        if not inode.is_file or wanted.flags & (os.O_PATH | os.O_DIRECTORY):
            raise Refusal(errno.EINVAL, "not-a-file", "only a regular file's content has a descriptor", "use the mount")
        if wanted.writes:
            if self._read_only:
                raise OSError(errno.EROFS, "it is mounted read-only")
            copyup.check_writable(inode.tree)
            _check_privileges(inode)
        if not inode.nlink or inode.tree.detached:
            raise declined("the file has no name any more", number=errno.ESTALE)

    def _enter(self, inode: Inode, opener: int, flags: int) -> None:
        """Count the file as open from now on, as if *opener* had opened it."""
        loan = self._loans.get(inode)
        if loan is not None and loan.tree is not inode.tree:  # a merge has put another tree in the place of that one
            del self._loans[inode]
            self._end(inode, loan)
            loan = None
        if loan is None:
            data.open_(inode, os.O_RDONLY)
            loan = self._loans[inode] = ForwardedFile(inode.tree, opener)
            inode.tree.external_readers.add(inode)
        mode = flags & os.O_ACCMODE
        loan.may_map |= mode == os.O_RDWR
        if mode != os.O_RDONLY:
            loan.opener, loan.since_ns = opener, copyup.now_ns()
            if not loan.writes:
                external_writers.begin(inode)
                loan.writes = True
                for listener in self.overlay.events.on_external_writer:
                    listener(inode)

    def _give_reader(self, inode: Inode, wanted: WantedDescriptor) -> GivenDescriptor:
        """Give out content that the branch does not own, through a mount that cannot be written through."""
        flags = wanted.flags & ~_ALWAYS_OURS
        if inode.content:
            content = inode.tree.backstore.open(inode.content)
            try:
                fd = content.reopen(flags)
            finally:
                content.close()
            self.given += 1
            return GivenDescriptor(fd, "snapshot")
        assert inode.lower_path is not None
        there = inode.tree.identify(inode_stat.lower_stat(inode))
        fd = inode.tree.lower.open_to_give(inode.lower_path, flags)
        if inode.tree.identify(os.fstat(fd))[:2] != there[:2]:
            os.close(fd)
            raise declined("the lower file lies in a file system of its own")
        self.given += 1
        return GivenDescriptor(fd, "lower")

    # -- afterwards

    def object_of(self, inode: Inode) -> os.stat_result:
        """Return what fstat(2) of a descriptor shows that is given out of the file now."""
        return inode_stat.data_stat(inode)

    def behind(self, status: os.stat_result) -> Inode | None:
        """Return the file of which a descriptor was given out; None when there is none."""
        for inode in self._loans:
            if inode.file is not None:
                known = inode.file.stat()
                if (known.st_dev, known.st_ino) == (status.st_dev, status.st_ino):
                    return inode
        return None

    # -- which file a descriptor of the mount stands for

    def expect(self) -> int:
        """Return a token for told(). A thread of the daemon sends it by an ioctl on the descriptor in question."""
        token = secrets.randbits(64)
        self._expected[token] = None
        return token

    def told(self, token: int, inode: Inode, tid: int) -> None:
        """Receive the ioctl: *token* stands for *inode*. EPERM when the caller is not this daemon."""
        if token not in self._expected or not os.path.isdir(f"/proc/self/task/{tid}"):
            raise PermissionError(errno.EPERM, "nobody waits for that")
        self._expected[token] = inode

    def heard(self, token: int) -> Inode | None:
        """Return the file that told() received for a token, and drop the token. None when it received none."""
        return self._expected.pop(token, None)

    def sweep(self, limit: int = 0) -> None:
        """Forget files that no process has open any more. Call it periodically.

        *limit*: how many files to check, starting with the one checked longest ago; 0: a quarter of them, 500 at least.
        """
        for _ in range(min(limit or max(_SWEEP, len(self._loans) // 4), len(self._loans))):
            inode, loan = next(iter(self._loans.items()))
            self._loans.move_to_end(inode)
            if inode.tree is loan.tree and inode.file is not None and inode.file.is_open_elsewhere():
                if loan.may_map:  # a mapped write may leave the times alone, so the kernel cannot see that its pages are stale
                    self.overlay.events.file_changed(inode, data=True)
                continue
            del self._loans[inode]
            self._end(inode, loan)

    def _end(self, inode: Inode, loan: ForwardedFile) -> None:
        loan.tree.external_readers.discard(inode)
        if loan.writes:
            external_writers.end(loan.tree, inode)
            self.overlay.events.file_changed(inode, data=True)
            if not loan.tree.detached and inode.nlink and data.changed_since(inode, loan.since_ns):
                self.overlay.events.publish(BranchEvent("modified", loan.tree.id, loan.opener, inode))
        data.release(inode)
