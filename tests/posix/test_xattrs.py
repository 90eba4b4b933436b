"""Extended attributes: every name space, sizes, flags, errors."""

import errno
import os
from pathlib import Path

from tests.posix.places import NOBODY, errno_of, in_child, needs_root_for


def test_set_get_list_remove(d: Path) -> None:
    for path in (d / "file", d / "dir", d / "new"):
        if not path.exists():
            path.touch()
        os.setxattr(path, "user.one", b"1")
        os.setxattr(path, "user.two", b"")
        os.setxattr(path, "user.bin", bytes(range(256)))
        assert os.getxattr(path, "user.one") == b"1"
        assert os.getxattr(path, "user.two") == b""
        assert os.getxattr(path, "user.bin") == bytes(range(256))
        assert {"user.one", "user.two", "user.bin"} <= set(os.listxattr(path))
        os.setxattr(path, "user.one", b"another")
        assert os.getxattr(path, "user.one") == b"another"
        os.removexattr(path, "user.one")
        assert "user.one" not in os.listxattr(path)


def test_create_and_replace_flags(d: Path) -> None:
    assert errno_of(lambda: os.setxattr(d / "file", "user.a", b"1", os.XATTR_REPLACE)) == errno.ENODATA
    os.setxattr(d / "file", "user.a", b"1", os.XATTR_CREATE)
    assert errno_of(lambda: os.setxattr(d / "file", "user.a", b"2", os.XATTR_CREATE)) == errno.EEXIST
    os.setxattr(d / "file", "user.a", b"3", os.XATTR_REPLACE)
    assert os.getxattr(d / "file", "user.a") == b"3"


def test_missing(d: Path) -> None:
    assert errno_of(lambda: os.getxattr(d / "file", "user.none")) == errno.ENODATA
    assert errno_of(lambda: os.removexattr(d / "file", "user.none")) == errno.ENODATA
    assert errno_of(lambda: os.getxattr(d / "none", "user.none")) == errno.ENOENT


def test_name_spaces(d: Path) -> None:
    needs_root_for("trusted and security attributes")
    os.setxattr(d / "file", "trusted.t", b"root's")
    os.setxattr(d / "file", "security.s", b"label")
    assert os.getxattr(d / "file", "trusted.t") == b"root's"
    assert os.getxattr(d / "file", "security.s") == b"label"
    assert errno_of(lambda: os.setxattr(d / "file", "nonsense.n", b"x")) == errno.EOPNOTSUPP
    assert errno_of(lambda: os.setxattr(d / "link", "user.u", b"x", follow_symlinks=False)) == errno.EPERM
    os.setxattr(d / "link", "trusted.t", b"on the link", follow_symlinks=False)
    assert os.getxattr(d / "link", "trusted.t", follow_symlinks=False) == b"on the link"
    assert "trusted.t" not in in_child(lambda: os.listxattr("file"), where=d, user=NOBODY)
    assert errno_of(lambda: in_child(lambda: os.getxattr("file", "trusted.t"), where=d, user=NOBODY)) == errno.ENODATA
    assert errno_of(lambda: in_child(lambda: os.setxattr("file", "user.x", b""), where=d, user=NOBODY)) == errno.EACCES


def test_sizes(d: Path, place: str) -> None:
    os.setxattr(d / "file", "user." + "n" * 250, b"longest name")
    assert os.getxattr(d / "file", "user." + "n" * 250) == b"longest name"
    assert errno_of(lambda: os.setxattr(d / "file", "user." + "n" * 251, b"x")) == errno.ERANGE
    os.setxattr(d / "file", "user.v", b"x" * 3000)
    assert len(os.getxattr(d / "file", "user.v")) == 3000
    assert errno_of(lambda: os.setxattr(d / "file", "user.v", b"x" * 65537)) in (errno.E2BIG, errno.ENOSPC)
    assert len(os.getxattr(d / "file", "user.v")) == 3000
    if place != "ext4":  # one block there
        os.setxattr(d / "file", "user.v", b"y" * 65536)
        assert os.getxattr(d / "file", "user.v") == b"y" * 65536


def test_many(d: Path) -> None:
    for number in range(60):
        os.setxattr(d / "file", f"user.n{number}", str(number).encode())
    assert {name: os.getxattr(d / "file", name) for name in os.listxattr(d / "file") if name.startswith("user.")} == {
        f"user.n{number}": str(number).encode() for number in range(60)
    }


def test_attributes_follow_the_file(d: Path) -> None:
    os.setxattr(d / "hard", "user.a", b"1")
    assert os.getxattr(d / "hard2", "user.a") == b"1"
    (d / "hard").rename(d / "moved")
    (d / "moved").write_bytes(b"other content")
    assert os.getxattr(d / "moved", "user.a") == b"1"
    fd = os.open(d / "moved", os.O_RDONLY)
    (d / "moved").unlink()
    assert os.getxattr(fd, "user.a") == b"1"
    os.close(fd)


def test_change_moves_ctime_and_not_mtime(d: Path) -> None:
    before = (d / "file").stat()
    os.setxattr(d / "file", "user.a", b"1")
    after = (d / "file").stat()
    assert after.st_mtime_ns == before.st_mtime_ns
    assert after.st_ctime_ns > before.st_ctime_ns


def test_capabilities_go_with_a_write(d: Path) -> None:
    needs_root_for("file capabilities")
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    os.setxattr(d / "file", "security.capability", capability)
    assert os.getxattr(d / "file", "security.capability") == capability
    with (d / "file").open("ab") as file:
        file.write(b"x")
    assert errno_of(lambda: os.getxattr(d / "file", "security.capability")) == errno.ENODATA
