"""A directory under a stack of overlayfs layers: cover it, freeze what was written, show another stack, uncover it.

This module knows nothing of snapshots. It freezes a layer only after the kernel has confirmed that the mount which wrote to it is
gone.
"""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from uuid import uuid4

import msgspec

from agentfs_files.filesystem.filesystem_errors import SnapshotError
from agentfs_files.snapshots import overlay_mounts as mounts
from agentfs_files.snapshots.index import write_file
from agentfs_files.snapshots.kept_attributes import settle
from agentfs_files.snapshots.snapshot_tree import SnapshotEntry, horizon, make_entry
from agentfs_host import syscalls
from agentfs_host.descent import opened
from agentfs_host.mount_table import Mounted, is_within, mount_at, mount_of
from agentfs_host.tree_removal import remove_tree

_MOST_LAYERS = 200  # the mount options must fit in a page; each layer is named /proc/self/fd/NNN
_LOWEST = ""  # stands for the directory itself
_OPTIONS = (
    b",index=off,metacopy=off,redirect_dir="  # an index would keep the names of a hard link together, but not in a frozen layer
)


class LayerState(msgspec.Struct):
    """The mount on *root*, or the one that a restart of the machine ended.

    *layers* are frozen, lowest first, and *upper* receives writes. *token* is the source of the mount, which identifies it. *ref*
    is the caller's name of the frozen layers.
    """

    root: str
    token: str
    layers: list[str]
    upper: str
    ref: str = ""


class Stack:
    """The layers of one root, stored below *home*."""

    def __init__(self, home: str, root: str) -> None:
        self._home, self._root = home, root
        self._base = os.path.join(home, "base")  # a bind mount through which the covered directory can be reached

    def load(self) -> LayerState | None:
        """Return the state; None if the directory is not covered. Raises SnapshotError if the state belongs to
        another directory.
        """
        try:
            with open(os.path.join(self._home, "state"), "rb") as file:
                state = msgspec.json.decode(file.read(), type=LayerState)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise SnapshotError(f"{self._home}/state is damaged: {exc}") from exc
        if state.root != self._root:
            raise SnapshotError(f"the layers in {self._home} belong to {state.root}")
        return state

    def save(self, state: LayerState) -> None:
        write_file(os.path.join(self._home, "state"), msgspec.json.encode(state))

    def is_mounted(self, state: LayerState) -> bool:
        return _top(self._root, state.token) is not None

    def top_entry(self) -> SnapshotEntry:
        """Return the root's own attributes."""
        with opened(self._root) as beneath:
            fd = beneath.fd(b"")
            return make_entry(b"", os.fstat(fd), fd, horizon())

    def is_empty(self, layer: str) -> bool:
        """Tell whether nothing was written to a layer except perhaps the root's own attributes."""
        return not os.listdir(self._tree(layer))

    # -- changing what is mounted

    def cover(self) -> LayerState:
        """Mount an overlayfs on the directory, which becomes the lowest layer."""
        state = LayerState(self._root, f"agentfs-{uuid4().hex}", [_LOWEST], self._make(self.top_entry()))
        self._begin(state)
        return state

    def freeze(self, state: LayerState) -> LayerState:
        """Turn everything written since the last freeze into a layer."""
        if len(state.layers) >= _MOST_LAYERS:
            raise SnapshotError(f"there are {_MOST_LAYERS} layers, and no room for more: clean up, and begin anew")
        return self._replace(state, msgspec.structs.replace(state, layers=[*state.layers, state.upper]), self.top_entry())

    def show(self, state: LayerState, layers: Sequence[str], top: SnapshotEntry) -> LayerState:
        """Show *layers* with an empty upper layer. *top* holds the attributes of the root."""
        new = msgspec.structs.replace(state, layers=list(layers))
        if self.is_mounted(state):
            return self._replace(state, new, top)
        new.upper = self._make(top)
        self._begin(new)
        return new

    @contextlib.contextmanager
    def uncovered(self, state: LayerState) -> Iterator[list[str]]:
        """Uncover the directory inside the context, and yield all layers of the state. After an error, cover it again."""
        self._detach(state)
        try:
            yield [*state.layers, state.upper]
        except BaseException:
            self._mount(state)
            raise

    def end(self) -> None:
        """Delete all layers. The directory must be uncovered."""
        self._uncover_base()
        remove_tree(os.path.join(self._home, "layers"))
        os.unlink(os.path.join(self._home, "state"))

    @contextlib.contextmanager
    def shown(self, layers: Sequence[str]) -> Iterator[str]:
        """Yield a directory where frozen layers can be read."""
        if len(layers) == 1:
            yield self._tree(layers[0])
            return
        view = os.path.join(self._home, f"view-{uuid4().hex}")
        os.mkdir(view, 0o700)
        try:
            self._mount_layers(view, "agentfs-view", layers, None)
            try:
                yield view
            finally:
                syscalls.unmount(os.fsencode(view))
        finally:
            os.rmdir(view)

    def drop_all_but(self, layers: Iterable[str]) -> None:
        kept = set(layers)
        directory = os.path.join(self._home, "layers")
        for name in os.listdir(directory):
            if name not in kept:
                remove_tree(os.path.join(directory, name))

    # -- mounting

    def _begin(self, state: LayerState) -> None:
        self._refuse_others()
        base = os.fsencode(self._base)
        os.makedirs(self._base, mode=0o700, exist_ok=True)
        with _explained(f"{self._root} cannot be mounted elsewhere"):
            syscalls.mount(os.fsencode(self._root), base, None, syscalls.MS_BIND)
        try:
            syscalls.mount(b"none", base, None, syscalls.MS_PRIVATE)
            self._mount(state)
        except BaseException:
            self._uncover_base()
            self.drop_all_but([])
            raise
        self.save(state)

    def _uncover_base(self) -> None:
        if mount_at(self._base) is not None:
            syscalls.unmount(os.fsencode(self._base))

    def _replace(self, state: LayerState, new: LayerState, top: SnapshotEntry) -> LayerState:
        new.upper = self._make(top)
        try:
            self._detach(state)
            try:
                self._mount(new)
            except BaseException:
                self._mount(state)
                raise
        except BaseException:
            remove_tree(os.path.dirname(self._tree(new.upper)))
            raise
        self.save(new)
        return new

    def _mount(self, state: LayerState) -> None:
        self._mount_layers(self._root, state.token, state.layers, state.upper)

    def _mount_layers(self, where: str, source: str, layers: Sequence[str], upper: str | None) -> None:
        with contextlib.ExitStack() as stack:

            def name(path: str) -> bytes:
                """Short, and free of the characters that mean something in mount options."""
                fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, fd)
                return b"/proc/self/fd/%d" % fd

            options = b"lowerdir=" + b":".join(name(self._tree(layer)) for layer in reversed(layers)) + _OPTIONS
            options += b"follow" if upper is None else b"on"
            if upper is not None:
                options += b",upperdir=%s,workdir=%s" % (name(self._tree(upper)), name(self._work(upper)))
            flags = syscalls.MS_RDONLY if upper is None else 0
            with _explained(f"an overlayfs cannot have its layers in {self._home}"):
                syscalls.mount(os.fsencode(source), os.fsencode(where), b"overlay", flags, options)

    def _detach(self, state: LayerState) -> None:
        """Unmount the overlayfs from the root, and check that it is mounted nowhere else."""
        mount = _top(self._root, state.token)
        if mount is None:
            raise SnapshotError(f"the layers are not what is mounted on {self._root}")
        root = os.fsencode(self._root)
        held = syscalls.copy_mount(root)
        try:
            try:
                syscalls.unmount(root)
            except OSError as exc:
                if exc.errno != errno.EBUSY:
                    raise
                raise SnapshotError(f"it is in use: {mounts.user_of(self._root) or 'something is mounted in it'}") from exc
            process = next((process for process, other in mounts.everybodys_mounts() if other.device == mount.device), None)
            if process is not None:
                syscalls.place_mount(held, root)
                raise SnapshotError(f"it is also mounted in another mount namespace, that of process {process}")
        finally:
            os.close(held)

    def _refuse_others(self) -> None:
        if user := mounts.user_of(self._root):
            raise SnapshotError(f"it is in use: {user}")
        within = mount_of(self._root)
        if within is None:
            raise SnapshotError("nothing is known of the mount that it is in")
        inside = os.path.normpath(os.path.join(within.root, os.path.relpath(self._root, within.mountpoint)))
        for _, mount in mounts.everybodys_mounts():
            if mount.mountpoint == self._root:
                continue
            if is_within(mount.mountpoint, self._root):
                raise SnapshotError(f"something is mounted in it, at {mount.mountpoint}")
            if mount.device == within.device and is_within(mount.root, inside):
                raise SnapshotError(f"it, or a part of it, is also mounted at {mount.mountpoint}")

    # -- directories of layers

    def _make(self, top: SnapshotEntry) -> str:
        """Create an empty layer with the attributes that the root is to have."""
        layer = uuid4().hex
        os.makedirs(self._work(layer), mode=0o700)
        os.mkdir(self._tree(layer), 0o700)
        with opened(self._tree(layer)) as beneath:
            settle(beneath.fd(b""), top)
        return layer

    def _tree(self, layer: str) -> str:
        return self._base if layer == _LOWEST else os.path.join(self._home, "layers", layer, "tree")

    def _work(self, layer: str) -> str:
        return os.path.join(self._home, "layers", layer, "work")


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except PermissionError as exc:
        raise SnapshotError("mounting an overlayfs is not permitted here: only root may") from exc
    except OSError as exc:
        raise SnapshotError(f"{what}: {exc.strerror}") from exc


def _top(root: str, token: str) -> Mounted | None:
    """Return the topmost mount on a path if this stack mounted it."""
    mounted = mount_at(root)
    return mounted if mounted is not None and mounted.source == token else None
