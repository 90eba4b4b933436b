"""Puts the harness that has called a hook into a branch. It imports nothing that takes long.

A harness that `agentfsd run` has started is in a branch already. One that was started inside a mount, in no branch, is bound: the
daemon binds a running process, and what that starts from then on. The hook's parent is the harness, perhaps with a shell between.
"""

import os
import time
import zlib
from _collections_abc import Iterator

from agentfsd.cli import quick_daemon
from agentfsd.cli.agents.harness_events import HookInput

PATIENCE_S = 10.0
_LOOK_S = 1.0  # after which a hook that waits looks whether the daemon is stopped
_SHELLS = ("sh", "bash", "dash", "zsh", "ash", "ksh", "fish", "busybox")
_SHORT_NAMES = {"claude-code": "claude"}
_ID_CHARACTERS = 8
_MOST_CHARACTERS = 100
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


class HookFailed(Exception):
    """The hook cannot do its work. Its text says why."""


class JoinedSession:
    """A session in its branch.

    Args:
        socket: The daemon's socket.
        root: Where the session sees the workspace.
        branch: The name of the branch.
        is_new: Whether the harness was bound just now.
    """

    def __init__(self, socket: str, root: str, branch: str, is_new: bool) -> None:
        self.socket, self.root, self.branch, self.is_new = socket, root, branch, is_new


def join(said: HookInput) -> JoinedSession | None:
    """Return the session's branch. A harness that is in none gets one; None if it is in no mount.

    Raises:
        HookFailed: The daemon does not answer, or refuses.
    """
    place = quick_daemon.shown_here(os.getcwd())
    if place is None:
        return None
    socket, root = place
    hello = ask(socket, {"op": "hello", "client": "hook"})
    if hello["bound"]:
        return JoinedSession(socket, root, hello["branch"], False)
    if not said.session:
        raise HookFailed("the harness does not say which session it is")
    name = _former_branch(socket, said.session) or _make_branch(socket, said)
    harness = _harness(root)
    ask(socket, {"op": "branch.bind", "pid": harness, "branch": name})
    for pid in _descendants(harness, spared=os.getpid()):
        ask_leniently(socket, {"op": "branch.bind", "pid": pid, "branch": name})  # it may have ended
    return JoinedSession(socket, root, name, True)


def ask(socket: str, request: dict[str, object]) -> quick_daemon.JsonReply:
    """Send a request, and return the reply.

    Raises:
        HookFailed: The daemon does not answer, or refuses.
    """
    reply = ask_leniently(socket, request)
    if reply["op"] == "error":
        raise HookFailed(reply["message"])
    return reply


def ask_leniently(socket: str, request: dict[str, object]) -> quick_daemon.JsonReply:
    """Send a request, and return the reply, which may be a refusal.

    Raises:
        HookFailed: The daemon does not answer.
    """
    ends = time.monotonic() + PATIENCE_S

    def is_hopeless() -> bool:
        return time.monotonic() > ends or quick_daemon.is_stopped(socket)

    try:
        reply = quick_daemon.ask(socket, {"version": quick_daemon.VERSION, **request}, _LOOK_S, is_hopeless)
    except quick_daemon.Lost:
        reply = None
    if reply is None:
        raise HookFailed("the daemon does not answer")
    return reply


def _former_branch(socket: str, session: str) -> str:
    """Return the present name of the branch in which a session goes on; "" if there is none, or it is gone."""
    for step in ask(socket, {"op": "step.list", "session": session}).steps[-1:]:
        shown = ask_leniently(socket, {"op": "branch.show", "ref": step.home_id})
        if shown["op"] != "error":
            return str(shown.branch.name)
    return ""


def _make_branch(socket: str, said: HookInput) -> str:
    """Create the session's branch, and return its name."""
    letters = "".join(char for char in said.session if char in _NAME_CHARACTERS) or "session"
    agent = _SHORT_NAMES.get(said.harness, said.harness)
    whole = f"{agent}-{letters[:_MOST_CHARACTERS]}"
    for name in (f"{agent}-{letters[-_ID_CHARACTERS:]}", whole, f"{whole}-{zlib.crc32(said.session.encode()):08x}"):
        made = ask_leniently(socket, {"op": "branch.create", "name": name})
        if made["op"] != "error":
            return name
        if made["code"] != "branch-exists":
            raise HookFailed(made["message"])
        if _is_unused(socket, name):
            return name
    raise HookFailed(f"branch {name} belongs to another session")


def _is_unused(socket: str, branch: str) -> bool:
    """Return whether a branch is as it was made, perhaps by another hook of this session, and no other session is in it."""
    if (
        ask(socket, {"op": "step.list", "branch": branch}).steps
        or ask(socket, {"op": "branch.show", "ref": branch}).branch.changed
    ):
        return False
    inside = {binding.pid for binding in ask(socket, {"op": "branch.bindings"}).bindings if binding.branch == branch}
    above = os.getppid()
    while above > 1 and above not in inside:
        above = _parent(above)
    return not inside or above > 1


def _harness(root: str) -> int:
    """Return the process that has called the hook: the parent, unless that is a shell which was started only for this command.

    If the harness has just ended, the parent is whoever adopts orphans, such as the user's service manager. That one is not to be
    bound: it is in another session, and not in the workspace.
    """
    pid = os.getppid()
    while _is_shell_for_a_command(pid):
        pid = _parent(pid)
    try:
        is_ours = pid > 1 and (
            os.getsid(pid) == os.getsid(0) or (os.readlink(f"/proc/{pid}/cwd") + "/").startswith(root.rstrip("/") + "/")
        )
    except OSError:
        is_ours = False
    if not is_ours:
        raise HookFailed("the process that called the hook has ended")
    return pid


def _is_shell_for_a_command(pid: int) -> bool:
    words = _read(f"/proc/{pid}/cmdline").split(b"\0")
    name = os.fsdecode(os.path.basename(words[0])).lstrip("-")
    options = [word for word in words[1:4] if word.startswith(b"-")]
    return name in _SHELLS and any(b"c" in option for option in options if not option.startswith(b"--"))


def _parent(pid: int) -> int:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _descendants(pid: int, spared: int) -> Iterator[int]:
    """Yield the processes below *pid*, but not *spared* and those above that."""
    above, at = set[int](), spared
    while at > 1 and at != pid:
        above.add(at)
        at = _parent(at)
    left = [pid]
    while left:
        for child in _children(left.pop()):
            left.append(child)
            if child not in above:
                yield child


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for task in tasks for child in _read(f"/proc/{pid}/task/{task}/children").split()]


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
