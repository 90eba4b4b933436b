"""Lists what happened in each branch: snapshots, merges, commands, and its commit into the real directory, the newest first."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentfs_client import wire
from agentfsd.cli.output import printing, run_lines
from agentfsd.control import status_text
from agentfsd.review import branch_words


class BranchMoment(NamedTuple):
    """Something that happened in a branch. ``text``: for people, without the time."""

    time_ns: int
    text: str


def lines(
    branches: Sequence[wire.Branch], snapshots: Sequence[wire.BranchSnapshot], runs: Sequence[wire.RecordedRun],
    others: str = ", which is gone",
) -> Iterator[str]:  # fmt: skip
    """Yield a line for each branch and, below it, one for each event in it. The branch in which something happened last is first.

    Snapshots of other branches come last, by the name that the branch had. *others*: what to say of such a branch.
    """
    of_snapshot = {one.id: one.branch for one in snapshots}
    listed = {branch.name: [*_snapshots(snapshots, branch.name, of_snapshot), *_others(branch, runs)] for branch in branches}
    for branch in sorted(branches, key=lambda one: max(event.time_ns for event in listed[one.name]), reverse=True):
        yield branch_line(branch)
        yield from _indented(listed[branch.name])
    for name in sorted({one.branch for one in snapshots} - listed.keys()):
        yield f"branch {name}{others}"
        yield from _indented(_snapshots(snapshots, name, of_snapshot))


def branch_line(branch: wire.Branch) -> str:
    """Describe a branch in one line: its changes, what git made there, and what is to be done."""
    changes = "changes" if not branch.counted else printing.plural(branch.changed, "change") if branch.changed else "no changes"
    git = "".join(f"; {status_text.in_repository(one.path_bytes, one.sentence)}" for one in branch.repositories)
    merging = f"; {status_text.merging(branch)}" if branch.merging else ""
    notes = f"; {printing.plural(branch.notes, 'open note')}" if branch.notes else ""
    kept = f"; {words}" if (words := branch_words.kept(branch)) else ""
    return f"branch {branch.name}: {changes} since {branch.base or 'the lower'}{kept}{git}{merging}{notes}"


def _indented(events: Sequence[BranchMoment]) -> Iterator[str]:
    for event in sorted(events, key=lambda event: event.time_ns, reverse=True):
        yield f"  {printing.when(event.time_ns)}  {event.text}"


def _snapshots(snapshots: Sequence[wire.BranchSnapshot], branch: str, of_snapshot: dict[str, str]) -> list[BranchMoment]:
    return [BranchMoment(one.created_ns, _snapshot(one, of_snapshot)) for one in snapshots if one.branch == branch]


def _snapshot(snapshot: wire.BranchSnapshot, of_snapshot: dict[str, str]) -> str:
    is_merge = snapshot.tag == "after merge"
    merged = sorted({of_snapshot[number] for number in snapshot.merged if number in of_snapshot}) if is_merge else []
    if merged:
        return f"merged {', '.join(merged)}: snapshot {snapshot.name}{_apart(stored(snapshot))}"
    return f"snapshot {tagged(snapshot)}{_apart(stored(snapshot))}"


def _apart(text: str) -> str:
    return f"  {text}" if text else ""


def tagged(snapshot: wire.BranchSnapshot) -> str:
    """Return a snapshot's name, and its tag if it has one."""
    return snapshot.name + (f" [{printing.printable(snapshot.tag)}]" if snapshot.tag else "")


def stored(snapshot: wire.BranchSnapshot) -> str:
    """Say what was stored since the snapshot before; "" if that was not counted."""
    if snapshot.file_count < 0:
        return ""
    return f"{printing.plural(snapshot.file_count, 'file')}, {status_text.size(snapshot.bytes_changed)}"


def _others(branch: wire.Branch, runs: Sequence[wire.RecordedRun]) -> list[BranchMoment]:
    events = [BranchMoment(run.ended_ns, run_lines.text(run)) for run in runs if run.branch_id == branch.id]
    if branch.committed_ns:
        events.append(BranchMoment(branch.committed_ns, "committed into the real directory"))
    made_from = branch.base or "the real directory"
    frozen = f", frozen as of {printing.when(branch.frozen_ns)}" if branch.frozen_ns else ""
    return [*events, BranchMoment(branch.created_ns, f"made from {made_from}{frozen}")]
