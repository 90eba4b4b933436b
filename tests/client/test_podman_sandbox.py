"""A sandbox: a directory of this machine and a real container around it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_files.backends.host_mounts import HostMount
from agentfs_files.backends.podman_images import PodmanSnapshotStrategy
from agentfs_files.backends.podman_sandbox import PodmanSandbox, PodmanSandboxConfig
from agentfs_files.filesystem.filesystem_errors import (
    SnapshotCreationError,
    SnapshotIncompatibleError,
    SnapshotNotFoundError,
    SnapshotRestoreError,
)
from agentfs_files.session.agent_session import Session
from agentfs_files.session.contexts import build_tool_context
from agentfs_files.session.podman_sections import PodmanSandboxSection
from agentfs_files.session.prompt import Prompt, PromptTemplate
from agentfs_files.tools.dispatch import call_tool
from tests.containers import IMAGE, PodmanService, podman_service, within

WHOLE = (PodmanSnapshotStrategy.OVERLAY_COPY, PodmanSnapshotStrategy.CONTAINER_COMMIT)


@pytest.fixture(scope="module")
def service() -> Iterator[PodmanService]:
    with podman_service() as service:
        yield service


@pytest.fixture
def make(service: PodmanService, tmp_path: Path) -> Iterator[Callable[..., PodmanSandbox]]:
    made: list[PodmanSandbox] = []

    def make_one(**options: object) -> PodmanSandbox:
        settings = {"image": IMAGE, "uri": service.uri, "overlay_root": tmp_path} | options
        config = PodmanSandboxConfig(**settings)  # type: ignore[arg-type]
        made.append(PodmanSandbox(config))
        return made[-1]

    yield make_one
    for sandbox in made:
        sandbox.close()


def test_files_are_the_same_inside_and_out_before_during_and_after(make: Callable[..., PodmanSandbox], tmp_path: Path) -> None:
    source = tmp_path / "project" / "src"
    source.mkdir(parents=True)
    (source / "a.py").write_text("print('a')\n")
    (source / "a.txt").write_text("not this one")
    mounts = (HostMount(host_path="src/", include_glob=("*.py",)),)
    sandbox = make(mounts=mounts, allowed_host_roots=(tmp_path / "project",))
    assert sandbox.container is None
    assert [entry.path for entry in sandbox.filesystem.list("/workspace/src")] == ["src/a.py"]
    sandbox.filesystem.write("/workspace/before", "written before\n")
    result = sandbox.execute("cat before src/a.py; echo inside > made; pwd; echo broken >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "written before\nprint('a')\n/workspace\n", "broken\n")
    assert sandbox.is_running
    assert sandbox.filesystem.read("made").content == "inside\n"
    sandbox.stop()
    assert not sandbox.is_running
    sandbox.filesystem.write("made", "outside\n", mode="append")
    assert sandbox.execute("cat made").stdout == "inside\noutside\n"


def test_commands_have_a_directory_an_environment_no_network_and_no_input(make: Callable[..., PodmanSandbox]) -> None:
    sandbox = make(environment={"ONE": "1"})
    sandbox.filesystem.mkdir("deep/er")
    result = sandbox.execute("pwd; echo $ONE $TWO; cat; ls /sys/class/net", directory="deep/er", environment={"TWO": "it's"})
    assert result.stdout == "/workspace/deep/er\n1 it's\nlo\n"
    assert sandbox.execute("exit 0", directory="missing").exit_code != 0
    assert sandbox.execute("kill -9 $$").exit_code == 137


def test_long_output_loses_its_middle(make: Callable[..., PodmanSandbox]) -> None:
    sandbox = make(max_output_bytes=100)
    result = sandbox.execute("i=0; while [ $i -lt 1000 ]; do echo $i; echo e$i >&2; i=$((i+1)); done")
    assert result.truncated
    assert result.stdout.startswith("0\n1\n2\n")
    assert result.stdout.endswith("\n998\n999\n")
    assert "[... 3790 bytes left out ...]" in result.stdout
    assert result.stderr.endswith("e999\n")


def test_a_command_ends_when_its_time_is_up(make: Callable[..., PodmanSandbox]) -> None:
    sandbox = make()
    sandbox.start()
    result = sandbox.execute("echo begun; sleep 61 & sleep 62; echo never", timeout_s=0.5)
    assert (result.timed_out, result.exit_code, result.stdout) == (True, None, "begun\n")
    assert result.duration_s < 5
    assert within(5, lambda: "sleep 6" not in sandbox.execute("ps").stdout)
    result = sandbox.execute("sleep 60 & echo done", timeout_s=30)  # what stays in the background is not waited for
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert result.duration_s < 10


@pytest.mark.parametrize("strategy", WHOLE)
def test_restore_of_workspace_and_container(make: Callable[..., PodmanSandbox], strategy: PodmanSnapshotStrategy) -> None:
    whole = strategy is PodmanSnapshotStrategy.CONTAINER_COMMIT
    sandbox = make()
    sandbox.execute("echo one > file; echo installed > /etc/tool")
    first = sandbox.snapshot(tag="first", strategy=strategy)
    assert (first.backend, first.strategy, first.tag) == ("podman", strategy.value, "first")
    sandbox.execute("echo two > file; echo more > added; echo changed > /etc/tool")
    second = sandbox.snapshot(strategy=PodmanSnapshotStrategy.OVERLAY_COPY)
    assert second.parent_id == first.snapshot_id
    change = sandbox.diff(first)
    assert (change.added, change.modified) == (("added",), ("file",))
    assert sandbox.diff(first, second) == change
    sandbox.restore(first)
    assert sandbox.current_snapshot_id == first.snapshot_id
    assert sandbox.filesystem.read("file").content == "one\n"
    seen = sandbox.execute("cat file /etc/tool; ls")
    assert seen.stdout == f"one\n{'installed' if whole else 'changed'}\nfile\n"
    sandbox.delete_snapshot(first)
    with pytest.raises(SnapshotNotFoundError):
        sandbox.restore(first)
    with pytest.raises(SnapshotIncompatibleError):
        make().restore(second)


def test_the_default_snapshot_is_a_copy_of_the_workspace_without_a_container(make: Callable[..., PodmanSandbox]) -> None:
    sandbox = make(uri="unix:///nowhere")
    sandbox.filesystem.write("a", "x")
    snapshot = sandbox.snapshot()
    assert snapshot.strategy in ("overlay_reflink", "overlay_copy")
    sandbox.filesystem.write("a", "y")
    sandbox.restore(snapshot)
    assert sandbox.filesystem.read("a").content == "x"


def test_checkpoint_or_why_not(make: Callable[..., PodmanSandbox], service: PodmanService, tmp_path: Path) -> None:
    sandbox = make()
    sandbox.execute("echo 1 > count; sleep 1000 >/dev/null 2>&1 &")
    try:
        snapshot = sandbox.snapshot(strategy=PodmanSnapshotStrategy.CONTAINER_CHECKPOINT)
    except SnapshotCreationError as exc:
        assert sandbox.is_running
        assert not list((sandbox.workspace.parent / "snapshots").glob("checkpoint-*"))
        archive = tmp_path / "no checkpoint"
        archive.write_bytes(bytes(1024))
        with service.client() as client, pytest.raises(SnapshotRestoreError, match="was not restored"):
            sandbox._snapshots.resume(client, str(archive))
        pytest.skip(f"no checkpoints here: {exc}")
    sandbox.execute("echo 2 > count; kill $(pidof sleep)")
    sandbox.restore(snapshot)
    assert sandbox.execute("cat count").stdout == "1\n"
    assert "sleep 1000" in sandbox.execute("ps").stdout


def test_a_temporary_workspace_goes_with_its_sandbox(make: Callable[..., PodmanSandbox], service: PodmanService) -> None:
    sandbox = make(overlay_root=None)
    sandbox.filesystem.write("a", "x")
    snapshot = sandbox.snapshot(strategy=PodmanSnapshotStrategy.CONTAINER_COMMIT)
    image = snapshot.commit_ref.partition("@")[0]
    with service.client() as client:
        assert client.images.exists(image)
        sandbox.close()
        assert not sandbox.workspace.parent.parent.exists()
        assert not client.images.exists(image)
        assert client.containers.list(all=True, filters={"label": f"agentfs.sandbox={sandbox.sandbox_id}"}) == []
    sandbox.close()


def test_an_image_that_is_not_there(make: Callable[..., PodmanSandbox]) -> None:
    sandbox = PodmanSandbox(PodmanSandboxConfig(image="localhost/none", uri=make().config.uri))
    try:
        with pytest.raises(RuntimeError, match="localhost/none"):
            sandbox.start()
    finally:
        sandbox.close()


def test_a_section_gives_a_model_the_shell_and_the_files(service: PodmanService) -> None:
    session = Session()
    section = PodmanSandboxSection[None](session=session, config=PodmanSandboxConfig(image=IMAGE, uri=service.uri))
    try:
        prompt = Prompt(PromptTemplate(ns="tests", key="sandbox", sections=[section]))
        assert section.sandbox.sandbox_id == str(session.session_id)
        assert prompt.filesystem() is section.sandbox.filesystem
        context = build_tool_context(prompt.render(), session=session)
        tools = section.tools
        assert call_tool("write_file", {"path": "run.sh", "content": "echo $0; exit 3"}, context, tools=tools).success
        result = call_tool("shell_execute", {"command": "sh run.sh; pwd >&2"}, context, tools=tools)
        assert result.message == "run.sh\n[stderr]\n/workspace"
        slow = call_tool("shell_execute", {"command": "sleep 60", "timeout_s": 0.1}, context, tools=tools)
        assert not slow.success and "its time was up" in slow.message
    finally:
        section.close()
    assert not section.sandbox.workspace.exists()
