"""mini-swe-agent in a branch: its agent and its scripted model, a real mount."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
pytest.importorskip("minisweagent", reason="mini-swe-agent is not installed: pip install 'agentfsd[mini-swe-agent]'")

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

from agentfs_files.integrations.mini_swe_agent import AgentFSEnvironment
from tests.mounted import Mounted, needs_fuse


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    mounted = Mounted(tmp_path_factory.mktemp("mini"))
    (mounted.lower / "note.txt").write_text("real\n")
    mounted.mount()
    yield mounted
    mounted.end()


def _step(command: str) -> dict[str, object]:
    output: dict[str, object] = make_output("Next.", [{"command": command}], cost=0.1)
    return output


def test_agent_works_in_a_branch_that_stays(mounted: Mounted, tmp_path: Path) -> None:
    kind = f"{AgentFSEnvironment.__module__}.AgentFSEnvironment"
    options = {"environment_class": kind, "mount": str(mounted.path), "branch": "mini", "snapshots": True}
    environment = get_environment(options)
    commands = ["echo fixed > note.txt", "cat note.txt; pwd; exit 3", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat note.txt"]
    model = DeterministicModel(outputs=[_step(command) for command in commands])
    agent = DefaultAgent(model, environment, system_template="You work.", instance_template="{{task}} in {{branch}}")
    result = agent.run("Fix it")
    assert (result["exit_status"], result["submission"]) == ("Submitted", "fixed\n")
    assert agent.messages[1]["content"] == "Fix it in mini"
    assert f"fixed\n{mounted.path}\n" in str(agent.messages[5]["content"])
    assert agent.save(None)["info"]["config"]["environment"]["branch"] == "mini"
    assert [change["path"] for change in mounted.json("diff", "mini")["changes"]] == ["note.txt"]
    mounted.cli("restore", "-b", "mini", "step-1")
    assert environment.workspace.filesystem.read("note.txt").content == "real\n"
    environment.cleanup()


def test_command_that_takes_too_long_is_killed(mounted: Mounted) -> None:
    environment = AgentFSEnvironment(mount=str(mounted.path), cwd="made", env={"COLOUR": "green"})
    assert environment.execute({"command": "true"})["returncode"] != 0  # there is no such directory yet
    done = environment.execute({"command": "mkdir made; echo before; sleep 60"}, str(mounted.path), timeout=2)
    assert (done["output"], done["returncode"]) == ("before\n", -1)
    assert "after 2 seconds" in done["exception_info"]
    assert environment.execute({"command": "echo $COLOUR; pwd"})["output"] == f"green\n{mounted.path}/made\n"
    environment.cleanup()
    assert not mounted.json("bindings")
