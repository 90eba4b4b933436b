"""Running a command in a container: with a time limit, and with as much of its output as was asked for."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentfs_files.backends.container_attach import Attached, Capture, reason

if TYPE_CHECKING:
    from podman.domain.containers import Container

# The command says first who it is: where there is a setsid, the leader of a process group, all of which ends when time is up.
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
    """``exit_code`` as a shell has it (128 and the signal for a command that was killed); None when its time was up. Of long
    outputs the beginning and the end are here (``truncated``), with a note of how much is missing between them."""

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
    """*command* is for ``sh``. What it leaves running in the background is not waited for. RuntimeError when the container stops,
    or does not run."""
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
    """Kills the command, and what it has started where there is a setsid."""
    if process:
        container.exec_run(["sh", "-c", _END, "sh", process], user=user)
