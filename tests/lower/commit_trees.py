"""Two trees and the steps that make the one into the other: every kind of change that a commit can bring to the lower."""

import os
import shutil
import socket
import stat
import struct
from pathlib import Path

from agentfs_client.address import unix_address
from agentfsd.lower.commit_plan import ABSENT, Adjust, FileAttributes, Identity, Put, Remove, Step
from tests.compare import describe

ACL = struct.pack("<IHHIHHIHHIHHI", 2, 0x01, 6, 0xFFFFFFFF, 0x02, 4, 65534, 0x04, 4, 0xFFFFFFFF, 0x10, 4, 0xFFFFFFFF)
ACL += struct.pack("<HHI", 0x20, 0, 0xFFFFFFFF)  # rw for the owner, r for user 65534 and the group
_YEARS_NS = 10**18
LONG = "a-long-name-" * 18


class FileContent:
    """A file's content, by its path."""

    def __init__(self, path: Path) -> None:
        self._path, self.size = path, path.stat().st_size

    def open(self) -> int:
        return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOATIME)


def make_lower(root: Path, files: int) -> None:
    """*files* that will change, and some of each kind."""
    root.mkdir()
    for number in range(files):
        directory = root / f"many{number % 7}"
        directory.mkdir(exist_ok=True)
        (directory / f"f{number}").write_bytes(b"old %d\n" % number * (number % 90))
    for name in ("to-file", "to-link", "to-fifo", "to-directory", "gone", "sparse", "mode-only", "one"):
        (root / name).write_text(f"old {name}")
    os.link(root / "one", root / "two")
    (root / "link").symlink_to("one")
    (root / "stays").write_text("stays")
    (root / "tree" / "in" / "side").mkdir(parents=True)
    (root / "tree" / "in" / "side" / "leaf").write_text("leaf")
    (root / "tree" / "to-file" / "below").mkdir(parents=True)
    (root / "tree" / "to-file" / "below" / "leaf").write_text("leaf")
    (root / "removed" / "deep" / "er").mkdir(parents=True)
    (root / "removed" / "deep" / "er" / "leaf").write_text("leaf")
    (root / "anew" / "old").mkdir(parents=True)
    (root / "untouched" / "dir").mkdir(parents=True)
    os.setxattr(root / "mode-only", b"user.old", b"1")
    _set_times(root, 1_600_000_000_123_456_789)


def make_wanted(root: Path, lower: Path, files: int) -> None:
    """A copy of the lower, with the changes made."""
    _copy(lower, root)
    for number in range(files):
        path = root / f"many{number % 7}" / f"f{number}"
        if number % 11 == 0:
            path.unlink()
        elif number % 13 == 0:
            path.chmod(0o751)
        else:
            path.write_bytes(b"new %d\n" % number * (number % 110))
    _change_types(root)
    _make_new(root)
    os.setxattr(root / "mode-only", b"user.new", b"2")
    os.removexattr(root / "mode-only", b"user.old")
    (root / "mode-only").chmod(0o4711)
    os.setxattr(root / "stays", b"system.posix_acl_access", ACL)
    os.setxattr(root / "tree", b"user.of-directory", b"yes")
    (root / "tree").chmod(0o2750)
    _set_times(root, 1_700_000_000_987_654_321)
    _restore_times(root, lower, ("untouched", "untouched/dir"))


def _change_types(root: Path) -> None:
    (root / "gone").unlink()
    for name in ("to-link", "to-fifo", "to-directory", "link", "two"):
        (root / name).unlink()
    (root / "to-file").write_text("new")
    (root / "to-link").symlink_to("nowhere/at/all")
    os.mkfifo(root / "to-fifo", 0o640)
    (root / "to-directory").mkdir()
    (root / "to-directory" / "inside").write_text("inside")
    (root / "link").write_text("a file now")
    (root / "two").symlink_to("one")
    shutil.rmtree(root / "tree" / "to-file")
    (root / "tree" / "to-file").write_text("was a tree")
    shutil.rmtree(root / "removed")
    shutil.rmtree(root / "anew")
    (root / "anew").mkdir(mode=0o705)
    (root / "anew" / "new").write_text("new")
    with (root / "sparse").open("r+b") as file:
        file.truncate(4 << 20)
        file.seek(1 << 20)
        file.write(b"island" * 1000)


def _make_new(root: Path) -> None:
    deep = root / "new"
    for number in range(12):
        deep /= f"{number}"
    deep.mkdir(parents=True)
    (deep / "leaf").write_bytes(os.urandom(200_000))
    (root / "new" / LONG).write_text("long")
    (root / "new" / "setuid").write_text("#!")
    (root / "new" / "setuid").chmod(0o6755)
    os.setxattr(root / "new" / "setuid", b"user.x", b"y" * 100)
    (root / "new" / "relative").symlink_to("../one")
    os.link(root / "new" / "setuid", root / "another-name")
    os.link(root / "new" / "relative", root / "new" / "relative-again", follow_symlinks=False)
    (root / "new" / os.fsdecode(b"not-\xff-utf8")).write_text("")
    (root / "new" / "read-only").mkdir()
    (root / "new" / "read-only" / "inner").write_text("inner")
    with socket.socket(socket.AF_UNIX) as listener, unix_address(str(root / "new" / "socket")) as address:
        listener.bind(address)
    if os.geteuid() == 0:
        os.mknod(root / "new" / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.chown(root / "new" / "relative", 65534, 100, follow_symlinks=False)
        os.chown(root / "new" / "setuid", 65534, 100)
        (root / "new" / "setuid").chmod(0o6755)
        os.chown(root / "stays", 1, 1)
        os.setxattr(root / "new" / "relative", b"trusted.of-link", b"1", follow_symlinks=False)
    os.setxattr(root / "new" / "read-only", b"system.posix_acl_default", ACL)
    (root / "new" / "read-only").chmod(0o555)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, copy_function=_copy_file)
    shutil.copystat(source, target)
    (target / "two").unlink()
    os.link(target / "one", target / "two")


def _copy_file(source: str, target: str) -> None:
    shutil.copy2(source, target, follow_symlinks=False)


def _set_times(root: Path, start_ns: int) -> None:
    """Each path its own, directories after what they hold. Nobody moves an access time that lies in the future."""
    for number, path in enumerate(sorted([root, *root.rglob("*")], reverse=True)):
        accessed = start_ns + _YEARS_NS + number * 1_000_000_001
        os.utime(path, ns=(accessed, start_ns + number * 7_000_000_003), follow_symlinks=False)


def _restore_times(root: Path, lower: Path, names: tuple[str, ...]) -> None:
    for name in names:
        info = (lower / name).stat()
        os.utime(root / name, ns=(info.st_atime_ns, info.st_mtime_ns))


def steps_between(lower: Path, wanted: Path) -> list[Step]:
    """What makes the lower into the wanted tree; everything that is looked at is expected to stay as it is."""
    steps: list[Step] = [Adjust(b"", _attributes(wanted, wanted.lstat()), expected=_identity(lower))]
    for path in sorted(wanted.rglob("*")):
        steps += _step_for(lower, wanted, path)
    for path in sorted(lower.rglob("*")):
        name = path.relative_to(lower)
        if not os.path.lexists(wanted / name) and (wanted / name).parent.is_dir():
            steps.append(Remove(os.fsencode(name), _identity(path)))
    return steps


def _step_for(lower: Path, wanted: Path, path: Path) -> list[Step]:
    info, old = path.lstat(), lower / path.relative_to(wanted)
    name, attributes = os.fsencode(path.relative_to(wanted)), _attributes(path, info)
    kind = stat.S_IFMT(info.st_mode)
    expected = _identity(old)
    same_kind = expected != ABSENT and stat.S_IFMT(old.lstat().st_mode) == kind
    if same_kind and ((kind == stat.S_IFDIR and path.name != "anew") or _same_content(old, path, info)):
        changed = kind == stat.S_IFDIR or _attributes(old, old.lstat()) != attributes
        return [Adjust(name, attributes, expected)] if changed else []
    return [
        Put(
            name, attributes, FileContent(path) if kind == stat.S_IFREG else None,
            os.fsencode(os.readlink(path)) if kind == stat.S_IFLNK else b"",
            info.st_rdev, info.st_ino if info.st_nlink > 1 and kind != stat.S_IFDIR else 0, expected,
        )
    ]  # fmt: skip


def _same_content(old: Path, path: Path, info: os.stat_result) -> bool:
    if info.st_nlink > 1 or old.lstat().st_nlink > 1 or not stat.S_ISREG(info.st_mode):
        return False
    return old.lstat().st_size == info.st_size and old.read_bytes() == path.read_bytes()


def _identity(path: Path) -> Identity:
    if not os.path.lexists(path):
        return ABSENT
    info = path.lstat()
    return Identity(info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _attributes(path: Path, info: os.stat_result) -> FileAttributes:
    xattrs = {
        os.fsencode(name): os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)
    }
    return FileAttributes(info.st_mode, info.st_uid, info.st_gid, info.st_atime_ns, info.st_mtime_ns, xattrs)


def exact(root: Path, accessed: bool = False) -> dict[str, tuple[object, ...]]:
    """Everything but inode numbers and change times; the root too. *accessed*: with access times, where looking leaves them."""
    infos = {path: path.lstat() for path in [root, *root.rglob("*")]}
    found = describe(root, times=True)
    for path, info in infos.items():
        name = os.fsencode(path.relative_to(root)).decode("utf-8", "backslashreplace")
        atime, blocks = info.st_atime_ns if accessed else 0, info.st_blocks if "sparse" in name else 0
        found[name] = (*found.get(name, (oct(info.st_mode), info.st_mtime_ns)), atime, blocks)
    return found
