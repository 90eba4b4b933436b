"""The client awaited, on trio and on asyncio: a real daemon asked, requests cancelled."""

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus

from agentfs_client import wire
from agentfs_client.async_control import AsyncControlClient
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, DaemonGoneError, ExistsError, InvalidRequestError, NotFoundError
from agentfs_files.aio.async_filesystem import AsyncFilesystem
from agentfs_files.backends.branch import BranchFilesystem
from tests.client.waiting import WAIT_S, until
from tests.mounted import Mounted, needs_fuse

FILES = 500  # changed in the branch many: enough for every request about it to tell how far it is

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    with pytest.MonkeyPatch.context() as environment:
        base = tmp_path_factory.mktemp("aio")
        for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
            environment.setenv(name, str(base / name))
        mounted = Mounted(base)
        (mounted.lower / "file").write_text("lower\n")
        mounted.mount()
        mounted.cli("branch create", "many")
        for number in range(FILES):
            (mounted.subtree("many") / f"file{number}").write_text(f"{number}\n")
        yield mounted
        mounted.end()


@pytest.fixture
def address(daemon: Mounted) -> Iterator[str]:
    """Each test finds the branches main and many, and leaves nothing else."""
    path = daemon.record().socket
    yield path
    with ControlClient.connect(path) as client:
        for branch in client.list_branches():
            if branch.name not in ("main", "many"):
                client.discard(branch.name, keep=False)
        for snapshot in client.list_snapshots():
            client.delete_snapshot(snapshot.name)


def test_both_clients_can_do_the_same() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    # What is awaited is cancelled, and needs nobody to hang up.
    assert public(AsyncControlClient) - {"aclose", "begin", "find"} == public(ControlClient) - {"close", "hang_up"}


@pytest.mark.parametrize("way", ["socket", "control file"])
async def test_typed_client_does_it_all(daemon: Mounted, address: str, way: str) -> None:
    opening = AsyncControlClient.connect(address) if way == "socket" else AsyncControlClient.open_mount(str(daemon.path))
    async with await opening as client:
        assert (client.hello.branch, client.hello.version) == ("main", wire.PROTOCOL_VERSION)
        assert client.is_usable
        assert (await client.create_branch("one")).name == "one"
        assert (await client.create_snapshot("one", "s", tag="t")).tag == "t"
        (daemon.subtree("one") / "new").write_text("new\n")
        assert [change.path for change in await client.diff("one")] == ["new"]
        assert [patch.added for patch in await client.patches("one", paths=["new"], stat_only=True)] == [1]
        await client.restore("s", "one")
        assert await client.diff("one") == []
        assert [found.name for found in await client.log("one")][-1] == "s"
        assert (await client.rename_branch("one", "two")).name == "two"
        assert await client.fsck() == []
        assert (await client.merge(["two"], "main")).how == "nothing"
        assert [branch.name for branch in (await client.status()).branches] == ["main", "many", "two"]
        name = "retention.max_count"
        assert await client.policy() == await client.set_policy(name, (await client.policy())[name])


async def test_refusals_are_exceptions_and_the_conversation_goes_on(address: str) -> None:
    async with await AsyncControlClient.connect(address) as client:
        await client.create_branch("one")
        with pytest.raises(ExistsError):
            await client.create_branch("one")
        with pytest.raises(NotFoundError):
            await client.show_branch("missing")
        with pytest.raises(InvalidRequestError, match="too long"):
            await client.diff(paths=["x" * wire.MAX_REQUEST_BYTES])
        assert (await client.show_branch("one")).name == "one"


async def test_nobody_there_is_one_clear_error(tmp_path: Path, address: str) -> None:
    with pytest.raises(DaemonGoneError, match="nobody answers"):
        await AsyncControlClient.connect(str(tmp_path / "none.sock"))
    with pytest.raises(DaemonGoneError, match="cannot be opened"):
        await AsyncControlClient.open_mount(str(tmp_path))
    async with await AsyncControlClient.connect(address) as client:
        pass
    assert not client.is_usable
    with pytest.raises(DaemonGoneError, match="has ended"):
        await client.status()


async def test_a_mount_is_enough_to_find_its_daemon(daemon: Mounted, address: str) -> None:
    async with await AsyncControlClient.find(str(daemon.path)) as client:
        assert (await client.status()).lower == str(daemon.lower)


async def test_tasks_may_share_a_conversation(address: str) -> None:
    async with await AsyncControlClient.connect(address) as client:
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(client.create_branch, f"b{number}")
        assert len(await client.list_branches()) == 22


async def test_one_that_waits_for_its_turn_may_be_cancelled(address: str) -> None:
    async with await AsyncControlClient.connect(address) as client, anyio.create_task_group() as tasks:
        given_up = anyio.Event()

        async def ask_and_give_up() -> None:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await client.status()
            given_up.set()

        tasks.start_soon(ask_and_give_up)  # it begins when fsck waits for its answer
        assert await client.fsck(lambda told: None) == []
        with anyio.fail_after(20):
            await given_up.wait()
        assert await client.list_branches()


@pytest.mark.parametrize("request_name", ["fsck", "merge", "commit"])
async def test_a_cancelled_request_ends_its_conversation_and_nothing_else(
    daemon: Mounted, address: str, request_name: str
) -> None:
    async with await AsyncControlClient.connect(address) as client, await AsyncControlClient.connect(address) as other:
        await other.create_branch("into")
        (daemon.subtree("into") / "own").write_text("own\n")
        with anyio.CancelScope() as scope:

            def on_progress(told: wire.Progress) -> None:
                scope.cancel()

            if request_name == "fsck":
                await client.fsck(on_progress)
            elif request_name == "merge":
                await client.merge(["many"], "into", on_progress=on_progress)
            else:
                await client.commit("many", on_progress=on_progress)
        assert scope.cancelled_caught
        with pytest.raises(DaemonGoneError, match="has ended"):
            await client.status()
        assert (await other.show_branch("into")).changed == 1
        assert (await other.show_branch("many")).changed == FILES
    assert os.listdir(daemon.lower) == ["file"]


async def test_a_request_out_of_time_is_a_time_out(address: str) -> None:
    async with await AsyncControlClient.connect(address) as client:
        with pytest.raises(TimeoutError), anyio.fail_after(0):
            await client.status()
    async with await AsyncControlClient.connect(address) as client:
        with anyio.fail_after(WAIT_S):
            assert await client.status()


async def test_a_request_over_the_control_file_is_not_waited_for_when_cancelled(daemon: Mounted) -> None:
    async with await AsyncControlClient.open_mount(str(daemon.path)) as client:
        with anyio.move_on_after(0.001) as scope:
            await client.fsck()
        assert scope.cancelled_caught
    async with await AsyncControlClient.open_mount(str(daemon.path)) as client:
        with pytest.raises(AgentFSError, match="socket only"):
            await anext(client.events())


async def test_events_come_one_by_one_and_end_with_their_branch(address: str) -> None:
    async with await AsyncControlClient.connect(address) as client, await AsyncControlClient.connect(address) as watcher:
        await client.create_branch("one")
        async with watcher.events("one") as events:
            with anyio.move_on_after(0.02):
                await anext(events)  # there is none yet; a later one is not missed for it
            await client.create_snapshot("one", "s")
            assert (await anext(events)).name == "s"
            await client.discard("one", keep=False)
            assert [event.kind async for event in events][-1] in ("discard", "branch-deleted")
        with pytest.raises(DaemonGoneError, match="has ended"):
            await watcher.status()


async def test_watchers_that_are_cancelled_bother_nobody(address: str) -> None:
    seen: list[str] = []

    async def watch(*, task_status: TaskStatus[None]) -> None:
        async with await AsyncControlClient.connect(address) as watcher, watcher.events() as events:
            task_status.started()
            async for event in events:
                seen.append(event.kind)  # noqa: PERF401 - one by one

    async with await AsyncControlClient.connect(address) as client:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                await tasks.start(watch)
            await client.create_branch("one")
            await until(lambda: len(seen) == 10)
            tasks.cancel_scope.cancel()
        assert seen == ["branch-created"] * 10
        assert await client.list_branches()


@pytest.mark.parametrize("way", ["mount", "socket"])
async def test_a_branch_can_be_awaited(daemon: Mounted, address: str, way: str) -> None:
    place = {"mount": str(daemon.path)} if way == "mount" else {"socket": address}
    with BranchFilesystem("one", create=True, **place) as branch:
        filesystem = AsyncFilesystem(branch)
        before = await filesystem.snapshot(tag="before")
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(filesystem.write, f"dir/file{number}", f"{number}\n")
        assert len(await filesystem.grep("[0-9]", path="dir")) == 10
        with anyio.CancelScope() as scope:
            async with filesystem.open_write("dir/file0") as writer:
                await writer.write(os.urandom(2_000_000))
                scope.cancel()
        assert (await filesystem.read("dir/file0")).content == "0\n"
        assert len((await filesystem.diff(before)).added) == 10
        await filesystem.restore(before)
        assert not await filesystem.exists("dir")
        assert await filesystem.current_snapshot_id() is not None
