"""Requests about files by users, compared with what the kernel says of the same files."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_client import wire
from agentfsd.control.peer import Peer
from agentfsd.core import permissions
from agentfsd.core.permissions import EXECUTE, READ, WRITE, Credentials
from agentfsd.types import Caller
from tests.control.file_conversations import GROUP, OTHER_GROUP, USER, Conversation
from tests.mounted import needs_root
from tests.overlays import Opened


@pytest.fixture
def user(lower: Path, opened: Opened) -> Iterator[Conversation]:
    """A user whose mount this is, over a workspace that is root's."""
    needs_root()
    made = Conversation(opened, USER, GROUP, (OTHER_GROUP,))
    yield made
    made.close()


def test_permissions_are_the_kernels(lower: Path, opened: Opened) -> None:
    needs_root()
    names = []
    for number, (uid, gid) in enumerate((uid, gid) for uid in (0, USER) for gid in (0, GROUP, OTHER_GROUP)):
        for mode in (0o000, 0o400, 0o040, 0o004, 0o751, 0o070, 0o007, 0o620, 0o100, 0o666):
            for kind in ("f", "d"):
                path = lower / f"{kind}{number}-{mode:o}"
                path.write_text("x") if kind == "f" else path.mkdir()
                os.chown(path, uid, gid)
                path.chmod(mode)
                names.append(path.name)
    for number, rules in enumerate(
        (f"u:{USER}:rw", f"u:{USER}:-", f"g:{OTHER_GROUP}:rw", f"g:{GROUP}:r,g:{OTHER_GROUP}:w", f"u:{USER}:rw,m::r", "g:7:rwx")
    ):
        for kind in ("f", "d"):
            path = lower / f"{kind}-acl{number}"
            path.write_text("x") if kind == "f" else path.mkdir()
            path.chmod(0o705)
            subprocess.run(["setfacl", "-m", rules, path], check=True)
            names.append(path.name)
    tree = opened.tree()
    for uid, gid, groups in ((USER, GROUP, ()), (USER, 7, (OTHER_GROUP,)), (61002, GROUP, (OTHER_GROUP,)), (0, 0, ())):
        who = Credentials(uid, gid, frozenset({gid, *groups}), privileged=uid == 0)
        wanted = [(name, bits) for name in names for bits in range(1, 8)]
        ours = [permissions.allows(tree.walk(name.encode()), bits, who) for name, bits in wanted]
        kernels = accessible(lower, wanted, uid, gid, groups)
        assert [w for w, a, b in zip(wanted, ours, kernels, strict=True) if a != b] == []
    assert READ, WRITE == (os.R_OK, os.W_OK)
    assert EXECUTE == os.X_OK


def accessible(directory: Path, wanted: list[tuple[str, int]], uid: int, gid: int, groups: tuple[int, ...]) -> list[bool]:
    """What access(2) says to somebody else."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(directory)
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.write(writing, bytes(os.access(name, bits) for name, bits in wanted))
        finally:
            os._exit(0)
    os.close(writing)
    found = b""
    while part := os.read(reading, 65536):
        found += part
    os.close(reading)
    os.waitpid(child, 0)
    return [bool(one) for one in found]


def test_a_user_may_do_what_permissions_allow(user: Conversation, lower: Path) -> None:
    (lower / "mine").mkdir()
    (lower / "sticky").mkdir()
    (lower / "sticky" / "roots").write_text("x")
    (lower / "sticky" / "mine").write_text("x")
    (lower / "sticky" / "link").symlink_to("../file")
    os.lchown(lower / "sticky" / "link", 61002, 61002)
    (lower / "closed").mkdir()
    (lower / "closed" / "x").write_text("x")
    (lower / "shared").mkdir()
    (lower / "shared" / "deep").mkdir()
    (lower / "shared" / "deep" / "roots").write_text("x")
    (lower / "listed").mkdir()
    (lower / "listed" / "x").write_text("x")
    (lower / "secret").write_text("x")
    for name, mode, uid, gid in (
        ("mine", 0o755, USER, GROUP), ("sticky", 0o1777, 0, 0), ("sticky/mine", 0o600, USER, 0), ("closed", 0o700, 0, 0),
        ("shared", 0o2775, 0, OTHER_GROUP), ("listed", 0o744, 0, 0), ("secret", 0o600, 0, 0), ("file", 0o664, 0, OTHER_GROUP),
    ):  # fmt: skip
        os.chown(lower / name, uid, gid)
        (lower / name).chmod(mode)
    assert user.refused(wire.FileOpen(path="secret")) == "EACCES"
    assert user.refused(wire.StatFile(path="closed/x")) == "EACCES"
    assert user.refused(wire.StatFile(path="closed/../file")) == "EACCES"
    assert user.refused(wire.FileCreate(path="new")) == "EACCES"
    assert user.refused(wire.FileMkdir(path="new")) == "EACCES"
    assert user.refused(wire.FileCreate(path="sub/inner")) == "EACCES"
    assert user.refused(wire.FileDelete(path="file")) == "EACCES"
    assert user.refused(wire.FileRename(path="file", to="mine/file")) == "EACCES"
    assert user.refused(wire.FileDelete(path="sticky/roots")) == "EPERM"
    assert user.refused(wire.FileRename(path="sticky/mine", to="sticky/roots")) == "EPERM"
    assert user.refused(wire.FileOpen(path="sticky/link")) == "EACCES"
    assert user.refused(wire.FileDelete(path="shared", recursive=True)) == "EACCES"
    (listed,) = user.ask(wire.FileList(path="listed"), wire.FilesReply).files
    assert (listed.path, listed.kind, listed.mode & 0o7777) == ("x", "file", 0)
    user.ask(wire.FileDelete(path="sticky/mine"), wire.Done)
    user.write("file", b"by the group")
    made = user.write("shared/new", b"x")
    assert (made.uid, made.gid) == (USER, OTHER_GROUP)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(made.mode) == 0o666 & ~umask
    old = os.umask(0o077)
    assert stat.S_IMODE(user.write("mine/private", b"").mode) == 0o600  # as it is now, not as it was when we began
    os.umask(old)
    assert user.write("mine/a", b"").gid == GROUP
    assert user.names("mine") == ["a", "private"]


def test_a_file_lends_no_group_to_who_is_not_in_it(user: Conversation, lower: Path) -> None:
    (lower / "foreign").mkdir()
    os.chown(lower / "foreign", 0, 62003)
    (lower / "foreign").chmod(0o2777)
    handle = user.ask(wire.FileCreate(path="foreign/program", permissions=0o2755), wire.FileOpened).handle
    made = user.ask(wire.FileCommit(handle=handle), wire.FileReply).file
    assert (made.gid, stat.S_IMODE(made.mode)) == (62003, 0o755)


def test_a_stranger_may_do_nothing(opened: Opened) -> None:
    mine = Conversation(opened, USER, GROUP)
    mine.peer = Peer(Caller(os.getpid(), USER + 1, GROUP))
    assert mine.refused(wire.StatFile()) == "not-owner"
    mine.close()
