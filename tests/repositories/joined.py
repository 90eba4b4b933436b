"""What tests of joined branches look at."""

from pathlib import Path

from tests.repositories.agents import Agents, git


def shown(agents: Agents, name: str) -> Path:
    """What a branch shows, after git has found nothing wrong with it."""
    place = agents.work(name)
    git(place, "fsck", "--strict", "--no-dangling")
    return place


def lines(**changed: str) -> str:
    return "".join(changed.get(f"l{number}", f"line {number}") + "\n" for number in range(20))
