"""What a person does in the real directory while a commit into it is prepared stays: that commit changes nothing."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfsd.history import commit as planning
from agentfsd.lower.commit_plan import Drifted
from tests.history.trees import Rule, commit_lower
from tests.repositories.agents import Agents, commit, git, start

MANY = "".join(f"line {number}\n" for number in range(20))
THREE, FIFTEEN = MANY.replace("line 3\n", "three\n"), MANY.replace("line 15\n", "fifteen\n")


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n", "text": MANY})
    made.branch("one")
    made.commit("one", {"text": THREE, "new": "new\n"}, "one's")
    yield made
    made.close()


def after_fitting(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Calls *work* once, after a plan has read the repositories and git has joined them."""
    fit, left = planning.fit, [work]

    def fitting(*args: Any, **more: Any) -> Generator[Any, None, Any]:
        fitted = yield from fit(*args, **more)
        while left:
            left.pop()()
        return fitted

    monkeypatch.setattr(planning, "fit", fitting)


def stages(place: Path) -> None:
    (place / "person").write_text("person's\n")
    git(place, "add", "person")


def packs_new_commits(place: Path) -> None:
    commit(place, {"b": "person\n"}, "person's")
    git(place, "pack-refs", "--all")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a commit": lambda place: commit(place, {"b": "person\n"}, "person's"),
    "a ref alone": lambda place: git(place, "update-ref", "refs/heads/main", git(place, "commit-tree", "-m", "x", "HEAD^{tree}")),
    "a new ref of the same name": lambda place: git(place, "branch", "topic"),
    "a packed ref": packs_new_commits,
    "the index": stages,
    "HEAD": lambda place: git(place, "symbolic-ref", "HEAD", "refs/heads/elsewhere"),
    "a merged file": lambda place: (place / "text").write_text(FIFTEEN + "uncommitted\n"),
    "a new file": lambda place: (place / "new").write_text("person's\n"),
    "a merge under way": lambda place: (place / ".git/MERGE_HEAD").write_text(git(place, "rev-parse", "HEAD")),
    "a lock of the index": lambda place: (place / ".git/index.lock").touch(),
    "a lock of a ref": lambda place: (place / ".git/refs/heads/main.lock").touch(),
    "a lock of packed refs": lambda place: (place / ".git/packed-refs.lock").touch(),
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("rule", ["refuse", "merge"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_reading_is_kept(agents: Agents, monkeypatch: pytest.MonkeyPatch, change: str, rule: Rule) -> None:
    if change == "a new ref of the same name":
        place = agents.work("one")
        git(place, "branch", "topic")
        agents.keep("one")
    if change == "a packed ref":
        git(agents.lower, "pack-refs", "--all")
    if rule == "merge":
        commit(agents.lower, {"a": "A\n", "text": FIFTEEN}, "earlier")
    seen = list[object]()

    def work() -> None:
        CHANGES[change](agents.lower)
        seen.append(_state(agents.lower))

    after_fitting(monkeypatch, work)
    with pytest.raises(Drifted):
        commit_lower(agents.opened, rule=rule, ref="one")
    assert seen == [_state(agents.lower)]


def test_the_next_try_merges_what_the_person_committed(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(agents.lower, {"text": FIFTEEN}, "earlier")
    after_fitting(monkeypatch, lambda: commit(agents.lower, {"b": "person\n"}, "person's"))
    with pytest.raises(Drifted):
        commit_lower(agents.opened, rule="merge", ref="one")
    assert commit_lower(agents.opened, rule="merge", ref="one").conflicts == []
    assert set(git(agents.lower, "log", "--format=%s").splitlines()) >= {"one's", "earlier", "person's"}
    assert git(agents.lower, "status", "--porcelain") == ""


def test_a_lock_that_appears_while_the_commit_is_written(agents: Agents) -> None:
    lock = agents.lower / ".git" / "HEAD.lock"
    before = _state(agents.lower)
    with pytest.raises(Drifted) as caught:
        commit_lower(agents.opened, ref="one", meanwhile=lock.touch)
    assert caught.value.paths == [b".git/HEAD.lock"]
    lock.unlink()
    assert _state(agents.lower) == before
    assert commit_lower(agents.opened, ref="one").conflicts == []


def _state(place: Path) -> dict[str, bytes]:
    """The content of each file but objects."""
    files = (path for path in place.rglob("*") if path.is_file() and "objects" not in path.parts)
    return {str(path.relative_to(place)): path.read_bytes() for path in files if ".agentfs" not in path.parts}
