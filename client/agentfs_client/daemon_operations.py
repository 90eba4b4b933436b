"""Describe every operation of the daemon once, for waiting and for awaiting clients: its request, and what to return of the
reply.

Each noun has a module of its own: branch_operations.py, history_operations.py, rule_operations.py, run_operations.py,
step_operations.py, note_operations.py, descriptor_operations.py. None knows a transport.
"""

from agentfs_client import wire
from agentfs_client.branch_operations import BranchOperations
from agentfs_client.descriptor_operations import DescriptorOperations
from agentfs_client.history_operations import HistoryOperations
from agentfs_client.note_operations import NoteOperations
from agentfs_client.question import OnProgress, Question, ask, no_result, operation
from agentfs_client.rule_operations import RuleOperations
from agentfs_client.run_operations import RunOperations
from agentfs_client.step_operations import StepOperations


class DaemonOperations(
    BranchOperations, HistoryOperations, RuleOperations, RunOperations, StepOperations, NoteOperations, DescriptorOperations
):
    """The operations that ControlClient and AsyncControlClient share. Those about the daemon itself stand here.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    @operation
    def status(self) -> Question[wire.StatusReply]:
        return ask(wire.Status(), wire.StatusReply)

    @operation
    def overlaps(self, *, patience_s: float = 0.5) -> Question[wire.OverlapsReply]:
        """Return which paths several branches have changed, and where merging them would conflict.

        The daemon waits at most *patience_s* seconds for what it still compares; ``complete`` says whether that was enough.
        """
        return ask(wire.OverlapsList(patience_s=patience_s), wire.OverlapsReply)

    @operation
    def capabilities(self) -> Question[dict[str, str]]:
        return ask(wire.Capabilities(), wire.CapabilitiesReply, lambda reply: reply.capabilities)

    @operation
    def backstore_status(self) -> Question[wire.BackstoreReply]:
        """Return where the daemon keeps contents, and how much it keeps."""
        return ask(wire.BackstoreStatus(), wire.BackstoreReply)

    @operation
    def top(self, seconds: float = 1.0) -> Question[wire.TopReply]:
        """Observe the requests to the mount for *seconds*, then return what was seen."""
        return ask(wire.Top(seconds=seconds), wire.TopReply)

    @operation
    def audit(
        self, branch: str | None = None, *, since_ns: int = 0, until_ns: int = 0, pid: int = 0, path: str = "", kind: str = "",
        after: int = 0, limit: int = 1000,
    ) -> Question[wire.AuditReply]:  # fmt: skip
        """Return who changed what, in order. See wire.AuditList."""
        request = wire.AuditList(
            branch=branch, since_ns=since_ns, until_ns=until_ns, pid=pid, path=path, kind=kind, after=after, limit=limit
        )  # fmt: skip
        return ask(request, wire.AuditReply)

    @operation
    def fsck(self, on_progress: OnProgress | None = None, *, scrub: bool = False) -> Question[list[str]]:
        """Return problems in the stored state; the list is empty if there are none. With *scrub*, also read the contents of
        snapshots.
        """
        request = wire.Fsck(progress=on_progress is not None, scrub=scrub)
        return ask(request, wire.ProblemsReply, lambda reply: reply.problems, on_progress=on_progress)

    @operation
    def restart(self) -> Question[None]:
        """Ask the daemon to let another one take over. Returns when the next daemon is ready; it takes over a moment later."""
        return ask(wire.Restart(), wire.Done, no_result)

    @operation
    def shutdown(self, *, force: bool = False) -> Question[None]:
        """Ask the daemon to unmount and end. Returns when the daemon has agreed, which is before it has ended."""
        return ask(wire.Shutdown(force=force), wire.Done, no_result)
