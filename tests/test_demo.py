"""The first thing a newcomer does: scripts/demo, from anywhere, again and again."""

import subprocess
from pathlib import Path

import pytest

from tests.mounted import needs_fuse

ROOT = Path(__file__).parent.parent


def test_demo_runs_twice_from_another_directory(tmp_path: Path) -> None:
    needs_fuse()
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout: there is nothing for the demo to clone")
    for _ in range(2):
        done = subprocess.run([ROOT / "scripts" / "demo"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        for line in ("fixer sees:   a better first line", "cleaner sees: # agentfsd", "D\tscripts/demo", "A\tnotes/plan.txt",
                     "plan: idea", "same names, types, modes, sizes and times as before"):  # fmt: skip
            assert line in done.stdout
