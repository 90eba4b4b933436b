"""Mounts a branch as an overlay of the kernel: the lower, read-only layers, and an upper directory. It knows nothing of branches.

The upper directory and the layers lie in one directory, which must not lie in the lower. An ordinary user's daemon prepares a
mount namespace for overlays before it mounts anything, as for layers over the home directory (home_layers.kept_by_child()).

Each function enters namespaces: call them in a single-threaded process that does nothing else afterwards. Source:
overlayfs.rst of the kernel, mount(2), mount_namespaces(7).
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentfs_host import syscalls
from agentfsd.linux import home_layers, namespaces

MERGED, LAYERS = home_layers.MERGED, home_layers.LAYERS
CONTROL = "control"  # in an overlay's directory: the layer that has the mount point for the control directory

_NOSUID, _NODEV, _NOATIME, _REMOUNT = 2, 4, 1024, 32  # mount(2)
_FLAGS = {"nosuid": _NOSUID, "nodev": _NODEV, "noexec": 8, "noatime": _NOATIME, "nodiratime": 2048}


class OverlayPlan(NamedTuple):
    """What to mount. Names are those of directories in the directory of layers.

    Attributes:
        overlay: The overlay's own directory, which holds ``upper``, ``work`` and ``control``.
        layers: The read-only layers over the lower, the newest first.
        source: What the mount table shall show as the mount's source.
        control: The name of the control directory in CONTROL.
        options: Options of mount(8), of which only restrictions take effect.
    """

    overlay: str
    layers: Sequence[str]
    source: str
    control: str
    options: Sequence[str]

    @classmethod
    def read(cls, message: Mapping[str, object]) -> "OverlayPlan":
        """Take the plan out of a message. LookupError."""
        return cls(*(message[name] for name in cls._fields))  # type: ignore[arg-type]


def enter(prepared: Sequence[int], lower: int, layers: str, process: int) -> int | None:
    """Enter namespaces that hold the lower and the layers.

    Args:
        prepared: Descriptors of home_layers.kept_by_child(), for an ordinary user; empty for root.
        lower: For root: a descriptor of the lower; it is closed.
        layers: For root: the path of the directory of layers.
        process: A descriptor of our own directory in /proc.

    Returns:
        A descriptor of the new user namespace; None for root.

    Raises:
        OSError: The kernel refuses.
    """
    if prepared:
        home_layers.enter(*prepared)
        namespaces.enter_user_namespace(process)
        return os.open("ns/user", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    shown, kept = namespaces.copy_mount(f"/proc/self/fd/{lower}"), namespaces.copy_mount(layers)
    namespaces.enter_private_mounts()
    home_layers.arrange(shown, kept, layers)
    return None


def mount(plan: OverlayPlan, *, privileged: bool) -> int:
    """Mount the overlay at MERGED, after enter().

    Returns:
        A descriptor of the control directory, which keeps it there: no listing shows it, as no layer has it any more.

    Raises:
        OSError: The kernel, or a file system, cannot do it.
    """
    own = f"{LAYERS}/{plan.overlay}"
    lower = ":".join([f"{own}/{CONTROL}", *(f"{LAYERS}/{name}" for name in plan.layers), home_layers.LOWER])
    more = "redirect_dir=on" if privileged else "redirect_dir=nofollow,userxattr"
    data = f"lowerdir={lower},upperdir={own}/upper,workdir={own}/work,metacopy=off,index=off,{more}"
    syscalls.mount(plan.source.encode(), MERGED.encode(), b"overlay", _flags(plan), data.encode())
    control = os.open(f"{MERGED}/{plan.control}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(f"{own}/{CONTROL}/{plan.control}")
    return control


def _flags(plan: OverlayPlan) -> int:
    flags = 0
    for option in plan.options:
        flags |= _FLAGS.get(option, 0)
    return flags


def refresh(place: str, plan: OverlayPlan) -> None:
    """Have the kernel look up again what it remembers of an overlay, because its lower has changed. OSError."""
    syscalls.mount(None, place.encode(), None, _REMOUNT | _flags(plan))
