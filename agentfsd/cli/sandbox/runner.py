"""Run one command as a shell does: signals, the terminal and the exit code pass through.

This module knows no branch. The caller says what to show where, and how to bind a process id.
"""

import contextlib
import errno
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from agentfs_client import registry
from agentfsd.cli.sandbox import confinement, enclosing, inherited_descriptors
from agentfsd.cli.sandbox.layout import RunPlan
from agentfsd.cli.sandbox.profiles import impossible
from agentfsd.cli.sandbox.view import View
from agentfsd.domain_errors import Refusal
from agentfsd.linux import process_syscalls

EXIT_CANNOT_EXECUTE = 126
EXIT_NOT_FOUND = 127

_SI_KERNEL = 0x80  # sigaction(2): sent by the terminal driver, so to the whole foreground process group
_FROM_TERMINAL = {signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}
_PASSED = {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
           signal.SIGWINCH, signal.SIGCONT}  # fmt: skip
_STOP_SETTLES_S = 0.02


@dataclass(frozen=True, slots=True)
class Command:
    """The command to run. Without a ``view`` it sees what every process sees.

    ``plan``: what else to confine. ``lacking`` is called with what could not be confined, before the command starts.
    ``watched``: directories in the command's view, of which Ended has descriptors. ``is_paused``: whether the daemon has stopped
    the command for a moment.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    view: View | None
    bind: Callable[[int], None]
    plan: RunPlan | None = None
    lacking: Callable[[Sequence[str]], None] = lambda missing: None
    watched: Sequence[str] = ()
    is_paused: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. ``left_behind`` are its descendants that still run; ``kept``: the watched directories."""

    exit_code: int
    left_behind: list[int]
    kept: Mapping[str, int] = field(default_factory=dict)


class NamespaceError(Exception):
    """A private mount namespace is not permitted here. The command was not run."""


class _Report(msgspec.Struct):
    """Messages from the child to its parent before it executes the command."""

    stage: str  # "ready", or where it failed: "namespace", "enclose", "confine", "chdir", "exec"
    errno: int = 0
    why: str = ""
    missing: tuple[str, ...] = ()


def run(command: Command) -> Ended:
    """Start *command*, bind its process before its first instruction, and wait for it.

    Raises:
        Refusal: The working directory does not exist in the view.
        NamespaceError: The view cannot be shown.
    """
    before = set(descendants(os.getpid()))  # such as a daemon that was started for this command
    process_syscalls.become_subreaper()
    caught = _PASSED | {signal.SIGCHLD}
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, caught)
    try:
        child, kept = _start(command, old_mask)
        code = _wait(child, caught, command.is_paused)
    except _CannotExec as exc:
        return Ended(exc.exit_code, [])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
    left = descendants(os.getpid(), before)
    for pid in left:
        _bind_if_alive(command.bind, pid)
    return Ended(code, left, kept)


class _CannotExec(Exception):
    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


# -- starting ---------------------------------------------------------------------------------------------------------


def _start(command: Command, mask: set[int | signal.Signals]) -> tuple[int, dict[str, int]]:
    report_read, report_write = os.pipe()  # both ends are closed on exec
    go, childs_go = socket.socketpair()
    child = os.fork()
    if child == 0:
        os.close(report_read)
        go.close()
        _become(command, mask, report_write, childs_go)
    os.close(report_write)
    childs_go.close()
    with open(report_read, "rb") as reports, go:
        try:
            missing = _expect(reports.readline(), "ready", command)
            if missing:
                command.lacking(missing)
            kept = dict(zip(command.watched, _received(go, len(command.watched)), strict=False))
            command.bind(child)
            go.send(b"g")
            _expect(reports.readline(), "", command)
        except BaseException:
            go.close()  # the child sees the end of the pipe and leaves
            os.waitpid(child, 0)
            raise
    return child, kept


def _received(go: socket.socket, count: int) -> list[int]:
    """The descriptors of watched directories, close-on-exec."""
    descriptors = socket.recv_fds(go, 1, count)[1] if count else []
    for fd in descriptors:
        os.set_inheritable(fd, False)
    return descriptors


def _become(command: Command, mask: set[int | signal.Signals], report: int, go: socket.socket) -> None:
    """Run in the child. It never returns."""
    stage = "namespace"
    try:
        missing: list[str] = []
        if command.view is not None:
            missing = enclosing.show(command.view, command.plan)
            unlocked = confinement.lock_mounts()
            missing += [] if _is_strict(command) else unlocked  # there root has no capability to unmount anything
        stage = "confine"
        unsupported = confinement.confine(strictly=_is_strict(command))
        if unsupported and _is_strict(command):
            raise enclosing.Impossible(unsupported[0], errno.EOPNOTSUPP)
        missing += unsupported
        if command.plan is not None and command.plan.confinement.covers:
            inherited_descriptors.close_ways_out()
        if command.watched:
            watched = [os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for path in command.watched]
            socket.send_fds(go, [b"w"], watched)
        _tell(report, _Report("ready", missing=tuple(missing)))
        _wait_for_word(go)
        stage = "chdir"
        os.chdir(command.cwd)
        stage = "exec"
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; the command must not inherit that
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _exec(command)
    except enclosing.Impossible as exc:
        _tell(report, _Report("enclose", exc.errno or errno.EPERM, str(exc)))
    except OSError as exc:
        _tell(report, _Report(stage, exc.errno or errno.EIO))
    finally:
        os._exit(1)


def _is_strict(command: Command) -> bool:
    return command.plan is not None and command.plan.confinement.is_strict


def _tell(report: int, message: _Report) -> None:
    os.write(report, msgspec.json.encode(message) + b"\n")


def _wait_for_word(go: socket.socket) -> None:
    if go.recv(1) == b"":
        os._exit(1)


def _exec(command: Command) -> None:
    env = dict(command.env)
    try:
        os.execvpe(command.argv[0], list(command.argv), env)
    except OSError as exc:
        program = shutil.which(command.argv[0], path=env.get("PATH"))
        if exc.errno != errno.ENOEXEC or program is None:
            raise
        os.execve("/bin/sh", ["sh", program, *command.argv[1:]], env)  # as execvp(3) does with a script without "#!"


def _expect(line: bytes, stage: str, command: Command) -> tuple[str, ...]:
    """Return what is missing of the confinement. Raises if the child failed before *stage*."""
    if not line and stage == "":
        return ()  # the pipe closed on exec: the command runs
    if not line:
        raise Refusal(errno.EIO, "run-failed", "the command's process died before it could start")
    report = msgspec.json.decode(line, type=_Report)
    if report.stage == stage:
        return report.missing
    if report.stage == "enclose":
        raise impossible(report.why)
    reason = os.strerror(report.errno)
    if report.stage == "namespace":
        raise NamespaceError(reason)
    if report.stage == "confine":
        raise Refusal(report.errno, "not-confined", *confinement.refusal(report.errno))
    if report.stage == "chdir":
        raise Refusal(
            report.errno, "no-such-directory", f"cannot enter {command.cwd} in that branch: {reason}",
            "change to a directory that exists there, or start from the root of the workspace",
        )  # fmt: skip
    raise _cannot_exec(report.errno, command.argv[0], reason)


def _cannot_exec(code: int, program: str, reason: str) -> Exception:
    os.write(2, os.fsencode(f"agentfsd: cannot run {program}: {reason}\n"))
    return _CannotExec(EXIT_NOT_FOUND if code in (errno.ENOENT, errno.ENOTDIR) else EXIT_CANNOT_EXECUTE)


# -- waiting ----------------------------------------------------------------------------------------------------------


def _wait(child: int, caught: set[signal.Signals], is_paused: Callable[[], bool]) -> int:
    """Wait until the command itself ends, and reap orphaned processes meanwhile."""
    while True:
        code = _reap(child, is_paused)
        if code is not None:
            return code
        info = signal.sigwaitinfo(caught)
        number = signal.Signals(info.si_signo)
        seen_by_child = number in _FROM_TERMINAL and info.si_code == _SI_KERNEL
        if number != signal.SIGCHLD and not seen_by_child:
            os.kill(child, number)


def _reap(child: int, is_paused: Callable[[], bool]) -> int | None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return 1  # somebody else reaped it; cannot happen while we are its parent
        if pid == 0:
            return None
        if pid != child:
            continue
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        _stop_with(child, is_paused)


def _stop_with(child: int, is_paused: Callable[[], bool]) -> None:
    """Stop this process too after the command has stopped itself (^Z in an editor), so that the shell takes its terminal back."""
    time.sleep(_STOP_SETTLES_S)  # a terminal's ^Z stopped us both, and the CONT that woke us is on its way to the child
    if is_paused() or _state_of(child) != "T":  # in this order: after a pause the command goes on first, then the note of it goes
        return
    os.kill(os.getpid(), signal.SIGSTOP)
    os.kill(child, signal.SIGCONT)


# -- descendants ------------------------------------------------------------------------------------------------------


def descendants(root: int, without: Collection[int] = ()) -> list[int]:
    """Return the living processes beneath *root*, except *without* and their descendants.

    Complete only if *root* is a subreaper.
    """
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            state, parent = _stat_of(int(name))
            if state not in ("", "Z", "X"):
                children.setdefault(parent, []).append(int(name))
    pids: list[int] = []
    pending = [root]
    while pending:
        below = [pid for pid in children.get(pending.pop(), []) if pid not in without]
        pids += below
        pending += below
    return pids


def _state_of(pid: int) -> str:
    return _stat_of(pid)[0]


def _stat_of(pid: int) -> tuple[str, int]:
    """Return (state, parent) of a process; ("", 0) if it has ended."""
    fields = registry.stat_fields(pid)
    return (fields[0].decode(), int(fields[1])) if fields else ("", 0)


def _bind_if_alive(bind: Callable[[int], None], pid: int) -> None:
    """Bind the process. If the command has ended already, ignore the error, because its exit code matters more."""
    with contextlib.suppress(OSError):
        bind(pid)
