"""The command `mcp`, which serves a branch to an MCP client."""

import contextlib
import importlib.util
import os
import sys

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import ExistsError, NotFoundError
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Failure, converse, mount_option
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing


@click.command()
@click.option(
    "-b",
    "--branch",
    metavar="BRANCH",
    shell_complete=shell_completion.branches,
    help="The branch; by default the one you are in.",
)
@click.option("--new", is_flag=True, help="Create the branch if it does not exist.")
@click.option(
    "--from",
    "source",
    metavar="REF",
    shell_complete=shell_completion.refs,
    help="The branch or snapshot from which a new branch starts; by default main.",
)
@click.option("--read-only", is_flag=True, help="Offer only tools that change nothing.")
@click.option("--snapshot", "each", is_flag=True, help="Take a snapshot of the branch before each tool that changes something.")
@mount_option
def mcp(branch: str | None, new: bool, source: str | None, read_only: bool, each: bool, named: str | None) -> None:
    """Serve a branch to an MCP client on stdin and stdout.

    Clients are, for example, Claude Code, Claude Desktop and editors. The tools are those of MCP's reference file system server,
    and snapshot, restore, diff, list_snapshots, notes_list, notes_reply, glob and grep. Paths are absolute, below the mount
    point, or relative to it. Several servers can run at once, in one branch or in several. A server is a process of its branch,
    so rules by path (`agentfsd rules`) hold for the tools. It ends when the client closes its input, or with SIGTERM.

    \b
    Example:
      claude mcp add work -- agentfsd mcp -m ~/work -b fix-1
    \b
    The entry in a client's configuration (give paths in full):
      {"mcpServers": {"work": {"command": "agentfsd", "args": ["mcp", "-m", "/home/me/work", "-b", "fix-1", "--new"]}}}
    """
    if importlib.util.find_spec("mcp") is None:
        raise Failure("the package mcp, which speaks the protocol, is missing", "pip install 'agentfsd[mcp]'")
    from agentfs_files.backends.branch import BranchFilesystem
    from agentfs_files.integrations.mcp.server import run

    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon:
        chosen = _branch(daemon, branch, new, source)
        shown_at = mount.lower if mount.record is not None and mount.record.hidden else mount.mountpoint
        if not daemon.hello.bound:
            daemon.bind(os.getpid(), chosen.id)  # what a tool is asked for is what an agent asks for: the rules hold
        filesystem = BranchFilesystem(chosen.id, mount=mount.mountpoint, read_only=read_only, mount_point=shown_at)
    with filesystem:
        if sys.stdin.isatty():
            printing.note("this is an MCP server, which a client starts; Ctrl-D ends it")
        printing.note(f"branch {chosen.name} of {shown_at}")
        run(filesystem, snapshot_each_change=each)


def _branch(daemon: ControlClient, branch: str | None, new: bool, source: str | None) -> wire.Branch:
    if new and branch is None:
        raise Failure("a new branch needs a name", "agentfsd mcp -b NAME --new")
    if new and branch is not None:
        with contextlib.suppress(NotFoundError):
            return daemon.show_branch(branch)
        try:
            return daemon.create_branch(branch, source)
        except ExistsError:  # a server that was started at the same moment was faster
            return daemon.show_branch(branch)
    if source is not None:
        raise Failure("--from is for a new branch", "add --new, or leave out --from")
    try:
        return daemon.show_branch(branch)
    except NotFoundError as exc:
        raise Failure(exc.message, f"--new creates it: agentfsd mcp -b {branch} --new") from exc
