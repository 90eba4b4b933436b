"""Branches as linked worktrees of git: what git sees of them, what harnesses ask for, and what outlives the daemon."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_host import mount_table
from agentfsd.cli.worktrees import branch_worktrees
from tests.mounted import AGENTFSD, Mounted, agentfsd

IDENTITY = ("-c", "user.name=me", "-c", "user.email=me@localhost")


def git(place: Path | str, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(["git", *IDENTITY, *arguments], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout.strip()


def make_repository(place: Path) -> None:
    git(place, "init", "-q", "-b", "main")
    (place / "text").write_text("one\n")
    (place / ".gitignore").write_text("built\n")
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "first")
    (place / "built").write_text("ignored by git\n")


@pytest.fixture
def repository(mounted: Mounted) -> Mounted:
    make_repository(mounted.lower)
    return mounted


def add(place: Path | str, *arguments: str) -> Path:
    return Path(agentfsd("worktree", "add", *arguments, cwd=place).stdout.strip())


def hook(event: str, given: object, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    return agentfsd("hook", event, input=given if isinstance(given, str) else json.dumps(given), check=check)


def known(place: Path | str) -> dict[str, str]:
    """The path of each worktree that git lists, with its branch."""
    records = git(place, "worktree", "list", "--porcelain").split("\n\n")
    pairs = [dict(line.partition(" ")[::2] for line in record.splitlines()) for record in records]
    return {pair["worktree"]: pair.get("branch", "").removeprefix("refs/heads/") for pair in pairs}


def is_accepted(path: Path, repository: Path) -> bool:
    """What harnesses check before they call a directory a worktree of a repository."""
    asked = git(path, "rev-parse", "--absolute-git-dir", "--show-toplevel", "--git-common-dir").splitlines()
    own, top, common = asked
    points_back = (Path(own) / "gitdir").read_text().strip() == str(path / ".git")
    inside = os.path.dirname(own) == f"{common}/worktrees"
    return not path.is_symlink() and top == str(path) and common == f"{repository}/.git" and inside and points_back


def test_git_knows_the_branch_as_a_worktree(repository: Mounted) -> None:
    path = add(repository.lower, "fix")
    assert path == repository.subtree("fix")
    assert known(repository.lower)[str(path)] == "fix"
    assert is_accepted(path, repository.lower)
    assert git(path, "status", "--porcelain") == ""
    assert (path / "built").read_text() == "ignored by git\n"
    assert (path / ".git").is_file()
    assert ".git" in os.listdir(path)


def test_a_commit_is_in_the_repository_at_once_and_its_files_in_the_branch_only(repository: Mounted) -> None:
    path = add(repository.lower, "fix")
    (path / "text").write_text("two\n")
    (path / "built").unlink()
    git(path, "commit", "-q", "-a", "-m", "second")
    assert git(repository.lower, "log", "--format=%s", "fix") == "second\nfirst"
    assert git(repository.lower, "status", "--porcelain") == ""
    assert (repository.lower / "built").exists()
    assert {change["path"] for change in repository.json("diff", "fix")["changes"]} == {"text", "built"}
    git(repository.lower, "merge", "-q", "fix")
    assert (repository.lower / "text").read_text() == "two\n"


def test_the_git_file_is_no_change_and_cannot_be_replaced(repository: Mounted) -> None:
    path = add(repository.lower, "fix")
    link = path / ".git"
    for attempt in (link.unlink, link.mkdir, lambda: link.rename(path / "x"), lambda: link.write_text("gitdir: /elsewhere\n")):
        with pytest.raises(OSError, match=r"exists|denied|permitted"):
            attempt()
    assert link.read_text().endswith("/.git/worktrees/fix\n")
    assert repository.json("diff", "fix")["changes"] == []
    repository.cli("commit", "fix")
    assert (repository.lower / ".git").is_dir()
    assert git(repository.lower, "log", "--format=%s") == "first"


def test_a_run_in_the_branch_has_a_repository_of_its_own(repository: Mounted) -> None:
    path = add(repository.lower, "fix")
    (path / "text").write_text("two\n")
    git(path, "commit", "-q", "-a", "-m", "second")
    assert repository.sh("fix", "test -d .git && cat text && git log --format=%s") == "two\nfirst\n"
    assert git(path, "log", "-1", "--format=%s") == "second"


def test_it_is_the_same_worktree_after_a_restart_and_after_a_kill(repository: Mounted) -> None:
    path = add(repository.lower, "fix")
    held = os.open(path, os.O_RDONLY)
    try:
        repository.cli("restart")
        assert git(path, "status", "--porcelain", "--branch") == "## fix"
        os.kill(repository.record().pid, signal.SIGKILL)
        assert git(path, "status", "--porcelain", "--branch") == "## fix"
        assert ".git" in os.listdir(held)
        assert stat_of(held, ".git") == os.stat(path / ".git").st_size
    finally:
        os.close(held)


def stat_of(directory: int, name: str) -> int:
    return os.stat(name, dir_fd=directory).st_size


def test_git_neither_prunes_nor_removes_it_while_the_mount_is_away(repository: Mounted) -> None:
    path = add(repository.lower, "fix")
    agentfsd("umount", str(repository.path))
    git(repository.lower, "worktree", "prune", "--expire", "now")
    assert str(path) in known(repository.lower)
    repository.mount()
    assert git(path, "status", "--porcelain", "--branch") == "## fix"
    git(repository.lower, "worktree", "remove", str(path), check=False)
    assert (path / "text").exists()


def test_removing_one_keeps_what_is_not_committed_unless_forced(repository: Mounted) -> None:
    path = add(repository.lower, "fix")
    (path / "new").write_text("work")
    refused = repository.cli("worktree remove", "fix", check=False)
    assert refused.returncode == 1
    assert "?? new" in refused.stderr
    assert (path / "new").exists()
    repository.cli("worktree remove", "fix", "--force")
    assert known(repository.lower) == {str(repository.lower): "main"}
    assert git(repository.lower, "branch", "--format=%(refname:short)") == "main"
    repository.cli("undo")
    assert (path / "new").read_text() == "work"
    assert (path / ".git").is_dir()


def test_removing_one_keeps_its_commits(repository: Mounted) -> None:
    path = add(repository.lower, "fix")
    (path / "new").write_text("work")
    git(path, "add", "new")
    git(path, "commit", "-q", "-m", "second")
    add(repository.lower, "feature/other")
    repository.cli("worktree remove", "feature/other")
    assert "the git branch fix" in agentfsd("worktree", "remove", str(path)).stdout
    assert git(repository.lower, "log", "-1", "--format=%s", "fix") == "second"
    again = add(repository.lower, "fix")
    assert (again / "new").read_text() == "work"
    assert git(again, "status", "--porcelain") == ""


def test_commits_of_a_detached_head_get_a_branch(repository: Mounted) -> None:
    place = add(repository.path, "fix")
    git(place, "checkout", "-q", "--detach")
    (place / "text").write_text("two\n")
    git(place, "commit", "-q", "-a", "-m", "on no branch")
    commit = git(place, "rev-parse", "HEAD")
    said = agentfsd("worktree", "remove", "fix", cwd=repository.path).stdout
    assert f"are in the git branch agentfsd/fix-{commit[:10]}" in said
    assert git(repository.path, "rev-parse", f"agentfsd/fix-{commit[:10]}") == commit


def test_a_path_means_no_branch_of_git(repository: Mounted) -> None:
    place = add(repository.path, "fix")
    agentfsd("branch", "rename", "fix", "keep", cwd=repository.path)
    hook("worktree-remove", {"hook_event_name": "WorktreeRemove", "worktree_path": str(place)}, check=False)
    assert "keep" in {branch["name"] for branch in repository.json("branch list")}


def test_an_index_that_is_a_symlink_is_not_copied(repository: Mounted, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("only for who is outside\n")
    (repository.path / ".git" / "sharedindex.x").symlink_to(secret)
    place = add(repository.path, "fix")
    own = Path(git(place, "rev-parse", "--absolute-git-dir"))
    assert not (own / "sharedindex.x").exists()


def test_a_commit_can_be_checked_out_instead_of_what_is_there(repository: Mounted) -> None:
    (repository.lower / "text").write_text("not committed\n")
    assert git(add(repository.lower, "as-it-is"), "status", "--porcelain") == "M text"
    path = add(repository.lower, "clean", "--at", "main")
    assert (path / "text").read_text() == "one\n"
    assert (path / "built").exists()
    assert git(path, "status", "--porcelain") == ""


def test_what_cannot_be_made_leaves_no_branch_behind(repository: Mounted) -> None:
    add(repository.lower, "fix")
    taken = agentfsd("worktree", "add", "fix", cwd=repository.lower, check=False)
    assert "already" in taken.stderr
    for arguments in (("other", "--git-branch", "main"), ("other", "--at", "nowhere"), ("a..b",)):
        assert agentfsd("worktree", "add", *arguments, cwd=repository.lower, check=False).returncode == 1
    assert [branch["name"] for branch in repository.json("branch list")] == ["main", "fix"]
    assert [found["name"] for found in repository.json("worktree list")] == ["fix"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "given",
    [
        {"name": "-D", "source_ref": "victim"}, {"name": "-M", "source_ref": "victim"}, {"name": "fix", "source_ref": "-M"},
        {"name": "fix", "source_ref": "-f"}, {"name": "@{-1}"}, {"name": "fix", "cwd": "/nowhere at all"},
        {"name": "fix\0", "source_ref": "HEAD"}, {"name": "fix", "cwd": "/\0"},
    ],
)  # fmt: skip
def test_no_name_is_read_as_an_option_of_git(repository: Mounted, given: dict[str, str]) -> None:
    git(repository.lower, "branch", "victim")
    for branch in ("victim", "main"):
        git(repository.lower, "checkout", "-q", branch)
    refs = git(repository.lower, "for-each-ref")
    refused = hook("worktree-create", {"cwd": str(repository.lower), **given}, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "internal error" not in refused.stderr and "git is not installed" not in refused.stderr
    assert git(repository.lower, "for-each-ref") == refs
    assert git(repository.lower, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert [branch["name"] for branch in repository.json("branch list")] == ["main"]


def test_options_are_no_names_either(repository: Mounted) -> None:
    git(repository.lower, "branch", "keep")
    refused = agentfsd("worktree", "add", "x", "--at=keep", "--git-branch=-D", cwd=repository.lower, check=False)
    assert "'-D' is no name for a branch of git" in refused.stderr
    git(repository.lower, "rev-parse", "keep")


def test_a_checked_out_submodule_is_refused(repository: Mounted, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    make_repository(library)
    git(repository.lower, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git(repository.lower, "commit", "-q", "-m", "with a submodule")
    refused = agentfsd("worktree", "add", "fix", cwd=repository.lower, check=False)
    assert "the submodule 'lib' is checked out" in refused.stderr and "agentfsd run -b fix --new" in refused.stderr
    assert list(known(repository.lower)) == [str(repository.lower)]
    git(repository.lower, "submodule", "--quiet", "deinit", "-f", "lib")
    path = add(repository.lower, "fix")
    assert git(path, "status", "--short") == ""


def test_a_bound_process_makes_none(repository: Mounted) -> None:
    refused = repository.run("fix", *AGENTFSD, "worktree", "add", "other", new=True, check=False)
    assert refused.returncode == 1
    assert list(known(repository.lower)) == [str(repository.lower)]


def test_a_repository_that_is_not_the_workspace_is_refused(repository: Mounted) -> None:
    inner = repository.lower / "inner"
    inner.mkdir()
    make_repository(inner)
    assert "agentfsd mount" in agentfsd("worktree", "add", "fix", cwd=inner, check=False).stderr


def test_the_hooks_make_use_again_and_remove(repository: Mounted) -> None:
    given = {"session_id": "s", "hook_event_name": "WorktreeCreate", "cwd": str(repository.lower), "name": "feature/login"}
    made = hook("worktree-create", given)
    path = Path(made.stdout.strip())
    assert path == repository.subtree("feature-login")
    assert known(repository.lower)[str(path)] == "feature/login"
    assert hook("worktree-create", given).stdout == made.stdout
    other = hook("worktree-create", {"worktree_name": "feature-login", "cwd": str(repository.lower)})
    assert other.stdout.strip() == str(repository.subtree("feature-login-2"))
    (path / "dirty").write_text("")
    assert hook("worktree-remove", {"worktree_path": str(path)}).stdout == ""
    assert not path.exists()
    assert str(path) not in known(repository.lower)
    assert hook("worktree-remove", {"worktree_path": str(path)}).returncode == 0


@pytest.mark.parametrize("given", ["", "[]", "{}", '{"name": 3}', '{"name": "..."}'])
def test_a_hook_that_asks_for_nothing_fails_with_a_sentence(repository: Mounted, given: str) -> None:
    failed = hook("worktree-create", given, check=False)
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert failed.stderr.startswith("agentfsd: ")


def test_a_hook_removes_nothing_that_is_not_ours(repository: Mounted, tmp_path: Path) -> None:
    repository.cli("branch create", "mine")
    assert "internal error" not in hook("worktree-remove", {"worktree_path": "/\0/.agentfs/branches/mine"}, check=False).stderr
    for path in (tmp_path, repository.subtree("mine")):
        assert hook("worktree-remove", {"worktree_path": str(path)}, check=False).returncode == 1
        assert path.exists()


def test_over_the_workspace_itself_main_has_the_commits(tmp_path: Path) -> None:
    lower = tmp_path / "self"
    lower.mkdir()
    make_repository(lower)
    over = Mounted(tmp_path, lower)
    over.path = lower
    try:
        over.mount()
        path = add(lower, "fix")
        assert path == lower / ".agentfs/branches/fix"
        assert is_accepted(path, lower)
        (path / "text").write_text("two\n")
        git(path, "commit", "-q", "-a", "-m", "second")
        git(lower, "merge", "-q", "fix")
        agentfsd("worktree", "remove", "fix", cwd=lower)
        agentfsd("commit", "main", cwd=lower)
    finally:
        over.end()
    assert git(lower, "log", "--format=%s") == "second\nfirst"
    assert known(lower) == {str(lower): "main"}


@pytest.fixture
def hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository without a mount, whose hidden overlay ends when nothing uses it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AGENTFS_IDLE_EXIT_S", "1")
    place = tmp_path / "project"
    place.mkdir()
    make_repository(place)
    yield place
    for mounted in mount_table.mount_table():
        if str(tmp_path) in mounted.mountpoint:
            agentfsd("umount", "--lazy", mounted.mountpoint, check=False)


def test_without_a_mount_a_hidden_one_stays_as_long_as_there_are_worktrees(hidden: Path) -> None:
    path = add(hidden, "fix")
    subprocess.run(["sleep", "3"], check=True)
    assert git(path, "status", "--porcelain", "--branch") == "## fix"
    assert is_accepted(path, hidden)
    agentfsd("worktree", "remove", "fix", cwd=hidden)
    mountpoint = branch_worktrees.named_by(str(path))
    assert mountpoint is not None
    for _ in range(100):
        if mount_table.mount_at(mountpoint[0]) is None:
            break
        subprocess.run(["sleep", "0.1"], check=True)
    assert mount_table.mount_at(mountpoint[0]) is None


def test_a_directory_without_git_gets_a_branch(mounted: Mounted) -> None:
    (mounted.lower / "text").write_text("one")
    made = hook("worktree-create", {"name": "fix", "cwd": str(mounted.lower)})
    path = Path(made.stdout.strip())
    assert (path / "text").read_text() == "one"
    hook("worktree-remove", {"worktree_path": str(path)})
    assert not path.exists()
