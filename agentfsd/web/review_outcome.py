"""What the page of a branch says about a commit, a merge or a taking back: what it did or would do, and what to do next."""

import msgspec

from agentfs_client import wire
from agentfsd.web.display_text import key, plural, visible

_NAMED = 5  # paths in a sentence
MOST_SHOWN = 50  # conflicts that are listed
_IN_GIT = {"repository", "locked", "under-way"}  # what only git or a person settles: the message says how
_NOT_IN_FILES = {*_IN_GIT, "history", "executed"}
_EXECUTED = "Your own programs would run files in this list, or obey them. Read them before you take them, or choose others only."


class ShownConflict(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A path that cannot be committed or merged. ``ours`` and ``theirs``: the first line that differs, of the target and of the
    branch.
    """

    path: str
    why: str
    ours: str = ""
    theirs: str = ""


class Outcome(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was done, or would be.

    Attributes:
        said: One or more sentences.
        next: What to do next.
        conflicts: Nothing was done because of them.
        ways: What can be done about them: a field of the form, its value, and the text of a button.
        is_nothing: There was nothing to do.
        undoable: Undo takes it back.
        link: An address and its name: where it goes on.
    """

    said: list[str]
    next: str = ""
    conflicts: list[ShownConflict] = []
    more: int = 0
    ways: list[tuple[str, str, str]] = []
    is_nothing: bool = False
    undoable: bool = False
    link: tuple[str, str] | None = None


def committed(result: wire.MergeReply, branch: str, *, is_dry: bool, way: str) -> Outcome:
    """Say what a commit of *branch* did, or would do if *is_dry*. *way*: how it decided conflicts."""
    if result.conflicts:
        kinds = {conflict.kind for conflict in result.conflicts}
        ways = [("merge", "Merge both"), ("force", "Overwrite")] if kinds - _NOT_IN_FILES and not kinds & _IN_GIT else []
        return _refused(result, branch, _ways(ways, way, kinds), _after_commit(kinds, branch))
    into = "the real directory" if result.into.startswith("/") else result.into
    return _done(result, into, f"{visible(branch)} was committed", is_dry=is_dry, undoable=not result.into.startswith("/"))


def merged(result: wire.MergeReply, branch: str, *, is_dry: bool, way: str) -> Outcome:
    """Say what a merge of *branch* did, or would do if *is_dry*. *way*: which side won in conflicts."""
    if result.conflicts:
        kinds, into = {conflict.kind for conflict in result.conflicts}, visible(result.into)
        can_decide = not kinds & {*_IN_GIT, "history"} and not kinds <= {"type", "executed"}
        ways = [("theirs", f"Take {visible(branch)}'s"), ("ours", f"Keep {into}'s")] if can_decide else []
        if not kinds & _IN_GIT and not kinds <= {"executed"}:
            ways.insert(0, ("leave", f"Leave them in {into}, to decide there"))
        return _refused(result, branch, _ways(ways, way, kinds), _after_merge(kinds, branch, result.into))
    done = _done(result, result.into, f"{visible(branch)} was merged", is_dry=is_dry, undoable=True)
    return _with_left(done, result, is_dry=is_dry) if result.undecided else done


def _with_left(done: Outcome, result: wire.MergeReply, *, is_dry: bool) -> Outcome:
    """Say which conflicts a merge has left in its target, or would."""
    into, count = visible(result.into), plural(len(result.undecided), "conflict")
    named = ", ".join(visible(each.path_bytes.decode("utf-8", "surrogateescape")) for each in result.undecided[:_NAMED])
    more = f" and {plural(len(result.undecided) - _NAMED, 'other')}" if len(result.undecided) > _NAMED else ""
    if is_dry:
        done.said.append(f"{count} would be left in {into}, to be decided there by you or by its agent: {named}{more}.")
        done.next = f"Until that is finished or taken back, {into} can be neither committed nor merged."
    else:
        done.said.append(f"{count} left in {into}: {named}{more}.")
        done.link = (f"/review?branch={key(result.into)}#conflicts", f"Decide them in {into}")
    return done


def taken_back(branch: str, count: int, *, is_dry: bool) -> Outcome:
    """Say that changes in *count* paths of *branch* were taken back, or would be."""
    files = plural(count, "file")
    if is_dry:
        said = f"{visible(branch)} gets back what it was made from, in what you chose of {files}. Its processes see it at once."
        return Outcome(said=[said], undoable=True)
    return Outcome(said=[f"Changes of {files} in {visible(branch)} were taken back."], undoable=True)


def _ways(ways: list[tuple[str, str]], tried: str, kinds: set[str]) -> list[tuple[str, str, str]]:
    """Return what is left to try: *ways*, without the one that was *tried*; and files that are run on the user's side."""
    left = [("way", value, words) for value, words in ways if value != tried]
    return [*left, ("hooks", "1", "Take what runs on my side, too")] if "executed" in kinds else left


def _done(result: wire.MergeReply, into: str, what: str, *, is_dry: bool, undoable: bool) -> Outcome:
    if result.how == "nothing":
        return Outcome(said=[f"There is nothing to do: {visible(into)} has all of these changes."], is_nothing=True)
    count = plural(len(result.changed), "change")
    said = [f"{count} would go into {visible(into)}." if is_dry else f"{what} into {visible(into)}: {count}."]
    said += [f"{visible(sentence).removesuffix('.')}." for sentence in result.said]
    ignored = [decision for decision in result.decided if decision.kind == "ignored"]
    if ignored:
        said.append(f"{plural(len(ignored), 'file')} that git ignores {'would stay' if is_dry else 'stayed'} behind.")
    return Outcome(said=said, undoable=undoable)


def _refused(result: wire.MergeReply, branch: str, ways: list[tuple[str, str, str]], advice: str) -> Outcome:
    shown = [
        ShownConflict(
            path=visible(each.path_bytes.decode("utf-8", "surrogateescape")), why=each.message, ours=visible(each.ours.strip()),
            theirs=visible(each.theirs.strip()),
        )
        for each in result.conflicts[:MOST_SHOWN]
    ]  # fmt: skip
    into = "the real directory" if result.into.startswith("/") else result.into
    said = f"{plural(len(result.conflicts), 'conflict')} between {visible(branch)} and {visible(into)}: nothing was changed."
    return Outcome(
        said=[said], next=advice, conflicts=shown, more=max(0, len(result.conflicts) - MOST_SHOWN), ways=ways
    )  # fmt: skip


def _after_commit(kinds: set[str], branch: str) -> str:
    if kinds & _IN_GIT:
        return "Settle what the list says of the repository, and commit again."
    if kinds <= {"history"}:
        return f"Both sides have commits. `agentfsd commit {branch} --merge` merges both histories; `--as-branches` keeps both."
    executed = _EXECUTED if "executed" in kinds else ""
    if kinds <= {"executed"}:
        return executed
    return (
        "The target changed the same files. Merge both: lines that only one side changed are joined. Overwrite: the target's "
        f"changes in these files are lost. Or choose other hunks. {executed}"
    ).strip()


def _after_merge(kinds: set[str], branch: str, into: str) -> str:
    if kinds & _IN_GIT:
        return "Settle what the list says of the repository, and merge again."
    if "history" in kinds:
        return f"Both sides have commits. `agentfsd merge {branch} --into {into}` asks git to join them; `--squash` makes one."
    if kinds <= {"executed"}:
        return _EXECUTED
    return (
        "Both changed the same lines. Decide for one side in all of them, choose other hunks, or leave them in "
        f"{visible(into)}: you or its agent then decide each, side by side."
    )
