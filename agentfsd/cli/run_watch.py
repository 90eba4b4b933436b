"""Watches a run from before its command to its end, and tells what came of it: the summary, and the report if one is wanted."""

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence

import click

from agentfs_client import locate, wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfsd.cli import run_report
from agentfsd.cli.connect.home_layer import HomeLayer, wire_changes
from agentfsd.cli.output import printing
from agentfsd.cli.run_report import RunReport
from agentfsd.cli.sandbox.layout import RunPlan
from agentfsd.cli.sandbox.runner import Ended
from agentfsd.control import status_text


class RunWatch:
    """One run.

    Args:
        mount: The mount.
        daemon: Its daemon.
        branch: The branch.
        plan: What is confined; None: nothing.
        wanted: "" for no report, or text or json.
    """

    def __init__(
        self, mount: locate.Mount, daemon: ControlClient, branch: wire.Branch, plan: RunPlan | None, wanted: str
    ) -> None:
        self._mount, self._daemon, self._branch, self._plan, self._wanted = mount, daemon, branch, plan, wanted
        self._began_ns = time.time_ns()
        self._refused_before = daemon.refusals(branch.id) if wanted else []

    def directories(self) -> list[str]:
        """Return the private directories in which to look for files when the command has ended."""
        if not self._wanted or self._plan is None or self._plan.confinement.tmp != "private":
            return []
        return [place.path for place in self._plan.places if place.how == "fresh" and place.path in ("/tmp", "/var/tmp")]

    def record(self, command: Sequence[str], exit_code: int) -> None:
        """Record the run in the branch's history.

        Not recorded are a run in a branch, inside another one, and commands of agentfsd itself, such as an answer to a note.
        """
        if not self._daemon.hello.bound and os.path.basename(command[0]) != "agentfsd":
            with contextlib.suppress(AgentFSError):  # the branch is gone; or the daemon, which a run outlives
                self._daemon.record_run(shlex.join(command), exit_code, self._began_ns, time.time_ns(), self._branch.id)

    def tell(self, ended: Ended, *, made_up: bool, summarized: bool) -> None:
        """Print what the command did. An error here does not change the exit code.

        Args:
            ended: How it ended.
            made_up: The branch was made for this run, with a generated name: it goes if nothing changed.
            summarized: Whether to print the summary of changes; otherwise a short one, and only on a terminal.
        """
        if ended.left_behind and sys.stderr.isatty():
            count = printing.plural(len(ended.left_behind), "process", "processes")
            printing.note(f"{count} still running in {self._branch.name}")
        if not (summarized or self._wanted):
            if sys.stderr.isatty():
                self._summarize_shortly()
            return
        try:
            report = self._report(ended)
            if self._wanted != "json":
                self._summarize(report, gone=made_up and not ended.left_behind)
            if self._wanted == "json":
                run_report.show_json(report)
            elif self._wanted:
                run_report.show(report)
        except AgentFSError as exc:
            printing.fail(exc.message, exc.hint)
        except OSError as exc:
            printing.fail(f"the report is not complete: {exc.strerror}")
        finally:
            for fd in ended.kept.values():
                os.close(fd)

    def _summarize_shortly(self) -> None:
        """Print how much the branch has changed, what of it runs on the person's side, and which commands come next."""
        executed: list[wire.Change] = []
        try:
            branch = self._daemon.show_branch(self._branch.id)
            if branch.changed and branch.counted:  # else listing them takes long
                changes = self._daemon.changes(b=self._branch.id, own=True).changes
                executed = [change for change in changes if change.executed]
        except AgentFSError as exc:
            printing.fail(exc.message, exc.hint)
            return
        if not (branch.changed or branch.repositories):
            printing.note(f"nothing changed in branch {branch.name}")
            return
        count = printing.plural(branch.changed, "change") if branch.counted else "changes"
        printing.note(f"{count} in branch {branch.name}; the real files are as they were")
        _show_executed(executed)
        for repository in branch.repositories[:1]:
            printing.detail(status_text.in_repository(repository.path_bytes, repository.sentence))
        printing.detail(
            f"next: agentfsd diff {_own(branch)}{branch.name}, agentfsd commit {branch.name}, agentfsd discard {branch.name}"
        )

    def _report(self, ended: Ended) -> RunReport:
        reply = self._daemon.changes(b=self._branch.id, own=True)
        report = RunReport(
            branch=self._branch.name, exit_code=ended.exit_code, changes=reply.changes, repositories=reply.repositories
        )
        if self._plan is not None and self._plan.layered_home:
            layer = HomeLayer(self._mount, self._branch)
            report.home, report.home_changes = layer.home, wire_changes(layer.changes())
        if self._wanted:
            report.outside = self._outside(ended.kept)
            report.refused = run_report.difference(self._refused_before, self._daemon.refusals(self._branch.id))
            noted = self._daemon.audit(self._branch.id, since_ns=self._began_ns, kind="refused")
            report.refused += run_report.of_audit(noted.entries)
            answered = self._daemon.audit(self._branch.id, since_ns=self._began_ns, kind="asked")
            report.asked = [entry.name for entry in answered.entries]
        return report

    def _outside(self, kept: Mapping[str, int]) -> dict[str, list[str]]:
        found = run_report.left_in(kept, self._shown())
        for place in self._plan.confinement.write if self._plan is not None else ():
            written = run_report.written_since(place, self._began_ns)
            if written:
                found[place] = written
        return found

    def _shown(self) -> list[str]:
        """The paths that the plan shows, perhaps in a private directory; the run has not made what leads there."""
        plan = self._plan
        shown = [self._mount.mountpoint, self._mount.lower]
        if plan is not None:
            shown += [place.path for place in plan.places]
            shown += [view.path for view in plan.views]
            shown += [cover.path for cover in plan.covers]
        return shown

    def _summarize(self, report: RunReport, *, gone: bool) -> None:
        """Print what changed. *gone*: the branch goes if nothing did."""
        if report.changes or report.repositories:
            _show_changes(self._branch, report)
        elif report.home_changes:
            printing.note(f"nothing changed in branch {self._branch.name} but the home directory")
        elif gone and not self._daemon.list_snapshots(self._branch.id):
            self._daemon.discard(self._branch.id, keep=False)  # no undo: all that it can hold are changes that were taken back
            printing.note(f"nothing changed; branch {self._branch.name} is gone again")
        else:
            printing.note(f"nothing changed in branch {self._branch.name}")
        if report.home_changes and not self._wanted:
            count = printing.plural(len(report.home_changes), "change")
            printing.detail(f"{count} in {report.home}: agentfsd diff --home {self._branch.name}")


def _show_changes(branch: wire.Branch, report: RunReport) -> None:
    changes = report.changes
    printing.note(f"{printing.plural(len(changes), 'change')} in branch {branch.name}; the real files are as they were")
    _show_executed([change for change in changes if change.executed])
    for repository in report.repositories:
        printing.detail(status_text.in_repository(repository.path_bytes, repository.sentence))
    for change in changes[: printing.SHOWN_PATHS]:
        printing.detail(f"{change.status} {printing.quoted(change.path_bytes)}")
    if len(changes) > printing.SHOWN_PATHS:
        click.echo(f"  ... and {len(changes) - printing.SHOWN_PATHS} more", err=True)
    click.echo(f"  show it:    agentfsd diff {_own(branch)}{branch.name}", err=True)
    click.echo(f"  go on:      agentfsd run -b {branch.name} -- COMMAND      (it is kept until you discard it)", err=True)
    click.echo(f"  keep it:    agentfsd commit {branch.name}", err=True)
    click.echo(f"  discard it: agentfsd discard {branch.name}", err=True)


def _own(branch: wire.Branch) -> str:
    """Return the option of `diff` without which the changes of the base would be shown as well, if there is a base."""
    return "--own " if branch.base else ""


def _show_executed(changes: Sequence[wire.Change]) -> None:
    for change in changes[: printing.SHOWN_PATHS]:
        printing.detail(f"{printing.quoted(change.path_bytes)}: {change.executed}; commit and merge refuse it without --hooks")
    if len(changes) > printing.SHOWN_PATHS:
        printing.detail(f"... and {len(changes) - printing.SHOWN_PATHS} more that run on your side")
