"""Begins the acts of the branch on the screen with what was chosen there."""

from collections.abc import Callable
from functools import partial

from agentfs_client import wire
from agentfsd.cli.terminal_review.act_flow import ActFlow
from agentfsd.cli.terminal_review.dialogues import BranchChoice
from agentfsd.cli.terminal_review.review_acts import Act, Verb, next_undo
from agentfsd.cli.terminal_review.review_app import ReviewApp, Trouble
from agentfsd.cli.terminal_review.reviewed_branch import NewNameLeftOutError, ReviewedBranch, Selection


class BranchActs:
    """What can be done with a branch.

    Args:
        app: The program.
        reviewed: The branch as it is on the screen.
        done: Called when something was done.
        refused: Called with what went wrong.
        settling: Shows the conflicts that a merge left: gets the branch's id and name.
    """

    def __init__(
        self,
        app: ReviewApp,
        reviewed: ReviewedBranch,
        done: Callable[[Act], None],
        refused: Callable[[Trouble], None],
        settling: Callable[[str, str], None],
    ) -> None:
        self._app, self._reviewed = app, reviewed
        self._flow = ActFlow(app, done, refused, settling)

    def begin(self, verb: Verb) -> None:
        """Begin with what was chosen; of a commit and a merge, with all of the branch if nothing was."""
        branch, stamp = self._reviewed.branch, self._reviewed.stamp
        if verb == "undo":
            self._app.ask(next_undo, lambda entry: self._flow.begin(Act("undo", branch, entry=entry)))
        elif verb == "discard":
            self._flow.begin(Act("discard", branch, stamp=stamp))
        elif (selection := self._selection()) is not None:
            self._begin(Act(verb, branch, selection, stamp), selection)

    def _begin(self, act: Act, selection: Selection) -> None:
        if act.verb == "merge":
            self._app.ask(lambda daemon: daemon.list_branches(count=False), partial(self._choose_target, act))
        elif act.verb == "take back" and selection.picks is None:
            self._app.tell("Nothing is chosen.", ["space chooses a hunk, a all of a file. D discards the whole branch."])
        else:
            self._flow.begin(act)

    def _selection(self) -> Selection | None:
        """Return what was chosen; None if that cannot be."""
        try:
            selection = self._reviewed.selection()
        except NewNameLeftOutError as exc:
            self._app.tell(f"{exc} has a new name, which was not chosen.", ["Choose the new name as well, or none of its hunks."])
            return None
        return selection if selection.seen or selection.others else self._reviewed.everything()

    def _choose_target(self, act: Act, branches: list[wire.Branch]) -> None:
        ids = {branch.name: branch.id for branch in branches if branch.id != act.branch.id}
        names = list(ids)
        names.sort(key=lambda name: (name != (act.branch.base or "main"), name != "main", name))
        if not names:
            self._app.tell("There is no other branch.", ["`agentfsd branch create NAME` makes one."])
            return

        def chosen(into: str | None) -> None:
            if into:
                self._flow.begin(Act("merge", act.branch, act.selection, act.stamp, into, ids[into]))

        said = act.selection.said if act.selection is not None else ""
        self._app.push_screen(BranchChoice(f"Merge {said} into which branch?", names), chosen)
