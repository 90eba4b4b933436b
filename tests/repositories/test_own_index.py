"""A branch with an index of its own stays at the commit that this index belongs to, whatever a person commits meanwhile."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfsd.state.state_directory import RUN_OVERLAY
from tests.mounted import Mounted, agentfsd, needs_namespaces
from tests.repositories.agents import commit, git, start
from tests.repositories.test_many_agents import IDENTITY


@pytest.fixture
def lower(tmp_path: Path) -> Path:
    start(tmp_path / "lower", {"a": "a\n", "b": "b\n"})
    return tmp_path / "lower"


@pytest.mark.parametrize("kind", ["loose", "packed", "another name"])
@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_what_a_person_commits_after_an_agent_staged_something_stays(
    lower: Path, make_mount: Callable[..., Mounted], kind: str, view: str
) -> None:
    if kind == "packed":
        git(lower, "pack-refs", "--all", "--prune")
    if kind == "another name":
        git(lower, "symbolic-ref", "refs/heads/master", "refs/heads/main")
        git(lower, "switch", "-q", "master")
    first = git(lower, "rev-parse", "main")
    mounted = make_mount(lower)
    mounted.cli("branch create", "one")
    script = "echo one > a; git add a; echo staged; read go; git status --porcelain; git commit -qm one; git rev-parse main~1"
    agent = mounted.start("one", "sh", "-ec", IDENTITY + script, view=view, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdout is not None
    assert agent.stdout.readline() == "staged\n"
    theirs = commit(lower, {"b": "person\n", "new": "new\n"}, "person's")
    said = agent.communicate("go\n")[0]
    assert said.splitlines() == ["M  a", " M b", "?? new", first]
    assert "1 commit ahead" in mounted.cli("diff", "one").stderr
    assert "1 commit to main, merged" in mounted.cli("commit", "one", "--merge").stdout
    git(lower, "fsck", "--strict", "--no-dangling")
    assert git(lower, "status", "--porcelain") == ""
    assert theirs in git(lower, "rev-list", "main").split()
    assert [(lower / name).read_text() for name in ("a", "b", "new")] == ["one\n", "person\n", "new\n"]


@pytest.mark.parametrize("view", ["namespace", "pid"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_that_an_agent_has_checked_out_stays(
    lower: Path, make_mount: Callable[..., Mounted], packed: bool, view: str
) -> None:
    git(lower, "branch", "topic")
    if packed:
        git(lower, "pack-refs", "--all", "--prune")
    first = git(lower, "rev-parse", "topic")
    mounted = make_mount(lower)
    mounted.run("one", "git", "checkout", "-q", "topic", new=True, view=view)
    git(lower, "branch", "-qD", "topic")
    assert mounted.run("one", "git", "rev-parse", "HEAD", view=view).stdout.strip() == first
    assert mounted.run("one", "git", "status", "--porcelain", view=view).stdout == ""


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("script", ["git checkout -q topic", "echo one > a; git add a"])
def test_what_a_run_as_an_overlay_has_staged_or_checked_out_stays(
    lower: Path, make_mount: Callable[..., Mounted], packed: bool, script: str
) -> None:
    needs_namespaces()
    git(lower, "branch", "topic")
    if packed:
        git(lower, "pack-refs", "--all", "--prune")
    first = git(lower, "rev-parse", "topic")
    mounted = make_mount(lower)
    agentfsd("run", "--io", "overlay", "-b", "one", "--new", "--", "sh", "-ec", script, cwd=mounted.path)
    deadline = time.monotonic() + 30
    while list((mounted.state / "overlays").glob(f"{RUN_OVERLAY}*")):  # ends soon after its last process
        assert time.monotonic() < deadline
        time.sleep(0.05)
    git(lower, "branch", "-qD", "topic")
    commit(lower, {"b": "person\n"}, "person's")
    said = mounted.sh("one", "git rev-parse HEAD; git diff --cached --name-only")
    assert said.split() == [first, *["a"] * ("add" in script)]
    assert mounted.fsck() == []


def test_what_is_staged_at_the_mount_point_is_nothing_to_build_on_after_a_commit(
    lower: Path, make_mount: Callable[..., Mounted]
) -> None:
    mounted = make_mount(lower)
    (mounted.path / "a").touch()
    git(mounted.path, "update-index", "--refresh")  # writes the index: the time of the file is another one
    first = git(lower, "rev-parse", "main")
    commit(lower, {"b": "person\n"}, "person's")
    assert git(mounted.path, "rev-parse", "main") == first
    mounted.sh("one", IDENTITY + "echo one > a; git commit -qm one a", new=True)
    assert [branch["base"] for branch in mounted.json("branch list") if branch["name"] == "one"] == [""]
    mounted.cli("commit", "one", "--merge")
    assert git(lower, "status", "--porcelain") == ""
    assert sorted(git(lower, "log", "--no-merges", "--format=%s").split("\n")) == ["one", "person's", "start"]


def test_a_merge_that_brings_an_index_keeps_its_ref(lower: Path, make_mount: Callable[..., Mounted]) -> None:
    mounted = make_mount(lower)
    mounted.sh("one", "echo one > a; git add a", new=True)
    mounted.cli("branch create", "two")
    mounted.sh("two", "echo x > c")
    mounted.cli("merge", "one", "--into", "two")
    commit(lower, {"b": "person\n"}, "person's")
    assert mounted.sh("two", "git status --porcelain") == "M  a\n M b\n?? c\n"
