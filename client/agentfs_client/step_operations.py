"""The operations on the steps of agents' sessions. This module knows no transport."""

from agentfs_client import wire
from agentfs_client.question import Question, ask, operation


class StepOperations:
    """What a client asks about the sessions of agents, whose steps have snapshots.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    @operation
    def take_step(
        self, session: str, branch: str | None = None, *, agent: str = "", prompt: bool = False, key: str = "", title: str = ""
    ) -> Question[wire.SessionStep]:
        """Note a step of a session: before a prompt, or before a call of a tool. See wire.StepTake."""
        request = wire.StepTake(session=session, branch=branch, agent=agent, prompt=prompt, key=key, title=title)
        return ask(request, wire.StepReply, lambda reply: reply.step)

    @operation
    def list_steps(self, branch: str | None = None, session: str = "") -> Question[list[wire.SessionStep]]:
        """Return the steps of sessions, oldest first: of one branch, and of one session, if those are given."""
        return ask(wire.StepList(branch=branch, session=session), wire.StepsReply, lambda reply: reply.steps)

    @operation
    def step_changes(
        self, session: str, branch: str | None = None, *, key: str = "", most: int = 100
    ) -> Question[wire.StepChangesReply]:
        """Return what has changed in a branch since a step of a session. See wire.StepChanges."""
        return ask(wire.StepChanges(session=session, branch=branch, key=key, most=most), wire.StepChangesReply)
