"""OpenAI's Agents SDK with a branch as its sandbox: a scripted model, the SDK's runner and tools, a real mount."""

import asyncio
import io
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents.sandbox", reason="openai-agents is not installed: pip install 'agentfsd[openai-agents]'")

from agents import RunConfig, Runner, set_tracing_disabled
from agents.items import ToolCallOutputItem
from agents.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent, SandboxPathGrant, SandboxRunConfig
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ExecNonZeroError,
    ExecTimeoutError,
    InvalidManifestPathError,
    PtySessionNotFoundError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.manifest import Environment
from agents.sandbox.types import User
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseCustomToolCall

from agentfs_files.integrations.openai_agents import (
    AgentFSSandboxClient,
    AgentFSSandboxClientOptions,
    AgentFSSandboxSession,
    AgentFSSandboxSessionState,
)
from tests.mounted import Mounted, needs_fuse

set_tracing_disabled(True)


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    mounted = Mounted(tmp_path_factory.mktemp("openai"))
    (mounted.lower / "note.txt").write_text("real\n")
    mounted.mount()
    yield mounted
    mounted.end()


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 120))


def _branches(mounted: Mounted) -> set[str]:
    return {branch["name"] for branch in mounted.json("branch list")}


def test_agent_works_in_a_branch_of_its_own_which_stays(mounted: Mounted) -> None:
    patch = "*** Begin Patch\n*** Update File: note.txt\n@@\n-real\n+patched\n*** End Patch"
    model = ScriptedModel(
        [
            [ResponseCustomToolCall(type="custom_tool_call", name="apply_patch", call_id="1", input=patch)],
            [function_call("exec_command", {"cmd": "cat note.txt; pwd; echo out > made.txt", "login": False}, call_id="2")],
            [assistant_message("done")],
        ]
    )
    agent = SandboxAgent(name="coder", model=model, instructions="Work.", capabilities=[Filesystem(), Shell()])
    before = _branches(mounted)
    config = RunConfig(sandbox=SandboxRunConfig(client=AgentFSSandboxClient(mounted.path)))

    async def use() -> None:
        result = await Runner.run(agent, "go", run_config=config)
        assert result.final_output == "done"
        outputs = [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]
        assert f"patched\n{mounted.path}\n" in outputs[-1]

    _run(use())
    model.assert_complete()
    (branch,) = _branches(mounted) - before
    assert {change["path"] for change in mounted.json("diff", branch)["changes"]} == {"note.txt", "made.txt"}
    assert (mounted.lower / "note.txt").read_text() == "real\n"
    assert [snapshot["tag"][:8] for snapshot in mounted.json("snapshot list", "-b", branch)] == ["sandbox-"]


def test_files_are_those_of_commands(mounted: Mounted) -> None:
    async def use() -> None:
        green = Environment(value={"COLOUR": "green"})
        manifest = Manifest(entries={"given/in.txt": File(content=b"given\n")}, environment=green)
        async with await AgentFSSandboxClient(mounted.path).create(manifest=manifest) as session:
            assert isinstance(session._inner, AgentFSSandboxSession)
            assert await session.running()
            await session.write(Path("src/app.py"), io.BytesIO(b"print('hello')\n" * 100_000))
            done = await session.exec("wc -l < src/app.py; cat given/in.txt; echo $COLOUR; echo no >&2; exit 3")
            assert (done.exit_code, done.stdout, done.stderr) == (3, b"100000\ngiven\ngreen\n", b"no\n")
            assert (await session.read(Path("src/app.py"))).read(8) == b"print('h"
            assert await session.read_bounded(Path(f"{mounted.path}/src/app.py"), max_bytes=5) == b"print"
            assert {Path(entry.path).name for entry in await session.ls("src")} == {"app.py"}
            await session.mkdir("a/b", parents=True)
            await session.mv("src/app.py", "a/b/app.py")
            await session.rm("src", recursive=True)
            await session.rm("src", recursive=True)
            assert (await session.exec("find a src -type f", timeout=60)).stdout == b"a/b/app.py\n"

    _run(use())


def test_commands_go_on_while_the_agent_does_something_else(mounted: Mounted) -> None:
    async def use() -> None:
        async with await AgentFSSandboxClient(mounted.path).create() as session:
            assert session.supports_pty()
            first = await session.pty_exec_start("echo begun; while [ ! -e go ]; do sleep 0.1; done; echo ended", yield_time_s=1)
            assert (first.output, first.exit_code) == (b"begun\n", None)
            assert first.process_id is not None
            await session.write(Path("go"), io.BytesIO(b""))
            last = await session.pty_write_stdin(session_id=first.process_id, chars="", yield_time_s=30)
            assert (last.output, last.exit_code, last.process_id) == (b"ended\n", 0, None)
            with pytest.raises(PtySessionNotFoundError):
                await session.pty_write_stdin(session_id=first.process_id, chars="")

            typed = await session.pty_exec_start("tty > named; read line; echo said $line; exit 5", tty=True, yield_time_s=1)
            assert typed.process_id is not None
            said = await session.pty_write_stdin(session_id=typed.process_id, chars="hello\n", yield_time_s=30)
            assert (b"said hello" in said.output, said.exit_code) == (True, 5)
            assert (await session.read(Path("named"))).read().startswith(b"/dev/pts/")

            left = await session.pty_exec_start("sleep 1000", yield_time_s=1)
            assert left.exit_code is None

    _run(use())
    assert not mounted.json("bindings")


def test_refusals(mounted: Mounted, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")

    async def use() -> None:
        async with await AgentFSSandboxClient(mounted.path).create() as session:
            with pytest.raises(WorkspaceReadNotFoundError):
                await session.read(Path("none"))
            with pytest.raises(InvalidManifestPathError):
                await session.read(Path("../outside"))
            await session.exec(f"ln -s {tmp_path}/secret link")
            for reach in (session.read(Path("link")), session.write(Path("link"), io.BytesIO(b"written"))):
                with pytest.raises(InvalidManifestPathError):
                    await reach
            with pytest.raises(ExecNonZeroError):
                await session.rm("none")
            with pytest.raises(ExecTimeoutError):
                await session.exec("sleep 60", timeout=1)
            with pytest.raises(ValueError, match="give no user"):
                await session.read(Path("note.txt"), user="somebody")
        with pytest.raises(ValueError, match="is not in the mount"):
            await AgentFSSandboxClient(mounted.path).create(manifest=Manifest(root="/elsewhere"))
        with pytest.raises(WorkspaceStartError, match="has no users"):
            await (await AgentFSSandboxClient(mounted.path).create(manifest=Manifest(users=[User(name="x")]))).start()

    _run(use())
    assert (tmp_path / "secret").read_text() == "secret\n"
    assert not mounted.json("bindings")


def test_path_that_the_manifest_grants_is_the_real_one(mounted: Mounted, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given\n")

    async def use() -> None:
        grants = (SandboxPathGrant(path=str(tmp_path), read_only=True),)
        async with await AgentFSSandboxClient(mounted.path).create(manifest=Manifest(extra_path_grants=grants)) as session:
            assert (await session.read(tmp_path / "given.txt")).read() == b"given\n"
            with pytest.raises(WorkspaceArchiveWriteError):
                await session.write(tmp_path / "given.txt", io.BytesIO(b"changed\n"))

    _run(use())
    assert (tmp_path / "given.txt").read_text() == "given\n"


def test_session_is_resumed_in_its_branch_or_from_its_snapshot(mounted: Mounted) -> None:
    client = AgentFSSandboxClient(mounted.path)

    async def use() -> None:
        session = await client.create(options=AgentFSSandboxClientOptions(branch="resumed"))
        async with session:
            await session.write(Path("note.txt"), io.BytesIO(b"first\n"))
        payload = client.serialize_session_state(session.state)
        mounted.sh("resumed", "echo by hand > by-hand.txt")

        state = client.deserialize_session_state(dict(payload))
        assert isinstance(state, AgentFSSandboxSessionState)
        async with await client.resume(state) as again:
            assert (await again.read(Path("note.txt"))).read() == b"first\n"
            assert (await again.read(Path("by-hand.txt"))).read() == b"by hand\n"

        async with await client.create(snapshot=state.snapshot) as other:
            assert other.state.branch != "resumed"  # type: ignore[attr-defined]
            assert (await other.read(Path("by-hand.txt"))).read() == b"by hand\n"

        mounted.cli("discard", "resumed")
        async with await client.resume(client.deserialize_session_state(dict(payload))) as revived:
            assert (await revived.read(Path("note.txt"))).read() == b"first\n"

    _run(use())
    assert "resumed" in _branches(mounted)


def test_snapshots_can_be_archives_elsewhere(mounted: Mounted, tmp_path: Path) -> None:
    client = AgentFSSandboxClient(mounted.path, discard=True)

    async def use() -> None:
        session = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path))
        async with session:
            await session.write(Path("kept.txt"), io.BytesIO(b"kept\n"))
            await session.exec("sleep 1000 >/dev/null 2>&1 &")  # which delete() ends
        await client.delete(session)
        assert session.state.branch not in _branches(mounted)  # type: ignore[attr-defined]
        async with await client.resume(session.state) as again:
            assert (await again.read(Path("kept.txt"))).read() == b"kept\n"

    _run(use())
