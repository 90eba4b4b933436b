"""Print the conflicts that a merge has left in a branch, and which commands settle them."""

import shlex

from agentfs_client import wire
from agentfsd.cli import merge_report
from agentfsd.cli.command_base import plain
from agentfsd.cli.output import printing


def advise_left(result: wire.MergeReply, mount: str | None, *, dry_run: bool) -> None:
    """Say of a merge what it has left in its target, if anything.

    Args:
        result: The daemon's reply.
        mount: The value of -m; None if it was not given.
        dry_run: Nothing was changed.
    """
    if not result.undecided:
        return
    count = printing.plural(len(result.undecided), "conflict")
    named = merge_report.paths(result.undecided)
    printing.note(f"{count} {'would be' if dry_run else 'left'} in {result.into}: {named}")
    if not dry_run:
        for line in _next(result.into, mount, undecided=True):
            printing.detail(line)


def show(reply: wire.ConflictsReply, mount: str | None, *, as_json: bool, is_snapshot: bool = False) -> None:
    """Print the conflicts of a branch or a snapshot.

    Args:
        reply: The daemon's reply.
        mount: The value of -m; None if it was not given.
        as_json: Print all of it as JSON.
        is_snapshot: They are of a snapshot, in which nothing can be decided.
    """
    if as_json:
        printing.as_json(plain(reply))
        return
    if reply.state == "none":
        printing.say(f"{reply.branch} has no unfinished merge")
        return
    if reply.conflicts:
        _table(reply)
    undecided = sum(not conflict.decided for conflict in reply.conflicts)
    said = f"{printing.plural(undecided, 'conflict')} undecided" if undecided else "all conflicts are settled"
    printing.note(f"merge of {', '.join(reply.sources)} into {reply.branch}: {said}")
    steps = _of_snapshot(reply.branch, mount) if is_snapshot else _next(reply.branch, mount, undecided=bool(undecided))
    for line in steps:
        printing.detail(line)


def _table(reply: wire.ConflictsReply) -> None:
    rows = [
        (
            conflict.decided or "undecided", conflict.kind, printing.quoted(conflict.path_bytes),
            f"{reply.branch}, {conflict.source}" if conflict.source else reply.branch, _hint(conflict),
        )
        for conflict in reply.conflicts
    ]  # fmt: skip
    printing.table(("state", "conflict", "path", "between", "next"), rows)


def _hint(conflict: wire.LeftOpenConflict) -> str:
    if conflict.decided:
        return "-"
    if conflict.kind == "under-way":
        return "git commit"
    return "edit it, or resolve" if conflict.markers else "resolve --ours, --theirs or --mark"


def show_end(reply: wire.ConflictsReply, mount: str | None, *, abort: bool, as_json: bool) -> None:
    """Print how a merge was finished or taken back, or what keeps it from that.

    Args:
        reply: The daemon's reply.
        mount: The value of -m; None if it was not given.
        abort: It was to be taken back.
        as_json: Print all of it as JSON.
    """
    if as_json:
        printing.as_json(plain(reply))
        return
    what = f"the merge of {', '.join(reply.sources)} into {reply.branch}"
    if reply.state == "finished":
        printing.say(f"finished {what}")
    elif reply.state == "aborted":
        printing.say(f"took back {what}; `agentfsd undo` brings it back")
    elif abort:
        printing.note(f"other files of {reply.branch} were changed since: {merge_report.paths(reply.changed)}")
        printing.note(f"{what} was not taken back; --force gives up these changes, too (`agentfsd undo` brings them back)")
    else:
        _table(reply)
        printing.note(f"{what} was not finished: {printing.plural(len(reply.conflicts), 'thing')} left to do")
        for line in _next(reply.branch, mount, undecided=True):
            printing.detail(line)


def _of_snapshot(name: str, mount: str | None) -> list[str]:
    more = f" -m {shlex.quote(mount)}" if mount else ""
    return [
        f"settle them in a new branch: agentfsd branch create{more} NAME --from {name}",
        f"or in a branch as it was:    agentfsd restore{more} -b BRANCH {name}",
    ]


def _next(branch: str, mount: str | None, *, undecided: bool) -> list[str]:
    more = f" -m {shlex.quote(mount)}" if mount else ""
    steps = [f"finish: agentfsd merge{more} --continue {branch}", f"or:     agentfsd merge{more} --abort {branch}"]
    if not undecided:
        return steps
    resolve = f"agentfsd resolve{more} -b {branch} PATH"
    return [
        f"see:    agentfsd conflicts{more} {branch}",
        f"settle: {resolve} --edit (or --ours, --theirs, --tool, --mark)",
        *steps,
    ]
