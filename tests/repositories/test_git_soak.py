"""Branches in which random git commands run, merged and committed in random order: no commit and no file is lost.

``--rounds 'steps of a git soak=1000' --seed 7`` is what a release should stand.
"""

import random
from collections.abc import Callable
from pathlib import Path

from tests.mounted import Mounted
from tests.repositories.agents import git, start
from tests.repositories.random_git import FILES
from tests.repositories.soaking import Soak
from tests.rounds import rounds, seed

STEPS = rounds("steps of a git soak", 6, 600)
AGENTS = rounds("branches of a git soak", 2, 5)


def test_nothing_is_lost(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    lower = tmp_path / "lower"
    start(lower, {name.replace("/", "-"): name for name in FILES})
    start(tmp_path / "library", {"of": "a library\n"})
    git(lower, "clone", "-q", "--bare", str(tmp_path / "library"), "library.git")
    (lower / ".git" / "info" / "exclude").write_text("library.git/\nwt-*/\n")
    soak = Soak(make_mount(lower), [f"agent-{number}" for number in range(AGENTS)], random.Random(seed()), tmp_path / "log")
    for number in range(STEPS):
        soak.note(f"== step {number}")
        soak.step()
    soak.everybody()
    print(sorted(soak.counts.items()))
