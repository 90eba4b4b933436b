"""Rules by path where no program of a run asks the kernel itself: MCP, the client, descriptors; and in the pyfuse3 session."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfs_files.backends.branch import BranchFilesystem
from tests.mounted import AGENTFSD, Mounted, needs_fuse, needs_interposing, needs_namespaces
from tests.system.test_rules import FILES, HEAD, RULES, SECRET

_numbers = itertools.count()


def ruled_mount(base: Path, *options: str) -> Iterator[Mounted]:
    needs_fuse()
    needs_namespaces()
    mounted = Mounted(base, None, *options)
    for name, content in FILES.items():
        (mounted.lower / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted.lower / name).write_text(content)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        try:
            mounted.mount().cli("rules add", *RULES)
            yield mounted
        finally:
            patched.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
            mounted.end()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    yield from ruled_mount(tmp_path_factory.mktemp("everywhere"))


@pytest.fixture
def ruled(shared: Mounted, monkeypatch: pytest.MonkeyPatch) -> Mounted:
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(shared.path.parent / "run"))
    return shared


def new_branch(mounted: Mounted) -> str:
    name = f"e{next(_numbers)}"
    mounted.cli("branch create", name)
    return name


def answer_next(mounted: Mounted, *, allow: bool) -> str:
    """Wait until a process asks, and answer; return what it wants."""
    with ControlClient.connect(str(mounted.record().socket)) as client:
        (question,) = client.list_asks(wait=True)
        client.answer_ask(question.id, allow=allow)
    return f"{question.what} {question.path}"


# -- MCP


def test_mcp_tools_keep_the_rules(ruled: Mounted) -> None:
    branch = new_branch(ruled)
    command, *words = [*AGENTFSD, "mcp", "-m", str(ruled.path), "-b", branch]

    async def session() -> None:
        async with Client(StdioServerParameters(command=command, args=words, env=dict(os.environ))) as client:

            async def call(name: str, **arguments: Any) -> str:
                result = await client.call_tool(name, arguments)
                said = "".join(getattr(block, "text", "") for block in result.content)
                return f"refused: {said}" if result.is_error else said

            for path in (".env", "secrets/key", "my.key", "sub/.env.local"):
                said = await call("read_text_file", path=path)
                assert said.startswith("refused") and SECRET.strip() not in said, path
            assert await call("read_text_file", path="secrets/README") == "read me\n"
            for path in (".env", "secrets/new", "my.key", ".git/hooks/pre-commit"):
                assert (await call("write_file", path=path, content="mine")).startswith("refused"), path
            edits = [{"oldText": "hook", "newText": "mine"}]
            assert (await call("edit_file", path=".git/hooks/pre-commit", edits=edits)).startswith("refused")
            assert (await call("move_file", source="secrets", destination="mine")).startswith("refused")
            assert (await call("move_file", source="my.key", destination="mine")).startswith("refused")
            assert ".env" not in await call("list_directory", path=".")
            assert ".env" not in await call("directory_tree", path=".")
            assert (await call("glob", pattern="**/.env*")).startswith("No file")
            assert (await call("grep", pattern="nobody's b")).startswith("No line")
            assert (await call("read_text_file", path="plain")) == "plain\n"
            await anyio.to_thread.run_sync(lambda: ruled.cli("rules add", "-b", branch, "deny plain"))  # a rule that comes later
            assert (await call("read_text_file", path="plain")).startswith("refused")

    anyio.run(session)
    assert (ruled.subtree(branch) / ".git/hooks/pre-commit").read_text() == "hook\n"


def test_an_mcp_tool_waits_for_an_answer(ruled: Mounted) -> None:
    branch = new_branch(ruled)
    ruled.cli("rules add", "-b", branch, "ask plain")
    command, *words = [*AGENTFSD, "mcp", "-m", str(ruled.path), "-b", branch]
    answers: list[str] = []

    async def answering() -> None:
        answers.append(await anyio.to_thread.run_sync(lambda: answer_next(ruled, allow=True)))

    async def session() -> None:
        server = StdioServerParameters(command=command, args=words, env=dict(os.environ))
        async with Client(server) as client, anyio.create_task_group() as group:
            group.start_soon(answering)
            result = await client.call_tool("read_text_file", {"path": "plain"})
        assert not result.is_error

    anyio.run(session)
    assert answers == ["read plain"]


# -- the client


@pytest.mark.parametrize("way", ["mount", "socket"])
def test_the_clients_file_system_keeps_the_rules(ruled: Mounted, way: str) -> None:
    branch = new_branch(ruled)
    place = {"mount": str(ruled.path)} if way == "mount" else {"socket": ruled.record().socket}
    with BranchFilesystem(branch, **place) as files:  # type: ignore[arg-type]
        assert not files.exists(".env")
        assert not files.exists("sub/.env.local")
        for path in ("secrets/key", "my.key", "secrets/deep/key"):
            with pytest.raises(PermissionError):
                files.read_bytes(path)
            with pytest.raises(OSError, match=r"not given out|ermission"):
                files.open_fd(path, os.O_RDONLY)
        for path in (".env", "secrets/new", "my.key"):
            with pytest.raises(PermissionError):
                files.write_bytes(path, b"mine")
        with pytest.raises(OSError, match="ead-only"):
            files.write_bytes(".git/hooks/pre-commit", b"mine")
        assert files.read_bytes("secrets/README").content == b"read me\n"
        assert not any(".env" in found.path for found in files.glob("**/*"))
        assert not files.grep("business")
        files.write_bytes("plain", b"mine")
    with BranchFilesystem(branch, keep_rules=False, **place) as files:  # type: ignore[arg-type]
        assert files.read_bytes(".env").content == files.read_bytes("my.key").content == SECRET.encode()
        assert files.is_mounted == (way == "mount")


def test_the_clients_file_system_keeps_the_rules_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(tmp_path / "run"))
    for mounted in ruled_mount(tmp_path):
        with BranchFilesystem("main", mount=mounted.path) as files:
            assert not files.exists(".env")
            mounted.kill()
            mounted.mount()
            assert not files.exists(".env")
            with pytest.raises(PermissionError):
                files.read_bytes("my.key")


CLIENT = """
from agentfs_files.backends.branch import BranchFilesystem
with BranchFilesystem(mount=sys.argv[1], keep_rules=False) as files:
    tries = [tried(files.read_bytes, path) for path in ('.env', 'my.key')]
    print(json.dumps([*tries, files.read_bytes('plain').content.decode()]))
"""


@pytest.mark.parametrize("way", [["--no-namespace"], []])
def test_a_bound_program_cannot_leave_the_rules_by_the_client(ruled: Mounted, way: list[str]) -> None:
    command = ["-b", new_branch(ruled), *way, "--", sys.executable, "-c", HEAD + CLIENT, str(ruled.path)]
    assert json.loads(ruled.cli("run", *command).stdout) == ["ENOENT", "EACCES", "plain\n"]


# -- real descriptors


PROGRAM = """
os.chdir(sys.argv[1])
print(json.dumps({
    'hidden': [tried(read, '.env'), tried(write, '.env', os.O_WRONLY | os.O_CREAT), '.env' in os.listdir('.')],
    'denied': [tried(read, 'secrets/key'), tried(read, 'my.key'), tried(write, 'my.key', os.O_WRONLY | os.O_TRUNC)],
    'read-only': [tried(read, '.git/hooks/pre-commit'), tried(write, '.git/hooks/pre-commit', os.O_RDWR)],
    'free': [tried(read, 'secrets/README'), tried(write, 'plain'), tried(read, 'plain')],
}))
"""


def test_preloaded_programs_keep_the_rules(ruled: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_interposing(ruled)
    branch, trace = new_branch(ruled), tmp_path / "trace"
    monkeypatch.setenv("AGENTFS_INTERPOSE_TRACE", str(trace))
    try:
        done = ruled.cli("run", "-b", branch, "--interpose", "--", sys.executable, "-c", HEAD + PROGRAM, str(ruled.path))
    finally:
        ruled.cli("interpose set", "enabled=off")
    found = json.loads(done.stdout)
    assert found["hidden"] == ["ENOENT", "EACCES", False]
    assert found["denied"] == ["EACCES"] * 3
    assert found["read-only"][0] == "hook\n" and found["read-only"][1] in ("EROFS", "EACCES")
    assert found["free"] == ["read me\n", "done", "minen\n"]
    forwarded = {
        os.path.basename(line.split(" ", 3)[3]) for line in trace.read_text().splitlines() if line.startswith("forwarded ")
    }
    assert "plain" in forwarded
    assert not forwarded & {".env", "key", "my.key"}
    assert (ruled.subtree(branch) / "my.key").read_text() == SECRET


def test_a_descriptor_over_the_socket_is_given_by_the_rules(ruled: Mounted) -> None:
    branch = new_branch(ruled)
    needs_interposing(ruled)
    try:
        with ControlClient.connect(str(ruled.record().socket)) as client:
            client.obey_rules(branch)
            for path, flags, code in (
                (".env", os.O_RDONLY, "ENOENT"), ("my.key", os.O_RDONLY, "EACCES"), ("secrets/key", os.O_RDWR, "EACCES"),
                (".git/hooks/pre-commit", os.O_WRONLY, "EROFS"),
            ):  # fmt: skip
                with pytest.raises(AgentFSError) as refused:
                    os.close(client.open_fd(path, flags, branch=branch).fd)
                assert refused.value.code == code, path
            opened = client.open_fd("plain", os.O_RDONLY, branch=branch)
            assert os.read(opened.fd, 99) == b"plain\n"
            os.close(opened.fd)
    finally:
        ruled.cli("interpose set", "enabled=off")


def test_a_preloaded_program_waits_for_an_answer(ruled: Mounted) -> None:
    needs_interposing(ruled)
    branch = new_branch(ruled)
    ruled.cli("rules add", "-b", branch, "ask plain")
    try:
        for allow in (False, True):
            process = ruled.start(branch, "cat", "plain", view="namespace", interposed=True, stdout=subprocess.PIPE)
            assert answer_next(ruled, allow=allow) == "read plain"
            assert process.communicate(timeout=60)[0] == ("plain\n" if allow else "")
    finally:
        ruled.cli("interpose set", "enabled=off")


# -- the other session


@pytest.fixture(scope="module")
def other_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    yield from ruled_mount(tmp_path_factory.mktemp("pyfuse3"), "--session", "pyfuse3")


@pytest.fixture
def run(other_session: Mounted, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a script in a branch of the mount with the pyfuse3 session; what it prints, as JSON."""
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(other_session.path.parent / "run"))

    def run(script: str, *options: str, branch: str = "") -> Any:
        words = ["-b", branch or new_branch(other_session), *options, "--", sys.executable, "-c", HEAD + script]
        return json.loads(other_session.cli("run", *words, str(other_session.path)).stdout)

    return run


@pytest.mark.parametrize("way", [["--no-namespace"], []], ids=["pid", "namespace"])
def test_the_pyfuse3_session_keeps_the_rules(run: Callable[..., Any], way: list[str]) -> None:
    script = """
os.chdir(sys.argv[1])
print(json.dumps({
    'hidden': [tried(os.stat, '.env'), tried(read, '.env'), '.env' in os.listdir('.'), os.listdir('sub')],
    'made': [tried(write, '.env', os.O_WRONLY | os.O_CREAT), tried(os.mkdir, 'sub/.env.d'), tried(os.rename, 'plain', '.envrc')],
    'denied': [tried(read, 'secrets/key'), tried(os.listdir, 'secrets/deep'), tried(write, 'my.key'), tried(os.unlink, 'my.key'),
               tried(os.truncate, 'my.key', 0), tried(os.link, 'my.key', 'mine'), tried(os.chmod, 'secrets/key', 0o666)],
    'moved': [tried(os.rename, 'secrets', 'mine'), tried(os.rename, '.git', 'git'), tried(os.rename, 'secrets/key', 'mine')],
    'read-only': [tried(read, '.git/hooks/pre-commit'), tried(write, '.git/hooks/pre-commit'),
                  tried(os.unlink, '.git/hooks/pre-commit'), tried(write, '.git/hooks/new', os.O_WRONLY | os.O_CREAT)],
    'free': [tried(read, 'secrets/README'), tried(write, 'plain'), tried(read, 'plain')],
}))
"""
    found = run(script, *way)
    assert found.pop("hidden") == ["ENOENT", "ENOENT", False, []]
    assert found.pop("made") == found.pop("denied")[:3] == ["EACCES"] * 3
    assert found.pop("moved") == ["EXDEV", "EXDEV", "EACCES"]
    first, *others = found.pop("read-only")
    assert first == "hook\n" and set(others) <= {"EROFS", "EACCES"}
    assert found == {"free": ["read me\n", "done", "minen\n"]}


def test_the_pyfuse3_session_shows_a_person_everything(other_session: Mounted, run: Callable[..., Any]) -> None:
    assert (other_session.path / ".env").read_text() == SECRET
    script = "os.chdir(sys.argv[1]); print(json.dumps([tried(os.stat, '.env'), '.env' in os.listdir('.')]))"
    assert run(script, "--no-namespace") == ["ENOENT", False]
    assert (other_session.path / ".env").read_text() == SECRET


def test_the_pyfuse3_session_asks(other_session: Mounted, run: Callable[..., Any]) -> None:
    branch = new_branch(other_session)
    other_session.cli("rules add", "-b", branch, "ask plain", "ask sub/new")
    process = other_session.start(
        branch, "sh", "-c", "cat plain; echo x > sub/new", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert answer_next(other_session, allow=True) == "read plain"
    assert answer_next(other_session, allow=False) == "change sub/new"
    out, said = process.communicate(timeout=60)
    assert out == "plain\n"
    assert "ermission denied" in said
