"""A commit into the lower: exact in everything, all or nothing, atomic for readers, and without a trace when it is refused."""

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_host import syscalls
from agentfsd.domain_errors import Refusal
from agentfsd.lower import commit_writer
from agentfsd.lower.commit_plan import ABSENT, Adjust, Drifted, Put, Remove, Step
from tests.compare import differences
from tests.lower.commit_trees import exact, steps_between
from tests.lower.workspaces import DIRECTORY, FILE, WHEN, Text, Workspace, attributes, put

Whole = Callable[[Path], tuple[Workspace, Path]]


def check_commit(workspace: Workspace, wanted: Path) -> None:
    """There, and before that back again: staging alone, an abort of all moves, then the commit."""
    before = exact(workspace.root, True)
    steps = steps_between(workspace.root, wanted)
    workspace.stage(*steps).abort()
    assert differences(exact(workspace.root, True), before) == []
    workspace.check_no_trace()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(syscalls, "sync_filesystem", fail_at(2))
        with pytest.raises(Refusal) as caught:
            workspace.stage(*steps_between(workspace.root, wanted)).apply()
    assert caught.value.errno == errno.EIO
    assert differences(exact(workspace.root, True), before) == []
    workspace.check_no_trace()
    workspace.commit(*steps_between(workspace.root, wanted))
    assert differences(exact(workspace.root, True), exact(wanted, True)) == []


def fail_at(number: int) -> Callable[[int], None]:
    """sync_filesystem() that fails the one time."""
    calls = iter(range(1, 100))

    def sync(_: int) -> None:
        if next(calls) == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    return sync


def test_every_kind_of_change_is_exact_and_can_be_undone(whole: Whole, tmp_path: Path) -> None:
    check_commit(*whole(tmp_path))


@pytest.mark.usefixtures("no_exchange")
def test_likewise_where_names_cannot_be_exchanged(whole: Whole, tmp_path: Path) -> None:
    check_commit(*whole(tmp_path))


def test_every_file_system(whole: Whole, disk: Path) -> None:
    check_commit(*whole(disk))


@pytest.mark.parametrize("disk", ["btrfs"], indirect=True)
def test_a_subvolume_in_the_lower_is_refused_by_name(disk: Path) -> None:
    made = Workspace(disk)
    made.root.mkdir()
    subprocess.run(["btrfs", "-q", "subvolume", "create", made.root / "volume"], check=True)
    made.open()
    with pytest.raises(Refusal, match="'volume' lies on another file system or subvolume") as caught:
        made.stage(put("fine"), put("volume/f"))
    assert caught.value.errno == errno.EXDEV
    made.check_no_trace()
    made.commit(put("fine"))
    made.lower.close()


def test_steps_need_no_order(workspace: Workspace) -> None:
    new = [put("n/a/f"), Put(b"n-b", attributes(DIRECTORY)), Put(b"n/a", attributes(DIRECTORY)), Put(b"n", attributes(DIRECTORY))]
    workspace.commit(*new, put("n-b/f"), Remove(b"dir/sub/leaf"), Remove(b"dir"))
    assert workspace.names() == ["file", "n", "n-b", "n-b/f", "n/a", "n/a/f"]
    assert (workspace.root / "n").stat().st_mtime_ns == WHEN + 1


@pytest.mark.parametrize("size", [None, -1, 1])
def test_content_whose_size_was_said_wrong_is_whole(workspace: Workspace, size: int | None) -> None:
    for length in (3, 5000, 100_000):
        workspace.commit(Put(b"file", attributes(), Text(b"x" * length, size)))
        assert (workspace.root / "file").read_bytes() == b"x" * length


def test_names_of_one_file_are_one_file_afterwards(workspace: Workspace) -> None:
    os.link(workspace.root / "file", workspace.root / "dir" / "second")
    expected = workspace.identity("file")
    workspace.commit(
        *(put(name, link=7, expected=expected) for name in ("file", "dir/second")),
        Put(b"new", attributes(DIRECTORY)), put("new/third", link=7), put("fourth", link=7),
    )  # fmt: skip
    infos = [(workspace.root / name).stat() for name in ("file", "dir/second", "new/third", "fourth")]
    assert len({info.st_ino for info in infos}) == 1
    assert infos[0].st_nlink == 4


def test_a_tree_deeper_than_a_path_may_be_long(workspace: Workspace) -> None:
    name, steps = "", []
    for _ in range(30):
        name = f"{name}/{'n' * 200}".strip("/")
        steps.append(Put(name.encode(), attributes(DIRECTORY)))
    workspace.commit(*steps, Put(f"{name}/leaf".encode(), attributes(), Text(b"leaf")))
    fd = workspace.lower.open(f"{name}/leaf".encode())
    assert os.read(fd, 10) == b"leaf"
    os.close(fd)
    workspace.commit(Remove(b"n" * 200))
    assert "n" * 200 not in os.listdir(workspace.root)


def test_new_files_inherit_nothing_from_the_root(workspace: Workspace, tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.mkdir()
    subprocess.run(["setfacl", "-d", "-m", "u:1:rwx", workspace.root], check=True)
    workspace.root.chmod(0o2777)
    old = os.umask(0o077)
    try:
        workspace.commit(put("f"), Put(b"d", attributes(DIRECTORY)), put("d/f"))
    finally:
        os.umask(old)
    for name, mode in (("f", FILE), ("d", DIRECTORY), ("d/f", FILE)):
        assert os.listxattr(workspace.root / name) == []
        info = (workspace.root / name).stat()
        assert (info.st_mode, info.st_gid) == (mode, os.getegid())


def test_a_control_directory_of_the_lower_stays(workspace: Workspace) -> None:
    mine = workspace.root / ".agentfs"
    mine.mkdir()
    (mine / "notes").write_text("mine")
    os.utime(mine, ns=(WHEN, WHEN))
    os.utime(workspace.root, ns=(WHEN, WHEN))
    workspace.stage(put("dir/f")).apply()
    assert os.listdir(mine) == ["notes"]
    assert mine.stat().st_mtime_ns == WHEN
    assert workspace.root.stat().st_mtime_ns == WHEN


def test_a_file_in_the_place_of_the_control_directory_is_refused(workspace: Workspace) -> None:
    (workspace.root / ".agentfs").write_text("mine")
    with pytest.raises(Refusal, match="needs that name"):
        workspace.stage(put("f"))
    assert list(workspace.state.iterdir()) == []


@pytest.mark.parametrize(
    "steps",
    [
        [put("../f")], [put("")], [Remove(b"")], [put("a//b")], [put(".agentfs/f")], [put("f"), Remove(b"f")],
        [Remove(b"dir"), put("dir/f")], [put("dir"), put("dir/f")], [Put(b"d", attributes(DIRECTORY)), put("d/no/f")],
        [Put(b"d", attributes(DIRECTORY)), Adjust(b"d/f", attributes())],
    ],
)  # fmt: skip
def test_steps_that_make_no_sense_are_refused(workspace: Workspace, steps: list[Step]) -> None:
    before = exact(workspace.root)
    with pytest.raises(Refusal) as caught:
        workspace.stage(*steps)
    assert caught.value.errno == errno.EINVAL
    assert exact(workspace.root) == before
    workspace.check_no_trace()


def test_readers_see_the_old_or_the_new_file_and_nothing_else(workspace: Workspace) -> None:
    names = [f"dir/f{number}" for number in range(30)]
    olds, news = b"o" * 70_000, b"n" * 80_000
    for name in names:
        (workspace.root / name).write_bytes(olds)
    seen: set[bytes] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for name in names:
                seen.add((workspace.root / name).read_bytes())  # an error ends the thread, and shows as a warning

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for content in (news, olds) * 8:
            workspace.commit(*(put(name, content) for name in names))
    finally:
        stop.set()
        reader.join()
    assert seen == {olds, news}


def test_progress_is_told_and_a_commit_can_be_cancelled(workspace: Workspace) -> None:
    before = exact(workspace.root)
    told: list[tuple[int, int, int]] = []
    steps = [put(f"dir/f{number}") for number in range(200)]
    with pytest.raises(Refusal) as caught:
        workspace.stage(*steps, progress=lambda *now: told.append(now), cancelled=lambda: len(told) > 2)
    assert caught.value.errno == errno.ECANCELED
    assert told[-1][0] < 200
    assert told[-1][1:] == (200, told[-1][0] * 3)
    assert exact(workspace.root) == before
    workspace.check_no_trace()
    workspace.stage(*steps, progress=lambda *now: told.append(now)).abort()
    assert told[-1] == (200, 200, 600)


def test_a_lock_that_appears_while_names_change_has_the_commit_undone(workspace: Workspace) -> None:
    before = exact(workspace.root)
    commit = workspace.stage(put("dir/f"), put("g"))

    def locks(done: int, total: int, size_bytes: int) -> None:
        assert (workspace.root / "dir" / "f").exists() != (workspace.root / "g").exists()
        (workspace.root / "index.lock").touch()

    with pytest.raises(Drifted) as caught:
        commit.apply(locks, conditions={b"index.lock": ABSENT})
    assert caught.value.paths == [b"index.lock"]
    (workspace.root / "index.lock").unlink()
    os.utime(workspace.root, ns=(WHEN, WHEN))
    after = exact(workspace.root)
    assert after.keys() == before.keys()
    workspace.check_no_trace()


def test_a_pending_commit_says_what_it_is(workspace: Workspace) -> None:
    assert commit_writer.pending(str(workspace.state)) is None
    workspace.stage(put("f"), Adjust(b"dir", attributes(DIRECTORY)))
    found = commit_writer.pending(str(workspace.state))
    assert found is not None
    assert (found.phase, found.note, found.paths, found.adjusted, found.size_bytes) == ("applying", {"branch": "b"}, 1, 1, 3)
    with pytest.raises(Refusal) as caught:
        workspace.stage(put("g"))
    assert caught.value.code == "commit-pending"
    assert workspace.resume()
    assert (workspace.root / "f").read_text() == "new"
    with pytest.raises(Refusal, match="no commit was interrupted"):
        workspace.abort()


def test_a_journal_that_cannot_be_read_or_followed_is_said_so(workspace: Workspace) -> None:
    workspace.stage(put("file"))
    shutil.rmtree(workspace.root / ".agentfs")
    for end in (workspace.resume, workspace.abort):
        with pytest.raises(Refusal) as caught:
            end()
        assert caught.value.code == "staging-gone"
    (journal,) = workspace.state.iterdir()
    assert str(journal) in caught.value.hint
    kept = journal.read_bytes()
    no_utf8 = kept.replace(b"\xa6branch\xa1b", b"\xa6branch\xa1\xaf")
    assert no_utf8 != kept
    for content in (b"", b"\xff" * 100, kept[:-1], no_utf8):
        journal.write_bytes(content)
        with pytest.raises(Refusal) as caught:
            commit_writer.pending(str(workspace.state))
        assert caught.value.code == "bad-journal"
    assert (workspace.root / "file").read_text() == "old"


def test_a_journal_that_cannot_be_written_is_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    before = exact(workspace.root)
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if len(data) > 500:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    with monkeypatch.context() as patched:  # the first one is small, and can be written
        patched.setattr(os, "write", write)
        with pytest.raises(Refusal) as caught:
            workspace.stage(*(put(f"f{number}") for number in range(20)))
    assert (caught.value.code, caught.value.errno) == ("journal-failed", errno.ENOSPC)
    workspace.check_no_trace()
    workspace.state.rmdir()
    with pytest.raises(Refusal) as caught:
        workspace.stage(put("file"))
    assert (caught.value.code, caught.value.errno) == ("journal-failed", errno.ENOENT)
    assert exact(workspace.root) == before


@pytest.mark.parametrize("disk", ["ext4"], indirect=True)
def test_an_original_that_cannot_be_removed_does_not_undo_the_commit(disk: Path) -> None:
    made = Workspace(disk)
    (made.root / "dir").mkdir(parents=True)
    (made.root / "dir" / "kept").write_text("for ever")
    made.open()
    subprocess.run(["chattr", "+i", made.root / "dir" / "kept"], check=True)
    with pytest.raises(Refusal, match="the commit is done, but") as caught:
        made.commit(Remove(b"dir"), put("file"))
    assert caught.value.code == "cleaning-failed"
    assert sorted(os.listdir(made.root)) == [".agentfs", "file"]
    (kept,) = made.root.glob(".agentfs/*/*/kept")
    subprocess.run(["chattr", "-i", kept], check=True)
    assert made.abort()
    made.check_no_trace()
    made.lower.close()
