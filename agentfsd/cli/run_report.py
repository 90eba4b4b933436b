"""What a run did besides the changes in its branch: refusals, the home directory, other places. For people, or as JSON.

Somebody who learns of another thing that a run did, such as questions that a person answered, adds a part to RunReport.
"""

import itertools
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence

import click
import msgspec

from agentfs_client import wire
from agentfs_host.mount_table import is_within
from agentfsd.cli.output import printing

MOST_WRITTEN = 1000  # files in one place that are named
_MOST_LOOKED_AT = 50_000


class ReportedRefusal(msgspec.Struct, frozen=True):
    """Requests of one kind that were refused: ``what`` an operation, ``why`` an errno's name or a reason."""

    what: str
    path: str
    why: str
    count: int
    command: str = ""


class RunReport(msgspec.Struct, kw_only=True):
    """What a run did.

    Attributes:
        branch: The branch's name.
        exit_code: That of the command.
        changes: All changes of the branch, with those of earlier runs; ``executed`` says what runs on the user's side.
        repositories: What git did in the branch.
        home: The home directory to which changes belong to the branch; "" if there is none.
        home_changes: All changes of the branch to it.
        outside: What the run left elsewhere: by directory, the paths in it. Private directories are gone with the run.
        refused: What was refused meanwhile in the branch.
        asked: What somebody was asked meanwhile.
    """

    branch: str
    exit_code: int
    changes: list[wire.Change] = []
    repositories: list[wire.RepositoryChange] = []
    home: str = ""
    home_changes: list[wire.Change] = []
    outside: dict[str, list[str]] = {}
    refused: list[ReportedRefusal] = []
    asked: list[str] = []


def difference(before: Sequence[wire.RefusedCount], after: Sequence[wire.RefusedCount]) -> list[ReportedRefusal]:
    """Return what was refused between two answers of the daemon."""
    known = {(one.op, one.path, one.why, one.command): one.count for one in before}
    found = []
    for one in after:
        count = one.count - known.get((one.op, one.path, one.why, one.command), 0)
        if count > 0:
            found.append(ReportedRefusal(one.op, one.path, one.why, count, one.command))
    return found


def of_audit(entries: Sequence[wire.AuditEntry]) -> list[ReportedRefusal]:
    """Return the requests to the daemon that the audit trail notes as refused."""
    return [ReportedRefusal("request", one.name, "outside-branch", 1, one.command) for one in entries]


def written_since(place: str, since_ns: int) -> list[str]:
    """List the files in *place* that were written or made since then, at most MOST_WRITTEN; the first ones of a large tree."""
    written: list[str] = []
    for path, info in itertools.islice(_files(place), _MOST_LOOKED_AT):
        if info.st_ctime_ns >= since_ns and len(written) < MOST_WRITTEN:
            written.append(os.path.relpath(path, place))
    return sorted(written)


def _files(place: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        info = os.lstat(place)
        if not stat.S_ISDIR(info.st_mode):
            yield place, info
            return
        names = sorted(os.listdir(place))
    except OSError:
        return
    for name in names:
        yield from _files(os.path.join(place, name))


def left_in(directories: Mapping[str, int], shown: Sequence[str]) -> dict[str, list[str]]:
    """List what a run has left in its private directories, by descriptors of them. An empty directory has no entry.

    Args:
        directories: A descriptor for each path.
        shown: Paths that the run was shown; names that lead there are left out.
    """
    found = {}
    for at, fd in directories.items():
        try:
            names = sorted(os.listdir(fd))
        except OSError:
            continue
        own = [name for name in names if not any(is_within(path, os.path.join(at, name)) for path in shown)]
        if own:
            found[at] = own
    return found


def show_json(report: RunReport) -> None:
    """Print a report as one JSON object, on one line of standard error: standard output is the command's."""
    click.echo(json.dumps(msgspec.to_builtins(report), ensure_ascii=True), err=True)


def show(report: RunReport) -> None:
    """Print a report's parts that say more than the summary of the branch's changes."""
    if report.home:
        _show_paths(
            f"{printing.plural(len(report.home_changes), 'change')} in {report.home}, which belong to the branch",
            [f"{change.status} {printing.quoted(change.path_bytes)}" for change in report.home_changes],
        )
        if report.home_changes:
            printing.detail(f"show them: agentfsd diff --home {report.branch}")
    for place, paths in report.outside.items():
        _show_paths(f"{printing.plural(len(paths), 'file')} in {place}", [printing.quoted(os.fsencode(path)) for path in paths])
    _show_paths(
        f"{printing.plural(sum(one.count for one in report.refused), 'request')} refused",
        [_refusal(one) for one in report.refused],
    )
    if report.asked:
        _show_paths(f"{printing.plural(len(report.asked), 'question')} asked", report.asked)


def _show_paths(sentence: str, lines: Sequence[str]) -> None:
    printing.note(sentence)
    for line in lines[: printing.SHOWN_PATHS]:
        printing.detail(line)
    if len(lines) > printing.SHOWN_PATHS:
        printing.detail(f"... and {len(lines) - printing.SHOWN_PATHS} more")


def _refusal(one: ReportedRefusal) -> str:
    times = f", {one.count} times" if one.count > 1 else ""
    by = f" by {one.command}" if one.command else ""
    return f"{one.what} {printing.quoted(os.fsencode(one.path))}: {one.why}{times}{by}"
