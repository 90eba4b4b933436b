"""Find out whether a private mount namespace is possible here, and what the caller could not write in it."""

import os

from agentfsd.linux import namespaces


def would_bar(path: str) -> bool:
    """Return whether a user namespace keeps the caller from writing to a directory, such as a project that several users share.

    In a file system that is mounted inside the namespace, nobody can write to files of users and groups that are not mapped
    there, whatever the mode is. A file system that was mounted outside is not affected.
    """
    status = os.stat(path)
    return os.geteuid() != 0 and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid())


def probe_error() -> str:
    """Return why this user cannot make a private mount namespace; "" if it works. A child process tries it."""
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
