"""Conflicts that a merge leaves in a git repository of its target: git sees them, and they are settled there or by `resolve`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import Mounted
from tests.repositories.agents import commit, git, start


@pytest.fixture
def repository(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    """main and fix have committed changes that conflict, and have changed a file beside the repository."""
    lower = tmp_path / "lower"
    lower.mkdir()
    start(lower / "repo", {"text": "one\ntwo\nthree\n", "gone": "gone\n", "other": "other\n"})
    (lower / "beside").write_text("base\n")
    found = make_mount(lower)
    found.cli("branch create", "fix")
    for branch, root in (("fix", found.subtree("fix")), ("main", found.path)):
        commit(root / "repo", {"text": f"one\n{branch}\nthree\n", "gone": None if branch == "main" else "changed\n"}, branch)
        (root / "beside").write_text(f"{branch}\n")
    left = found.cli("merge", "fix", "main", "--conflicts", check=False)
    assert left.returncode == 1, left.stderr
    return found


def status(mounted: Mounted) -> list[str]:
    return git(mounted.path / "repo", "status", "--porcelain").splitlines()


def state(mounted: Mounted) -> dict[str, str]:
    return {conflict["path"]: conflict["decided"] for conflict in mounted.json("conflicts", "main")["conflicts"]}


def test_git_and_we_know_the_same_conflicts(repository: Mounted) -> None:
    assert status(repository) == ["DU gone", "UU text"]
    text = (repository.path / "repo/text").read_text()
    assert text.startswith("one\n<<<<<<< main\nmain\n||||||| ")
    assert text.endswith("\ntwo\n=======\nfix\n>>>>>>> fix\nthree\n")
    assert state(repository) == {"beside": "", "repo/.git": "", "repo/gone": "", "repo/text": ""}


def test_what_resolve_decides_is_staged(repository: Mounted) -> None:
    place = repository.path / "repo"
    repository.cli("resolve", "-b", "main", "repo/text", "--theirs")
    assert status(repository) == ["M  text", "DU gone"] or status(repository) == ["DU gone", "M  text"]
    assert git(place, "show", ":text") == "one\nfix\nthree"
    repository.cli("resolve", "-b", "main", "repo/gone", "--theirs")
    assert sorted(status(repository)) == ["A  gone", "M  text"]
    repository.cli("resolve", "-b", "main", "beside", "--ours")
    refused = repository.cli("merge", "--continue", "main", check=False)
    assert refused.returncode == 1
    assert "git commit" in refused.stdout
    git(place, "commit", "-q", "--no-edit")
    assert len(git(place, "rev-list", "--parents", "-1", "HEAD").split()) == 3
    repository.cli("merge", "--continue", "main")
    assert repository.cli("merge", "fix", "main").stdout.startswith("nothing to do")
    assert git(place, "status", "--porcelain") == ""
    assert "dangling" not in git(place, "fsck", "--no-dangling")
    assert repository.fsck() == []


def test_what_git_decides_counts(repository: Mounted) -> None:
    place = repository.path / "repo"
    git(place, "rm", "-q", "gone")
    (place / "text").write_text("one\nboth\nthree\n")
    git(place, "add", "text")
    git(place, "commit", "-q", "--no-edit")
    assert state(repository) == {"beside": "", "repo/gone": "edited", "repo/text": "edited"}
    (repository.path / "beside").write_text("both\n")
    repository.cli("merge", "--continue", "main")
    assert repository.cli("merge", "fix", "main").stdout.startswith("nothing to do")


def test_a_merge_that_git_has_taken_back_does_not_count_as_merged(repository: Mounted) -> None:
    place = repository.path / "repo"
    git(place, "merge", "--abort")
    assert status(repository) == []
    repository.cli("resolve", "-b", "main", "beside", "--theirs")
    repository.cli("merge", "--continue", "main")
    again = repository.cli("merge", "fix", "main", check=False)
    assert "repo/text" in again.stdout


def test_abort_puts_the_repository_back(repository: Mounted) -> None:
    place = repository.path / "repo"
    repository.cli("resolve", "-b", "main", "repo/text", "--theirs")
    repository.cli("merge", "--abort", "main")
    assert status(repository) == []
    assert git(place, "log", "--format=%s") == "main\nstart"
    assert not (place / ".git/MERGE_HEAD").exists()
    assert repository.fsck() == []


def test_an_abort_does_not_give_up_a_merge_commit_silently(repository: Mounted) -> None:
    repository.cli("resolve", "-b", "main", ".", "--theirs")
    git(repository.path / "repo", "commit", "-q", "--no-edit")
    refused = repository.cli("merge", "--abort", "main", check=False)
    assert refused.returncode == 1
    assert "repo/.git/" in refused.stderr


def test_a_deleted_file_is_staged_as_deleted(repository: Mounted) -> None:
    (repository.path / "repo/text").unlink()
    repository.cli("resolve", "-b", "main", "repo/text", "repo/gone", "--mark")
    assert status(repository) == ["A  gone", "D  text"]  # of what one side deleted, git leaves the changed file
