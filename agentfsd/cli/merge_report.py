"""What merge and commit say of their result: what changed and whose it was, what was left out, and how to decide that."""

import shlex
from collections.abc import Iterable
from itertools import groupby

from agentfs_client import wire
from agentfsd.cli.command_base import plain
from agentfsd.cli.output import printing

EXECUTED = "executed"  # the kind of conflict that only --hooks decides
_SHOWN = 10  # paths of one kind that are named


def show(result: wire.MergeReply, said: str, *, dry_run: bool, as_json: bool) -> None:
    """Print a result.

    Args:
        result: What the daemon answered.
        said: What was done, as a sentence begins.
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
        printing.say(f"nothing to do: {result.into} has all of it")
    elif dry_run:
        printing.say(f"{count} would go into {result.into}")
    else:
        printing.say(f"{said} into {result.into}: {count}")
    _show_decisions(result.decided)


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


def _show_decisions(decided: list[wire.Decision]) -> None:
    by_winner = sorted(decided, key=lambda one: (one.kind == "markers", one.winner, one.path))
    for (marked, winner), group in groupby(by_winner, key=lambda one: (one.kind == "markers", one.winner)):
        decisions = list(group)
        count = printing.plural(len(decisions), "file" if marked else "conflict")
        if marked:
            printing.note(f"conflict markers were left in {count}: {_paths(decisions)}")
        elif winner:
            printing.note(f"{count} decided for {winner}: {_paths(decisions)}")
        else:
            printing.note(f"{count} decided by keeping both: {_paths(decisions)}")


def _paths(decisions: Iterable[wire.PathName]) -> str:
    names = list(dict.fromkeys(printing.quoted(one.path_bytes) for one in decisions))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def advise(result: wire.MergeReply, mount: str | None) -> None:
    """Say for each branch that was left out how to look at its conflicts, and which commands decide them.

    Args:
        result: What the daemon answered.
        mount: The mount that the command named, if it did.
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


def advise_executed(result: wire.MergeReply) -> None:
    """Say what takes along files that run on the person's side, where there are any."""
    if any(conflict.kind == EXECUTED for conflict in result.conflicts):
        printing.note("--hooks takes along what runs on your side; look at it first: agentfsd diff --patch")


def _show_commands(conflicts: list[wire.Conflict], source: str, into: str, command: str) -> None:
    paths = [conflict.path_bytes.decode("utf-8", "surrogateescape") for conflict in conflicts[:_SHOWN]]
    if all(path.isprintable() for path in paths):
        printing.detail(f"show:   {command.format('diff --patch')} {into} {source} -- {shlex.join(dict.fromkeys(paths))}")
    again = f"{command.format('merge')} {source} --into {into}"
    if any(conflict.kind == EXECUTED for conflict in conflicts):
        printing.detail(f"take:   {again} --hooks     (files that run on your side)")
    hard = {conflict.kind for conflict in conflicts} <= {"type", EXECUTED}
    if not hard:
        printing.detail(f"decide: {again} --ours      ({into} wins)")
        printing.detail(f"        {again} --theirs    ({source} wins)")
    if any(conflict.ours or conflict.theirs for conflict in conflicts):
        printing.detail(f"        {again} --markers   (both, between markers, in {into})")
    printing.detail(f"or change {source} or {into}, and merge again")
