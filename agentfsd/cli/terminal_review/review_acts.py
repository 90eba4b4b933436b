"""What becomes of a branch under review: commit, merge, take back, discard, undo. Each is tried first, and says what it would do.

It knows no terminal, and asks the daemon alone.
"""

import errno
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, NotFoundError
from agentfsd.cli.terminal_review.reviewed_branch import Selection, changed_since, others_now, stamp
from agentfsd.control.status_text import plural
from agentfsd.domain_errors import Refusal
from agentfsd.escape import printable, quoted
from agentfsd.review.hunks import Picks
from agentfsd.web.review_outcome import Outcome, committed, merged, taken_back

Verb = Literal["commit", "merge", "take back", "discard", "undo"]
_SIDES: dict[str, Literal["", "ours", "theirs"]] = {"": "", "ours": "ours", "theirs": "theirs", "leave": ""}
_NOT_LEFT = {
    "repository",
    "locked",
    "history",
    "picked",
    "undecided",
    "executed",
    "under-way",
}  # --conflicts leaves no such conflict
_STALE = "picked-stale"


@dataclass(frozen=True, slots=True)
class Act:
    """What a person is about to do.

    Attributes:
        branch: The branch as it was seen.
        selection: What of it; None where that has no meaning.
        stamp: What ReviewedBranch.stamp was when it was seen.
        into: The name of a merge's target, and ``into_id``: its id.
        way: What decides conflicts: "", merge or force for a commit; "", ours, theirs or leave for a merge.
        hooks: Also take files that the person's own programs would run.
        entry: What an undo takes back.
    """

    verb: Verb
    branch: wire.Branch
    selection: Selection | None = None
    stamp: tuple[object, ...] = ()
    into: str = ""
    into_id: str = ""
    way: str = ""
    hooks: bool = False
    entry: wire.UndoEntry | None = None

    @property
    def question(self) -> str:
        """What it is, as a question in a few words."""
        name, what = printable(self.branch.name), self.selection.said if self.selection is not None else ""
        if self.verb == "commit":
            return f"Commit {what} of {name}?"
        if self.verb == "merge":
            return f"Merge {what} of {name} into {printable(self.into)}?"
        if self.verb == "take back":
            return f"Take back {what} of {name}?"
        if self.verb == "discard":
            return f"Discard {name}?"
        return f"Undo the {self.entry.kind} of {printable(self.entry.branch)}?" if self.entry is not None else "Undo?"

    def decided(self, field: str, value: str) -> "Act":
        """Return it with a decision about conflicts, as Outcome.ways names them."""
        return replace(self, hooks=True) if field == "hooks" else replace(self, way=value)


class StaleError(Refusal):
    """What a person has looked at is not there any more. ``paths``: the files that are others now."""

    def __init__(self, message: str, paths: list[bytes]) -> None:
        super().__init__(errno.EBUSY, _STALE, message, "Nothing was changed. It is read again now: look, and choose again.")
        self.paths = paths


def do(daemon: ControlClient, act: Act, *, is_dry: bool) -> Outcome:
    """Do it, or with *is_dry* ask what that would do.

    Raises:
        StaleError: The branch is not what was seen.
        AgentFSError, Refusal: The daemon refuses it.
    """
    if act.verb == "undo":
        return _undo(daemon, act, is_dry=is_dry)
    name = printable(act.branch.name)
    try:
        branch = daemon.show_branch(act.branch.id)
    except NotFoundError as exc:
        raise Refusal(
            errno.ENOENT, "not-found", f"{name} was deleted meanwhile", "Nothing was changed. `u` brings back what was discarded."
        ) from exc  # fmt: skip
    try:
        picks = _picks(daemon, branch, act)
        return _done(daemon, branch, act, picks, is_dry=is_dry)
    except (AgentFSError, Refusal) as exc:
        if exc.code == _STALE and not isinstance(exc, StaleError):
            raise StaleError(f"{name} was changed since it was read", []) from exc
        raise


def _picks(daemon: ControlClient, branch: wire.Branch, act: Act) -> Picks:
    """Return what to ask for, after a look whether that is what was seen."""
    name = printable(branch.name)
    if act.selection is None or act.selection.picks is None:
        if act.stamp and stamp(branch, daemon.changes(branch.id, own=True).changes) != act.stamp:
            raise StaleError(f"{name} was changed since it was read", [])
        picks = Picks([], [])
        stale = others_now(daemon, branch.id, act.selection.seen) if act.selection is not None else []
    else:
        stale, picks = changed_since(daemon, branch.id, act.selection)
    if stale:
        more = f" and {plural(len(stale) - 1, 'other file')}" if len(stale) > 1 else ""
        raise StaleError(f"{quoted(stale[0])}{more} of {name} was changed since it was read", stale)
    return picks


def _done(daemon: ControlClient, branch: wire.Branch, act: Act, picks: Picks, *, is_dry: bool) -> Outcome:
    if act.verb == "commit":
        result = daemon.commit(
            branch.id, picks.paths, picked=picks.files, dry_run=is_dry, merge=act.way == "merge", force=act.way == "force",
            hooks=act.hooks,
        )  # fmt: skip
        return _to_next(committed(result, branch.name, is_dry=is_dry, way=act.way), act)
    if act.verb == "merge":
        result = daemon.merge(
            [branch.id], act.into_id, favor=_SIDES[act.way], dry_run=is_dry, paths=picks.paths, picked=picks.files,
            hooks=act.hooks, conflicts=act.way == "leave",
        )  # fmt: skip
        return _merge_outcome(result, branch, act, picks, is_dry=is_dry)
    if act.verb == "take back":
        if not is_dry:
            daemon.restore(None, branch.id, picks.paths, picked=picks.reversed().files)
        return taken_back(branch.name, len(set(picks.paths)), is_dry=is_dry)
    return _discard(daemon, branch, is_dry=is_dry)


def _to_next(outcome: Outcome, act: Act) -> Outcome:
    """Say after a commit into the real directory that undo does not take it back."""
    if outcome.conflicts or outcome.is_nothing or outcome.undoable:
        return outcome
    rest = "The rest stays in the branch." if act.selection is not None and act.selection.picks is not None else ""
    return msgspec.structs.replace(outcome, next=f"Undo does not take back what is in the real directory. {rest}".strip())


def _merge_outcome(result: wire.MergeReply, branch: wire.Branch, act: Act, picks: Picks, *, is_dry: bool) -> Outcome:
    outcome = merged(result, branch.name, is_dry=is_dry, way=act.way)
    if result.conflicts and (picks.paths or not {each.kind for each in result.conflicts} - _NOT_LEFT):
        return msgspec.structs.replace(outcome, ways=[way for way in outcome.ways if way[1] != "leave"])
    if result.undecided and not is_dry:
        into = printable(result.into)
        following = f"Settle them: `x` on {into}. Until then it can be neither committed nor merged."
        return msgspec.structs.replace(outcome, next=following)
    return outcome


def _discard(daemon: ControlClient, branch: wire.Branch, *, is_dry: bool) -> Outcome:
    name = printable(branch.name)
    is_main = branch.name == "main"
    if is_dry:
        alive = f" {plural(branch.processes, 'process')} in it would go on without it." if branch.processes else ""
        what = f"{name} becomes what the real directory is" if is_main else f"{name} is deleted with all its changes"
        return Outcome(
            said=[f"{what} ({'' if branch.counted else 'about '}{plural(branch.changed, 'change')}).{alive}"], undoable=True
        )
    daemon.discard(branch.id)
    return Outcome(said=[f"{name} was {'emptied' if is_main else 'discarded'}."], undoable=True)


def _undo(daemon: ControlClient, act: Act, *, is_dry: bool) -> Outcome:
    entries = daemon.undoable()
    if not entries:
        return Outcome(said=["There is nothing to undo."], is_nothing=True)
    if not is_dry and entries[0] != act.entry:
        raise Refusal(errno.EBUSY, "undo-moved", "something else was done meanwhile", "Nothing was undone. Ask again for undo.")
    entry = entries[0]
    what = f"{entry.kind} of {printable(entry.branch)}"
    stays = (
        f" What was committed of {printable(entry.committed)} into the real directory stays as it is." if entry.committed else ""
    )
    if is_dry:
        return Outcome(said=[f"{printable(entry.branch)} becomes again what it was before the last {entry.kind}.{stays}"])
    daemon.undo()
    return Outcome(said=[f"Undone: {what}.{stays}"])


def next_undo(daemon: ControlClient) -> wire.UndoEntry | None:
    """Return what undo would take back."""
    entries = daemon.undoable()
    return entries[0] if entries else None
