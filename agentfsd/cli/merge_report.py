"""Print the result of merge and commit: what changed and by which branch, what was left out, and how to decide that."""

import shlex
from collections.abc import Iterable, Iterator
from itertools import groupby

from agentfs_client import wire
from agentfsd.cli.command_base import plain
from agentfsd.cli.output import printing

IGNORED = "ignored"  # the kind of decision about files that git ignores
EXECUTED = "executed"  # the kind of conflict that only --hooks decides
IN_GIT = {"repository", "locked"}  # what only git or a person settles: the message says how
_NO_FILES = {*IN_GIT, "under-way", "history", "picked", "undecided"}  # of which neither side's files decide
_SHOWN = 10  # paths of one kind that are named


def show(result: wire.MergeReply, said: str, *, dry_run: bool, as_json: bool) -> None:
    """Print a result.

    Args:
        result: The daemon's reply.
        said: The beginning of the sentence about what was done.
        dry_run: Nothing was changed; list what would be.
        as_json: Print all of it as JSON.
    """
    if as_json:
        printing.as_json(plain(result))
        return
    _show_conflicts(result, dry_run=dry_run)
    if result.conflicts and not result.merged:
        return
    if dry_run:
        for changed in result.changed:
            whose = f"\t{', '.join(changed.sources)}" if changed.sources else ""  # names of branches need no quoting
            printing.say_ready(f"{changed.status}\t{printing.renamed(changed)}{whose}")
    for sentence in result.said:
        printing.say(sentence)
    count = printing.plural(len(result.changed), "change")
    if result.how == "nothing":
        printing.say(f"nothing to do: {result.into} has all of these changes")
    elif dry_run:
        printing.say(f"{count} would go into {result.into}")
    else:
        printing.say(f"{said} into {result.into}: {count}")
    _show_decisions(result.decided, dry_run=dry_run)


def show_end(result: wire.MergeReply, *, abort: bool, as_json: bool) -> None:
    """Print how a commit into the real directory was ended that had been interrupted.

    Args:
        result: The daemon's reply.
        abort: It was to be taken back, not to be finished.
        as_json: Print all of it as JSON.
    """
    if as_json:
        printing.as_json(plain(result))
        return
    count = printing.plural(len(result.changed), "change")
    if result.conflicts:
        rows = [(conflict.kind, printing.quoted(conflict.path_bytes), conflict.message) for conflict in result.conflicts]
        printing.table(("conflict", "path", "why"), rows)
        printing.note(f"{printing.plural(len(rows), 'conflict')}: the commit was not finished, and not taken back")
        printing.note("`agentfsd commit --abort` takes it back and leaves these paths alone; then commit again with --merge")
        printing.note("if they are only new files: move them away, and finish it with `agentfsd commit --resume`")
    elif result.how != "nothing":
        printing.say(f"{'took back' if abort else 'finished'} the commit into {result.into}: {count}")
    elif abort:
        printing.say(f"it is too late to take it back: the commit into {result.into} was complete, and is done: {count}")
    else:
        printing.say(f"it cannot be finished: the commit into {result.into} was not complete, and is taken back: {count}")


def _show_conflicts(result: wire.MergeReply, *, dry_run: bool) -> None:
    if not result.conflicts:
        return
    rows = [(conflict.kind, printing.quoted(conflict.path_bytes), conflict.message) for conflict in result.conflicts]
    if len(result.left) > 1 or result.merged:
        sides = [(conflict.source, ", ".join(conflict.against)) for conflict in result.conflicts]
        printing.table(
            ("branch", "conflict", "path", "with", "why"),
            [(one, kind, path, others, why) for (one, others), (kind, path, why) in zip(sides, rows, strict=True)],
        )
    else:
        printing.table(("conflict", "path", "why"), rows)
    verb = "would be" if dry_run else "was" if len(result.left) == 1 else "were"
    left = f"{', '.join(result.left)} {verb} left out"
    printing.note(f"{printing.plural(len(rows), 'conflict')}: {left if result.merged else 'nothing was changed'}")


def _show_decisions(decided: list[wire.Decision], *, dry_run: bool) -> None:
    ignored = [decision for decision in decided if decision.kind == IGNORED]
    by_winner = sorted(decided, key=lambda decision: (decision.kind == "markers", decision.winner, decision.path))
    by_winner = [decision for decision in by_winner if decision.kind != IGNORED]
    if ignored:
        count = printing.plural(len({decision.path for decision in ignored}), "file")
        verb = "would stay" if dry_run else "stay" if len({decision.path for decision in ignored}) > 1 else "stays"
        printing.note(f"{count} that git ignores {verb} as in {ignored[0].winner}: {paths(ignored)}")
    for (marked, winner), group in groupby(by_winner, key=lambda decision: (decision.kind == "markers", decision.winner)):
        decisions = list(group)
        count = printing.plural(len(decisions), "file" if marked else "conflict")
        if marked:
            printing.note(f"conflict markers {'would be' if dry_run else 'were'} left in {count}: {paths(decisions)}")
        else:
            how = f"for {winner}" if winner else "by keeping both"
            printing.note(f"{count} {'would be ' if dry_run else ''}decided {how}: {paths(decisions)}")


def paths(named: Iterable[wire.PathName]) -> str:
    """Return the first paths of a list for a line, and how many more there are."""
    names = list(dict.fromkeys(printing.quoted(each.path_bytes) for each in named))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def advise(result: wire.MergeReply, mount: str | None) -> None:
    """Print, for each branch that was left out, how to see its conflicts and which commands decide them.

    Args:
        result: The daemon's reply.
        mount: The value of -m; None if it was not given.
    """
    command = f"agentfsd {{}} -m {shlex.quote(mount)}" if mount else "agentfsd {}"
    by_source = sorted(result.conflicts, key=lambda conflict: result.left.index(conflict.source))
    for source, group in groupby(by_source, key=lambda conflict: conflict.source):
        conflicts = list(group)
        printing.note(f"{source}: {printing.plural(len(conflicts), 'conflict')} with {result.into}")
        for conflict in conflicts[:_SHOWN]:
            _show_lines(conflict, result.into)
        _show_commands(conflicts, source, result.into, command)


def _show_lines(conflict: wire.Conflict, into: str) -> None:
    if conflict.ours or conflict.theirs:
        whose = " and ".join(conflict.against) or into
        path = printing.quoted(conflict.path_bytes)
        printing.detail(f"{path}: {conflict.ours or '(removed)'}  [{whose}]")
        printing.detail(f"{' ' * len(path)}  {conflict.theirs or '(removed)'}  [{conflict.source}]")


def advise_executed(result: wire.MergeReply, branch: str) -> None:
    """Explain --hooks, if files of *branch* were refused because programs on the user's side would execute them."""
    if any(conflict.kind == EXECUTED for conflict in result.conflicts):
        review = f"agentfsd diff --patch {branch}"
        printing.note(f"--hooks includes files that your own programs would execute; review them first: {review}")


def advise_in_git(result: wire.MergeReply) -> bool:
    """Say that the repository has to be settled first, where it has to be; whether options may decide something, too."""
    kinds = {conflict.kind for conflict in result.conflicts}
    if kinds & {*IN_GIT, "under-way"}:
        printing.note("settle what the list says of the repository, and commit again")
    return not kinds & {*IN_GIT, "under-way"} and not kinds <= {*_NO_FILES, EXECUTED}


def _show_commands(conflicts: list[wire.Conflict], source: str, into: str, command: str) -> None:
    kinds, lines = {conflict.kind for conflict in conflicts}, list(_commands(conflicts, source, into, command))
    for line in lines:
        printing.detail(line)
    if kinds & IN_GIT:
        printing.detail("settle what the list says of the repository, and merge again")
    else:
        printing.detail(f"{'or ' if lines else ''}change {source} or {into}, and merge again")


def _commands(conflicts: list[wire.Conflict], source: str, into: str, command: str) -> Iterator[str]:
    files = [conflict for conflict in conflicts if conflict.kind not in _NO_FILES]
    paths = [conflict.path_bytes.decode("utf-8", "surrogateescape") for conflict in files[:_SHOWN]]
    if paths and all(path.isprintable() for path in paths):
        yield f"show:   {command.format('diff --patch')} {into} {source} -- {shlex.join(dict.fromkeys(paths))}"
    again = f"{command.format('merge')} {source} --into {into}"
    if any(conflict.kind == EXECUTED for conflict in conflicts):
        yield f"take:   {again} --hooks     (files that run on your side)"
    kinds = {conflict.kind for conflict in conflicts}
    if not kinds & {*IN_GIT, "history"} and not kinds <= {"type", EXECUTED, "undecided"}:
        yield f"decide: {again} --ours      ({into} wins)"
        yield f"        {again} --theirs    ({source} wins)"
    if not kinds & IN_GIT and "history" in kinds:
        yield f"decide: {again}             (a merge commit)"
        yield f"        {again} --squash    (one commit)"
    if kinds - {*_NO_FILES, EXECUTED, "undecided"}:
        yield f"        {again} --conflicts (all of {source}; settle them in {into})"
    if not kinds & IN_GIT and any(conflict.ours or conflict.theirs for conflict in conflicts):
        yield f"        {again} --markers   (both, between markers, in {into})"
