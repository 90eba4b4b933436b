"""The operations on commands that were run in branches. This module knows no transport."""

from agentfs_client import wire
from agentfs_client.question import Question, ask, operation


class RunOperations:
    """What a client says and asks about commands that were run in branches.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    @operation
    def record_run(
        self, command: str, exit_code: int, started_ns: int, ended_ns: int, branch: str | None = None
    ) -> Question[wire.RecordedRun]:
        """Record that a command was run in a branch. See wire.RunAdd."""
        request = wire.RunAdd(branch=branch, command=command, exit_code=exit_code, started_ns=started_ns, ended_ns=ended_ns)
        return ask(request, wire.RunReply, lambda reply: reply.run)

    @operation
    def list_runs(
        self, branch: str | None = None, *, last_only: bool = False, each_command: bool = False
    ) -> Question[list[wire.RecordedRun]]:
        """Return the commands that were run in a branch, or in all (None), oldest first.

        With *last_only*, return the last of each branch; with *each_command*, the last run of each command in each branch.
        """
        request = wire.RunList(branch=branch, last_only=last_only, each_command=each_command)
        return ask(request, wire.RunsReply, lambda reply: reply.runs)
