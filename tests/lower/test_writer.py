"""A commit into the lower: exact in everything, all or nothing, atomic for readers, and without a trace when it is refused."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentfs_host import syscalls
from agentfsd.domain_errors import Refusal
from agentfsd.lower import commit_writer
from agentfsd.lower.commit_plan import ABSENT, Adjust, Drifted, FileAttributes, Identity, Put, Remove, Step
from agentfsd.lower.host_lower import HostLower
from tests.compare import differences
from tests.lower.commit_trees import exact, make_lower, make_wanted, steps_between
from tests.mounted import needs_open_checkout, needs_root

FILE = stat.S_IFREG | 0o644
DIRECTORY = stat.S_IFDIR | 0o755
WHEN = 1_650_000_000_111_222_333


class Text:
    """Content from memory."""

    def __init__(self, content: bytes, size: int | None = None) -> None:
        self._content, self.size = content, len(content) if size is None else size

    def open(self) -> int:
        fd = os.memfd_create("content")
        os.write(fd, self._content)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd


class Workspace:
    """A lower, and a place for the journal."""

    def __init__(self, base: Path) -> None:
        self.root, self.state = base / "root", base / "state"
        self.state.mkdir()
        self.lower: HostLower

    def open(self) -> "Workspace":
        self.lower = HostLower(str(self.root))
        return self

    def stage(self, *steps: Step, **options: object) -> commit_writer.LowerCommit:
        return commit_writer.stage(self.lower, str(self.state), steps, note={"branch": "b"}, **options)  # type: ignore[arg-type]

    def commit(self, *steps: Step) -> None:
        self.stage(*steps).apply()
        self.check_no_trace()

    def resume(self) -> bool:
        return commit_writer.resume(self.lower, str(self.state))

    def abort(self) -> bool:
        return commit_writer.abort(self.lower, str(self.state))

    def check_no_trace(self) -> None:
        assert list(self.state.iterdir()) == []
        assert not (self.root / ".agentfs").exists()

    def identity(self, name: str) -> Identity:
        info = (self.root / name).lstat()
        return Identity(info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(tmp_path)
    made.root.mkdir()
    (made.root / "file").write_text("old")
    (made.root / "dir" / "sub").mkdir(parents=True)
    (made.root / "dir" / "sub" / "leaf").write_text("leaf")
    os.utime(made.root, ns=(WHEN, WHEN))
    made.open()
    yield made
    made.lower.close()


def attributes(mode: int = FILE, **changes: int) -> FileAttributes:
    found = {"uid": os.geteuid(), "gid": os.getegid(), "atime_ns": WHEN, "mtime_ns": WHEN + 1} | changes
    return FileAttributes(mode, **found)


def put(path: str, content: bytes = b"new", **options: object) -> Put:
    return Put(path.encode(), attributes(), Text(content), **options)  # type: ignore[arg-type]


@pytest.fixture
def no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system, or a libc, that does not know renameat2(2)."""
    monkeypatch.setattr(syscalls, "_renameat2", None)


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Callable[[Path], tuple[Workspace, Path]]]:
    """A factory of a workspace with every kind of file, and the tree that it is to become."""
    with ExitStack() as opened:

        def make(base: Path) -> tuple[Workspace, Path]:
            made = Workspace(base)
            make_lower(made.root, 40)
            make_wanted(base / "wanted", made.root, 40)
            made.open()
            opened.callback(made.lower.close)
            return made, base / "wanted"

        yield make


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


MAKE = {"ext4": ["mkfs.ext4", "-q"], "xfs": ["mkfs.xfs", "-q"], "btrfs": ["mkfs.btrfs", "-q"], "tmpfs": []}


@pytest.fixture(params=MAKE)
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own."""
    needs_root()
    kind, command = request.param, MAKE[request.param]
    if command and shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: scripts/install --tests")
    where = tmp_path / "disk"
    where.mkdir()
    if command:
        with (tmp_path / "image").open("wb") as file:
            file.truncate(320 << 20)
        subprocess.run([*command, tmp_path / "image"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["mount", "-o", "loop", tmp_path / "image", where], check=True)
    else:
        subprocess.run(["mount", "-t", kind, "none", where], check=True)
    yield where
    subprocess.run(["umount", "-l", where], check=True)


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


# -- somebody else changes the lower


def drift(workspace: Workspace, *steps: Step, during: Callable[[], object]) -> list[bytes]:
    """What is said to have drifted when *during* happens between staging and applying; all else must be undone."""
    commit = workspace.stage(*steps)
    during()
    after = exact(workspace.root)
    del after["."]
    with pytest.raises(Drifted) as caught:
        commit.apply()
    workspace.check_no_trace()
    now = exact(workspace.root)
    del now["."]
    assert differences(now, {name: what for name, what in after.items() if not name.startswith(".agentfs")}) == []
    return caught.value.paths


def test_a_target_that_changed_since_staging_is_drift(workspace: Workspace) -> None:
    file, root = workspace.root / "file", workspace.root
    others = [put("dir/new", expected=ABSENT), put("dir/sub/leaf"), Adjust(b"dir", attributes(DIRECTORY))]

    def check(step: Step, during: Callable[[], object]) -> None:
        assert drift(workspace, *others, step, during=during) == [step.path]

    check(put("file", expected=workspace.identity("file")), lambda: file.write_text("theirs"))
    check(put("file", expected=workspace.identity("file")), lambda: file.chmod(0o600))
    check(Adjust(b"file", attributes(), workspace.identity("file")), lambda: file.write_text("theirs again"))
    check(Remove(b"file", workspace.identity("file")), lambda: file.chmod(0o644))
    check(put("new", expected=ABSENT), lambda: (root / "new").write_text("theirs"))
    check(Put(b"file", attributes(DIRECTORY), expected=workspace.identity("file")), lambda: os.replace(root / "new", file))
    check(Remove(b"file", workspace.identity("file")), file.unlink)
    assert drift(workspace, put("dir/sub/leaf"), during=lambda: shutil.rmtree(root / "dir")) == [b"dir/sub/leaf"]


def test_a_target_that_is_not_as_expected_is_drift_before_anything_is_made(workspace: Workspace) -> None:
    before = exact(workspace.root)
    other = workspace.identity("file")._replace(mtime_ns=1)
    steps = [put("file", expected=other), put("dir/sub", expected=ABSENT), Remove(b"none", other), put("no/f"), put("fine")]
    with pytest.raises(Drifted) as caught:
        workspace.stage(*steps, Adjust(b"gone", attributes()), Adjust(b"dir", attributes()))
    assert sorted(caught.value.paths) == [b"dir", b"dir/sub", b"file", b"gone", b"no/f", b"none"]
    assert exact(workspace.root) == before
    workspace.check_no_trace()


@pytest.mark.parametrize("replaced", [True, False])
def test_who_changes_a_file_in_the_last_moment_gets_it_back(
    workspace: Workspace, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real = workspace.root / "file", syscalls.rename

    def rename(source_fd: int, source: bytes, target_fd: int, target: bytes, flags: int) -> None:
        if b"file" in (source, target) and file.exists() and file.read_text() == "old":
            file.write_text("theirs")
        real(source_fd, source, target_fd, target, flags)

    step = put("file", expected=workspace.identity("file")) if replaced else Remove(b"file", workspace.identity("file"))
    commit = workspace.stage(step)
    with monkeypatch.context() as patched:
        patched.setattr(syscalls, "rename", rename)
        with pytest.raises(Drifted):
            commit.apply()
    assert file.read_text() == "theirs"
    workspace.check_no_trace()


@pytest.mark.parametrize("exchange", [True, False])
def test_without_expectation_whatever_is_there_is_replaced(
    workspace: Workspace, exchange: bool, request: pytest.FixtureRequest
) -> None:
    if not exchange:
        request.getfixturevalue("no_exchange")
    commit = workspace.stage(put("new"), put("file"), Remove(b"dir"), put("gone"))
    (workspace.root / "new").write_text("theirs")
    (workspace.root / "file").unlink()
    shutil.rmtree(workspace.root / "dir")
    commit.apply()
    assert workspace.names() == ["file", "gone", "new"]
    assert (workspace.root / "new").read_text() == (workspace.root / "file").read_text() == "new"


def test_an_abort_overwrites_nobody(workspace: Workspace) -> None:
    """Two originals have no place to go back to: they wait in staging until there is one."""
    commit = workspace.stage(put("file"), Remove(b"dir/sub/leaf"), put("dir/new"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(syscalls, "sync_filesystem", die)
        with pytest.raises(KeyboardInterrupt):
            commit.apply()
    (workspace.root / "theirs").write_text("theirs")
    os.replace(workspace.root / "theirs", workspace.root / "file")
    (workspace.root / "dir" / "sub" / "leaf").write_text("theirs")
    for _ in range(2):
        with pytest.raises(Refusal) as caught:
            workspace.abort()
        assert caught.value.code == "in-the-way"
        assert caught.value.message.startswith("2 files")
        assert (workspace.root / "file").read_text() == (workspace.root / "dir" / "sub" / "leaf").read_text() == "theirs"
        assert not (workspace.root / "dir" / "new").exists()
    (workspace.root / "file").unlink()
    (workspace.root / "dir" / "sub" / "leaf").unlink()
    assert not workspace.abort()
    assert (workspace.root / "file").read_text() == "old"
    assert (workspace.root / "dir" / "sub" / "leaf").read_text() == "leaf"
    workspace.check_no_trace()


def interrupted(workspace: Workspace, *steps: Step) -> None:
    """A commit that was killed when all names had changed."""
    commit = workspace.stage(*steps)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(syscalls, "sync_filesystem", die)
        with pytest.raises(KeyboardInterrupt):
            commit.apply()


def read_all(workspace: Workspace) -> dict[str, str]:
    paths = [path for path in workspace.root.rglob("*") if path.is_file() and ".agentfs" not in path.parts]
    return {str(path.relative_to(workspace.root)): path.read_text() for path in paths}


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("drifted", ["file", "kept", "zone/new"])
def test_a_resume_that_finds_a_path_changed_changes_nothing(
    workspace: Workspace, exchange: bool, drifted: str, request: pytest.FixtureRequest
) -> None:
    if not exchange:
        request.getfixturevalue("no_exchange")
    for name in ("kept", "zone/old"):
        (workspace.root / name).parent.mkdir(exist_ok=True)
        (workspace.root / name).write_text("old")
    adjust = Adjust(b"kept", attributes(FILE | 0o111), workspace.identity("kept"))
    first = put("dir/sub/leaf", expected=workspace.identity("dir/sub/leaf"))
    later = [put("file", expected=workspace.identity("file"), rank=1), put("zone/new", expected=ABSENT, rank=1)]
    commit = workspace.stage(first, *later, put("zone/old", rank=1), adjust)
    with pytest.raises(KeyboardInterrupt):
        commit.apply(lambda done, *_: die(done))  # killed when the first directory was done
    append(workspace.root / "dir/sub/leaf")
    (workspace.root / drifted).write_text("theirs")
    before = read_all(workspace)
    assert (before["dir/sub/leaf"], before["zone/old"]) == ("newtheirs", "old")
    for _ in range(2):
        with pytest.raises(Drifted) as caught:
            workspace.resume()
        assert caught.value.paths == [drifted.encode()]
        assert read_all(workspace) == before
    if drifted == "zone/new":
        (workspace.root / drifted).unlink()
        assert workspace.resume()
        done = {"file": "new", "kept": "old", "zone/old": "new", "zone/new": "new", "dir/sub/leaf": "newtheirs"}
        assert read_all(workspace) == done
    else:
        with pytest.raises(Refusal, match="'dir/sub/leaf'"):
            workspace.abort()
        assert read_all(workspace) == before
        (workspace.root / "dir/sub/leaf").unlink()
        assert not workspace.abort()
        assert read_all(workspace) == before | {"dir/sub/leaf": "leaf"}
    workspace.check_no_trace()


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("theirs")


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize(
    ("path", "edit"),
    [
        ("file", append),
        ("file", lambda path: os.truncate(path, 1)),
        ("file", lambda path: path.write_text("NEW")),
        ("dir/new", append),
        ("dir/sub/leaf", lambda path: path.write_text("theirs")),  # which the commit has removed
        ("made/in/side", lambda path: path.write_text("theirs")),
        ("made/in/theirs", lambda path: path.write_text("theirs")),
    ],
)
def test_an_abort_leaves_what_somebody_has_edited_since(
    workspace: Workspace, exchange: bool, path: str, edit: Callable[[Path], object], request: pytest.FixtureRequest
) -> None:
    if not exchange:
        request.getfixturevalue("no_exchange")
    tree = [Put(name.encode(), attributes(DIRECTORY)) for name in ("made", "made/in")]
    interrupted(workspace, put("file"), put("dir/new"), Remove(b"dir/sub/leaf"), *tree, put("made/in/side"))
    edited, moved = workspace.root / path, workspace.root / path.split("/in/")[0]
    time.sleep(0.01)  # the clock of the file system moves on
    edit(edited)
    content = edited.read_text()
    for _ in range(2):
        with pytest.raises(Refusal) as caught:
            workspace.abort()
        assert (caught.value.code, caught.value.message.split()[0]) == ("in-the-way", "1")
        assert str(moved.relative_to(workspace.root)) in caught.value.message
        assert edited.read_text() == content
    said = caught.value.hint.removeprefix("its original is ").partition(" in the lower")[0]
    if path in ("file", "dir/sub/leaf"):
        assert (workspace.root / said).read_text() == ("old" if path == "file" else "leaf")
    else:
        assert "no original" in caught.value.hint
    moved.rename(workspace.state.parent / "away")
    assert not workspace.abort()
    assert workspace.names() == ["dir", "dir/sub", "dir/sub/leaf", "file"]
    assert ((workspace.root / "file").read_text(), (workspace.root / "dir/sub/leaf").read_text()) == ("old", "leaf")
    workspace.check_no_trace()


def die(_: int) -> None:
    raise KeyboardInterrupt


# -- what cannot be written


def test_a_full_disk_leaves_the_lower_as_it_was(tmp_path: Path) -> None:
    needs_root()
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
    try:
        made = Workspace(tmp_path)
        made.root = disk
        (disk / "file").write_text("old")
        os.utime(disk, ns=(WHEN, WHEN))
        made.open()
        before = exact(disk)
        with pytest.raises(Refusal) as caught:
            made.stage(*(put(f"f{number}", b"x" * 100_000) for number in range(20)))
        assert caught.value.errno == errno.ENOSPC
        assert exact(disk) == before
        made.check_no_trace()
        made.lower.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_what_is_mounted_in_the_lower_is_refused_by_name(workspace: Workspace) -> None:
    needs_root()
    sub = workspace.root / "dir" / "sub"
    before = exact(workspace.root)
    for options in (["-t", "tmpfs", "none"], ["--bind", str(workspace.root / "dir")]):
        subprocess.run(["mount", *options, sub], check=True)
        try:
            for step in (put("dir/sub/f"), Remove(b"dir"), Remove(b"dir/sub"), put("dir/sub")):
                with pytest.raises(Refusal, match="mounted at 'dir/sub'"):
                    workspace.stage(put("fine"), step)
        finally:
            subprocess.run(["umount", "-l", sub], check=True)
        assert exact(workspace.root) == before
        workspace.check_no_trace()


def test_below_our_own_mount_the_lower_is_written(workspace: Workspace) -> None:
    needs_root()
    workspace.lower.mask(b"dir")
    covered = workspace.root / "dir"
    subprocess.run(["mount", "-t", "tmpfs", "none", covered], check=True)
    try:
        workspace.commit(put("dir/new"), put("dir/sub/leaf"), Adjust(b"dir", attributes(DIRECTORY)))
        with pytest.raises(Refusal, match="mounted at 'dir'"):
            workspace.stage(Remove(b"dir"))
        assert os.listdir(covered) == []
    finally:
        subprocess.run(["umount", "-l", covered], check=True)
    assert (covered / "new").read_text() == (covered / "sub" / "leaf").read_text() == "new"
    assert covered.stat().st_mtime_ns == WHEN + 1


def test_a_read_only_lower_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    needs_root()
    view = tmp_path / "view"
    view.mkdir()
    subprocess.run(["mount", "-o", "bind,ro", workspace.root, view], check=True)
    lower = HostLower(str(view))
    try:
        with pytest.raises(Refusal, match="read-only") as caught:
            commit_writer.stage(lower, str(workspace.state), [put("dir/f")], note={})
        assert caught.value.errno == errno.EROFS
    finally:
        lower.close()
        subprocess.run(["umount", "-l", view], check=True)
    workspace.check_no_trace()


AS_NOBODY = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
from pathlib import Path
import pytest
from agentfsd.domain_errors import Refusal
from tests.lower.test_writer import Workspace, attributes, put, DIRECTORY
from agentfsd.lower.commit_plan import *
workspace = Workspace(Path(sys.argv[1]))
root = workspace.root
(root / "sub" / "deep").mkdir(parents=True)
workspace.open()
workspace.commit(
    Put(b"f", attributes(uid=0, gid=0), None), Put(b"d", attributes(0o40555), None), put("d/g"), Put(b"sub", attributes(0o40500)),
    Put(b"x", attributes(xattrs={b"trusted.x": b"1", b"user.x": b"2"})),
)
assert (root / "f").stat().st_uid == 65534
assert oct((root / "d").stat().st_mode) == "0o40555" and (root / "d" / "g").read_text() == "new"
assert os.listxattr(root / "x") == ["user.x"]
workspace.commit(put("shared/f"), Adjust(b"shared", attributes(0o40777, uid=0, gid=0)))
with pytest.raises(Refusal, match="'shared' belongs to somebody else"):
    workspace.stage(put("shared/g"), Adjust(b"shared", attributes(0o40755, uid=0, gid=0)))
(root / "shut" / "in").mkdir(parents=True)
(root / "shut").chmod(0o555)
for step in (put("shut/f"), Remove(b"shut/in"), Remove(b"shut")):
    with pytest.raises(Refusal) as caught:
        workspace.stage(put("fine"), step)
    assert caught.value.code == "lower-not-writable" and "'shut'" in caught.value.message
    workspace.check_no_trace()
(root / "open").mkdir()
root.chmod(0o555)
with pytest.raises(Refusal, match="the workspace may not"):
    workspace.stage(put("open/f"))
print("fine")
"""


def test_an_ordinary_user_keeps_the_owner_and_is_told_what_may_not_be_written(tmp_path: Path) -> None:
    needs_root()
    needs_open_checkout()
    base = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    try:
        (base / "root").mkdir()
        for path in (base, base / "root"):
            os.chown(path, 65534, 65534)
        (base / "root" / "shared").mkdir()
        (base / "root" / "shared").chmod(0o777)
        done = subprocess.run([sys.executable, "-c", AS_NOBODY, base], capture_output=True, text=True, check=False)
        assert done.stdout == "fine\n", done.stderr
    finally:
        shutil.rmtree(base)
