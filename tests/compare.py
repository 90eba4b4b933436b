"""Two directory trees, compared in everything that stat, xattrs and content can tell."""

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path


def describe(root: Path, *, leave_out: Iterable[str] = (), times: bool = False) -> dict[str, tuple[object, ...]]:
    """What each path below *root* is: type, mode, owner, links (by the names that share an inode), xattrs, content.

    Content of paths that end in one of *leave_out* is not looked at. *times* adds mtime in ns.
    """
    skipped = tuple(leave_out)
    found: dict[str, tuple[object, ...]] = {}
    first_name: dict[int, str] = {}
    for path in _walk(root):
        name = os.fsencode(path.relative_to(root)).decode("utf-8", "backslashreplace")
        info = path.lstat()
        is_dir = stat.S_ISDIR(info.st_mode)
        linked_to = "" if is_dir else first_name.setdefault(info.st_ino, name)
        xattrs = {key: os.getxattr(path, key, follow_symlinks=False) for key in os.listxattr(path, follow_symlinks=False)}
        found[name] = (
            oct(info.st_mode), info.st_uid, info.st_gid, info.st_rdev, info.st_nlink, linked_to, sorted(xattrs.items()),
            "" if name.endswith(skipped) else _content(path, info),
            info.st_mtime_ns if times else 0,
        )  # fmt: skip
    return found


def _walk(root: Path) -> Iterable[Path]:
    for directory, directories, files in os.walk(root):
        directories.sort()
        for name in sorted(directories + files):
            yield Path(directory) / name


def _content(path: Path, info: os.stat_result) -> str:
    if stat.S_ISLNK(info.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(info.st_mode):
        return ""
    return f"{info.st_size}:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def differences(one: dict[str, tuple[object, ...]], two: dict[str, tuple[object, ...]]) -> list[str]:
    """Readable; empty when they are equal."""
    return [
        f"{name}: {one.get(name)} / {two.get(name)}" for name in sorted(one.keys() | two.keys()) if one.get(name) != two.get(name)
    ]
