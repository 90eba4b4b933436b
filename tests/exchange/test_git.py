"""Trees in git and back: nothing is lost, nothing is written twice, and a repository from elsewhere is not believed."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pygit2
import pytest

from agentfs_files.trees.directory_tree import Directory
from agentfs_files.trees.equal_trees import make_equal
from agentfs_files.trees.tree_source import Chunks, TreeEntry
from agentfsd.domain_errors import Refusal
from agentfsd.exchange import remote
from agentfsd.exchange.checkout import Checkout
from agentfsd.exchange.record import ENTRIES, ChangedPaths, Recorder
from agentfsd.exchange.repository import NOTES, Oid, Repository, Trees, is_dotgit, plain_name, ref_name, trailer, unquoted
from agentfsd.exchange.states import HEADS, REMOTE, ExportState, commit_state, snapshot_name
from tests.exchange.trees import unlike


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.open(str(tmp_path / "history.git"), make=True)


def git(repository: Repository, *arguments: str) -> str:
    command = ["git", "-C", repository.path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def objects(repository: Repository) -> set[str]:
    return set(git(repository, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split())


class Counting(Directory):
    """Counts the files that are read."""

    def __init__(self, root: str) -> None:
        super().__init__(root, is_dotgit)
        self.read: list[bytes] = []

    def chunks(self, entry: TreeEntry) -> Chunks:
        self.read.append(entry.path)
        return super().chunks(entry)


def record(repository: Repository, source: Path, base: Trees | None = None, changed: ChangedPaths | None = None) -> Trees:
    with Counting(str(source)) as tree:
        return Recorder(repository, tree, base, changed).record()


def commit(repository: Repository, trees: Trees, name: str = "s1", *parents: Oid, tag: str = "") -> Oid:
    state = ExportState(name, "main", "B" * 26, 1_700_000_000_000_000_000, "make <all>", tag, snapshot="S" * 20 + name)
    return commit_state(repository, state, trees, list(parents))


def check_out(repository: Repository, trees: Trees, target: Path, base: Trees | None = None) -> None:
    make_equal(str(target), Checkout(repository, trees, base), keep=is_dotgit)


def test_round_trip_keeps_everything(repository: Repository, source: Path, target: Path) -> None:
    check_out(repository, record(repository, source), target)
    assert unlike(source, target) == []


def test_git_finds_no_fault_and_sees_the_files(repository: Repository, source: Path) -> None:
    made = commit(repository, record(repository, source))
    repository.write_notes()
    repository.move(HEADS + "main", made)
    git(repository, "fsck", "--strict")
    assert git(repository, "show", "main:sub/deep/linked") == "one\ntwo\n"
    listed = git(repository, "ls-tree", "-r", "main")
    assert "100755 blob" in listed
    assert "120000 blob" in listed
    assert git(repository, "notes", "--ref=agentfs", "list") == ""


def test_git_directories_are_left_out(repository: Repository, source: Path, target: Path) -> None:
    for name in (".git", ".GIT", "git~1", ".git ", ".g\u200cit"):
        (source / "sub" / name).mkdir()
        (source / "sub" / name / "config").write_text("x")
    made = commit(repository, record(repository, source))
    repository.move(HEADS + "main", made)
    git(repository, "fsck", "--strict")
    (target / ".git").mkdir()
    check_out(repository, record(repository, source), target)
    assert sorted(os.listdir(target / "sub")) == ["deep", "program", "symlink"]
    assert (target / ".git").is_dir()
    assert not is_dotgit(b".gitignore")


def test_what_is_recorded_again_is_not_written_again(repository: Repository, source: Path) -> None:
    first = record(repository, source)
    before = objects(repository)
    assert record(repository, source) == first
    assert objects(repository) == before
    (source / "copy").write_bytes((source / "binary").read_bytes())
    record(repository, source)
    assert len(objects(repository) - before) == 3  # the root and what is said of its names; no content


def test_only_changed_files_are_read(repository: Repository, source: Path, target: Path) -> None:
    first = record(repository, source)
    (source / "binary").write_bytes(b"new")
    (source / "sub" / "more").mkdir()
    (source / "sub" / "more" / "leaf").write_text("leaf")
    (source / "empty").rmdir()
    with Counting(str(source)) as tree:
        changed = ChangedPaths([b"binary", b"sub/more", b"sub/more/leaf", b"empty"])
        second = Recorder(repository, tree, first, changed).record()
        assert sorted(tree.read) == [b"binary", b"sub/more/leaf"]
    check_out(repository, second, target)
    assert unlike(source, target) == []


def test_without_a_list_of_changes_times_tell(repository: Repository, source: Path, target: Path) -> None:
    first = record(repository, source)
    (source / "binary").write_bytes(b"new")
    with Counting(str(source)) as tree:
        second = Recorder(repository, tree, first).record()
        assert b"binary" in tree.read
        assert b"holes" not in tree.read
    check_out(repository, second, target)
    assert unlike(source, target) == []


def test_a_checkout_over_another_touches_only_what_differs(repository: Repository, source: Path, target: Path) -> None:
    first = record(repository, source)
    check_out(repository, first, target)
    (source / "sub" / "program").write_text("changed")
    (source / "dangling").unlink()
    second = record(repository, source)
    seen: list[bytes] = []

    class Seen(Checkout):
        def children(self, directory: TreeEntry) -> list[TreeEntry]:
            seen.append(directory.path)
            return super().children(directory)

    make_equal(str(target), Seen(repository, second, first))
    assert unlike(source, target) == []
    assert seen == [b"", b"sub"]


def test_hard_links_that_part_are_parted(repository: Repository, source: Path, target: Path) -> None:
    first = record(repository, source)
    check_out(repository, first, target)
    (source / "text").unlink()
    (source / "text").write_text("alone\n")
    second = record(repository, source, first, ChangedPaths([b"text"]))
    check_out(repository, second, target, first)
    assert (target / "sub" / "deep" / "linked").read_text() == "one\ntwo\n"
    assert (target / "text").read_text() == "alone\n"


def test_commit_of_git_itself_is_a_tree_as_well(repository: Repository, source: Path, target: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    git(repository, "clone", "-q", repository.path, str(work))
    (work / "program").write_text("#!/bin/sh\n")
    (work / "program").chmod(0o755)
    (work / "link").symlink_to("program")
    (work / "plain").write_text("plain")
    for command in (["add", "."], ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "plain"]):
        subprocess.run(["git", *command], cwd=work, check=True)
    subprocess.run(["git", "push", "-q", "origin", "HEAD:main"], cwd=work, check=True)
    (target / "plain").write_text("plain")
    (target / "plain").chmod(0o640)
    (target / "goes").mkdir()
    (target / ".git").mkdir()
    kept = (target / "plain").stat()
    check_out(repository, repository.trees(repository.find("main")), target)
    assert sorted(os.listdir(target)) == [".git", "link", "plain", "program"]
    assert os.access(target / "program", os.X_OK)
    after = (target / "plain").stat()
    assert (after.st_mode, after.st_ctime_ns) == (kept.st_mode, kept.st_ctime_ns)


def test_commit_says_who_when_and_what(repository: Repository, source: Path) -> None:
    tag = "two\nlines: 100%\nAgentfs-Snapshot: forged"
    made = repository.commit(commit(repository, record(repository, source), tag=tag))
    assert (made.author.name, made.author.time) == ("make all", 1_700_000_000)
    assert trailer(made, "Agentfs-Tag") == tag
    assert trailer(made, "Agentfs-Snapshot") == "S" * 20 + "s1"
    assert snapshot_name(made) == "s1"


@pytest.mark.parametrize("name", ["plain", "a..b", "a...b", "a.", "a.lock", "v1.0-rc_2"])
def test_every_name_is_a_ref(repository: Repository, source: Path, name: str) -> None:
    ref = HEADS + ref_name(name)
    subprocess.run(["git", "check-ref-format", ref], check=True)
    assert unquoted(ref_name(name)) == name
    repository.move(ref, commit(repository, record(repository, source)))
    assert list(repository.refs(HEADS)) == [ref_name(name)]


def test_names_of_git_become_names_of_branches() -> None:
    assert [plain_name(name) for name in ("feature/x", "-a", "ünicode", "//")] == ["feature-x", "a", "nicode", "imported"]


# -- what may not be believed


def _tree(repository: Repository, name: bytes) -> Oid:
    return repository.write_tree({name: (0o100644, repository.write_blob(b"evil"))})


@pytest.mark.parametrize("name", [b"..", b".", b"../evil", b"/etc/evil"])
def test_hostile_tree_is_refused(repository: Repository, target: Path, name: bytes) -> None:
    with pytest.raises(Refusal, match="a tree holds the name"):
        check_out(repository, Trees(_tree(repository, name), None), target)
    assert os.listdir(target) == []
    assert not (target.parent / "evil").exists()


@pytest.mark.parametrize(
    "said",
    [
        [{"path": "../evil", "mode": 0o10644}], [{"path": "..", "mode": 0o40755}], [{"path": "a", "mode": 0o644}],
        [{"path": "a", "mode": 0o100644, "uid": -5}], {"no": "list"}, [{"path": "a", "mode": 0o100644, "raw": "?"}],
    ],
)  # fmt: skip
def test_hostile_attributes_are_refused(repository: Repository, target: Path, said: object) -> None:
    beside = repository.write_tree({ENTRIES: (0o100644, repository.write_blob(msgspec.json.encode(said)))})
    with pytest.raises(Refusal):
        check_out(repository, Trees(_tree(repository, b"a"), beside), target)
    assert os.listdir(target) == []


def test_attributes_of_another_type_than_the_file_are_not_used(repository: Repository, target: Path) -> None:
    said = [{"path": "a", "mode": 0o120777}]
    beside = repository.write_tree({ENTRIES: (0o100644, repository.write_blob(msgspec.json.encode(said)))})
    check_out(repository, Trees(_tree(repository, b"a"), beside), target)
    assert (target / "a").read_text() == "evil"
    assert not (target / "a").is_symlink()


def test_missing_object_is_said(repository: Repository, target: Path) -> None:
    with pytest.raises(Refusal, match="lacks the object"):
        check_out(repository, Trees(pygit2.Oid(hex="12" * 20), None), target)


def test_repository_with_a_working_tree_is_refused(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "work")], check=True)
    with pytest.raises(Refusal, match="working tree"):
        Repository.open(str(tmp_path / "work"), make=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(Refusal, match="not a git repository"):
        Repository.open(str(tmp_path / "full"), make=True)
    assert os.listdir(tmp_path / "full") == ["file"]


# -- remotes


@pytest.fixture(params=["file", "git"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty bare repository behind file:// and behind a git daemon."""
    served = tmp_path / "served"
    pygit2.init_repository(str(served / "there.git"), bare=True, initial_head="main")
    if request.param == "file":
        yield f"file://{served}/there.git"
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    daemon = subprocess.Popen(
        ["git", "daemon", "--export-all", "--enable=receive-pack", f"--base-path={served}", "--reuseaddr",
         "--listen=127.0.0.1", f"--port={port}", str(served)],
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.02)
    yield f"git://127.0.0.1:{port}/there.git"
    os.killpg(daemon.pid, 15)
    daemon.wait(10)


def test_history_travels_by_a_remote(repository: Repository, source: Path, target: Path, tmp_path: Path, url: str) -> None:
    remote.fetch(repository, url)
    repository.move(HEADS + "main", commit(repository, record(repository, source)))
    repository.write_notes()
    assert remote.push(repository, url, [HEADS + "main", NOTES]) == 2
    remote.fetch(repository, url)
    assert remote.push(repository, url, [HEADS + "main", NOTES]) == 0
    there = Repository.open(str(tmp_path / "served" / "there.git"), make=False)
    git(there, "fsck", "--strict")

    other = Repository.open(str(tmp_path / "other.git"), make=True)
    remote.fetch(other, url)
    other.join_attributes(remote.REMOTE_NOTES)
    tip = other.target(REMOTE + "heads/main")
    assert tip is not None
    check_out(other, other.trees(tip), target)
    assert unlike(source, target) == []


def test_attributes_of_two_sides_are_joined(repository: Repository, source: Path, tmp_path: Path, url: str) -> None:
    other = Repository.open(str(tmp_path / "other.git"), make=True)
    made = []
    for number, side in enumerate((repository, other)):
        (source / "text").write_text(str(number))
        made.append(commit(side, record(side, source), f"s{number}"))
        remote.fetch(side, url)
        side.join_attributes(remote.REMOTE_NOTES)
        side.write_notes(remote.REMOTE_NOTES)
        side.move(f"{HEADS}b{number}", made[-1])
        remote.push(side, url, [f"{HEADS}b{number}", NOTES])
    there = Repository.open(str(tmp_path / "served" / "there.git"), make=False)
    assert [there.trees(there.commit(oid)).attributes is not None for oid in made] == [True, True]
    git(there, "fsck", "--strict")


def test_remote_that_is_not_there_is_said(repository: Repository, tmp_path: Path) -> None:
    for missing in (f"file://{tmp_path}/missing.git", "git://127.0.0.1:1/missing.git"):
        with pytest.raises(Refusal, match="missing"):
            remote.fetch(repository, missing)


def test_urls_are_told_from_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd:name").mkdir()
    assert all(map(remote.is_url, ["https://h/x", "ssh://h/x", "git@host:x.git", "host:x.git", "file:///x"]))
    assert not any(map(remote.is_url, ["x.git", "/srv/x.git", "../x", "odd:name", "a/b:c"]))


def test_the_current_directory_names_no_program_for_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be an agent's branch."""
    trap = tmp_path / "trap"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    helper = f"!touch {trap}; echo username=x; echo password=x; :"
    subprocess.run(["git", "-C", tmp_path, "config", "credential.helper", helper], check=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pygit2.GitError):
        remote._known_to_git("https://agentfsd.invalid/")
    assert not trap.exists()
