"""Questions to a person: a process wants to use a path whose rule says `ask`. Its system call waits for the answer.

An answer `once` holds for the process that asked and that path, until the process ends. One for the `session` holds for every
process of the branch and that path, until the daemon ends or the rules change. It must never know FUSE, nor a request.
"""

import errno
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from agentfsd.binding import procfs
from agentfsd.domain_errors import Refusal

_REFUSED_S = 1.0  # how long a refusal counts: the kernel sends some requests twice
_MOST = 256  # questions that wait at once; each holds a request of the kernel
_KNOWN_MOST = 4096  # answers that are kept


@dataclass(eq=False, slots=True)
class PendingQuestion:
    """A question that waits for its answer.

    Attributes:
        id: Its number.
        branch_id: The branch in which the process works.
        pid: The process.
        command: What it is called.
        path: The path, relative to the root.
        what: read, write or change (make, remove or rename that name).
        asked_ns: When, since the epoch.
        allowed: The answer; None while there is none.
    """

    id: int
    branch_id: str
    pid: int
    command: str
    path: bytes
    what: str
    asked_ns: int = field(default_factory=time.time_ns)
    allowed: bool | None = None
    answered: trio.Event = field(default_factory=trio.Event)
    waiting: int = 0  # requests


_NUMBERS = 1000  # for one daemon, usually


class AnswerNeeded(Exception):
    """The request needs the answer to a question. Repeat it after over()."""

    def __init__(self, questions: "Questions", question: PendingQuestion) -> None:
        super().__init__()
        self._questions, self.question = questions, question

    async def over(self) -> None:
        """Wait for the answer. PermissionError (EACCES) if it is no, or if none comes in time."""
        await self._questions.wait(self.question)


_Use = tuple[str, bytes]  # branch id, path
_Process = tuple[int, int]  # number, start in clock ticks: no later process has both


class Questions:
    """The questions of one daemon, and the answers that still hold.

    Args:
        limit_s: How long a question waits, in seconds; 0: for ever.
        process_of: Returns the process of a thread; 0 if there is none.
    """

    def __init__(self, limit_s: Callable[[], float], process_of: Callable[[int], int]) -> None:
        self._limit_s, self._process_of = limit_s, process_of
        self._numbers = itertools.count(1)
        self._open: dict[int, PendingQuestion] = {}
        self._by_use: dict[tuple[_Process, _Use, str], PendingQuestion] = {}
        self._once: dict[tuple[_Process, _Use], bool] = {}
        self._session: dict[_Use, bool] = {}
        self._refused: dict[tuple[_Process, _Use], float] = {}
        self._news = trio.Event()

    def follows(self, daemons: int) -> None:
        """Give other numbers than the daemons before have given. *daemons*: how many there were."""
        self._numbers = itertools.count(1 + daemons * _NUMBERS)

    def check(self, tid: int, branch_id: str, path: bytes, what: str) -> None:
        """Return if the process of a thread may use a path.

        Raises:
            PermissionError: EACCES, the answer was no; nobody can be asked about that process; or too many questions wait.
            AnswerNeeded: There is no answer yet.
        """
        use = (branch_id, path)
        told = self._session.get(use)
        pid = self._process_of(tid) if tid and told is None else 0
        known = procfs.read(pid) if pid else None
        if known is None:
            if told:
                return
            raise _refused()
        process = (pid, known.started)
        if self._once.get((process, use)):
            return
        if self._refused.get((process, use), 0.0) > time.monotonic() - _REFUSED_S:
            raise _refused()
        question = self._by_use.get((process, use, what))
        if question is None:
            if len(self._open) >= _MOST:
                raise _refused()
            question = PendingQuestion(next(self._numbers), branch_id, pid, known.command, path, what)
            self._open[question.id] = self._by_use[process, use, what] = question
            self._tell()
        raise AnswerNeeded(self, question)

    async def wait(self, question: PendingQuestion) -> None:
        """Wait until a question is answered. PermissionError as AnswerNeeded.over(). The last one to stop waiting ends it."""
        question.waiting += 1
        try:
            with trio.move_on_after(self._limit_s() or math.inf):
                await question.answered.wait()
        finally:
            question.waiting -= 1
            if question.allowed is None and not question.waiting:
                self._close(question)
        if not question.allowed:
            self._note_refusal(question)
            raise _refused()

    def _note_refusal(self, question: PendingQuestion) -> None:
        for process, use, _ in [key for key, one in self._by_use.items() if one is question]:
            self._refused[process, use] = time.monotonic()
        self._close(question)
        if len(self._refused) > _MOST:
            now = time.monotonic()
            self._refused = {key: at for key, at in self._refused.items() if at > now - _REFUSED_S}

    # -- answering

    def waiting(self, branch_id: str | None = None) -> list[PendingQuestion]:
        """Return the questions that wait, of one branch or of all, the oldest first."""
        return [one for one in self._open.values() if branch_id in (None, one.branch_id)]

    def answer(self, number: int, *, allowed: bool, for_session: bool) -> PendingQuestion:
        """Answer a question, and return it.

        Raises:
            Refusal: ``no-such-question``: it was answered, or nobody waits for it any more.
        """
        question = self._open.get(number)
        if question is None:
            message = f"no question {number} waits for an answer"
            raise Refusal(errno.ENOENT, "no-such-question", message, "`agentfsd asks` lists those that do")
        use = (question.branch_id, question.path)
        if for_session:
            self._session[use] = allowed
        elif allowed:
            if len(self._once) >= _KNOWN_MOST:
                self._once.clear()
            for process, asked, _ in [key for key, one in self._by_use.items() if one is question]:
                self._once[process, asked] = True
        question.allowed = allowed
        if not allowed:
            self._note_refusal(question)
        self._close(question)
        question.answered.set()
        for other in [one for one in self._open.values() if for_session and (one.branch_id, one.path) == use]:
            self.answer(other.id, allowed=allowed, for_session=False)
        return question

    def forget_answers(self) -> None:
        """Forget all answers, because the rules have changed. Questions go on waiting."""
        self._once.clear()
        self._session.clear()

    def _close(self, question: PendingQuestion) -> None:
        if self._open.pop(question.id, None) is not None:
            for key in [key for key, one in self._by_use.items() if one is question]:
                del self._by_use[key]
            self._tell()

    # -- who wants to know

    def _tell(self) -> None:
        news, self._news = self._news, trio.Event()
        news.set()

    async def changed(self) -> None:
        """Wait until a question is asked or ends."""
        await self._news.wait()


def _refused() -> PermissionError:
    return PermissionError(errno.EACCES, "a rule asks about that path, and nobody has allowed it")
