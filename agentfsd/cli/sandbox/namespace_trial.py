"""Whether a private mount namespace is to be had here, and what it would keep the caller from; child subreapers."""

import ctypes
import os

from agentfsd.linux import namespaces

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """From now on orphaned descendants become children of this process."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def would_bar(path: str) -> bool:
    """Whether a user namespace keeps the caller from writing to a directory, as in a project that several users share.

    In a file system that is mounted there the kernel lets nobody write to what belongs to a user or group that is not mapped,
    whatever the mode says. One that was mounted outside is not concerned.
    """
    status = os.stat(path)
    return os.geteuid() != 0 and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid())


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
            namespaces.enter_private_mounts()
            namespaces.bind_over("/proc", "/proc")
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


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
