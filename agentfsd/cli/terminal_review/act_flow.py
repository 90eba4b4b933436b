"""Asks for a confirmation of a act, does it, and shows the result, whatever screen it was begun on."""

from collections.abc import Callable

from rich.text import Text

from agentfsd.cli.terminal_review.dialogues import Answer, Dialogue
from agentfsd.cli.terminal_review.review_acts import Act, do
from agentfsd.cli.terminal_review.review_app import ReviewApp, Trouble, sentence
from agentfsd.escape import printable
from agentfsd.web.review_outcome import Outcome

_YES = {"commit": "Commit", "merge": "Merge", "take back": "Take back", "discard": "Discard", "undo": "Undo"}
_SHOWN = 20  # conflicts that a window lists
_PATHS = 6  # chosen files that a window names
_SLOW_S = 0.7  # after which it is said that the daemon was asked
_KEYS = "123456789"


class ActFlow:
    """The way of one act: tried, confirmed, done, told.

    Args:
        app: The program.
        finished: Called when something was done.
        refused: Called with what went wrong, before the window that tells it.
        settling: Shows the conflicts that a merge left: gets the branch's id and name.
    """

    def __init__(
        self,
        app: ReviewApp,
        finished: Callable[[Act], None],
        refused: Callable[[Trouble], None] = lambda _: None,
        settling: Callable[[str, str], None] | None = None,
    ) -> None:
        self._app, self._finished, self._refused, self._settling = app, finished, refused, settling

    def begin(self, act: Act) -> None:
        """Ask the daemon what it would do, and then the person."""
        slow = self._app.set_timer(_SLOW_S, lambda: self._app.notify(f"{act.verb}: looking what it would do ...", timeout=2))

        def found(outcome: Outcome) -> None:
            slow.stop()
            self._ask(act, outcome)

        def failed(trouble: Trouble) -> None:
            slow.stop()
            self._fail(trouble)

        self._app.ask(lambda daemon: do(daemon, act, is_dry=True), found, failed)

    def _ask(self, act: Act, outcome: Outcome) -> None:
        if outcome.is_nothing:
            self._app.tell(outcome.said[0], outcome.said[1:])
            return
        answers, meant = list[Answer](), dict[str, Act]()
        for key, (field, value, words) in zip(_KEYS, outcome.ways, strict=False):
            answers.append(Answer(f"way{key}", words, key))
            meant[f"way{key}"] = act.decided(field, value)
        if not outcome.conflicts:
            answers.append(Answer("yes", _YES[act.verb], "y"))
        answers.append(Answer("", "Cancel" if not outcome.conflicts else "Do nothing", "n"))

        def answered(value: str | None) -> None:
            if value == "yes":
                self._app.under_way = act.verb
                self._app.notify(f"{act.verb}: under way ...", timeout=1)
                self._app.ask(lambda daemon: do(daemon, act, is_dry=False), lambda found: self._tell(act, found), self._fail)
            elif value:
                self.begin(meant[value])

        self._app.push_screen(Dialogue(act.question, [*_paths(act), *_lines(outcome)], answers), answered)

    def _tell(self, act: Act, outcome: Outcome) -> None:
        self._app.under_way = ""
        if outcome.conflicts:  # since it was tried
            self._ask(act, outcome)
            return
        self._finished(act)
        lines = [*outcome.said[1:], *([outcome.next] if outcome.next else [])]
        if act.way == "leave" and outcome.next and self._settling is not None:  # some were left
            self._settle(act, outcome.said[0], lines)
        else:
            self._app.tell(outcome.said[0], lines)

    def _settle(self, act: Act, title: str, lines: list[str]) -> None:
        def answered(value: str | None) -> None:
            if value and self._settling is not None:
                self._settling(act.into_id, act.into)

        self._app.push_screen(
            Dialogue(title, lines, [Answer("settle", "Settle them now", "s"), Answer("", "Later", "o")]), answered
        )

    def _fail(self, trouble: Trouble) -> None:
        self._app.under_way = ""
        self._refused(trouble)
        self._app.tell_trouble(trouble)


def _paths(act: Act) -> list[str]:
    paths = act.selection.paths if act.selection is not None else []
    return [*(f"  {path}" for path in paths[:_PATHS]), *([f"  and {len(paths) - _PATHS} more"] if len(paths) > _PATHS else [])]


def _lines(outcome: Outcome) -> list[str | Text]:
    lines: list[str | Text] = [sentence(said) for said in outcome.said]
    for conflict in outcome.conflicts[:_SHOWN]:
        lines.append(Text.assemble((printable(conflict.path) or ".", "bold"), f": {printable(conflict.why)}"))
        if conflict.ours or conflict.theirs:
            lines.append(Text(f"    there {conflict.ours or '(removed)'}"))
            lines.append(Text(f"    here  {conflict.theirs or '(removed)'}"))
    more = len(outcome.conflicts) - _SHOWN + outcome.more
    if more > 0:
        lines.append(f"and {more} more")
    return [*lines, outcome.next] if outcome.next else lines
