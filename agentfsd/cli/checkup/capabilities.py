"""Finds out by trial what this machine offers to agentfsd. Each finding says what its absence costs and what mends it.

It must never rely on version numbers where a trial is possible, and it leaves nothing behind.
"""

import importlib
import importlib.util
import os
import shutil
import tempfile
import threading

from agentfs_client import interpose
from agentfs_host import copying, syncing, syscalls
from agentfsd.backstore.backstore_kind import BackstoreKind
from agentfsd.backstore.known_backstores import BACKSTORES, DEFAULT
from agentfsd.binding import procfs
from agentfsd.cli.checkup import fuse_findings, remedies
from agentfsd.cli.checkup.finding import Finding
from agentfsd.cli.checkup.privileges import has_sys_admin
from agentfsd.cli.sandbox import confinement, namespace_trial
from agentfsd.linux import home_layers, readonly_mounts

NAMESPACE_SETTINGS = (  # name, the value that forbids, one that permits
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)


def survey(state_parent: str) -> list[Finding]:
    """Every finding, in the order in which a reader wants them."""
    return [
        _kernel(),
        _packages(),
        *fuse_findings.survey_fuse(),
        _namespaces(),
        _confinement(),
        _home_layers(state_parent),
        fuse_findings.find_allow_other(),
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
    for key, bad, good in NAMESPACE_SETTINGS:
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


def _home_layers(parent: str) -> Finding:
    reason = home_layers.why_not(_existing(parent))
    return Finding(
        "layers over the home directory", reason == "", f"{reason or 'overlayfs works'} in {parent}",
        "'run --home overlay' shows a read-only home directory, and 'run --confine strict' needs --home ro",
        "put the state on ext4, XFS, btrfs or tmpfs (mount --state DIR); Linux 5.11 or newer for ordinary users",
    )  # fmt: skip


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
    how = syscalls.OpenHow(os.O_PATH | os.O_CLOEXEC, 0, syscalls.RESOLVE_BENEATH)
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(syscalls.openat2(root, b".", how))
        works = True
    except OSError:
        works = False
    finally:
        os.close(root)
    return Finding("openat2", works, "works" if works else "refused", "paths beneath the workspace are walked step by step", "")


def _pidfd_thread() -> Finding:
    answer: list[int] = []
    thread = threading.Thread(target=lambda: answer.append(procfs.pidfd(threading.get_native_id(), thread=True)))
    thread.start()
    thread.join()
    works = answer[0] >= 0
    if works:
        os.close(answer[0])
    return Finding(
        "pidfd of a thread", works, "works" if works else "refused (6.9 and later have it)",
        "a thread's process is looked up through /proc", "",
    )  # fmt: skip


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
