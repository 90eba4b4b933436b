"""A lower, a branch, a plain copy, and runs of that branch through overlays that the kernel mounts, one after the other."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from agentfs_host import syscalls
from agentfsd.core.tree import Tree
from agentfsd.overlayfs import run_beginning
from agentfsd.overlayfs.branch_overlay import BranchOverlay
from agentfsd.overlayfs.layer_stack import LayerStack
from tests.overlayfs import listings
from tests.overlayfs.listings import Listing
from tests.overlays import Opened


class Silent:
    """Reports to nobody."""

    is_heard = False

    def tell(self, *args: object) -> None: ...
    def tell_write(self, *args: object) -> None: ...
    def names_changed(self, *args: object) -> None: ...
    def file_changed(self, *args: object, data: bool) -> None: ...


class Workspace:
    """Everything lies below *base*. ``run``: the run that is on, if any; ``merged``: where its programs are."""

    def __init__(self, base: Path, script: str = "true") -> None:
        """*script* fills the lower."""
        self.base, self.plain, self.merged = base, base / "plain", base / "merged"
        for name in ("lower", "merged", "runs"):
            (base / name).mkdir()
        shell(script, base / "lower")
        subprocess.run(["cp", "-a", base / "lower", base / "plain"], check=True)
        self.opened = Opened(base)
        self.opened.overlay.branches.create("b")
        self.run: BranchOverlay | None = None

    @property
    def tree(self) -> Tree:
        return self.opened.tree("b")

    @property
    def live(self) -> BranchOverlay:
        assert self.run is not None
        return self.run

    @property
    def upper(self) -> Path:
        return Path(self.live.place) / "upper"

    def begin(self) -> None:
        """Begin a run."""
        overlay = self.opened.overlay
        self.stack = LayerStack(str(self.base / "runs"), str(self.base / "objects"), overlay.trees)
        branch_id = overlay.refs.branch("b").id
        self.run = run_beginning.begin(overlay, self.stack, str(self.base / "runs" / f"run-{branch_id}"), branch_id, Silent())
        self.mount()

    def mount(self) -> None:
        run = self.live
        below = ":".join([*(str(self.base / "runs" / name) for name in run.record.layers), str(self.base / "lower")])
        options = f"lowerdir={below},upperdir={run.place}/upper,workdir={run.place}/work,redirect_dir=on,metacopy=off,index=off"
        syscalls.mount(b"overlay", os.fsencode(self.merged), b"overlay", 0, options.encode())

    def unmount(self) -> None:
        with contextlib.suppress(OSError):
            syscalls.unmount(os.fsencode(self.merged))

    def look(self) -> bool:
        """Take over what there is."""
        return self.live.take_over()

    def lose_state(self, *, look: bool = True) -> None:
        """What a daemon knows that is started anew: nothing. It looks at once, before anything else, if it can."""
        run = self.live
        run.close()
        self.run = BranchOverlay(self.opened.overlay, self.stack, run.place, run.record, Silent())
        if look:
            self.look()

    def seal(self) -> int:
        """Take a snapshot without looking before."""
        overlay = self.opened.overlay
        with self.opened.store.transaction() as tx:
            return overlay.layers.seal(tx, overlay.refs.branch("b"))

    def sealed(self, layer: int) -> Listing:
        """What a sealed layer shows."""
        with self.opened.overlay.trees.kept(layer) as tree:
            return listings.of_tree(tree, times=True)

    def finish(self) -> None:
        """End the run."""
        self.unmount()
        self.live.finish()
        self.run = None

    def shell(self, script: str) -> None:
        """Do the same in the run and in the plain copy."""
        shell(script, self.merged)
        shell(script, self.plain)

    def in_branch(self, *, times: bool = False) -> Listing:
        return listings.of_tree(self.tree, times=times)

    def in_run(self, *, times: bool = False) -> Listing:
        return listings.of_directory(os.fsencode(self.merged), times=times)

    def in_plain(self) -> Listing:
        return listings.of_directory(os.fsencode(self.plain), times=False)

    def check(self) -> None:
        """The branch has what the run sees, and what the plain copy has."""
        branch = self.in_branch(times=True)
        listings.check_same(listings.without_links(branch), listings.without_links(self.in_run(times=True)))
        listings.check_same(listings.without_times(self.in_branch()), listings.without_times(self.in_plain()))
        assert self.opened.overlay.fsck() == []

    def close(self) -> None:
        self.unmount()
        if self.run is not None:
            self.run.close()
        self.opened.close()


def shell(script: str, place: Path) -> None:
    subprocess.run(["sh", "-ec", script], cwd=place, check=True)


@contextlib.contextmanager
def opened(base: Path, script: str = "true") -> Iterator[Workspace]:
    """A workspace, of which nothing stays mounted."""
    workspace = Workspace(base, script)
    try:
        yield workspace
    finally:
        workspace.close()
