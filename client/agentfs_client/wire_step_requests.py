"""The requests about the steps of agents' sessions, which the hooks of harnesses make. None of them names a path."""

from agentfs_client.message import Request


class StepTake(Request, frozen=True, kw_only=True, tag="step.take"):
    """Note a step of a session, with a snapshot of the branch's state.

    If the branch has not changed since its newest snapshot, that one is taken. ``session`` and ``key`` are the harness's names
    for the session and for the prompt or the call of a tool, ``agent`` is the harness. ``prompt``: a new turn begins; else a tool
    is called. ``title``: what is asked, in a few words. The same event twice within two seconds is one step if nothing changed
    between.
    """

    session: str
    branch: str | None = None
    agent: str = ""
    prompt: bool = False
    key: str = ""
    title: str = ""


class StepList(Request, frozen=True, kw_only=True, tag="step.list"):
    """Ask for the steps of sessions, oldest first. ``branch`` None: of all branches; for a bound caller of its own. ``session``
    "": of all sessions.
    """

    branch: str | None = None
    session: str = ""


class StepChanges(Request, frozen=True, kw_only=True, tag="step.changes"):
    """Ask what has changed in a branch since a step of a session.

    The step is that with ``key``, or the session's last one. At most ``most`` changes are listed, deleted paths first. The files
    of git's databases are left out.
    """

    session: str
    branch: str | None = None
    key: str = ""
    most: int = 100
