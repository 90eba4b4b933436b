"""Run a command in a container, with a time limit and a limit on its output."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentfs_files.backends.container_attach import Attached, Capture, reason

if TYPE_CHECKING:
    from podman.domain.containers import Container

# The command first prints its pid. If the container has setsid, it leads a process group, which is killed at the time limit.
_SCRIPT = r"""
IFS= read -r end
begin='printf "%s\n" "$$"; cd -- "$1" && exec sh -c "$2"'
if command -v setsid >/dev/null; then
    setsid sh -c "$begin" sh "$1" "$2" </dev/null &
else
    sh -c "$begin" sh "$1" "$2" </dev/null &
fi
wait "$!"
status=$?
printf '%s%s\n' "$end" "$status"
printf '%s' "$end" >&2
"""
_END = 'kill -KILL "-$1" 2>/dev/null || kill -KILL "$1"'


@dataclass(slots=True, frozen=True)
class CommandResult:
    """The result of a command.

    ``exit_code`` is that of the shell (128 plus the signal for a killed command); None if the time limit was reached. Of a long
    output only the beginning and the end are kept (``truncated``), with a note of how many bytes are missing between them.
    """

    command: str
    exit_code: int | None
    stdout: str
    stderr: str
    duration_s: float
    timed_out: bool = False
    truncated: bool = False


def run_command(
    container: "Container",
    command: str,
    *,
    directory: str,
    timeout_s: float,
    max_output_bytes: int,
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
) -> CommandResult:
    """Run *command* with ``sh``. Does not wait for processes that the command leaves in the background.

    Raises:
        RuntimeError: the container stops, or does not run.
    """
    began = time.monotonic()
    out, err = Capture(max_output_bytes), Capture(max_output_bytes)
    settings = [f"{name}={value}" for name, value in (environment or {}).items()]
    script = ["sh", "-c", _SCRIPT, "sh", directory, command]
    attached = Attached(container, script, User=user or "", Env=settings)
    process = b""
    status: bytes | None = None
    try:
        answer = attached.answer(err, lambda: _left(began, timeout_s))
        while True:
            try:
                piece = next(answer)
            except StopIteration as stop:
                status = stop.value
                break
            if b"\n" not in process:
                process += piece
                _, _, piece = process.partition(b"\n")
            out.add(piece)
    except TimeoutError:
        _end(container, process.partition(b"\n")[0].decode(), user)
    except OSError as exc:
        raise RuntimeError(f"the container {container.name} stopped during a command: {reason(exc)}") from exc
    finally:
        attached.close()
    return CommandResult(
        command, None if status is None else int(status), bytes(out).decode(errors="replace"),
        bytes(err).decode(errors="replace"), time.monotonic() - began, status is None, bool(out.left_out or err.left_out),
    )  # fmt: skip


def _left(began: float, timeout_s: float) -> float:
    left = began + timeout_s - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _end(container: "Container", process: str, user: str | None) -> None:
    """Kill the command, and if the container has setsid, everything it started."""
    if process:
        container.exec_run(["sh", "-c", _END, "sh", process], user=user)
