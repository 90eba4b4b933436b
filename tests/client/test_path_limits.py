"""The limits for paths of the specification hold where the protocol itself is used, and in integrations if they were chosen."""

import asyncio
import os
from collections.abc import Callable

import fsspec
import pytest
from upath import UPath

from agentfs_client import SYSTEM_LIMITS, Filesystem, InMemoryFilesystem, Limits

NAME = f"{'n' * 250}.py"
DEEP = "/".join(["d"] * 40)


def by_fsspec(filesystem: Filesystem, path: str) -> None:
    fsspec.filesystem("agentfs", filesystem=filesystem).pipe_file(f"/{path}", b"x")


def by_upath(filesystem: Filesystem, path: str) -> None:
    UPath(f"agentfs://{path}", filesystem=filesystem).write_bytes(b"x")


def by_mcp(filesystem: Filesystem, path: str) -> None:
    pytest.importorskip("mcp")
    from mcp import Client

    from agentfs_files.integrations.mcp.server import make_server

    async def use() -> None:
        async with Client(make_server(filesystem)) as client:
            answers = [await client.call_tool("create_directory", {"path": os.path.dirname(path) or "."})]
            answers.append(await client.call_tool("write_file", {"path": path, "content": "x"}))
        if any(answer.is_error for answer in answers):
            raise ValueError(answers)

    asyncio.run(use())


def by_pydantic_ai(filesystem: Filesystem, path: str) -> None:
    pytest.importorskip("pydantic_ai")
    from agentfs_files.integrations.pydantic_ai import AgentFSWorkspaceBackend

    asyncio.run(AgentFSWorkspaceBackend(filesystem).write_bytes(path, b"x"))


def by_deepagents(filesystem: Filesystem, path: str) -> None:
    pytest.importorskip("deepagents")
    from agentfs_files.integrations.deepagents import AgentFSBackend

    (response,) = AgentFSBackend(filesystem).upload_files([(f"/{path}", b"x")])
    if response.error is not None:
        raise ValueError(response.error)


WAYS = [by_fsspec, by_upath, by_mcp, by_pydantic_ai, by_deepagents]


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("path", [NAME, DEEP])
def test_integrations_create_what_linux_can(write: Callable[[Filesystem, str], None], path: str) -> None:
    filesystem = InMemoryFilesystem()
    with pytest.raises(ValueError, match="exceeds limit"):
        filesystem.write(path, "x")
    write(filesystem, path)
    assert filesystem.read(path).content == "x"


@pytest.mark.parametrize("write", WAYS)
def test_limits_that_were_chosen_hold(write: Callable[[Filesystem, str], None]) -> None:
    for limits, path in ((Limits(), NAME), (Limits(max_path_depth=2), "a/b/c")):
        with pytest.raises(ValueError):
            write(InMemoryFilesystem(limits=limits), path)


def test_limits_of_linux_can_be_chosen() -> None:
    filesystem = InMemoryFilesystem({NAME: ""}, limits=SYSTEM_LIMITS)
    with pytest.raises(ValueError, match="255"):
        filesystem.write("n" * 256, "")
