"""What tests of joined branches look at."""

from pathlib import Path

from agentfsd.history.merge_records import Rules
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, git


def shown(agents: Agents, name: str) -> Path:
    """What a branch shows, after git has found nothing wrong with it."""
    place = agents.work(name)
    git(place, "fsck", "--strict", "--no-dangling")
    return place


def lines(**changed: str) -> str:
    return "".join(changed.get(f"l{number}", f"line {number}") + "\n" for number in range(20))


def bring(agents: Agents, into: str, *, beside: bool = False) -> Path:
    """Brings the branch two into another one, or into the real directory (``lower``); the result."""
    if into == "lower":
        assert commit_lower(agents.opened, rule="merge", ref="two", as_branches=beside).conflicts == []
        git(agents.lower, "fsck", "--strict", "--no-dangling")
        return agents.lower
    rules = Rules(way="beside") if beside else Rules()
    merged = agents.merge("two", into=into, rules=rules)
    assert merged.conflicts == []
    return shown(agents, into)


def of_ours(agents: Agents, into: str) -> Path:
    """Where one can work before bring(); then keep() what was done."""
    return agents.lower if into == "lower" else agents.work(into)


def keep(agents: Agents, into: str) -> None:
    """See of_ours()."""
    if into != "lower":
        agents.keep(into)


def refs(place: Path, pattern: str = "refs") -> dict[str, str]:
    said = git(place, "for-each-ref", "--format=%(refname) %(objectname)", pattern).splitlines()
    return dict(line.split(" ", 1) for line in said)


def log(place: Path, ref: str) -> list[str]:
    return git(place, "log", "-g", "--format=%H", ref).split()
