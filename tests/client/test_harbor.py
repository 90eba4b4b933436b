"""Harbor's own trials in branches of an image: its oracle agent, its verifier, a real mount."""

import asyncio
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("harbor", reason="harbor is not installed, which needs Python 3.12: pip install 'agentfsd[harbor]'")

from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

from tests.containers import root_file_system
from tests.mounted import Mounted, needs_fuse, needs_root

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:harbor")  # of what it does itself
KIND = "agentfs_files.integrations.harbor:AgentFSTrialEnvironment"
TASK = 'version = "1.0"\n[environment]\nworkdir = "/workspace"\n[environment.env]\nCOLOUR = "green"\n'
SOLVE = """#!/bin/sh
echo solved > /workspace/answer
echo $COLOUR > /workspace/colour
pwd > /workspace/where
(sleep 1000 >/dev/null 2>&1 </dev/null &)
"""
TEST = """#!/bin/sh
grep -q solved /workspace/answer && grep -q green /workspace/colour && grep -qx /workspace /workspace/where && [ -c /dev/null ] &&
    [ -d /proc/self ] && [ ! -e /proc/self/root/.agentfs-outside ] && echo 1 > /logs/verifier/reward.txt
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """A mount of a small root file system."""
    needs_fuse()
    needs_root()
    mounted = Mounted(tmp_path_factory.mktemp("harbor"))
    with tarfile.open(fileobj=io.BytesIO(root_file_system())) as archive:
        archive.extractall(mounted.lower, filter="fully_trusted")
    mounted.mount()
    yield mounted
    mounted.end()


@pytest.fixture
def task(tmp_path: Path) -> Path:
    base = tmp_path / "hello-task"
    for name in ("environment", "solution", "tests"):
        (base / name).mkdir(parents=True)
    (base / "instruction.md").write_text("Write the answer.\n")
    (base / "task.toml").write_text(TASK)
    (base / "environment" / "Dockerfile").write_text("FROM scratch\n")
    (base / "solution" / "solve.sh").write_text(SOLVE)
    (base / "tests" / "test.sh").write_text(TEST)
    return base


def _trial(task: Path, tmp_path: Path, **options: Any) -> Any:
    async def run() -> Any:
        config = TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=tmp_path / "trials",
            agent=AgentConfig(name="oracle"),
            environment=EnvironmentConfig(import_path=KIND, kwargs=options),
        )
        return await (await Trial.create(config)).run()

    result = asyncio.run(run())
    assert result.exception_info is None, result.exception_info
    return result.verifier_result.rewards


def test_trial_is_a_branch_of_the_image(image: Mounted, task: Path, tmp_path: Path) -> None:
    assert _trial(task, tmp_path, mount=str(image.path), keep_branch=True) == {"reward": 1}
    (branch,) = [branch["name"] for branch in image.json("branch list") if branch["name"] != "main"]
    assert branch.startswith("hello-task")
    changed = {change["path"] for change in image.json("diff", branch)["changes"]}
    assert "workspace/answer" in changed
    assert not (image.lower / "workspace" / "answer").exists()
    assert not json.loads(image.cli("bindings", "--json").stdout), "the trial left a process behind"
    image.cli("discard", branch)


def test_trial_begins_with_what_its_source_has_and_is_discarded(image: Mounted, task: Path, tmp_path: Path) -> None:
    image.sh("image-hello-task", f"echo solved > {image.path}/workspace/answer", new=True)
    (task / "solution" / "solve.sh").write_text(SOLVE.replace("echo solved >", "true"))
    assert _trial(task, tmp_path, mount=str(image.path), source="image-{name}") == {"reward": 1}
    assert {branch["name"] for branch in image.json("branch list")} == {"main", "image-hello-task"}
