"""How a try is declared, what it is told of the world, and what several of them need."""

import ctypes
import errno
import os
import subprocess
from collections.abc import Callable
from types import SimpleNamespace

world = SimpleNamespace()  # what world.py describes of it; empty where no try is made
RUNNER = os.getppid()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
TRIES: dict[str, Callable[[], object]] = {}
MARKING: set[str] = set()


def attempt(function: Callable[[], object]) -> Callable[[], object]:
    """One that is to be refused."""
    TRIES[function.__name__] = function
    return function


def marking(function: Callable[[], object]) -> Callable[[], object]:
    """One that may be carried out as long as nothing is different outside: in the branch it may."""
    MARKING.add(function.__name__)
    return attempt(function)


def call(number: int, *arguments: object) -> int:
    shaped = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = libc.syscall(ctypes.c_long(number), *shaped)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def mark(name: str, path: str, dir_fd: int | None = None) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=dir_fd)
    os.write(fd, f"ESCAPED {name}\n".encode())
    os.close(fd)


def read(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read(200)


def sh(script: str) -> str:
    """OSError when it fails."""
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise OSError(errno.EPERM, done.stderr.strip()[-200:] or str(done.returncode))
    return done.stdout


def agentfsd(*words: str) -> str:
    done = subprocess.run([*world.agentfsd, *words], capture_output=True, text=True, timeout=60, cwd=world.point)
    if done.returncode != 0:
        raise OSError(errno.EPERM, done.stderr.strip()[-200:])
    return done.stdout


def victim(name: str) -> str:
    return f"{world.lower}/victims/{name}"
