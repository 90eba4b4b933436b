"""How people answer processes that wait for permission: the letters, and the words about questions and answers."""

import time
from typing import Literal

from agentfs_client import wire
from agentfs_client.control import ControlClient

Lasts = Literal["once", "session", "rule"]

PROMPT = "  [a]llow until it ends, for the [s]ession, by a [r]ule; [d]eny this time, [n]ever; Enter: leave it"
KEYS: dict[str, tuple[bool, Lasts] | None] = {
    "a": (True, "once"), "s": (True, "session"), "r": (True, "rule"), "d": (False, "once"), "n": (False, "session"), "": None,
}  # fmt: skip

_DONE: dict[tuple[bool, Lasts], str] = {
    (True, "once"): "allowed until that process ends",
    (False, "once"): "denied this time",
    (True, "session"): "allowed to the branch until the daemon ends or rules change",
    (False, "session"): "denied to the branch until the daemon ends or rules change",
    (True, "rule"): "allowed for good, by a rule",
    (False, "rule"): "denied for good, by a rule",
}


def answer(daemon: ControlClient, number: int, allow: bool, lasts: Lasts) -> str:
    """Answer a question, and return a line that says what was answered. NotFoundError if nobody waits any more."""
    question = daemon.answer_ask(number, allow=allow, lasts=lasts)
    return f"{_DONE[allow, lasts]}: {question.command} ({question.pid}) wants to {wish(question)}"


def sentence(question: wire.PathQuestion) -> str:
    """Return who wants what."""
    return f"{question.command} ({question.pid}) in {question.branch} wants to {wish(question)}"


def how_to(question: wire.PathQuestion) -> str:
    """Return a line with the command that answers."""
    return f"answer it: agentfsd asks answer {question.id} allow"


def wish(question: wire.PathQuestion) -> str:
    """Return what the process wants to do with which path."""
    return f"{question.what} {question.path}"


def age_s(question: wire.PathQuestion) -> int:
    """Return for how many seconds the process has waited."""
    return max(0, int(time.time() - question.asked_ns / 1e9))
