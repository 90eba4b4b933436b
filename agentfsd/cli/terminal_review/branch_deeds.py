"""Begins the deeds of the branch on the screen with what was chosen there."""

from collections.abc import Callable
from functools import partial

from agentfs_client import wire
from agentfsd.cli.terminal_review.deed_flow import DeedFlow
from agentfsd.cli.terminal_review.deeds import Deed, Verb, next_undo
from agentfsd.cli.terminal_review.dialogues import BranchChoice
from agentfsd.cli.terminal_review.review_app import ReviewApp, Trouble
from agentfsd.cli.terminal_review.reviewed_branch import NewNameLeftOutError, ReviewedBranch, Selection


class BranchDeeds:
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
        done: Callable[[Deed], None],
        refused: Callable[[Trouble], None],
        settling: Callable[[str, str], None],
    ) -> None:
        self._app, self._reviewed = app, reviewed
        self._flow = DeedFlow(app, done, refused, settling)

    def begin(self, verb: Verb) -> None:
        """Begin with what was chosen; of a commit and a merge, with all of the branch if nothing was."""
        branch, stamp = self._reviewed.branch, self._reviewed.stamp
        if verb == "undo":
            self._app.ask(next_undo, lambda entry: self._flow.begin(Deed("undo", branch, entry=entry)))
        elif verb == "discard":
            self._flow.begin(Deed("discard", branch, stamp=stamp))
        elif (selection := self._selection()) is not None:
            self._begin(Deed(verb, branch, selection, stamp), selection)

    def _begin(self, deed: Deed, selection: Selection) -> None:
        if deed.verb == "merge":
            self._app.ask(lambda daemon: daemon.list_branches(count=False), partial(self._choose_target, deed))
        elif deed.verb == "take back" and selection.picks is None:
            self._app.tell("Nothing is chosen.", ["space chooses a hunk, a all of a file. D discards the whole branch."])
        else:
            self._flow.begin(deed)

    def _selection(self) -> Selection | None:
        """Return what was chosen; None if that cannot be."""
        try:
            selection = self._reviewed.selection()
        except NewNameLeftOutError as exc:
            self._app.tell(f"{exc} has a new name, which was not chosen.", ["Choose the new name as well, or none of its hunks."])
            return None
        return selection if selection.seen or selection.others else Selection(None, "everything")

    def _choose_target(self, deed: Deed, branches: list[wire.Branch]) -> None:
        ids = {branch.name: branch.id for branch in branches if branch.id != deed.branch.id}
        names = list(ids)
        names.sort(key=lambda name: (name != (deed.branch.base or "main"), name != "main", name))
        if not names:
            self._app.tell("There is no other branch.", ["`agentfsd branch create NAME` makes one."])
            return

        def chosen(into: str | None) -> None:
            if into:
                self._flow.begin(Deed("merge", deed.branch, deed.selection, deed.stamp, into, ids[into]))

        said = deed.selection.said if deed.selection is not None else ""
        self._app.push_screen(BranchChoice(f"Merge {said} into which branch?", names), chosen)
