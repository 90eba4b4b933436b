"""What `doctor` finds out about FUSE: the right to mount, what the kernel offers, who may enter a mount."""

import errno
import importlib
import os
import shutil
import stat
import struct
import subprocess
from dataclasses import dataclass

from agentfsd.cli.checkup import remedies
from agentfsd.cli.checkup.finding import Finding
from agentfsd.cli.checkup.privileges import has_no_new_privileges, has_sys_admin, may_gain_sys_admin
from agentfsd.fuse.native.fuse_protocol import OLDEST_MINOR
from agentfsd.linux import mounts, namespaces

_FUSE_INIT = 26  # linux/fuse.h
_FUSE_PASSTHROUGH = 1 << (37 - 32)  # in flags2
_FUSE_NO_OPENDIR_SUPPORT = 1 << 24
_MTAB = "/etc/mtab"
_NOT_NEEDED = "; not needed as root"


@dataclass(frozen=True, slots=True)
class FuseOffer:
    """What the kernel's FUSE_INIT request offered."""

    version: str
    passthrough: bool
    no_open: bool


def survey_fuse() -> list[Finding]:
    """Find out what FUSE needs and what this kernel's FUSE can. A child process asks the kernel."""
    offer = _fuse_offer()
    return [
        _device(),
        _mount_right(),
        _mount_table(),
        _libfuse(),
        _protocol(offer),
        _session(offer),
        _passthrough(offer),
    ]


def _device() -> Finding:
    cost = "nothing can be mounted"
    path = mounts.FUSE_DEVICE
    if not os.path.exists(path):
        return Finding("fuse device", False, f"{path} is missing", cost, _remedy_for_no_device(path), True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as exc:
        remedy = remedies.as_root(f"chmod 666 {path}")  # fusermount3 opens it as the user, too
        if exc.errno == errno.EPERM:  # a control group's rule
            remedy = remedies.start_container("--device /dev/fuse")
        elif exc.errno in (errno.ENODEV, errno.ENXIO):
            remedy = remedies.as_root("modprobe fuse")
        return Finding("fuse device", False, f"{path} is there, opening it: {exc.strerror}", cost, remedy, True)
    return Finding("fuse device", True, f"{path} opens", cost, "", True)


def _remedy_for_no_device(path: str) -> str:
    if not _kernel_has_fuse():
        return remedies.as_root("modprobe fuse") + (" (on the host)" if remedies.in_container() else "")
    if remedies.in_container():
        return remedies.start_container("--device /dev/fuse --cap-add SYS_ADMIN")
    return remedies.as_root(f"mknod -m 666 {path} c 10 229")


def _kernel_has_fuse() -> bool:
    with open("/proc/filesystems") as file:
        return any(line.split()[-1:] == ["fuse"] for line in file)


def _mount_right() -> Finding:
    """Check whether this process can mount. An ordinary user needs fusermount3 to be setuid root."""
    path = shutil.which("fusermount3")
    cost = "nobody without CAP_SYS_ADMIN can mount"
    if path is None:
        return Finding("fusermount3", has_sys_admin(), "not installed" + _NOT_NEEDED * has_sys_admin(), cost,
                       remedies.install("fusermount3"), not has_sys_admin())  # fmt: skip
    version_line = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    reason, remedy = _fusermount_obstacle(path)
    detail = f"{path} {version_line.rpartition(' ')[2]}{f', {reason}' if reason else ''}"
    if has_sys_admin():
        return Finding("fusermount3", True, detail + _NOT_NEEDED * bool(reason), cost, "")
    return Finding("fusermount3", not reason, detail, cost, remedy, True)


def _fusermount_obstacle(path: str) -> tuple[str, str]:
    """Say why fusermount3 does not become root, and what mends that; "" for both if it does."""
    if not os.stat(path).st_mode & stat.S_ISUID:
        return "not setuid root", remedies.as_root(f"chmod u+s {path}")
    if has_no_new_privileges():
        return "setuid programs gain nothing here (no_new_privs)", remedies.start_container(
            "--security-opt no-new-privileges=false"
        )
    if not may_gain_sys_admin():
        return "without the right to mount, which was taken from all processes here", remedies.start_container(
            "--cap-add SYS_ADMIN"
        )
    return "", ""


def _mount_table() -> Finding:
    exists = os.path.lexists(_MTAB)
    detail = f"{_MTAB} is there" if exists else f"{_MTAB} is missing" + _NOT_NEEDED * has_sys_admin()
    return Finding(
        "mount table", exists or has_sys_admin(), detail,
        "an ordinary user cannot unmount: fusermount3 looks there", remedies.as_root(f"ln -s ../proc/self/mounts {_MTAB}"),
    )  # fmt: skip


def _libfuse() -> Finding:
    cost = "nothing to fall back to where the native session fails"
    try:
        module = importlib.import_module("pyfuse3")
    except ImportError as exc:
        remedy = " && ".join([remedies.install("pyfuse3"), remedies.pip("'agentfsd[daemon]'")])
        return Finding("libfuse3", False, f"pyfuse3 cannot be imported: {exc}", cost, remedy)
    return Finding("libfuse3", True, f"pyfuse3 {getattr(module, '__version__', '')}".strip(), cost, "")


def _protocol(offer: FuseOffer | None) -> Finding:
    if offer is None:
        return Finding(
            "fuse protocol", False, "could not be asked (needs /dev/fuse and a private mount namespace)",
            "it is unknown which fast paths there are; mounting may still work", "",
        )  # fmt: skip
    detail = f"{offer.version}, zero-message open {'offered' if offer.no_open else 'not offered'}"
    return Finding("fuse protocol", True, detail, "", "")


def _session(offer: FuseOffer | None) -> Finding:
    """Say what `--session auto` and `run --io auto` will choose."""
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
    return Finding("passthrough", False, detail, "file data takes a turn through the daemon", remedies.gain_sys_admin())


def find_allow_other() -> Finding:
    """Find out whether an ordinary user may let others enter a mount."""
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
        remedies.as_root("sh -c 'echo user_allow_other >> /etc/fuse.conf'"),
    )


def _fuse_offer() -> FuseOffer | None:
    """Mount in a private namespace of a child process and read the kernel's first request. The mount ends with the child."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            namespaces.enter_private_mounts()
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
