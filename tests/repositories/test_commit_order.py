"""Whenever a commit into the real directory stops, each ref there has its objects: objects come first, and refs after them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_host import syscalls
from agentfsd.domain_errors import Refusal
from agentfsd.lower import commit_writer
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n", "c": "c\n"})
    for name in ("kept", "moved", "gone", "f"):
        git(made.lower, "branch", name)
    made.branch("one")
    yield made
    made.close()


def check(place: Path, tips: set[str]) -> None:
    """Each ref, reflog and entry of the index has its objects, and the commits that were there are there."""
    git(place, "fsck", "--strict", "--no-dangling")
    assert tips <= set(git(place, "rev-list", "--all", "--reflog").split())


def at_each_rename(monkeypatch: pytest.MonkeyPatch, work: Callable[[int], None]) -> None:
    """Calls *work* with the number of names that have changed places."""
    rename, count = syscalls.rename, 0

    def counting(source_fd: int, source: bytes, target_fd: int, target: bytes, flags: int = 0) -> None:
        nonlocal count
        rename(source_fd, source, target_fd, target, flags)
        if {source, target} != {b"one", b"two"}:  # those try out what the file system can
            count += 1
            work(count)

    monkeypatch.setattr(syscalls, "rename", counting)


def prepare(agents: Agents) -> set[str]:
    """A branch with commits, moved, packed and removed refs; and a person's commit meanwhile. The tips of both."""
    place = agents.work("one")
    tip = commit(place, {"a": "A\n", "docs/new": "new\n", "c": None}, "one's")
    git(place, "branch", "-f", "moved", tip)
    git(place, "pack-refs", "--all")
    git(place, "branch", "-D", "gone")
    git(place, "branch", "-m", "f", "f/x")
    (place / "b").write_text("staged\n")
    git(place, "add", "b")
    agents.keep("one")
    mine = commit(agents.lower, {"person": "person\n"}, "person's")
    return {tip, mine}


def test_the_repository_is_whole_after_each_name(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    tips, counts = prepare(agents), list[int]()
    before = set(git(agents.lower, "rev-list", "--all").split())

    def work(count: int) -> None:
        counts.append(count)
        check(agents.lower, before)

    at_each_rename(monkeypatch, work)
    assert commit_lower(agents.opened, rule="merge", ref="one").conflicts == []
    assert counts[-1] > 15
    check(agents.lower, tips)
    assert git(agents.lower, "for-each-ref", "--format=%(refname:short)").split() == ["f/x", "kept", "main", "moved"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours runs after it."""


@pytest.mark.parametrize("forward", [True, False], ids=["resumed", "aborted"])
def test_a_commit_that_was_killed_is_ended_with_a_whole_repository(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, forward: bool
) -> None:
    tips, left, now = prepare(agents), 1, 0
    before, refs = set(git(agents.lower, "rev-list", "--all").split()), git(agents.lower, "for-each-ref")
    journal = agents.base / "commit"

    def work(_: int) -> None:
        nonlocal now
        now += 1
        check(agents.lower, before)
        if now == left:
            raise Killed

    at_each_rename(monkeypatch, work)
    while True:
        now = 0
        try:
            assert commit_lower(agents.opened, rule="merge", ref="one").conflicts == []
        except Killed:
            now = -1000
        else:
            assert not forward  # everything came when it was killed for the first time
            break
        if forward:
            assert commit_writer.resume(agents.opened.lower, str(journal))
            check(agents.lower, tips)
            assert git(agents.lower, "rev-parse", "HEAD^2") in tips
            break
        assert not commit_writer.abort(agents.opened.lower, str(journal))
        assert git(agents.lower, "for-each-ref") == refs
        left += 3
    check(agents.lower, tips)


@pytest.mark.parametrize("rule", ["refuse", "merge"])
def test_a_ref_that_became_a_directory_and_back(agents: Agents, rule: str) -> None:
    place = agents.work("one")
    git(place, "branch", "-m", "f", "f/x")
    agents.keep("one")
    assert commit_lower(agents.opened, rule=rule, ref="one").conflicts == []  # type: ignore[arg-type]
    git(agents.lower, "rev-parse", "refs/heads/f/x")
    place = agents.work("one")
    git(place, "branch", "-m", "f/x", "f")
    agents.keep("one")
    assert commit_lower(agents.opened, rule=rule, ref="one").conflicts == []  # type: ignore[arg-type]
    assert git(agents.lower, "for-each-ref", "--format=%(refname:short)").split() == ["f", "gone", "kept", "main", "moved"]
    git(agents.lower, "fsck", "--strict", "--no-dangling")


def test_an_abort_leaves_what_a_person_built_on(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """The killed commit had shown its refs, and somebody has committed on top of them since."""
    prepare(agents)
    before = git(agents.lower, "rev-parse", "main")
    journal = str(agents.base / "commit")

    def work(_: int) -> None:
        if git(agents.lower, "rev-parse", "main") != before:
            raise Killed

    with monkeypatch.context() as patched:
        at_each_rename(patched, work)
        with pytest.raises(Killed):
            commit_lower(agents.opened, rule="merge", ref="one")
    tree = git(agents.lower, "rev-parse", "main^{tree}")
    tip = git(agents.lower, "commit-tree", "-p", "main", "-m", "on top", tree)
    git(agents.lower, "update-ref", "refs/heads/main", tip)
    with pytest.raises(Refusal, match="3 files were left alone because somebody changed what is there"):
        commit_writer.abort(agents.opened.lower, journal)
    check(agents.lower, {tip})
    for name in ("refs/heads/main", "logs/refs/heads/main", "logs/HEAD"):
        (agents.lower / ".git" / name).unlink()  # as the hint says
    assert not commit_writer.abort(agents.opened.lower, journal)
    assert git(agents.lower, "rev-parse", "main") == before
    git(agents.lower, "branch", "mine", tip)
    check(agents.lower, {tip})
