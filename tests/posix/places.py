"""What a test of the behaviour suite starts from, and helpers to do things as another process or user."""

import ctypes
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

EXT4_MAGIC = 0xEF53
SEED_BYTES = b"0123456789abcdef" * 20_000
NOBODY = (65534, 65534)

_T = TypeVar("_T")
_libc = ctypes.CDLL(None, use_errno=True)


def seed(where: Path) -> None:
    """A small tree: files, a file with two names, a symlink, directories."""
    old = os.umask(0o022)
    (where / "dir" / "deep").mkdir(parents=True)
    (where / "void").mkdir()
    (where / "file").write_bytes(b"seed\n")
    (where / "big").write_bytes(SEED_BYTES)
    (where / "dir" / "inner").write_bytes(b"inner\n")
    (where / "dir" / "deep" / "leaf").write_bytes(b"leaf\n")
    (where / "hard").write_bytes(b"hard\n")
    (where / "hard2").hardlink_to(where / "hard")
    (where / "link").symlink_to("file")
    os.umask(old)


def filesystem_type(path: Path) -> int:
    """statfs(2): f_type."""
    buffer = (ctypes.c_long * 32)()
    if _libc.statfs(os.fsencode(path), buffer) != 0:
        raise OSError(ctypes.get_errno(), "statfs")
    return buffer[0]


def call(name: str, *arguments: object) -> int:
    """A libc function that Python does not wrap; raises OSError as os.* would."""
    result: int = getattr(_libc, name)(*arguments)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result


def link_descriptor(fd: int, path: Path) -> None:
    """A (further) name for an open file; os.link() does not follow the link in /proc."""
    call("linkat", -100, f"/proc/self/fd/{fd}".encode(), -100, os.fsencode(path), 0x400)


def in_child(work: Callable[[], _T], *, where: Path | None = None, user: tuple[int, ...] | None = None) -> _T:
    """Runs *work* in a forked process, standing in *where*; its result or exception comes back.

    *user* is (uid, gid, supplementary groups...). Another user cannot walk into ``.agentfs``: use relative names then.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        with open(write_end, "wb") as report:
            pickle.dump(_outcome(work, where, user), report)
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as report:
        encoded = report.read()
    os.waitpid(child, 0)
    assert encoded, "the child died"
    result, error = pickle.loads(encoded)
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _outcome(work: Callable[[], _T], where: Path | None, user: tuple[int, ...] | None) -> tuple[object, object]:
    try:
        if where is not None:
            os.chdir(where)
        if user is not None:
            os.setgroups(user[2:])
            os.setgid(user[1])
            os.setuid(user[0])
        return work(), None
    except OSError as exc:
        return None, exc
    except BaseException as exc:  # noqa: BLE001 - the parent raises it
        return None, AssertionError("".join(traceback.format_exception(exc)))


def errno_of(work: Callable[[], object]) -> int:
    """The errno with which something fails; 0 when it does not."""
    try:
        work()
    except OSError as exc:
        return exc.errno or -1
    return 0


def needs_root_for(what: str) -> None:
    if os.geteuid() != 0:
        pytest.skip(f"needs root: {what}")
