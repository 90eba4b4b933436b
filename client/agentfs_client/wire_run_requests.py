"""The requests about commands that were run in branches. None of them names a path."""

from agentfs_client.message import Request


class RunAdd(Request, frozen=True, kw_only=True, tag="run.add"):
    """Record that a command was run in a branch.

    ``command`` is for people; the first 1,000 characters are kept. ``exit_code`` is 128 and the number for a signal. Times are in
    ns since the epoch. Only a process outside of all branches may record a run.
    """

    branch: str | None = None
    command: str
    exit_code: int
    started_ns: int
    ended_ns: int


class RunList(Request, frozen=True, kw_only=True, tag="run.list"):
    """Ask for the commands that were run in a branch, oldest first: the last 100. ``branch`` None: in all branches; for a bound
    caller in its own. ``last_only``: of each branch only the last; ``each_command``: of each branch the last of each command.
    """

    branch: str | None = None
    last_only: bool = False
    each_command: bool = False
