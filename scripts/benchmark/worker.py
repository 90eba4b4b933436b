"""The benchmark's side of an agent: starts it, gives it commands, ends it with everything that it has started."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

AGENT = Path(__file__).parent / "agent.py"
COMMAND_TIMEOUT_S = 1800.0
_START_TIMEOUT_S = 60.0
_LEAVE_S = 0.5
_END_TIMEOUT_S = 10.0
_SHOWN_CHARACTERS = 300


class BenchError(Exception):
    """Why a target could not do what was measured; becomes a cell of the table."""


@dataclass(frozen=True, slots=True)
class Result:
    """A command that has ended well."""

    seconds: float
    out: str


class Worker:
    """An agent in one view. ``prefix`` is the command that puts it there (``agentfsd run ... --``), empty for none."""

    def __init__(self, cwd: str, environment: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-I", str(AGENT)], cwd=cwd, env=environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        try:
            self._receive(_START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def run(self, argv: Sequence[str], cwd: str) -> Result:
        """Runs a command to its end; BenchError when it fails."""
        self.send(argv, cwd)
        return self.result()

    def send(self, argv: Sequence[str], cwd: str) -> None:
        """Starts a command; its result is to be asked for before the next."""
        order = json.dumps({"argv": list(argv), "cwd": cwd}) + "\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(order.encode())
            self._process.stdin.flush()
        except OSError as exc:
            raise BenchError(f"the process in the view has ended{self._said()}") from exc

    def result(self) -> Result:
        found = self._receive(COMMAND_TIMEOUT_S)
        if found["code"] != 0:
            said = " ".join(str(found["err"] or found["out"]).split())[-_SHOWN_CHARACTERS:]
            raise BenchError(f"exit code {found['code']}: {said}")
        return Result(float(str(found["seconds"])), str(found["out"]))

    def close(self) -> None:
        """Ends the agent and whatever it runs; nothing of it is left afterwards."""
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        deadline = time.monotonic() + _LEAVE_S
        while process.returncode is None and not _has_ended(process.pid) and time.monotonic() < deadline:
            time.sleep(0.005)
        if process.returncode is None:  # not reaped, so the number of its group is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait(_END_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()
        self._errors.close()

    def _receive(self, timeout_s: float) -> dict[str, object]:
        stream = self._process.stdout
        assert stream is not None
        deadline, line = time.monotonic() + timeout_s, b""
        while not line.endswith(b"\n"):
            if not select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BenchError(f"no answer within {timeout_s:.0f} s")
            part = os.read(stream.fileno(), 1 << 16)
            if not part:
                raise BenchError(f"the process in the view has ended{self._said()}")
            line += part
        answer: dict[str, object] = json.loads(line)
        return answer

    def _said(self) -> str:
        self._errors.seek(0)
        said = " ".join(self._errors.read().decode(errors="replace").split())[-_SHOWN_CHARACTERS:]
        return f": {said}" if said else ""


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def run_together(workers: Sequence[Worker], argv: Sequence[str], cwds: Sequence[str]) -> float:
    """One command in every view at once; seconds until the last has ended. Alone, the time that its agent took."""
    if len(workers) == 1:
        return workers[0].run(argv, cwds[0]).seconds
    begin = time.perf_counter()
    for worker, cwd in zip(workers, cwds, strict=True):
        worker.send(argv, cwd)
    failures = []
    for worker in workers:
        try:
            worker.result()
        except BenchError as exc:
            failures.append(exc)
    if failures:
        raise failures[0]
    return time.perf_counter() - begin
