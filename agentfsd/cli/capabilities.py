"""What this machine offers to agentfsd, found by trying it; each finding says what its absence costs and what mends it.

It must never rely on version numbers where a trial is possible, and it leaves nothing behind.
"""

import ctypes
import importlib
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from dataclasses import dataclass

import msgspec

from agentfsd import copying, kernel, mounts, readonly
from agentfsd.cli import namespace
from agentfsd.fuse.native.protocol import OLDEST_MINOR

_SYS_OPENAT2 = 437
_SYS_PIDFD_OPEN = 434
_RESOLVE_BENEATH = 0x08
_PIDFD_THREAD = os.O_EXCL
_FUSE_INIT = 26  # linux/fuse.h
_FUSE_PASSTHROUGH = 1 << (37 - 32)  # in flags2
_FUSE_NO_OPENDIR_SUPPORT = 1 << 24
_CAP_SYS_ADMIN = 21


class Finding(msgspec.Struct, frozen=True):
    """One capability. ``needed``: without it nothing can be mounted."""

    name: str
    found: bool
    detail: str
    cost: str  # what its absence costs
    remedy: str  # a command or setting; "" when there is none
    needed: bool = False


@dataclass(frozen=True, slots=True)
class FuseOffer:
    """What the kernel's FUSE_INIT request said."""

    version: str
    passthrough: bool
    no_open: bool


def survey(state_parent: str) -> list[Finding]:
    """Every finding, in the order in which a reader wants them."""
    offer = _fuse_offer()
    return [
        _kernel(),
        _device(),
        _mount_right(),
        _binding(),
        _protocol(offer),
        _session(offer),
        _passthrough(offer),
        _namespaces(),
        _allow_other(),
        _reflink(state_parent),
        _backstore(state_parent),
        _ramdisk(),
        _forwarding(state_parent),
        _openat2(),
        _pidfd_thread(),
    ]


def _kernel() -> Finding:
    release = os.uname().release
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in [*release.split("."), "0", "0"][:2])
    recent = (major, minor) >= (5, 6)
    return Finding("kernel", recent, f"Linux {release}", "openat2 and pidfd are missing before 5.6", "boot a newer kernel")


def _device() -> Finding:
    cost = "nothing can be mounted"
    if not os.path.exists(mounts.FUSE_DEVICE):
        remedy = "modprobe fuse (in a container: --device /dev/fuse)"
        return Finding("fuse device", False, "/dev/fuse is missing", cost, remedy, True)
    try:
        os.close(os.open(mounts.FUSE_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as exc:
        detail = f"/dev/fuse is there, opening it: {exc.strerror}"  # fusermount3 opens it as the user, too
        return Finding("fuse device", False, detail, cost, "as root: chmod 666 /dev/fuse (as Debian's udev rule does)", True)
    return Finding("fuse device", True, "/dev/fuse opens", cost, "", True)


def _mount_right() -> Finding:
    path = shutil.which("fusermount3")
    version = ""
    if path is not None:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
        version = done.stdout.strip().rpartition(" ")[2]
    found = path is not None and (_fusermount_is_setuid() or has_sys_admin())
    detail = f"{path} {version}" if path else "not installed"
    if path is not None and not found:
        detail += ", not setuid root"
    if not found and has_sys_admin():
        return Finding("fusermount3", True, f"{detail}; not needed as root", "", "")
    return Finding("fusermount3", found, detail, "an ordinary user cannot mount", "apt-get install fuse3", not has_sys_admin())


def _binding() -> Finding:
    try:
        module = importlib.import_module("pyfuse3")
    except ImportError as exc:
        return Finding(
            "libfuse3", False, f"pyfuse3 cannot be imported: {exc}", "nothing to fall back to where the native session fails",
            "apt-get install libfuse3-3, then pip install 'agentfsd[daemon]'",
        )  # fmt: skip
    return Finding("libfuse3", True, f"pyfuse3 {getattr(module, '__version__', '')}".strip(), "", "")


def _protocol(offer: FuseOffer | None) -> Finding:
    if offer is None:
        return Finding(
            "fuse protocol", False, "could not be asked (needs /dev/fuse and a private mount namespace)",
            "its fast paths cannot be foretold; mounting may still work", "",
        )  # fmt: skip
    detail = f"{offer.version}, zero-message open {'offered' if offer.no_open else 'not offered'}"
    return Finding("fuse protocol", True, detail, "", "")


def _session(offer: FuseOffer | None) -> Finding:
    """What `--session auto` and `run --io auto` will take."""
    if offer is None:
        return Finding("session", False, "native is tried first, pyfuse3 where that fails", "", "")
    minor = int(offer.version.partition(".")[2])
    if minor < OLDEST_MINOR:
        detail = f"pyfuse3: the native session needs FUSE 7.{OLDEST_MINOR}, this kernel speaks {offer.version}"
        return Finding("session", False, detail, "each request costs twice as much", "boot a newer kernel")
    return Finding("session", True, f"native; run: {'zero-message' if offer.no_open else 'cached'}", "", "")


def _passthrough(offer: FuseOffer | None) -> Finding:
    offered = offer is not None and offer.passthrough
    if offered and has_sys_admin():
        return Finding("passthrough", True, "offered by the kernel", "", "")
    if offer is None:
        detail = "unknown: the kernel could not be asked"
    elif offered:
        detail = "offered, but it needs CAP_SYS_ADMIN"
    else:
        detail = "not offered by the kernel (6.9 and later have it)"
    return Finding("passthrough", False, detail, "file data takes a turn through the daemon", "mount as root")


def _namespaces() -> Finding:
    reason = namespace.probe_error()
    return Finding(
        "private mount namespaces",
        reason == "",
        reason or ("as root" if has_sys_admin() else "by user namespaces"),
        "'run' relies on the slower view by process id, and one-step 'run' outside a mount is not possible",
        "sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000 "
        "kernel.apparmor_restrict_unprivileged_userns=0",
    )


def _allow_other() -> Finding:
    if has_sys_admin():
        return Finding("allow_other", True, "as root", "", "")
    try:
        with open("/etc/fuse.conf") as file:
            allowed = any(line.strip() == "user_allow_other" for line in file)
    except OSError:
        allowed = False
    return Finding(
        "allow_other",
        allowed,
        "user_allow_other is set" if allowed else "user_allow_other is not set in /etc/fuse.conf",
        "other users cannot enter this user's mounts (mount --allow-other is refused)",
        "echo user_allow_other | sudo tee -a /etc/fuse.conf",
    )


def _reflink(parent: str) -> Finding:
    reason = copying.reflink_error(_existing(parent))
    return Finding(
        "reflink",
        reason == "",
        f"{'works' if reason == '' else reason} in {parent}",
        "copy-up of a large file copies its bytes, and so does a snapshot with each file that is open past the daemon",
        "put the state on btrfs, XFS or bcachefs (mount --state DIR)",
    )


def _backstore(parent: str) -> Finding:
    """What `cap.backstore` of a mount will be."""
    how = "none" if copying.reflink_error(_existing(parent)) else "reflink"
    return Finding("backstore", True, f"hostfs(native-snapshots={how}) in {parent}", "", "")


def _ramdisk() -> Finding:
    return Finding(
        "ramdisk", has_sys_admin(), "a tmpfs can be mounted" if has_sys_admin() else "mounting a tmpfs needs CAP_SYS_ADMIN",
        "--backstore ramdisk keeps contents in the daemon's memory, which goes when that is killed", "mount as root",
    )  # fmt: skip


def _forwarding(parent: str) -> Finding:
    """cap.fd_forwarding of a mount whose state is kept there, once it is switched on."""
    reason = _giving_error(_existing(parent))
    return Finding(
        "fd forwarding",
        reason == "",
        f"off ({reason})" if reason else "shim, once it is switched on (agentfsd interpose set enabled=on)",
        "'run --interpose' is refused: file data takes a turn through the daemon, or through the kernel's passthrough",
        "",
    )


def _giving_error(directory: str) -> str:
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            if kernel.is_open_elsewhere(file.fileno()):
                return f"no leases in {directory}"
        for fd in readonly.views((directory, False)):
            os.close(fd)
    except OSError as exc:
        return exc.strerror or "failed"
    return ""


def _openat2() -> Finding:
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_BENEATH)
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = _syscall(_SYS_OPENAT2, root, b".", how, len(how))
        if fd >= 0:
            os.close(fd)
    finally:
        os.close(root)
    return Finding(
        "openat2", fd >= 0, "works" if fd >= 0 else "refused", "paths beneath the workspace are walked step by step", ""
    )


def _pidfd_thread() -> Finding:
    answer: list[int] = []

    def ask() -> None:
        answer.append(_syscall(_SYS_PIDFD_OPEN, threading.get_native_id(), _PIDFD_THREAD))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    if answer[0] >= 0:
        os.close(answer[0])
    return Finding(
        "pidfd of a thread", answer[0] >= 0, "works" if answer[0] >= 0 else "refused (6.9 and later have it)",
        "a thread's process is looked up through /proc", "",
    )  # fmt: skip


# -- trying -----------------------------------------------------------------------------------------------------------


def has_sys_admin() -> bool:
    with open("/proc/self/status") as file:
        bits = next(line.split()[1] for line in file if line.startswith("CapEff:"))
    return bool(int(bits, 16) & 1 << _CAP_SYS_ADMIN)


def _fusermount_is_setuid() -> bool:
    path = shutil.which("fusermount3")
    return path is not None and bool(os.stat(path).st_mode & 0o4000)


def _fuse_offer() -> FuseOffer | None:
    """Mounts in a private namespace of a child process and reads the kernel's first request; gone with the child."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            namespace.enter_private_mounts()
            fd = mounts.mount_fuse("/proc", frozenset(), allow_other=False)
            os.write(write_end, os.read(fd, 1 << 17))
        except OSError:
            pass
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as file:
        request = file.read()
    os.waitpid(child, 0)
    if len(request) < 56 or struct.unpack_from("=I", request, 4)[0] != _FUSE_INIT:
        return None
    major, minor, _readahead, flags = struct.unpack_from("=IIII", request, 40)
    flags2 = struct.unpack_from("=I", request, 56)[0] if len(request) >= 60 else 0
    return FuseOffer(f"{major}.{minor}", bool(flags2 & _FUSE_PASSTHROUGH), bool(flags & _FUSE_NO_OPENDIR_SUPPORT))


def _syscall(number: int, *arguments: int | bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(ctypes.c_long(number), *arguments))


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
