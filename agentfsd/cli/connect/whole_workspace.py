"""The workspace for commands that show every branch, which a process in a branch may not see."""

from agentfs_client import locate
from agentfs_client.control import ControlClient
from agentfsd.cli.command_base import Failure


def shown_at(mount: locate.Mount, daemon: ControlClient, shows: str) -> str:
    """Return the path of the workspace.

    Args:
        mount: The mount.
        daemon: A connection to its daemon.
        shows: What shows every branch, in the refusal, such as "the pages show".

    Raises:
        Failure: This process is bound to a branch.
        AgentFSError: The user does not own the mount.
    """
    if daemon.hello.bound:
        raise Failure(
            f"this process works in branch {daemon.hello.branch}, and {shows} every branch",
            "start it from a shell outside of `agentfsd run`",
        )
    daemon.bindings()  # the daemon refuses this to users who do not own the mount
    return mount.lower if mount.record is not None and mount.record.hidden else mount.mountpoint
