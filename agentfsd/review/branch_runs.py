"""Which of the commands that were run in a branch tells most of it, and how a command is shown. It asks nobody."""

import re
import shlex
from collections.abc import Iterable

from agentfs_client import wire

_SHELLS = re.compile(r"(?:.*/)?(?:ba|da|k|z)?sh")
_SCRIPT_NEXT = re.compile(r"-[a-z]*c[a-z]*")
_RUNNERS = "(?:py|c)?tests?|checks?|verify|tox|nox|jest|vitest|mocha|rspec|phpunit"
_TESTS = re.compile(rf"(?:^|[\s/:._;&|-])(?:{_RUNNERS})(?:$|[\s:._;&|-])")


def inner_command(command: str) -> str:
    """Return the script of a command that only starts a shell for it, such as ``sh -c 'make test'``; else the command itself."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that is not closed
        return command
    if len(words) < 3 or not _SHELLS.fullmatch(words[0]):
        return command
    for number, word in enumerate(words[1:], 1):
        if _SCRIPT_NEXT.fullmatch(word):
            return words[number + 1] if len(words) == number + 2 else command
        if not word.startswith("-"):
            return command
    return command


def is_test(command: str) -> bool:
    """Tell whether a command looks like one that runs tests: one of its words is such as test, pytest, check or tox."""
    return _TESTS.search(inner_command(command)) is not None


def telling(runs: Iterable[wire.RecordedRun]) -> dict[str, wire.RecordedRun]:
    """Return for each branch, by id, the last run of tests, or if there was none the last run. *runs*: oldest first."""
    found = dict[str, wire.RecordedRun]()
    for run in runs:
        known = found.get(run.branch_id)
        if known is None or is_test(run.command) or not is_test(known.command):
            found[run.branch_id] = run
    return found
