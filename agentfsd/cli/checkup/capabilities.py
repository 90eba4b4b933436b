"""Finds out by trial what this machine offers to agentfsd. Each finding says what its absence costs and what mends it.

It must never rely on version numbers where a trial is possible, and it leaves nothing behind.
"""

import ctypes
import errno
import importlib
import importlib.util
import os
import shutil
import stat
import struct
import subprocess
import tempfile
import threading
from dataclasses import dataclass

import msgspec

from agentfs_client import interpose
from agentfs_host import copying, syncing
from agentfsd.backstore.backstore_kind import BackstoreKind
from agentfsd.backstore.known_backstores import BACKSTORES, DEFAULT
from agentfsd.cli.checkup import remedies
from agentfsd.cli.sandbox import confinement, namespace_trial
from agentfsd.fuse.native.fuse_protocol import OLDEST_MINOR
from agentfsd.linux import mounts, namespaces, readonly_mounts

_SYS_OPENAT2 = 437
_SYS_PIDFD_OPEN = 434
_RESOLVE_BENEATH = 0x08
_PIDFD_THREAD = os.O_EXCL
_FUSE_INIT = 26  # linux/fuse.h
_FUSE_PASSTHROUGH = 1 << (37 - 32)  # in flags2
_FUSE_NO_OPENDIR_SUPPORT = 1 << 24
_CAP_SYS_ADMIN = 21
_MTAB = "/etc/mtab"
_NOT_NEEDED = "; not needed as root"
_NAMESPACE_SETTINGS = (  # name, the value that forbids, one that permits
    ("syscalls.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
    ("syscalls.apparmor_restrict_unprivileged_userns", "1", "0"),
)


class Finding(msgspec.Struct, frozen=True):
    """One capability of the machine.

    Attributes:
        name: A short name.
        found: The machine has it.
        detail: What the trial showed.
        cost: What its absence costs.
        remedy: A command or setting that mends its absence; "" if there is none.
        needed: Without it, nothing can be mounted.
    """

    name: str
    found: bool
    detail: str
    cost: str
    remedy: str
    needed: bool = False


@dataclass(frozen=True, slots=True)
class FuseOffer:
    """What the kernel's FUSE_INIT request offered."""

    version: str
    passthrough: bool
    no_open: bool


def survey(state_parent: str) -> list[Finding]:
    """Every finding, in the order in which a reader wants them."""
    offer = _fuse_offer()
    return [
        _kernel(),
        _packages(),
        _device(),
        _mount_right(),
        _mount_table(),
        _binding(),
        _protocol(offer),
        _session(offer),
        _passthrough(offer),
        _namespaces(),
        _confinement(),
        _allow_other(),
        _reflink(state_parent),
        _backstore(state_parent),
        *(_needs_root(kind) for kind in BACKSTORES.values() if kind.needs_root),
        _forwarding(state_parent),
        _library(),
        _git(),
        _openat2(),
        _pidfd_thread(),
    ]


def _kernel() -> Finding:
    release = os.uname().release
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in [*release.split("."), "0", "0"][:2])
    recent = (major, minor) >= (5, 6)
    return Finding("kernel", recent, f"Linux {release}", "openat2 and pidfd are missing before 5.6", "boot a newer kernel")


def _packages() -> Finding:
    missing = [name for name in ("trio", "pygit2", "rich", "pygments") if importlib.util.find_spec(name) is None]
    detail = f"missing: {', '.join(missing)}" if missing else "all there"
    return Finding("Python packages", not missing, detail, "there is no daemon", remedies.pip("'agentfsd[native]'"), True)


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
    if _status("NoNewPrivs") == "1":
        return "setuid programs gain nothing here (no_new_privs)", remedies.start_container(
            "--security-opt no-new-privileges=false"
        )
    if not int(_status("CapBnd"), 16) & 1 << _CAP_SYS_ADMIN:
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


def _binding() -> Finding:
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


def _namespaces() -> Finding:
    reason = namespace_trial.probe_error()
    return Finding(
        "private mount namespaces",
        reason == "",
        reason or ("as root" if has_sys_admin() else "by user namespaces"),
        "'run' relies on the slower view by process id, and one-step 'run' outside a mount is not possible",
        _remedy_for_namespaces(),
    )


def _remedy_for_namespaces() -> str:
    """Return the settings that permit user namespaces; if no setting forbids them, a container's system call filter may."""
    wrong = []
    for key, bad, good in _NAMESPACE_SETTINGS:
        try:
            with open(f"/proc/sys/{key.replace('.', '/')}") as file:
                if file.read().strip() == bad:
                    wrong.append(f"{key}={good}")
        except OSError:
            continue  # this kernel has no such setting
    if wrong:
        return remedies.as_root(f"sysctl -w {' '.join(wrong)}") + (" (on the host)" if remedies.in_container() else "")
    return remedies.start_container("--cap-add SYS_ADMIN") if remedies.in_container() else ""


def _confinement() -> Finding:
    missing = confinement.shortcomings()
    return Finding(
        "confinement", not missing, "; ".join(missing) or "domains, locked mounts, a filter of system calls",
        "a command of 'run' is confined less than it could be: see docs/explanation/security.md", "",
    )  # fmt: skip


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
        remedies.as_root("sh -c 'echo user_allow_other >> /etc/fuse.conf'"),
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
    """Say what the capability `cap.backstore` of a mount will be."""
    how = "none" if copying.reflink_error(_existing(parent)) else "reflink"
    return Finding("backstore", True, f"{DEFAULT.name}(native-snapshots={how}) in {parent}", "", "")


def _needs_root(kind: BackstoreKind) -> Finding:
    stand_in = BACKSTORES[kind.stand_in].help
    return Finding(
        kind.name, has_sys_admin(), "a tmpfs can be mounted" if has_sys_admin() else "mounting a tmpfs needs CAP_SYS_ADMIN",
        f"--backstore {kind.name} keeps contents in {stand_in}, which goes when that is killed", remedies.gain_sys_admin(),
    )  # fmt: skip


def _forwarding(parent: str) -> Finding:
    """Say what the capability `cap.fd_forwarding` of a mount will be once forwarding is on."""
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
            if syncing.is_open_elsewhere(file.fileno()):
                return f"no leases in {directory}"
        for fd in readonly_mounts.views((directory, False)):
            os.close(fd)
    except OSError as exc:
        return exc.strerror or "failed"
    return ""


def _library() -> Finding:
    exists = interpose.library() is not None
    detail = "there" if exists else "this installation was made without a C compiler"
    again = remedies.pip("--force-reinstall --no-deps --no-binary agentfsd agentfsd")
    cost = "'run --interpose' is refused (agentfs_client.open gives Python programs the same)"
    return Finding("preloaded library", exists, detail, cost, f"{remedies.install('compiler')} && {again}")


def _git() -> Finding:
    path = shutil.which("git")
    cost = "an http remote that wants a password is refused: `git credential` is asked for it"
    return Finding("git", path is not None, path or "not installed", cost, remedies.install("git"))


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
    return bool(int(_status("CapEff"), 16) & 1 << _CAP_SYS_ADMIN)


def _status(field: str) -> str:
    with open("/proc/self/status") as file:
        return next(line.split()[1] for line in file if line.startswith(f"{field}:"))


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


def _syscall(number: int, *arguments: int | bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(ctypes.c_long(number), *arguments))


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
