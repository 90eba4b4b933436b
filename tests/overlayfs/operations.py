"""Random operations on two directories that shall stay the same: each is done in both, with the same outcome."""

import contextlib
import os
import random
import shutil
import stat
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agentfs_host import syscalls

LOWER = """
mkdir -p a/b/c b d/e/a empty
for n in f g; do echo top $n > $n; echo $n > a/$n; echo deep $n > a/b/$n; echo $n > a/b/c/$n; echo $n > d/e/$n; done
ln -s f a/link; ln -s nowhere link; chmod 750 a/b; chown 12:34 a/g; touch -d 2001-02-03T04:05:06.789 a/f d/e
printf x > "$(printf 'new\\nline\\377')"
setfattr -n user.note -v one a/f; mkfifo d/pipe
"""
_NAMES = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"link", b"pipe", b"new\nline\xff"]

Operation = tuple[str, tuple[object, ...]]


class Pair:
    """Two directories, *one* and *other*. Files that are open for writing stay open in both."""

    def __init__(self, one: bytes, other: bytes) -> None:
        self.roots = (one, other)
        self._open: list[tuple[int, int]] = []

    def do(self, operation: Operation) -> None:
        """Do an operation in both directories; AssertionError if only one of them permits it."""
        name, arguments = operation
        if name.startswith("held"):
            self._held(name, arguments)
            return
        said = []
        for root in self.roots:
            try:
                _OPERATIONS[name].do(root + b"/", *arguments)
                said.append("done")
            except OSError as exc:
                said.append(os.strerror(exc.errno or 0))
        assert said[0] == said[1], f"{operation}: {said}"

    def _held(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "held open":
            with contextlib.suppress(OSError):
                self._open.append((self._opened(self.roots[0], *arguments), self._opened(self.roots[1], *arguments)))
            return
        for fd in self._open[-1] if self._open else ():
            if name == "held write":
                os.pwrite(fd, *arguments, 3)
            else:
                os.fchmod(fd, 0o640)

    @staticmethod
    def _opened(root: bytes, where: bytes) -> int:
        return os.open(root + b"/" + where, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self) -> None:
        """Close what is open."""
        for fds in self._open:
            for fd in fds:
                os.close(fd)
        self._open.clear()


class Chooser:
    """Chooses operations for what a directory has at the time."""

    def __init__(self, rng: random.Random, plain: bytes) -> None:
        self._rng, self._plain = rng, plain

    def choose(self, names: Sequence[str] = ()) -> Operation:
        """Choose an operation. *names*: of which; empty: of all."""
        paths, pick = _paths(self._plain), self._rng.choice
        directories = [path for path, mode in paths if stat.S_ISDIR(mode)]
        files = [path for path, mode in paths if stat.S_ISREG(mode)] or [b"f"]
        anything = [path for path, _ in paths if path] or [b"f"]
        kinds: dict[str, Callable[[], object]] = {
            "file": lambda: pick(files),
            "any": lambda: pick(anything),
            "new": lambda: self._new(directories),
            "place": lambda: pick([self._new(directories), pick(files)]),
            "target": lambda: pick([self._new(directories), pick(anything)]),
            "data": lambda: self._rng.randbytes(pick([0, 1, 5, 40])),
            "size": lambda: pick([0, 1, 3, 10000]),
            "name": lambda: pick(_NAMES),
            "mode": lambda: pick([0o600, 0o644, 0o755, 0o4711, 0o2750, 0]),
            "user": lambda: pick([0, 12, 65534]),
            "time": lambda: self._rng.randrange(10**18),
            "xattr": lambda: pick(["user.note", "user.x", "trusted.y"]),
        }
        name = pick(list(names) or _WEIGHTED)
        return name, tuple(kinds[kind]() for kind in _OPERATIONS[name].arguments.split())

    def _new(self, directories: list[bytes]) -> bytes:
        directory, name = self._rng.choice(directories), self._rng.choice(_NAMES)
        return directory + b"/" + name if directory else name


def _paths(root: bytes) -> list[tuple[bytes, int]]:
    found = [(b"", stat.S_IFDIR)]
    for directory, names, files in os.walk(root):
        for name in sorted(names) + sorted(files):
            where = os.path.join(directory, name)
            found.append((where[len(root) + 1 :], os.lstat(where).st_mode))
    return sorted(found)


def _write(root: bytes, path: bytes, data: bytes, flags: int = os.O_TRUNC | os.O_CREAT) -> None:
    fd = os.open(root + path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | flags, 0o644)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _truncate(root: bytes, path: bytes, size: int) -> None:
    os.truncate(root + path, size)


def _replace(root: bytes, path: bytes, data: bytes) -> None:
    os.unlink(root + path)
    _write(root, path, data)


def _by_rename(root: bytes, path: bytes, data: bytes) -> None:
    _write(root, path + b".tmp", data)
    try:
        os.rename(root + path + b".tmp", root + path)
    except OSError:
        os.unlink(root + path + b".tmp")
        raise


def _tmpfile(root: bytes, path: bytes, data: bytes) -> None:
    fd = os.open(os.path.dirname(root + path), os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o640)
    try:
        os.write(fd, data)
        directory = os.open(os.path.dirname(root + path), os.O_RDONLY | os.O_DIRECTORY)
        try:  # with a descriptor: only so linkat(2) follows the link in /proc
            os.link(b"/proc/self/fd/%d" % fd, os.path.basename(path), dst_dir_fd=directory)
        finally:
            os.close(directory)
    finally:
        os.close(fd)


def _remove_all(root: bytes, path: bytes) -> None:
    if not stat.S_ISDIR(os.lstat(root + path).st_mode):
        os.unlink(root + path)
        return
    shutil.rmtree(root + path)


def _exchange(root: bytes, path: bytes, other: bytes) -> None:
    syscalls.exchange(os.fsdecode(root + path), os.fsdecode(root + other))


def _utime(root: bytes, path: bytes, mtime_ns: int) -> None:
    os.utime(root + path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)


def linked(root: bytes) -> tuple[bytes, ...]:
    """The names of files that have several."""
    return tuple(path for path, mode in _paths(root) if stat.S_ISREG(mode) and os.lstat(root + b"/" + path).st_nlink > 1)


def _break_links(root: bytes, *paths: bytes) -> None:
    """Give each name a file of its own: the kernel does that to what has several names below, when it is written."""
    for path in paths:
        own = root + path + b".alone"
        shutil.copy2(root + path, own)
        status = os.stat(root + path)
        os.chown(own, status.st_uid, status.st_gid)
        os.chmod(own, stat.S_IMODE(status.st_mode))
        os.rename(own, root + path)


class _Kind(NamedTuple):
    """``weight``: how often it is chosen; ``arguments``: their kinds, as Chooser names them; ``do``: gets the root first."""

    weight: int
    arguments: str
    do: Callable[..., None]


_OPERATIONS: dict[str, _Kind] = {
    "write": _Kind(5, "place data", _write),
    "append": _Kind(3, "file data", lambda root, path, data: _write(root, path, data, os.O_APPEND)),
    "replace": _Kind(1, "place data", _replace),
    "by rename": _Kind(1, "place data", _by_rename),
    "tmpfile": _Kind(1, "place data", _tmpfile),
    "truncate": _Kind(1, "file size", _truncate),
    "mkdir": _Kind(4, "new", lambda root, path: os.mkdir(root + path)),
    "fifo": _Kind(1, "new", lambda root, path: os.mkfifo(root + path)),
    "unlink": _Kind(2, "any", lambda root, path: os.unlink(root + path)),
    "rmdir": _Kind(1, "any", lambda root, path: os.rmdir(root + path)),
    "rm -r": _Kind(3, "any", _remove_all),
    "rename": _Kind(7, "any target", lambda root, path, to: os.rename(root + path, root + to)),
    "exchange": _Kind(2, "any target", _exchange),
    "link": _Kind(3, "file new", lambda root, path, to: os.link(root + path, root + to, follow_symlinks=False)),
    "symlink": _Kind(1, "name new", lambda root, target, path: os.symlink(target, root + path)),
    "chmod": _Kind(2, "any mode", lambda root, path, mode: os.chmod(root + path, mode)),
    "chown": _Kind(1, "any user user", lambda root, path, uid, gid: os.chown(root + path, uid, gid, follow_symlinks=False)),
    "utime": _Kind(1, "any time", _utime),
    "setxattr": _Kind(
        2, "any xattr data", lambda root, path, name, value: os.setxattr(root + path, name, value, follow_symlinks=False)
    ),
    "removexattr": _Kind(1, "any xattr", lambda root, path, name: os.removexattr(root + path, name, follow_symlinks=False)),
    "break links": _Kind(0, "", _break_links),
    "held open": _Kind(1, "file", lambda *_: None),
    "held write": _Kind(2, "data", lambda *_: None),
    "held chmod": _Kind(1, "", lambda *_: None),
}
_WEIGHTED = [name for name, kind in _OPERATIONS.items() for _ in range(kind.weight)]
