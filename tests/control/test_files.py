"""Requests about files: what the kernel would allow is allowed, what it would refuse is refused, and nothing is half done."""

import os
import stat
from pathlib import Path

import pytest

from agentfs_client import wire
from agentfsd.control.client_changes import ClientChanges
from agentfsd.control.conversation_files import StagedFile
from agentfsd.control.handlers.file_requests import deleting
from agentfsd.control.request_context import RequestContext
from agentfsd.core import data
from agentfsd.core.path_resolution import ResolvedPath
from agentfsd.core.tree import Inode
from tests.control.file_conversations import GROUP, USER, Conversation
from tests.mounted import needs_root
from tests.overlays import Opened

WRONG: dict[str, tuple[str, wire.Request]] = {
    "missing": ("ENOENT", wire.StatFile(path="missing")),
    "below-file": ("ENOTDIR", wire.StatFile(path="file/x")),
    "no-branch": ("no-such-branch or snapshot", wire.StatFile(branch="nowhere")),
    "absolute": ("bad-path", wire.StatFile(path="/etc")),
    "zero-byte": ("bad-path", wire.StatFile(raw_path=b"a\0b")),
    "above": ("path-escape", wire.StatFile(path="../x")),
    "above-by-name": ("path-escape", wire.StatFile(path="sub/../../x")),
    "long-name": ("ENAMETOOLONG", wire.StatFile(path="x" * 256)),
    "long-path": ("ENAMETOOLONG", wire.StatFile(path="x/" * 3000)),
    "link-out": ("path-escape", wire.StatFile(path="out")),
    "link-to-etc": ("path-escape", wire.FileOpen(path="etc")),
    "link-above-mount": ("path-escape", wire.StatFile(path="above/passwd")),
    "loop": ("ELOOP", wire.StatFile(path="loop")),
    "dangling": ("ENOENT", wire.StatFile(path="dangling")),
    "file-as-directory": ("ENOTDIR", wire.FileDelete(path="file/")),
    "link-as-directory": ("ENOTDIR", wire.StatFile(path="link/.")),
    "list-file": ("ENOTDIR", wire.FileList(path="file")),
    "open-directory": ("EISDIR", wire.FileOpen(path="sub")),
    "open-fifo": ("not-a-file", wire.FileOpen(path="pipe")),
    "open-too-much": ("invalid", wire.FileOpen(path="file", read_bytes=wire.MAX_DATA_BYTES + 1)),
    "read-nothing": ("no-such-handle", wire.FileRead(handle=7, offset=0, size=1)),
    "close-nothing": ("no-such-handle", wire.FileClose(handle=7)),
    "write-nothing": ("no-such-handle", wire.FileWrite(handle=7, data=b"x")),
    "commit-nothing": ("no-such-handle", wire.FileCommit(handle=0)),
    "create-there": ("EEXIST", wire.FileCreate(path="file", mode="create")),
    "create-dangling": ("EEXIST", wire.FileCreate(path="dangling", mode="create")),
    "create-directory": ("EISDIR", wire.FileCreate(path="sub")),
    "create-root": ("EISDIR", wire.FileCreate(path="")),
    "create-in-nothing": ("ENOENT", wire.FileCreate(path="no/where")),
    "create-in-file": ("ENOTDIR", wire.FileCreate(path="file/x")),
    "create-out": ("path-escape", wire.FileCreate(path="out")),
    "create-fifo": ("not-a-file", wire.FileCreate(path="pipe")),
    "create-ours": ("reserved", wire.FileCreate(path=".agentfs")),
    "create-in-ours": ("ENOENT", wire.FileCreate(path=".agentfs/x")),
    "create-bits": ("invalid", wire.FileCreate(path="x", permissions=0o100644)),
    "create-in-snapshot": ("EROFS", wire.FileCreate(path="x", branch="s")),
    "mkdir-there": ("EEXIST", wire.FileMkdir(path="sub")),
    "mkdir-root": ("EEXIST", wire.FileMkdir(path="")),
    "mkdir-in-nothing": ("ENOENT", wire.FileMkdir(path="no/where")),
    "mkdir-ours": ("reserved", wire.FileMkdir(path=".agentfs")),
    "mkdir-in-snapshot": ("EROFS", wire.FileMkdir(path="x", branch="s")),
    "delete-missing": ("ENOENT", wire.FileDelete(path="missing")),
    "delete-full": ("ENOTEMPTY", wire.FileDelete(path="sub")),
    "delete-root": ("root", wire.FileDelete(path="", recursive=True)),
    "delete-root-by-dots": ("root", wire.FileDelete(path="sub/..", recursive=True)),
    "delete-in-snapshot": ("EROFS", wire.FileDelete(path="file", branch="s")),
    "rename-missing": ("ENOENT", wire.FileRename(path="missing", to="x")),
    "rename-root": ("root", wire.FileRename(path="", to="x")),
    "rename-to-root": ("root", wire.FileRename(path="sub", to="")),
    "rename-into-itself": ("EINVAL", wire.FileRename(path="sub", to="sub/x")),
    "rename-over": ("EEXIST", wire.FileRename(path="file", to="sub/inner", replace=False)),
    "rename-out": ("path-escape", wire.FileRename(path="file", to="../x")),
    "rename-ours": ("reserved", wire.FileRename(path="file", to=".agentfs")),
}  # fmt: skip


def test_wrong_requests_are_refused_and_change_nothing(root: Conversation, opened: Opened) -> None:
    opened.overlay.snapshots.create("main", "s")
    before = opened.overlay.usage()
    for case, (code, request) in WRONG.items():
        assert root.refused(request) == code, case
    assert opened.overlay.comparison.diff(None, "main") == []
    assert opened.overlay.usage() == before
    assert root.peer.files == {}


def test_symlinks_lead_anywhere_beneath_the_root(root: Conversation, lower: Path) -> None:
    assert root.read("link") == b"content"
    assert root.read("back/inner") == b"inner"
    assert root.read("back/../file") == b"content"
    assert root.ask(wire.StatFile(path="etc", follow=False), wire.FileReply).file.kind == "symlink"
    shown = {found.path: (found.kind, found.is_link) for found in root.ask(wire.FileList(), wire.FilesReply).files}
    assert shown["link"] == ("file", True)
    assert shown["back"] == ("directory", True)
    assert shown["etc"] == shown["dangling"] == shown["loop"] == ("symlink", True)
    assert shown["pipe"] == ("other", False)
    names = {found.path: (found.kind, found.is_link) for found in root.ask(wire.FileList(names_only=True), wire.FilesReply).files}
    assert names == {path: ("symlink", True) if is_link else (kind, False) for path, (kind, is_link) in shown.items()}
    assert root.ask(wire.StatFile(path="link"), wire.FileReply).file.target == "sub/../file"
    root.write("dangling", b"through")
    assert root.read("sub/new") == b"through"
    assert (lower / "dangling").is_symlink()


def test_content_appears_with_the_commit_alone(root: Conversation, opened: Opened) -> None:
    part = b"x" * wire.MAX_DATA_BYTES
    handle = root.ask(wire.FileCreate(path="big"), wire.FileOpened).handle
    for _ in range(3):
        root.ask(wire.FileWrite(handle=handle, data=part), wire.Done)
    assert "big" not in root.names()
    assert root.ask(wire.FileCommit(handle=handle, data=b"end"), wire.FileReply).file.size == 3 * len(part) + 3
    assert root.refused(wire.FileWrite(handle=handle, data=b"x")) == "no-such-handle"
    assert opened.read("big")[-3:] == b"xxx"
    for begun in ("big", "new", "file"):
        handle = root.ask(wire.FileCreate(path=begun), wire.FileOpened).handle
        root.ask(wire.FileWrite(handle=handle, data=part), wire.Done)
    objects = opened.overlay.usage()["objects"]
    root.peer.close()
    assert opened.overlay.usage()["objects"] == objects
    assert opened.read("file") == b"content"
    assert "new" not in map(bytes.decode, opened.tree().names(opened.tree().root))


def test_an_append_goes_to_the_end_as_it_is_then(root: Conversation) -> None:
    handle = root.ask(wire.FileCreate(path="file", mode="append"), wire.FileOpened).handle
    root.ask(wire.FileWrite(handle=handle, data=b" appended"), wire.Done)
    root.write("file", b"other")
    root.write("file", b" first", "append")
    root.ask(wire.FileCommit(handle=handle), wire.FileReply)
    assert root.read("file") == b"other first appended"


def test_a_large_file_of_the_lower_is_copied_before_an_append(root: Conversation, lower: Path, opened: Opened) -> None:
    (lower / "large").write_bytes(b"x" * (5 << 20))
    root.write("large", b"end", "append")
    handle = root.ask(wire.FileOpen(path="large"), wire.FileOpened).handle
    assert root.ask(wire.FileRead(handle=handle, offset=(5 << 20) - 1, size=99), wire.FileData).data == b"xend"
    assert (lower / "large").stat().st_size == 5 << 20


def test_a_commit_looks_again(root: Conversation) -> None:
    """What was right when the writing began may be wrong by its end."""
    handles = {
        path: root.ask(wire.FileCreate(path=path, mode=mode), wire.FileOpened).handle  # type: ignore[arg-type]
        for path, mode in (("taken", "create"), ("dir", "overwrite"), ("gone/x", "overwrite"))
        if path != "gone/x" or root.ask(wire.FileMkdir(path="gone"), wire.FileReply)
    }
    root.write("taken", b"by somebody")
    root.ask(wire.FileMkdir(path="dir"), wire.FileReply)
    root.ask(wire.FileDelete(path="gone"), wire.Done)
    assert root.refused(wire.FileCommit(handle=handles["taken"], data=b"x")) == "EEXIST"
    assert root.refused(wire.FileCommit(handle=handles["dir"], data=b"x")) == "EISDIR"
    assert root.refused(wire.FileCommit(handle=handles["gone/x"], data=b"x")) == "ENOENT"
    assert root.peer.files == {}
    assert root.read("taken") == b"by somebody"


def test_open_files_follow_their_file(root: Conversation) -> None:
    assert root.ask(wire.FileOpen(path="file", read_bytes=1000), wire.FileOpened).handle == 0
    handle = root.ask(wire.FileOpen(path="file", read_bytes=3), wire.FileOpened).handle
    root.write("file", b"replaced")
    assert root.ask(wire.FileRead(handle=handle, offset=2, size=99), wire.FileData).data == b"placed"
    root.ask(wire.FileDelete(path="file"), wire.Done)
    assert root.ask(wire.FileRead(handle=handle, offset=0, size=99), wire.FileData).data == b"replaced"
    assert root.refused(wire.FileWrite(handle=handle, data=b"x")) == "no-such-handle"
    root.ask(wire.FileClose(handle=handle), wire.Done)
    assert root.refused(wire.FileRead(handle=handle, offset=0, size=1)) == "no-such-handle"
    for _ in range(256):
        root.ask(wire.FileOpen(path="sub/inner"), wire.FileOpened)
    assert root.refused(wire.FileOpen(path="sub/inner")) == "too-many-files"
    assert root.refused(wire.FileCreate(path="new")) == "too-many-files"


def test_names_change_as_asked(root: Conversation, opened: Opened) -> None:
    root.ask(wire.FileRename(path="file", to="sub/moved"), wire.Done)
    root.ask(wire.FileRename(path="sub", to="dir"), wire.Done)
    root.ask(wire.FileRename(path="link", to="dir/inner"), wire.Done)
    assert root.names("dir") == ["inner", "moved"]
    root.ask(wire.FileMkdir(path="dir/deep"), wire.FileReply)
    root.write("dir/deep/x", b"")
    root.ask(wire.FileDelete(path="dir", recursive=True), wire.Done)
    assert "dir" not in root.names()
    opened.overlay.branches.create("other", None)
    root.write("there", b"", branch="other")
    assert "there" not in root.names()


def test_a_directory_that_others_fill_while_it_is_deleted_stays(root: Conversation, opened: Opened) -> None:
    """Or deleting it might never end."""
    root.ask(wire.FileMkdir(path="dir"), wire.FileReply)
    root.write("dir/a", b"")
    place = ResolvedPath(opened.tree().root, b"dir", opened.tree().walk(b"dir"))
    context = RequestContext(root.peer, None, "main")
    steps = deleting(ClientChanges(root.service.services, context), place, True, root.peer.credentials())
    next(steps)
    root.write("dir/b", b"kept")
    with pytest.raises(OSError, match="not empty"):
        list(steps)
    assert root.names("dir") == ["b"]


def test_overwriting_keeps_owner_mode_and_attributes(root: Conversation, lower: Path) -> None:
    needs_root()
    os.chown(lower / "file", USER, GROUP)
    (lower / "file").chmod(0o4751)
    os.setxattr(lower / "file", "user.note", b"kept")
    was = root.ask(wire.StatFile(path="file"), wire.FileReply).file
    now = root.write("file", b"new")
    assert (now.uid, now.gid, now.ino) == (USER, GROUP, was.ino)
    assert stat.S_IMODE(now.mode) == 0o4751  # root keeps it, as on any file system
    assert now.mtime_ns > was.mtime_ns


def test_read_only_mount_takes_no_changes(lower: Path, opened: Opened) -> None:
    mine = Conversation(opened, os.geteuid(), os.getegid(), read_only=True)
    assert mine.refused(wire.FileCreate(path="x")) == "EROFS"
    assert mine.refused(wire.FileDelete(path="file")) == "EROFS"
    assert mine.read("file") == b"content"
    mine.close()


def test_a_bound_process_keeps_to_its_branch(root: Conversation, opened: Opened) -> None:
    for name in ("mine", "other"):
        opened.overlay.branches.create(name)
        opened.write("f", name.encode(), name)
        opened.overlay.snapshots.create(name, f"{name}-1")
    before = root.ask(wire.FileOpen(path="f", branch="other"), wire.FileOpened).handle
    staged = root.ask(wire.FileCreate(path="f", branch="other"), wire.FileOpened).handle
    root.bindings.bind(os.getpid(), opened.overlay.refs.branch("mine").id)
    assert root.read("f") == b"mine"
    assert root.ask(wire.StatFile(path="f", branch="mine-1"), wire.FileReply).file.size == 4
    for ref in ("main", "other", "other-1"):
        for kind in (
            wire.StatFile,
            wire.FileList,
            wire.FileOpen,
            wire.FileCreate,
            wire.FileMkdir,
            wire.FileDelete,
            wire.FileRename,
        ):
            assert root.refused(kind(path="f", branch=ref)) == "outside-branch"
    assert root.refused(wire.FileRead(handle=before, offset=0, size=1)) == "outside-branch"
    assert root.refused(wire.FileCommit(handle=staged, data=b"x")) == "outside-branch"
    assert opened.read("f", "other") == b"other"


def test_changed_files_are_told_one_by_one(root: Conversation, opened: Opened) -> None:
    opened.overlay.snapshots.create("main", "s")
    root.ask(wire.FileRename(path="sub", to="dir"), wire.Done)
    root.ask(wire.FileMkdir(path="empty"), wire.FileReply)
    root.write("file", b"changed")
    found = root.ask(wire.DiffFiles(a="s", count=True), wire.FilesDifferReply)
    told = [[name.path for name in names] for names in (found.added, found.modified, found.deleted)]
    assert told == [["dir/inner"], ["file"], ["sub/inner"]]
    assert found.unchanged == 8
    assert root.ask(wire.DiffFiles(a="s"), wire.FilesDifferReply).unchanged == -1


def test_no_room_leaves_things_as_they_were(root: Conversation, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes some of it, and then no more; meanwhile somebody else has written, or nobody has."""
    large = b"x" * (1 << 20)

    def append() -> int:
        handle = root.ask(wire.FileCreate(path="file", mode="append"), wire.FileOpened).handle
        for _ in range(4):
            root.ask(wire.FileWrite(handle=handle, data=large[: 1 << 19]), wire.Done)
        return handle

    real, room = data.write, 0

    def fill(inode: Inode, part: bytes, offset: int, *, privileged: bool = True) -> int:
        nonlocal room
        part, room = part[:room], max(0, room - len(part))
        return real(inode, part, offset, privileged=privileged)

    for most in (3, (1 << 20) + 3):
        handle, room = append(), most
        with monkeypatch.context() as disk:
            disk.setattr("agentfsd.control.conversation_files.data.write", fill)
            assert root.refused(wire.FileCommit(handle=handle)) == "ENOSPC"
        assert root.read("file") == b"content"

    inode, staged = opened.tree().walk(b"file"), StagedFile(opened.tree(), b"file", "append", 0o644)
    for _ in range(2):
        staged.write(large)
    steps = staged.append(inode, root.peer.credentials())
    next(steps)
    real(inode, b"by others", 7 + len(large))
    with monkeypatch.context() as disk:
        disk.setattr("agentfsd.control.conversation_files.data.write", fill)
        with pytest.raises(OSError, match="no space"):
            next(steps)
    staged.close()
    assert data.read(inode, 99, 7 + len(large)) == b"by others"
