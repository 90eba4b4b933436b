"""Describes commands that were run in branches, in a few words."""

import signal

from agentfs_client import wire
from agentfsd.cli.output import plain_lines
from agentfsd.control import status_text
from agentfsd.control.status_text import plural
from agentfsd.review import branch_runs

_CHARACTERS = 40  # of a command in a table
_SIGNALLED = 128


def status(run: wire.RecordedRun) -> str:
    """Say how a run ended: ok, an exit code, or a signal's name."""
    if run.exit_code > _SIGNALLED:
        try:
            return signal.Signals(run.exit_code - _SIGNALLED).name
        except ValueError:
            pass
    return f"exit {run.exit_code}" if run.exit_code else "ok"


def took(run: wire.RecordedRun) -> str:
    """Say how long a run took."""
    taken_ns = run.ended_ns - run.started_ns
    return f"{taken_ns / 1e9:.1f} s" if taken_ns < 10_000_000_000 else status_text.span(taken_ns)


def shortened(command: str) -> str:
    """Return the beginning of a command, without the shell that was only started for it."""
    command = " ".join(branch_runs.inner_command(command).split())
    return command if len(command) <= _CHARACTERS else command[: _CHARACTERS - 3] + "..."


def text(run: wire.RecordedRun, time: str = "") -> str:
    """Describe a run. *time*: when it ended, to be told, too."""
    changes = "" if run.changed < 0 else f"; {plural(run.changed, 'change')} then"
    return f"$ {shortened(run.command)}{time}  {status(run)} after {took(run)}{changes}"


def line(run: wire.RecordedRun) -> str:
    """Describe a run in one line, with the time when it ended."""
    return text(run, f"  {plain_lines.when(run.ended_ns)}")
