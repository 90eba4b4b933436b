"""Two processes on the same paths in two branches, through the view that depends on the caller: no wrong answer, no lost cwd."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mounted import Mounted, needs_interposing
from tests.rounds import rounds

HAMMER = str(Path(__file__).parent / "hammer.py")
OPERATIONS = rounds("operations of a hammer", 2_000, 50_000)  # for each of the two


@pytest.mark.sample(2)
@pytest.mark.parametrize("interposed", [False, True])
@pytest.mark.parametrize("views", [("pid", "pid"), ("pid", "namespace")])
def test_hammering_the_same_paths_in_two_branches(mounted: Mounted, views: tuple[str, str], interposed: bool) -> None:
    if interposed:
        needs_interposing(mounted)
    operations = OPERATIONS if views == ("pid", "pid") and not interposed else OPERATIONS // 10
    running = []
    for branch in ("one", "two"):
        mounted.cli("branch create", branch)
        (mounted.subtree(branch) / "both").mkdir()
    for branch, view in zip(("one", "two"), views, strict=True):
        command = [sys.executable, HAMMER, branch, str(operations)]
        running.append(
            mounted.start(branch, *command, view=view, interposed=interposed, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
    for process in running:
        said, complaint = process.communicate(timeout=900)
        assert process.returncode == 0, complaint
        assert f"{operations} operations" in said
    assert sorted(path.name for path in mounted.path.iterdir()) == ["file", "link", "sub"]
    assert mounted.fsck() == []
    assert interposed == (mounted.json("status")["resources"]["forwardings"] > operations // 10)
