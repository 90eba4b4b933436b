"""The first thing a newcomer does: scripts/demo in a fresh checkout, from anywhere, again and again."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mounted import needs_fuse

ROOT = Path(__file__).parent.parent
DEVELOPERS_TOOLS = ["mypy", "pytest", "ruff", "playwright", "mcp", "pyfuse3"]


def fresh_checkout(at: Path) -> None:
    """What git knows of this checkout, as it is now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in map(os.fsdecode, listed.split(b"\0")[:-1]):
        if (ROOT / name).exists():
            (at / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, at / name)


def test_demo_in_a_fresh_checkout_runs_twice_from_another_directory(tmp_path: Path) -> None:
    needs_fuse()
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout: nobody says what belongs to it")
    fresh_checkout(tmp_path / "agentfsd")
    environment = {**os.environ, "PIP_NO_COMPILE": "1"}  # what is used compiles itself
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(2):
        done = subprocess.run(
            [tmp_path / "agentfsd" / "scripts" / "demo"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for line in ("fixer reads:      return a + b", "writer reads:     return a - b", "wild sees:    0 files",
                     "+    return a + b",
                     "merged fixer, writer into main: 2 changes",
                     "a calculator", " calc.py | 2 +-", " README.md | 1 +"):  # fmt: skip
            assert line in done.stdout
    packages = next((tmp_path / "agentfsd" / ".venv" / "lib").glob("python3*/site-packages"))
    assert [name for name in DEVELOPERS_TOOLS if (packages / name).exists()] == []
