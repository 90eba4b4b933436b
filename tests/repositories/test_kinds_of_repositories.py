"""Kinds of repositories: two branches commit in each, one is merged into the other, and that into the real directory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfsd.history.merge_records import Rules
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start

Place = str  # where somebody commits, relative to the workspace
TEXT = "".join(f"line {number}\n" for number in range(9))


def plain(lower: Path, *options: str) -> Place:
    start(lower, {"a": "a\n", "text": TEXT}, *options)
    return "."


def sha256(lower: Path) -> Place:
    return plain(lower, "--object-format=sha256")


def nested(lower: Path) -> Place:
    plain(lower)
    start(lower / "inner", {"a": "a\n"})
    return "inner"


def nested_in_no_repository(lower: Path) -> Place:
    start(lower / "project", {"a": "a\n"})
    return "project"


def submodule(lower: Path) -> Place:
    plain(lower)
    start(lower.parent / "library", {"a": "a\n", "text": TEXT})
    git(lower, "submodule", "--quiet", "add", str(lower.parent / "library"), "lib")
    git(lower, "commit", "-qm", "adds a submodule")
    git(lower / "lib", "switch", "-q", "main")
    return "lib"


def linked_worktree(lower: Path) -> Place:
    plain(lower)
    git(lower, "worktree", "add", "-q", "linked", "-b", "in-linked")
    (lower / "linked" / ".git").write_text("gitdir: ../.git/worktrees/linked\n")
    (lower / ".git" / "worktrees" / "linked" / "gitdir").write_text("../../../linked/.git\n")
    (lower / ".git" / "info" / "exclude").write_text("linked/\n")
    return "linked"


def separate_database(lower: Path) -> Place:
    start(lower / "project", {"a": "a\n", "text": TEXT}, "--separate-git-dir", str(lower / "database"))
    (lower / "project" / ".git").write_text("gitdir: ../database\n")
    return "project"


def alternates(lower: Path) -> Place:
    start(lower.parent / "origin", {"a": "a\n", "text": TEXT})
    lower.rmdir()
    git(lower.parent, "clone", "-q", "--shared", str(lower.parent / "origin"), str(lower))
    return "."


def shallow(lower: Path) -> Place:
    origin = lower.parent / "origin"
    start(origin, {"a": "a\n"})
    commit(origin, {"b": "b\n"}, "second")
    lower.rmdir()
    git(lower.parent, "clone", "-q", "--depth=1", f"file://{origin}", str(lower))
    return "."


def partial(lower: Path) -> Place:
    origin = lower.parent / "origin"
    start(origin, {"a": "a\n"})
    commit(origin, {"a": "changed\n"}, "second")
    git(origin, "config", "uploadpack.allowFilter", "true")
    lower.rmdir()
    git(lower.parent, "clone", "-q", "--filter=blob:none", f"file://{origin}", str(lower))
    return "."


def linked_objects(lower: Path) -> Place:
    """Somebody keeps one directory of objects elsewhere."""
    plain(lower)
    objects, elsewhere = lower / ".git" / "objects", lower.parent / "elsewhere"
    name = git(lower, "rev-parse", "HEAD")[:2]
    (objects / name).rename(elsewhere)
    (objects / name).symlink_to(elsewhere)
    return "."


WORK = [plain, sha256, nested, nested_in_no_repository, submodule, linked_worktree, separate_database, shallow, partial]
REFUSED = [alternates, linked_objects]


@pytest.fixture
def agents(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Agents, Place]]:
    (tmp_path / "lower").mkdir()
    place = request.param(tmp_path / "lower")
    made = Agents(tmp_path)
    made.branch("one", "two")
    yield made, place
    made.close()


def work(agents: Agents, name: str, place: Place, files: dict[str, str | None]) -> str:
    there = agents.work(name) / place
    tip = commit(there, files, f"{name}'s")
    agents.keep(name)
    return tip


def sound(root: Path, place: Place, tips: list[str]) -> None:
    git(root / place, "fsck", "--strict", "--no-dangling")
    assert set(tips) <= set(git(root / place, "rev-list", "--all").split())
    assert git(root / place, "status", "--porcelain") == ""


def kind(name: Callable[..., Place]) -> str:
    return name.__name__


@pytest.mark.parametrize("agents", WORK, ids=kind, indirect=True)
def test_kinds_that_are_merged(agents: tuple[Agents, Place]) -> None:
    made, place = agents
    tips = [work(made, name, place, {f"of-{name}": f"{name}\n"}) for name in ("one", "two")]
    assert made.merge("two", into="one").conflicts == []
    sound(made.work("one"), place, tips)
    files = sorted(path.name for path in (made.base / "work" / "one" / place).glob("of-*"))
    assert files == ["of-one", "of-two"]
    later = commit(made.lower / place, {"of-a-person": "person\n"}, "person's")
    assert commit_lower(made.opened, ref="one", rule="merge").conflicts == []
    sound(made.lower, place, [*tips, later])
    assert sorted(path.name for path in (made.lower / place).glob("of-*")) == ["of-a-person", "of-one", "of-two"]


@pytest.mark.parametrize("agents", [plain, submodule, separate_database], ids=kind, indirect=True)
def test_an_index_that_a_person_only_refreshed_follows_a_commit(agents: tuple[Agents, Place]) -> None:
    made, place = agents
    tip = work(made, "one", place, {"of-one": "one\n", "a": "one\n"})
    (made.lower / place / "text").touch()
    git(made.lower / place, "update-index", "--refresh")
    assert commit_lower(made.opened, ref="one").conflicts == []
    sound(made.lower, place, [tip])


@pytest.mark.parametrize("agents", [plain, submodule, separate_database], ids=kind, indirect=True)
def test_markers_leave_a_merge_that_git_can_give_up(agents: tuple[Agents, Place]) -> None:
    made, place = agents
    tips = [work(made, name, place, {"a": f"{name}\n", f"of-{name}": "new\n"}) for name in ("one", "two")]
    assert made.merge("two", into="one", rules=Rules(markers=True)).conflicts == []
    there = made.work("one") / place
    assert git(there, "status", "--porcelain") == "UU a\nA  of-two"
    assert "<<<<<<<" in (there / "a").read_text()
    git(there, "merge", "--abort")
    sound(made.base / "work" / "one", place, tips[:1])
    assert not (there / "of-two").exists()


@pytest.mark.parametrize("agents", REFUSED, ids=kind, indirect=True)
def test_kinds_that_are_refused(agents: tuple[Agents, Place]) -> None:
    made, place = agents
    tips = [work(made, name, place, {f"of-{name}": f"{name}\n"}) for name in ("one", "two")]
    found = made.merge("two", into="one").conflicts
    assert [(one.path, one.kind) for one in found] == [(b".git", "repository")], found
    assert "missing" in found[0].message
    assert git(made.work("one") / place, "rev-parse", "HEAD") == tips[0]


@pytest.mark.parametrize("agents", [plain], ids=kind, indirect=True)
def test_a_repository_with_reftables_is_refused(agents: tuple[Agents, Place]) -> None:
    """This git may be older than that format: to the daemon it is a setting."""
    made, place = agents
    tip = work(made, "one", place, {"of-one": "one\n"})
    work(made, "two", place, {"of-two": "two\n"})
    for name in ("one", "two"):
        settings = made.opened.read(".git/config", name) + b"[extensions]\n\trefStorage = reftable\n"
        made.opened.write(".git/config", settings, name)
    found = made.merge("two", into="one").conflicts
    assert [(one.path, one.kind) for one in found] == [(b".git", "repository")]
    assert "reftable" in found[0].message
    assert made.opened.read(".git/refs/heads/main", "one").decode().strip() == tip


def test_a_bare_repository(tmp_path: Path) -> None:
    start(tmp_path / "origin", {"a": "a\n"})
    (tmp_path / "lower").mkdir()
    git(tmp_path, "clone", "-q", "--bare", "origin", "lower/bare.git")
    made = Agents(tmp_path)
    made.branch("one", "two")
    tips = []
    for name in ("one", "two"):
        bare, clone = made.work(name) / "bare.git", tmp_path / name
        git(tmp_path, "clone", "-q", str(bare), str(clone))
        tips.append(commit(clone, {name: name}, name))
        git(clone, "push", "-q", "origin", "main")
        made.keep(name)
    assert made.merge("two", into="one").conflicts == []
    sound_bare(made.work("one") / "bare.git", tips)
    assert commit_lower(made.opened, ref="one", rule="merge").conflicts == []
    sound_bare(tmp_path / "lower" / "bare.git", tips)
    made.close()


def sound_bare(bare: Path, tips: list[str]) -> None:
    git(bare, "fsck", "--strict", "--no-dangling")
    assert git(bare, "rev-list", "--parents", "-n1", "main").split()[1:] == tips
