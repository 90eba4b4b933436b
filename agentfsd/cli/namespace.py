"""Private mount namespaces and child subreapers, by system calls; it knows nothing of branches or daemons.

Call the namespace functions only in a single-threaded process that is about to exec: there is no way back.
"""

import ctypes
import os

_CLONE_NEWNS = 0x00020000  # unshare(2)
_CLONE_NEWUSER = 0x10000000
_MS_BIND = 0x1000  # mount(2)
_MS_REC = 0x4000
_MS_PRIVATE = 1 << 18
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """From now on orphaned descendants become children of this process."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def enter_private_mounts() -> bool:
    """Gives this process a copy of the mount table that nobody else sees; True when in a user namespace of its own.

    Without the privilege for it, in a user namespace where the caller's uid and gid are themselves and no others exist:
    the command keeps its identity and, once it has exec'ed, holds no capability that it did not have before.
    """
    is_owner: bool = _libc.unshare(_CLONE_NEWNS) != 0
    if is_owner:
        uid, gid = os.geteuid(), os.getegid()
        _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount")
    return is_owner


def would_bar(path: str) -> bool:
    """Whether a user namespace keeps the caller from writing to a directory, as in a project that several users share.

    In a file system that is mounted there the kernel lets nobody write to what belongs to a user or group that is not mapped,
    whatever the mode says. One that was mounted outside is not concerned.
    """
    found = os.stat(path)
    return os.geteuid() != 0 and (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid())


def bind_over(source: str, target: str) -> None:
    """Shows the directory *source*, with what is mounted in it, at *target*, to this process and its future children."""
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, _MS_BIND | _MS_REC, None), target)


def is_permitted() -> bool:
    """Tries it in a child process: whether this user may have a private mount namespace here."""
    return probe_error() == ""


def probe_error() -> str:
    """Why a private mount namespace is not to be had; "" when it is."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        message = "the child died"
        try:
            enter_private_mounts()
            bind_over("/proc", "/proc")
            message = ""
        except OSError as exc:
            message = exc.strerror or "unknown error"
        finally:
            os.write(write_end, message.encode())
            os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as file:
        message = file.read().decode()
    os.waitpid(child, 0)
    return message


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
