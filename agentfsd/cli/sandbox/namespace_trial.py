"""Whether a private mount namespace is to be had here, and what it would keep the caller from."""

import os

from agentfsd.linux import namespaces


def would_bar(path: str) -> bool:
    """Whether a user namespace keeps the caller from writing to a directory, as in a project that several users share.

    In a file system that is mounted there the kernel lets nobody write to what belongs to a user or group that is not mapped,
    whatever the mode says. One that was mounted outside is not concerned.
    """
    status = os.stat(path)
    return os.geteuid() != 0 and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid())


def probe_error() -> str:
    """Try in a child process to make a private mount namespace, and return why this user cannot; "" when it works."""
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
