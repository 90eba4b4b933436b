"""Layers over the home directory for `agentfsd run --home overlay`: one for each branch, which all runs of that branch share.

The kernel's overlayfs does the work; the daemon says when a layer is mounted, and keeps no look at its files. A layer is mounted
anew for the first run of a branch, so that the run sees what the home directory has become meanwhile.
"""

import errno
import logging
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import trio

from agentfs_host import mount_table
from agentfs_host.mount_table import is_within
from agentfsd import escape
from agentfsd.domain_errors import Refusal
from agentfsd.fuse.branch_mounts import HOMES, BranchMounts, HeldMount
from agentfsd.linux import home_directory, home_layers
from agentfsd.process.kept_descriptors import KeptDescriptors
from agentfsd.state.home_layer_store import HomeLayerStore
from agentfsd.state.state_directory import path_digest
from agentfsd.types import HomeView

log = logging.getLogger(__name__)

_LOOKS, _LOOK_S = 50, 0.02
_NAMED = 3  # how many mounts a message names
_PREPARED = ("prepared.user", "prepared.mounts")  # names of kept descriptors


@dataclass(slots=True)
class _Mounted:
    mount: HeldMount
    users: int = 0


class HomeMounts:
    """Mounts, shares and unmounts the layers of branches.

    Args:
        branch_mounts: Starts the processes that hold the mounts.
        store: Where the layers are kept.
        is_in_use: Tells whether a process is bound to a branch.
        kept: What the next daemon gets.
        others: Gives the process ids of the user's other daemons, which may have prepared earlier.
    """

    def __init__(
        self, branch_mounts: BranchMounts, store: HomeLayerStore, is_in_use: Callable[[str], bool], kept: KeptDescriptors,
        others: Callable[[], Iterable[int]] = lambda: (),
    ) -> None:  # fmt: skip
        self._mounts, self._store, self._is_in_use, self._kept, self._others = branch_mounts, store, is_in_use, kept, others
        self._by_branch: dict[str, _Mounted] = {}
        self._turns: dict[str, trio.Lock] = {}
        self._looked_for: set[str] = set()  # branches whose layer no other daemon's run has mounted
        self._prepared: tuple[int, ...] = ()
        self._prepared_home = ""
        self._in_the_way: tuple[str, list[str]] = ("", [])  # a home directory, and what was mounted in it before

    def prepare(self) -> None:
        """Prepare for an ordinary user. Call it before this daemon mounts anything, and before threads start.

        The daemon's mount point may lie in the home directory; afterwards the kernel would not let the user see what it covers.
        """
        home = home_directory.find()
        if os.geteuid() == 0 or not home:
            return
        if self._kept.is_resumed:
            prepared = [self._kept.take(name) for name in _PREPARED]
            self._prepared = tuple(fd for fd in prepared if fd is not None)
            self._prepared_home = home if self._prepared else ""
            return
        try:
            self._store.create()
            self._prepared = home_layers.kept_by_child(home, self._store.path, self._others())
            self._prepared_home = home
            for name, fd in zip(_PREPARED, self._prepared, strict=True):
                self._kept.keep(name, fd)
        except OSError as exc:
            self._in_the_way = home, _mounted_in(home)
            log.info("no layers over %s: %s", home, self._why_not(exc, home))

    def resume(self) -> None:
        """Go on with the layers that the daemon before had mounted."""
        for name in self._kept.former_names(HOMES):
            branch_id = name.removeprefix(HOMES).removesuffix(".holder")
            mount = self._mounts.resume_layer(branch_id)
            if mount is not None:
                self._by_branch[branch_id] = _Mounted(mount)

    async def open(self, branch_id: str, home: str) -> HomeView:
        """Return one more mount of a branch's layer; mount the layer if no run has it.

        Args:
            branch_id: The branch.
            home: The home directory, resolved.

        Raises:
            Refusal: ``no-home-layer`` if the kernel refuses, or processes of another daemon's run still have the layer.
        """
        async with self._turns.setdefault(branch_id, trio.Lock()):
            mounted = self._by_branch.get(branch_id)
            try:
                if mounted is None or mounted.mount.is_lost:
                    mounted = self._by_branch[branch_id] = await self._mount(branch_id, home)
                fd = await self._copy(mounted)
            except OSError as exc:
                if isinstance(exc, Refusal):
                    raise
                raise _refusal(self._why_not(exc, home)) from exc
            return HomeView(fd, lambda: self._leave(branch_id, mounted))

    @staticmethod
    async def _copy(mounted: _Mounted) -> int:
        mounted.users += 1  # before waiting: else sweep() could unmount it meanwhile
        try:
            return await mounted.mount.copy()
        except BaseException:
            mounted.users -= 1
            raise

    async def _mount(self, branch_id: str, home: str) -> _Mounted:
        if not os.path.isabs(home) or os.path.realpath(home) != home or not os.path.isdir(home):
            raise _refusal(f"{home} is no directory")
        source = f"agentfsd-home-{path_digest(self._store.path)}-{branch_id}"
        await self._check_unused(branch_id, source)
        self._store.create()
        self._store.make(branch_id, home)
        prepared = self._prepared if home == self._prepared_home else ()
        return _Mounted(await self._mounts.mount_layer(home, self._store.path, branch_id, source, prepared))

    async def _check_unused(self, branch_id: str, source: str) -> None:
        """Refuse if processes that outlived their daemon, or its holder, have the layer mounted."""
        lost = self._by_branch.pop(branch_id, None)
        if branch_id in self._looked_for and lost is None:
            return
        for _ in range(_LOOKS):
            if not await trio.to_thread.run_sync(home_layers.is_mounted_anywhere, source):
                self._looked_for.add(branch_id)
                return
            await trio.sleep(_LOOK_S)
        raise _refusal("processes of an earlier run still have the branch's layer; end them")

    def _why_not(self, exc: OSError, home: str) -> str:
        if exc.errno != errno.EINVAL or os.geteuid() == 0:
            return f"the kernel refuses an overlay of it: {exc.strerror}"
        known, found = self._in_the_way
        found = found if home == known else _mounted_in(home)
        names = ", ".join(escape.printable(name) for name in found[:_NAMED]) + (" and others" if len(found) > _NAMED else "")
        return (
            f"the kernel gives an ordinary user no layer over a directory in which something is mounted ({names});"
            " unmount that and mount the workspace again, after which it may be mounted anew"
        )

    def _leave(self, branch_id: str, mounted: _Mounted) -> None:
        mounted.users -= 1
        self._close_unused(branch_id, mounted)

    def _close_unused(self, branch_id: str, mounted: _Mounted) -> None:
        if mounted.users == 0 and not self._is_in_use(branch_id):
            mounted.mount.close()
            if self._by_branch.get(branch_id) is mounted:
                del self._by_branch[branch_id]

    def has_changes(self, branch_id: str) -> bool:
        """Return whether a branch has changes to the home directory."""
        return self._store.has_changes(branch_id)

    def discard(self, branch_id: str, kept: str = "") -> None:
        """Discard a branch's changes to the home directory.

        Args:
            branch_id: The branch.
            kept: The name of the snapshot with which bring_back() brings them back; "": they are removed.
        """
        mounted = self._by_branch.pop(branch_id, None)
        if mounted is not None:
            mounted.mount.close()
        if kept:
            self._store.put_aside(branch_id, kept)
        else:
            self._store.forget(branch_id)

    def bring_back(self, branch_id: str, kept: str) -> None:
        """Bring back what discard() has kept with a snapshot, if anything.

        Raises:
            Refusal: ``newer-home-layer``: that would lose newer changes.
        """
        if not self._store.is_aside(branch_id, kept):
            return
        if branch_id in self._by_branch or self._store.has_changes(branch_id):
            raise Refusal(
                errno.EEXIST, "newer-home-layer", "the branch has newer changes to the home directory, or a run uses it",
                "end its runs; `agentfsd discard BRANCH --forget` removes those changes",
            )  # fmt: skip
        self._store.forget(branch_id)
        self._store.bring_back(branch_id, kept)

    async def sweep(self, kept: Callable[[], Collection[str]]) -> None:
        """Unmount layers that no run uses, and remove the files of layers of branches that are not *kept*."""
        for branch_id, mounted in list(self._by_branch.items()):
            self._close_unused(branch_id, mounted)
        if not self._store.names():
            return
        for name in set(self._store.names()) - {*kept(), *self._by_branch}:
            try:
                await trio.to_thread.run_sync(self._store.remove, name)
            except OSError as exc:
                log.warning("removing changes to the home directory in %s: %s", self._store.path, exc)

    def close(self) -> None:
        """Unmount all layers. Runs that still have one keep their mounts."""
        for mounted in self._by_branch.values():
            mounted.mount.close()
        self._by_branch.clear()
        for name, fd in zip(_PREPARED, self._prepared, strict=False):
            self._kept.drop(name)
            os.close(fd)
        self._prepared, self._prepared_home = (), ""


def _refusal(why: str) -> Refusal:
    return Refusal(errno.EOPNOTSUPP, "no-home-layer", why, "--home ro protects the home directory, too")


def _mounted_in(home: str) -> list[str]:
    return [each.mountpoint for each in mount_table.mount_table() if each.mountpoint != home and is_within(each.mountpoint, home)]
