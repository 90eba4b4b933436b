"""Which layers over the home directory stay mounted, with a holder that only pretends."""

import os
from pathlib import Path
from typing import cast

import trio

from agentfsd.fuse.branch_mounts import BranchMounts, HeldMount
from agentfsd.fuse.home_mounts import HomeMounts
from agentfsd.process.kept_descriptors import KeptDescriptors
from agentfsd.state.home_layer_store import HomeLayerStore
from agentfsd.state.state_directory import StateDirectory


class PretendedMount:
    """A layer, during whose copying the daemon looks for layers that nobody uses."""

    is_lost = is_closed = False

    def __init__(self, made: "PretendedMounts") -> None:
        self._made = made

    async def copy(self) -> int:
        assert self._made.homes is not None
        await self._made.homes.sweep(tuple)
        return os.open("/dev/null", os.O_RDONLY)

    def close(self) -> None:
        self.is_closed = True


class PretendedMounts:
    def __init__(self) -> None:
        self.made: list[PretendedMount] = []
        self.homes: HomeMounts | None = None

    async def mount_layer(self, *_: object) -> HeldMount:
        self.made.append(PretendedMount(self))
        return cast(HeldMount, self.made[-1])


def test_a_layer_that_a_run_is_just_given_stays_and_is_shared(tmp_path: Path) -> None:
    """Two overlays with one upper directory have undefined results."""
    mounts = PretendedMounts()
    store = HomeLayerStore(StateDirectory(str(tmp_path / "state")))
    mounts.homes = homes = HomeMounts(cast(BranchMounts, mounts), store, lambda branch_id: False, KeptDescriptors())

    async def two_runs() -> None:
        views = [await homes.open("branch", str(tmp_path.resolve())) for _ in range(2)]
        assert [each.is_closed for each in mounts.made] == [False]
        for view in views:
            os.close(view.mount)
            view.leave()
        assert [each.is_closed for each in mounts.made] == [True]

    trio.run(two_runs)
