"""A branch as a workspace with files and commands: what the integrations with agent frameworks have in common.

Commands are those of `agentfsd run`: they see the branch at the mount point, and what they leave running can be ended.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from agentfs_client import locate
from agentfs_client.errors import NotFoundError
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.filesystem.size_limits import SYSTEM_LIMITS, Limits
from agentfs_files.integrations.branch_commands import run_in_branch

TIMED_OUT = 124  # what timeout(1) exits with
_REST_S = 0.5  # for the output of a command that was killed
_CHUNK_BYTES = 1 << 20
_ENDING_S, _LOOK_S = 10.0, 0.02
_IN_DIRECTORY = 'cd -- "$1" && shift && exec "$@"'

_T = TypeVar("_T")


class CommandOutcome(NamedTuple):
    """How a command ended.

    ``exit_code`` is TIMED_OUT for a command that was killed because its time was up, else -N for signal N. ``errors`` is b"" if
    standard error was joined to ``output``.
    """

    exit_code: int
    output: bytes
    errors: bytes
    has_timed_out: bool = False


class BranchWorkspace:
    """A branch with its files and commands. Threads may share it; file operations run one at a time.

    Args:
        filesystem: The branch. close() closes it.
        options: Options of `agentfsd run` for every command.
    """

    def __init__(self, filesystem: BranchFilesystem, options: Sequence[str] = ()) -> None:
        self.filesystem, self.options = filesystem, tuple(options)
        self._one_at_a_time = threading.RLock()

    @classmethod
    def open(
        cls,
        mount: str | os.PathLike[str] | None = None,
        *,
        branch: str | None = None,
        source: str | None = None,
        limits: Limits = SYSTEM_LIMITS,
        options: Sequence[str] = (),
    ) -> "BranchWorkspace":
        """Open a branch of a mount, and create it if it is missing.

        Args:
            mount: The mount point; None as for BranchFilesystem.
            branch: The name; None for a new branch with a name of its own.
            source: The ref that a new branch is created from; None means the present ``main``.
            limits: For names and paths.
            options: Options of `agentfsd run` for every command.

        Raises:
            AgentFSError: There is no such mount or source, or the daemon cannot be reached.
        """
        name = f"agent-{secrets.token_hex(4)}" if branch is None else branch
        return cls(BranchFilesystem(name, mount=mount, create=True, source=source, limits=limits), options)

    def close(self) -> None:
        """Close the file system. The branch stays."""
        self.filesystem.close()

    @property
    def root(self) -> str:
        """The directory where commands see the branch: the mount point."""
        return self.filesystem.root

    @property
    def branch(self) -> str:
        """Name of the branch."""
        return self.filesystem.branch

    def do(self, act: Callable[[BranchFilesystem], _T]) -> _T:
        """Call *act* with the file system, while no other thread uses it."""
        with self._one_at_a_time:
            return act(self.filesystem)

    def is_there(self) -> bool:
        """Tell whether the branch still exists. Raises DaemonGoneError."""
        try:
            self.do(lambda filesystem: filesystem.check_there())
        except NotFoundError:
            return False
        return True

    # -- commands

    def command(self, argv: Sequence[str], directory: str | None = None) -> list[str]:
        """Return the command line that runs *argv* in the branch, to be started in the mount point.

        Args:
            argv: The program and its arguments.
            directory: Where the command starts, absolute or relative to the mount point; None means the mount point.

        Raises:
            FileNotFoundError: `agentfsd` is not in PATH.
            RuntimeError: This process does not see the branch through a mount.
        """
        if directory is not None:
            argv = ["sh", "-c", _IN_DIRECTORY, "sh", os.path.join(self.root, directory), *argv]
        return run_in_branch(self.filesystem, argv, self.options)

    def run(
        self,
        argv: Sequence[str],
        *,
        directory: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        joined: bool = False,
    ) -> CommandOutcome:
        """Run a command in the branch until it ends, without input.

        Args:
            argv: The program and its arguments.
            directory: As for command().
            env: Additional environment variables.
            timeout_s: Seconds until the command and what it started are killed; None for no limit.
            joined: Whether standard error is part of the output.
        """
        with subprocess.Popen(
            self.command(argv, directory), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if joined else subprocess.PIPE, cwd=self.root, env=_variables(env), start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, errors = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                _kill(process.pid)
                output, errors = _rest(process)
                return CommandOutcome(TIMED_OUT, output, errors or b"", has_timed_out=True)
            except BaseException:
                _kill(process.pid)
                raise
        return CommandOutcome(process.returncode, output, errors or b"")

    async def run_async(
        self,
        argv: Sequence[str],
        *,
        directory: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
    ) -> CommandOutcome:
        """Run a command like run(), in asyncio. Cancelling kills it.

        Args:
            argv: The program and its arguments.
            directory: As for command().
            env: Additional environment variables.
            timeout_s: Seconds until the command and what it started are killed; None for no limit.
            stdin: A file with its input; None for no input.
            stdout: A file for its output, which the outcome then does not have.
        """
        command = await asyncio.to_thread(self.command, argv, directory)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL if stdin is None else stdin, stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE, cwd=self.root, env=_variables(env), start_new_session=True,
        )  # fmt: skip
        ending = asyncio.ensure_future(process.communicate())
        try:
            done, _ = await asyncio.wait({ending}, timeout=timeout_s)
            if not done:
                _kill(process.pid)
                done_late, _ = await asyncio.wait({ending}, timeout=_REST_S)
                if not done_late:  # something left the group and holds the output
                    ending.cancel()
                    return CommandOutcome(TIMED_OUT, b"", b"", has_timed_out=True)
            output, errors = await ending
        except BaseException:
            _kill(process.pid)
            with contextlib.suppress(asyncio.CancelledError):
                await ending
            raise
        code = process.returncode if done and process.returncode is not None else TIMED_OUT
        return CommandOutcome(code, output or b"", errors or b"", has_timed_out=not done)

    def discard(self) -> None:
        """Kill what commands have left running, and discard the branch; `agentfsd undo` brings it back.

        Raises:
            AgentFSError: There is no such branch, or a process in it did not end within 10 seconds.
        """
        self.end_commands()
        self.do(lambda filesystem: filesystem.discard())

    def end_commands(self) -> None:
        """Kill what commands have left running in the branch, and wait up to 10 seconds for its end."""
        deadline = time.monotonic() + _ENDING_S
        with locate.find(self.root).connect() as client:
            while left := [binding.pid for binding in client.bindings() if binding.branch == self.branch]:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                if time.monotonic() > deadline:
                    return
                time.sleep(_LOOK_S)

    # -- whole files and trees, between this machine and the branch

    def upload(self, source: Path, path: str) -> int:
        """Copy a file of this machine into the branch, with its permissions. Returns its size in bytes."""

        def write(filesystem: BranchFilesystem) -> int:
            with source.open("rb") as file, filesystem.open_write(path) as writer:
                size = 0
                while chunk := file.read(_CHUNK_BYTES):
                    size += writer.write(chunk)
            return size

        size = self.do(write)
        if os.access(source, os.X_OK):
            self.run(["chmod", "+x", path], directory=".")
        return size

    def download(self, path: str, target: Path) -> int:
        """Copy a file of the branch to this machine. Missing directories are created. Returns its size in bytes."""
        target.parent.mkdir(parents=True, exist_ok=True)

        def read(filesystem: BranchFilesystem) -> int:
            with filesystem.open_read(path) as reader, target.open("wb") as file:
                return sum(file.write(chunk) for chunk in reader)

        return self.do(read)


def _variables(env: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **(env or {})}


def _rest(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    """Return the output of a command that was killed. What has left its group may hold the output open."""
    try:
        return process.communicate(timeout=_REST_S)
    except subprocess.TimeoutExpired as exc:
        return exc.stdout or b"", exc.stderr or b""


def _kill(group: int) -> None:
    """Kill a command and what it started; the group's number is that of the process that leads it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
