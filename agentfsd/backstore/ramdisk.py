"""A tmpfs for contents and metadata. It survives a kill of the daemon, and is unmounted at an orderly end.

This module knows nothing of what is stored there. It finds an earlier ramdisk in the mount table alone.
"""

import contextlib
import errno
import logging
import os

from agentfs_host import mount_table
from agentfsd.backstore import memfd
from agentfsd.backstore.backstore_kind import BackstoreKind, BackstoreOptions, BackstoreVolume
from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.linux import mounts

log = logging.getLogger(__name__)

_NAME = "ramdisk"
_SOURCE = "agentfsd-ramdisk"  # as the mount table shows it


def is_there(place: str) -> bool:
    """Return whether a ramdisk is mounted at a resolved path."""
    mounted = mount_table.mount_at(place)
    return mounted is not None and _is_ours(mounted)


def all_places() -> list[str]:
    """Return where ramdisks are mounted."""
    return [mounted.mountpoint for mounted in mount_table.mount_table() if _is_ours(mounted)]


def _is_ours(mounted: mount_table.Mounted) -> bool:
    return (mounted.fstype, mounted.source) == ("tmpfs", _SOURCE)


def provide(place: str, size_bytes: int) -> bool:
    """Mount a ramdisk, or reuse the one that a killed daemon left, with the new size. Memory is allocated as it is filled.

    Returns:
        True when it is new.

    Raises:
        OSError: It cannot be mounted.
    """
    if is_there(place):
        try:
            mounts.mount_tmpfs(place, _SOURCE, size_bytes, again=True)
        except OSError as exc:
            log.warning("%s keeps the size it had: %s", place, exc.strerror)
        return False
    if mount_table.mount_at(place) is not None:
        raise OSError(errno.EBUSY, f"something else is mounted on {place}")
    available = _available_bytes()
    if size_bytes > available:
        found = f"{size_bytes >> 20} MiB were asked for, and {available >> 20} MiB of memory are available"
        raise OSError(errno.ENOMEM, found)
    os.makedirs(place, mode=0o700, exist_ok=True)
    try:
        mounts.mount_tmpfs(place, _SOURCE, size_bytes)
    except OSError as exc:
        _remove_mountpoint(place)
        if exc.errno == errno.EPERM:
            raise OSError(errno.EPERM, "mounting a tmpfs needs root, or CAP_SYS_ADMIN") from exc
        raise
    return True


def take_away(place: str) -> None:
    """Unmount a ramdisk with everything in it. OSError when that is refused."""
    mounts.unmount(place, lazy=True)
    _remove_mountpoint(place)


def _remove_mountpoint(place: str) -> None:
    """Remove the mount point; the kernel then removes copies of the mount in other namespaces."""
    with contextlib.suppress(OSError):
        os.rmdir(place)


def _available_bytes() -> int:
    """Return the available memory and swap, by the kernel's own estimate."""
    with open("/proc/meminfo") as file:
        fields = {name: int(rest.split()[0]) << 10 for name, rest in (line.split(":") for line in file)}
    return fields["MemAvailable"] + fields.get("SwapFree", 0)


def _opened(options: BackstoreOptions) -> HostBackstore:
    return HostBackstore(options.objects, kind=_NAME, native_snapshots=options.shares)


KIND = BackstoreKind(
    _NAME,
    f"a tmpfs, which outlives a killed daemon (needs root, else {memfd.NAME} is taken)",
    _opened,
    needs_root=True,
    stand_in=memfd.NAME,
    volume=BackstoreVolume(is_there, provide, take_away),
)
