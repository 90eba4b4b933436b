"""`agentfsd hook EVENT`, which harnesses call at every step of a session: at most 60 ms, and never in the agent's way.

Whatever goes wrong, the exit code is 0 and the answer is an empty JSON object. A line on standard error, and in a log, says why.
"""

import os
import sys
import time
from _collections_abc import Callable, Sequence

from agentfsd.cli import quick_daemon
from agentfsd.cli.agents import harness_events
from agentfsd.cli.agents.harness_events import HookInput
from agentfsd.cli.agents.session_branch import HookFailed, JoinedSession, ask, ask_leniently, join

_LOG_BYTES = 1 << 18
_Said = tuple[str, str]  # to the model, and to the person


def run(arguments: Sequence[str]) -> int | None:
    """Answer one event. Return the exit code; None, with nothing done, for what the command line answers.

    That is what somebody types on a terminal, a question for help, and the events of worktrees. Anything else is answered here:
    harnesses take the exit code that the command line has for wrong arguments to mean "block".

    Args:
        arguments: The event, one of harness_events.EVENTS, and perhaps ``--for HARNESS``.
    """
    event, *options = arguments or ["--help"]
    if event.startswith("worktree-") or "--help" in arguments or (sys.stdin is not None and sys.stdin.isatty()):
        return None
    harness = _harness_of(options)
    said, answer = HookInput(harness or ""), ("", "")
    try:
        if event not in _HANDLERS or harness is None:
            raise HookFailed(f"this version of agentfsd does not know {' '.join(arguments)}")
        if sys.stdin is None:
            raise HookFailed("its input is closed")
        said = harness_events.read(sys.stdin.buffer.read(), harness)
        answer = _HANDLERS[event](said)
    except HookFailed as exc:
        _complain(event, str(exc))
    except Exception as exc:  # noqa: BLE001 - whatever it is, the agent goes on
        _complain(event, f"{type(exc).__name__}: {exc}")
    _say(harness_events.answer(said, *answer))
    return 0


def _say(answer: bytes) -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write(answer)
        sys.stdout.flush()
    except OSError:  # the harness no longer listens
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _harness_of(options: Sequence[str]) -> str | None:
    """Return the value of --for; "" if it is not given, None if the options are others."""
    if not options:
        return ""
    name, is_joined, value = options[0].partition("=")
    rest = options[1:] if is_joined else options[2:]
    if name != "--for" or rest:
        return None
    value = value if is_joined else (options[1] if len(options) > 1 else "")
    return value if value in harness_events.HARNESSES else None


# -- events


def _session_start(said: HookInput) -> _Said:
    joined = join(said)
    if joined is None:
        return "", _unprotected()
    return _introduction(joined), f"agentfsd: this session is in branch {joined.branch} of {joined.root}"


def _prompt(said: HookInput) -> _Said:
    joined = join(said)
    if joined is None:
        return "", ""
    reply = _take(joined, said, is_prompt=True)
    context = _introduction(joined) if joined.is_new else ""
    told = [context, _REPLACED if reply.step.replaced else "", _notes(joined.socket, said, reply, joined.branch)]
    return "\n".join(filter(None, told)), ""


def _before_tool(said: HookInput) -> _Said:
    joined = join(said)
    if joined is not None:
        _take(joined, said, is_prompt=False)
    return "", ""


def _after_tool(said: HookInput) -> _Said:
    place = quick_daemon.shown_here(os.getcwd())
    if place is None:
        return "", ""
    from agentfsd.cli.agents import change_report
    from agentfsd.cli.agents.ignored_paths import IgnoredPaths

    socket, root = place
    request = {"op": "step.changes", "session": said.session, "key": said.key, "most": change_report.MOST}
    with IgnoredPaths(root) as git:
        reply = ask_leniently(socket, request)
        if reply["op"] == "error":
            return _without_a_step(said, reply)
        report = change_report.report(reply, root, said.paths, git)
    return "\n".join(filter(None, [_REPLACED if reply.replaced else "", report, _notes(socket, said, reply)])), ""


def _notes(socket: str, said: HookInput, reply: quick_daemon.JsonReply, branch: str | None = None) -> str:
    """Return the notes of which the session was not told. The reply to another request says whether there are any."""
    if not reply.get("notes"):
        return ""
    from agentfsd.cli.agents import note_report

    request: dict[str, object] = {"op": "note.tell", "session": said.session, "branch": branch, "most": note_report.MOST}
    try:
        return note_report.report(ask(socket, request))
    except HookFailed as exc:  # what the call has changed is told all the same
        _complain("notes", str(exc))
        return ""


def _without_a_step(said: HookInput, refusal: quick_daemon.JsonReply) -> _Said:
    """Put a session into its branch whose first event is the end of a call: there is nothing to compare with."""
    joined = join(said) if refusal["code"] == "no-such-step" else None
    if (joined is None or not joined.is_new) and said.session:
        raise HookFailed(refusal["message"])
    return "", ""


def _session_end(said: HookInput) -> _Said:
    place = quick_daemon.shown_here(os.getcwd())
    if place is None:
        return "", ""
    hello = ask(place[0], {"op": "hello", "client": "hook"})
    if not hello["bound"]:
        return "", ""
    branch = ask(place[0], {"op": "branch.show"}).branch
    number, name = branch.changed, branch.name
    about = [f"agentfsd: the session in branch {name} has ended; {number} path{'' if number == 1 else 's'} changed."]
    about += [repository.sentence for repository in branch.repositories if repository.sentence]
    about.append(f"look: agentfsd diff {name}; keep: agentfsd commit {name}; throw away: agentfsd discard {name}")
    return "", "\n".join(about)


_HANDLERS: dict[str, Callable[[HookInput], _Said]] = {
    "session-start": _session_start, "prompt": _prompt, "before-tool": _before_tool, "after-tool": _after_tool,
    "session-end": _session_end,
}  # fmt: skip

_REPLACED = (
    "agentfsd: since your last step the files of this branch were put back to an earlier state (rewind, restore or undo). What "
    "you remember of them may be wrong: read a file again before you change it."
)


def _introduction(joined: JoinedSession) -> str:
    return (
        f"{joined.root} shows branch {joined.branch} of an agentfsd overlay: what you change stays in the branch until "
        "the person commits it. The state before each prompt and tool call is kept. After a call you are told what it changed."
    )


def _unprotected() -> str:
    """Tell a person whose session works on the real files of an overlay; "" if there is none."""
    mountpoint = quick_daemon.mountpoint_above(os.getcwd())
    if mountpoint is None:
        return ""
    return (
        f"agentfsd: this session works on the real files, in no branch. Start it in {mountpoint}, or by `agentfsd run -- COMMAND`"
    )


def _take(joined: JoinedSession, said: HookInput, *, is_prompt: bool) -> quick_daemon.JsonReply:
    if not said.session:
        raise HookFailed("the harness does not say which session it is")
    request: dict[str, object] = {"op": "step.take", "session": said.session, "agent": said.harness, "prompt": is_prompt}
    if joined.is_new:
        request["branch"] = joined.branch  # this process is older than the binding
    return ask(joined.socket, request | {"key": said.key, "title": said.title})


# -- what goes wrong


def _complain(event: str, why: str) -> None:
    from agentfsd.escape import printable

    line = printable(f"agentfsd hook {event}: {why}").encode() + b"\n"
    try:
        _log(line)
    except OSError:
        pass
    if sys.stderr is None:
        return
    try:
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
    except OSError:
        pass


def log_path() -> str:
    """Return the file that has the last failures."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(os.environ.get("AGENTFS_STATE_HOME") or os.path.join(home, "agentfsd"), "hooks.log")


def _log(line: bytes) -> None:
    path = log_path()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_size > _LOG_BYTES:
            os.ftruncate(fd, 0)
        os.write(fd, time.strftime("%Y-%m-%d %H:%M:%S ").encode() + line)
    finally:
        os.close(fd)
