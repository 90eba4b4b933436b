"""What `agentfsd run` records of commands, and the table to choose a branch from."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_client import ControlClient
from agentfs_client.errors import AgentFSError
from tests.mounted import Mounted, agentfsd


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "text").write_text("".join(f"{number}\n" for number in range(9)))
    return make_mount(lower)


def ran(project: Mounted, branch: str, *command: str, new: bool = False) -> int:
    words = ["run", "-m", str(project.path), "-b", branch, *(["--new"] if new else []), "--", *command]
    return agentfsd(*words, check=False).returncode


def test_commands_are_recorded_and_compared(project: Mounted) -> None:
    assert ran(project, "good", "sh", "-c", "sed -i s/^3$/three/ text; echo new > new", new=True) == 0
    project.cli("snapshot create", "before-tests", "-b", "good")
    assert ran(project, "good", "true") == 0
    assert ran(project, "bad", "sh", "-c", "sed -i s/^3$/III/ text; exit 7", new=True) == 7
    assert ran(project, "killed", "sh", "-c", "kill -9 $$", new=True) == 137
    log = project.cli("log", "good", "--graph").stdout.splitlines()
    texts = [line.lstrip("|*o-/\\ ") for line in log]
    assert texts[0].startswith("branch good: 2 changes")
    assert texts[1].startswith("$ true  ")
    assert "  ok after " in texts[1]
    assert texts[2].startswith("before-tests  ")
    assert texts[3].startswith("$ sed -i ")
    assert "SIGKILL after " in project.cli("log", "killed").stdout

    project.cli("merge", "good", "main")
    listed = project.cli("log").stdout.splitlines()
    main = listed.index("branch main: 2 changes since the lower")
    assert main == 0, "something happened there last"
    assert listed[1][:3] == "  2"
    assert listed[1][23:].startswith("snapshot main-2 [after merge]  ")
    head = listed.index("branch good: 2 changes since the lower; merged into main")
    good = [line[23:].split("  ")[0] for line in listed[head + 1 : head + 5]]
    ran_first = "$ sed -i s/^3$/three/ text; echo new > new"
    assert good == ["$ true", "snapshot before-tests", ran_first, "made from the real directory"]
    bad, good, killed = project.json("compare", "bad", "good", "killed")
    assert (bad["run"]["exit_code"], bad["changed"], bad["added"], bad["removed"], bad["conflicts"]) == (7, 1, 1, 1, 1)
    assert bad["run"]["command"] == "sh -c 'sed -i s/^3$/III/ text; exit 7'"
    assert (good["run"]["command"], good["run"]["exit_code"], good["run"]["changed"], good["added"]) == ("true", 0, 2, 2)
    assert good["conflicts"] == 0
    assert killed["run"]["exit_code"] == 137
    table = project.cli("compare").stdout.splitlines()
    assert {"BRANCH", "bad", "good", "main"} == {line.split()[0] for line in table}
    assert any("exit 7" in line and line.endswith("1") for line in table)


def test_runs_outlive_the_daemon_and_a_discard(project: Mounted) -> None:
    ran(project, "fix", "true", new=True)
    project.kill()
    project.mount()
    ran(project, "fix", "touch", "new")
    project.cli("discard", "fix")
    with ControlClient.connect(project.record().socket) as client:
        assert client.list_runs() == []
        client.undo()
        assert [run.command for run in client.list_runs("fix")] == ["true", "touch new"]


def test_the_last_hundred_are_kept(project: Mounted) -> None:
    with ControlClient.connect(project.record().socket) as client:
        client.create_branch("fix")
        for number in range(103):
            client.record_run(f"step {number}", 0, 1, 2, "fix")
        client.record_run("another", 0, 1, 2, "main")
        assert [run.command for run in client.list_runs("fix")] == [f"step {number}" for number in range(3, 103)]
        assert [run.command for run in client.list_runs(last_only=True)] == ["step 102", "another"]
        assert [run.command for run in client.list_runs("fix", last_only=True)] == ["step 102"]
        assert client.record_run("x" * 5000, 3, 1, 2, "fix").command == "x" * 1000
        for wrong in ((-1, 1, 2), (0, 3, 2), (0, -1, 2), (1 << 40, 1, 2)):
            with pytest.raises(AgentFSError):
                client.record_run("wrong", *wrong, "fix")


def test_a_process_of_a_branch_cannot_claim_that_its_tests_pass(project: Mounted) -> None:
    script = f"""
from agentfs_client import ControlClient
from agentfs_client import ControlClient
from agentfs_client.errors import AgentFSError
with ControlClient.open_mount({str(project.path)!r}) as client:
    print([run.command for run in client.list_runs()])
    try:
        client.record_run("make test", 0, 1, 2)
    except AgentFSError as exc:
        print(exc.code)
"""
    ran(project, "other", "true", new=True)
    done = project.run("mine", sys.executable, "-c", script, new=True, view="pid")
    assert done.stdout.splitlines() == ["[]", "outside-branch"]
