"""A command in a branch that goes on while its output is read piece by piece, with a terminal if it needs one. For asyncio."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from agentfs_files.integrations.branch_workspace import BranchWorkspace

_CHUNK_BYTES = 1 << 16
_KEPT_BYTES = 1 << 22  # of output that nobody has read yet: the end of it
_GRACE_S = 0.3  # for the last output of a command whose children keep the pipe open


class RunningCommand:
    """A command whose two outputs are one. Call start() to get one; kill() ends it and releases what it holds."""

    def __init__(self, process: asyncio.subprocess.Process, descriptor: int, *, has_terminal: bool) -> None:
        self._process, self._descriptor, self.has_terminal = process, descriptor, has_terminal
        self._output = bytearray()
        self._closed = asyncio.Event()
        self._is_at_end = False
        self.last_used = time.monotonic()
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read)
        self._waiting = asyncio.ensure_future(self._wait())

    @classmethod
    async def start(
        cls,
        workspace: BranchWorkspace,
        argv: Sequence[str],
        *,
        directory: str | None = None,
        env: Mapping[str, str] | None = None,
        has_terminal: bool = False,
    ) -> "RunningCommand":
        """Start a command in the branch.

        Args:
            workspace: The branch.
            argv: The program and its arguments.
            directory: Where it starts, as for BranchWorkspace.command().
            env: Additional environment variables.
            has_terminal: Whether it has a terminal, through which write() reaches it. Otherwise it has no input.

        Raises:
            OSError: It cannot be started.
        """
        command = await asyncio.to_thread(workspace.command, argv, directory)
        descriptor, given = os.openpty() if has_terminal else os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(["setsid", "--ctty"] if has_terminal else []), *command, stdin=given if has_terminal else subprocess.DEVNULL,
                stdout=given, stderr=given, cwd=workspace.root, env={**os.environ, **(env or {})},
                start_new_session=not has_terminal,
            )  # fmt: skip
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            os.close(given)
        return cls(process, descriptor, has_terminal=has_terminal)

    @property
    def exit_code(self) -> int | None:
        """The exit code, -N for signal N; None while it runs, and while there is more output to come."""
        return self._process.returncode if self._is_at_end else None

    async def output(self, seconds: float) -> bytes:
        """Return the output since the last call, when the command has ended or after *seconds*."""
        self.last_used = time.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._waiting), seconds)
        found, self._output = bytes(self._output), bytearray()
        return found

    def write(self, data: bytes) -> None:
        """Type something on the command's terminal. RuntimeError if it has none."""
        if not self.has_terminal:
            raise RuntimeError("this command has no terminal, and so no input; start it with one")
        with contextlib.suppress(OSError):  # it has ended
            os.write(self._descriptor, data)

    async def kill(self) -> None:
        """Kill the command and what it started, unless it has ended."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._waiting

    async def _wait(self) -> None:
        await self._process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), _GRACE_S)
        self._close()
        self._is_at_end = True

    def _read(self) -> None:
        try:
            part = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:  # EIO: nobody has the terminal open any more
            part = b""
        if not part:
            self._close()
            self._closed.set()
        self._output += part
        del self._output[:-_KEPT_BYTES]

    def _close(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
