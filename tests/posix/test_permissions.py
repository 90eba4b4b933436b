"""Modes, owners, umask, setgid directories, sticky bits, access control lists; who may do what."""

import errno
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.posix.places import NOBODY, errno_of, in_child, needs_root_for


def acl(*command: str | Path) -> str:
    if shutil.which("setfacl") is None:
        pytest.skip("setfacl is not installed: apt-get install acl")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def entries(path: Path) -> list[str]:
    shown = acl("getfacl", "--absolute-names", "--omit-header", "--numeric", path)
    return [line.split("\t")[0] for line in shown.splitlines() if line]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_chmod_shows_every_bit(d: Path) -> None:
    for bits in (0o000, 0o644, 0o755, 0o1777, 0o4755, 0o2755, 0o7777):
        (d / "file").chmod(bits)
        assert mode(d / "file") == bits
    (d / "dir").chmod(0o1770)
    assert mode(d / "dir") == 0o1770
    assert (d / "file").read_bytes() == b"seed\n" or os.geteuid() != 0


def test_umask_applies(d: Path) -> None:
    old = os.umask(0o077)
    try:
        (d / "file2").touch()
        (d / "dir2").mkdir()
        os.mkfifo(d / "pipe", 0o666)
    finally:
        os.umask(old)
    assert [mode(d / name) for name in ("file2", "dir2", "pipe")] == [0o600, 0o700, 0o600]


def test_setgid_directory_hands_its_group_down(d: Path, tmp_umask: None) -> None:
    needs_root_for("other groups")
    os.chown(d / "void", -1, 4242)
    (d / "void").chmod(0o2775)
    (d / "void" / "f").touch()
    (d / "void" / "sub").mkdir()
    (d / "void" / "l").symlink_to("f")
    assert [(d / "void" / name).lstat().st_gid for name in ("f", "sub", "l")] == [4242] * 3
    assert mode(d / "void" / "sub") == 0o2755
    assert mode(d / "void" / "f") == 0o644


def test_setgid_is_dropped_for_a_stranger_to_the_group(d: Path) -> None:
    needs_root_for("another user")
    os.chown(d / "void", NOBODY[0], 4242)
    (d / "void").chmod(0o2777)

    def make() -> int:
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o2775))
        os.chmod("f", 0o2775)
        return mode(Path("f"))

    assert in_child(make, where=d / "void", user=NOBODY) & stat.S_ISGID == 0


def test_chown_and_its_effect_on_setuid(d: Path) -> None:
    needs_root_for("chown")
    os.chown(d / "file", 12, 34)
    assert ((d / "file").stat().st_uid, (d / "file").stat().st_gid) == (12, 34)
    os.chown(d / "file", -1, 56)
    assert ((d / "file").stat().st_uid, (d / "file").stat().st_gid) == (12, 56)
    os.chown(d / "file", NOBODY[0], 7777)
    (d / "file").chmod(0o6755)
    in_child(lambda: os.chown("file", -1, 7777), where=d, user=(*NOBODY, 7777))
    assert mode(d / "file") == 0o755


def test_an_ordinary_write_clears_setuid(d: Path) -> None:
    needs_root_for("another user")
    os.chown(d / "file", *NOBODY)
    (d / "file").chmod(0o6777)

    def write() -> None:
        with open("file", "ab") as file:
            file.write(b"x")

    in_child(write, where=d, user=NOBODY)
    assert mode(d / "file") == 0o777


def test_an_ordinary_truncate_clears_setuid(d: Path) -> None:
    needs_root_for("another user")
    os.chown(d / "big", *NOBODY)
    (d / "big").chmod(0o6755)
    in_child(lambda: os.truncate("big", 10), where=d, user=NOBODY)
    assert mode(d / "big") == 0o755


def test_what_others_may_not(d: Path) -> None:
    needs_root_for("another user")
    (d / "file").chmod(0o600)
    (d / "dir").chmod(0o700)
    (d / "hard").chmod(0o644)

    def try_all() -> dict[str, int]:
        return {
            "read": errno_of(lambda: open("file")),
            "write": errno_of(lambda: open("hard", "r+")),
            "enter": errno_of(lambda: os.listdir("dir")),
            "inside": errno_of(lambda: os.stat("dir/inner")),
            "create": errno_of(lambda: os.mkdir("new")),
            "remove": errno_of(lambda: os.unlink("hard")),
            "chmod": errno_of(lambda: os.chmod("hard", 0o777)),
            "chown": errno_of(lambda: os.chown("hard", NOBODY[0], -1)),
            "utime": errno_of(lambda: os.utime("hard", (1, 1))),
            "now": errno_of(lambda: os.utime("hard")),
            "stat": errno_of(lambda: os.stat("file")),
        }

    assert in_child(try_all, where=d, user=NOBODY) == {
        "read": errno.EACCES, "write": errno.EACCES, "enter": errno.EACCES, "inside": errno.EACCES, "create": errno.EACCES,
        "remove": errno.EACCES, "chmod": errno.EPERM, "chown": errno.EPERM, "utime": errno.EPERM, "now": errno.EACCES, "stat": 0,
    }  # fmt: skip


def test_rights_change_for_open_directories_at_once(d: Path) -> None:
    needs_root_for("another user")
    (d / "dir").chmod(0o755)
    assert in_child(lambda: os.listdir("dir"), where=d, user=NOBODY)
    (d / "dir").chmod(0o700)
    with pytest.raises(PermissionError):
        in_child(lambda: os.listdir("dir"), where=d, user=NOBODY)


def test_supplementary_groups_count(d: Path) -> None:
    needs_root_for("another user")
    os.chown(d / "file", 0, 4243)
    (d / "file").chmod(0o640)
    assert in_child(lambda: Path("file").read_bytes(), where=d, user=(*NOBODY, 4243)) == b"seed\n"
    with pytest.raises(PermissionError):
        in_child(lambda: Path("file").read_bytes(), where=d, user=NOBODY)


def test_access_list_lets_one_more_user_in(d: Path) -> None:
    needs_root_for("another user")
    (d / "file").chmod(0o640)
    acl("setfacl", "-m", f"u:{NOBODY[0]}:rw", d / "file")
    assert entries(d / "file") == ["user::rw-", f"user:{NOBODY[0]}:rw-", "group::r--", "mask::rw-", "other::---"]
    assert mode(d / "file") == 0o660
    assert in_child(lambda: Path("file").read_bytes(), where=d, user=NOBODY) == b"seed\n"
    (d / "file").chmod(0o600)
    assert entries(d / "file")[3] == "mask::---"
    with pytest.raises(PermissionError):
        in_child(lambda: Path("file").read_bytes(), where=d, user=NOBODY)
    (d / "file").chmod(0o660)
    acl("setfacl", "-x", f"u:{NOBODY[0]}", d / "file")
    acl("setfacl", "-b", d / "file")
    assert entries(d / "file") == ["user::rw-", "group::r--", "other::---"]


def test_default_list_is_handed_down(d: Path, tmp_umask: None) -> None:
    acl("setfacl", "-d", "-m", "u:1234:rwx,g::rx,o::-", d / "void")
    (d / "void" / "sub").mkdir()
    assert "default:user:1234:rwx" in entries(d / "void" / "sub")
    assert "user:1234:rwx" in entries(d / "void" / "sub")
    (d / "void" / "f").touch()
    assert "user:1234:rwx" in entries(d / "void" / "f")
    assert mode(d / "void" / "f") & 0o007 == 0


def test_default_list_replaces_the_umask(d: Path, tmp_umask: None, by_pyfuse3: bool) -> None:
    acl("setfacl", "-d", "-m", "u::rwx,g::rwx,o::rwx", d / "void")
    (d / "void" / "f").touch()
    # pyfuse3 cannot tell the kernel to leave the umask to us (FUSE_DONT_MASK)
    assert mode(d / "void" / "f") == (0o644 if by_pyfuse3 else 0o666)


def test_setting_a_list_drops_setgid_for_a_stranger_to_the_group(d: Path) -> None:
    needs_root_for("another user")
    acl("setfacl", "-m", "u:1234:r", d / "hard")
    value = os.getxattr(d / "hard", "system.posix_acl_access")
    for name, groups, kept in (("file", (), False), ("big", (4242,), True)):
        os.chown(d / name, NOBODY[0], 4242)
        (d / name).chmod(0o2775)
        in_child(lambda name=name: os.setxattr(name, "system.posix_acl_access", value), where=d, user=(*NOBODY, *groups))
        assert bool(mode(d / name) & stat.S_ISGID) is kept


def test_lists_go_with_the_file(d: Path) -> None:
    acl("setfacl", "-m", "u:1234:r", d / "file")
    (d / "file").rename(d / "dir" / "moved")
    with (d / "dir" / "moved").open("ab") as file:
        file.write(b"more")
    assert "user:1234:r--" in entries(d / "dir" / "moved")


def test_list_and_mode_errors(d: Path) -> None:
    assert errno_of(lambda: os.setxattr(d / "file", "system.posix_acl_access", b"garbage")) in (errno.EINVAL, errno.EOPNOTSUPP)
    assert errno_of(lambda: os.getxattr(d / "file", "system.posix_acl_access")) == errno.ENODATA
    assert errno_of(lambda: os.setxattr(d / "file", "system.posix_acl_default", b"\2\0\0\0")) in (errno.EACCES, errno.EINVAL, 0)


def test_search_permission_alone_is_enough_to_reach_a_known_name(d: Path) -> None:
    needs_root_for("another user")
    (d / "dir").chmod(0o711)
    assert in_child(lambda: Path("dir/inner").read_bytes(), where=d, user=NOBODY) == b"inner\n"
    with pytest.raises(PermissionError):
        in_child(lambda: os.listdir("dir"), where=d, user=NOBODY)
