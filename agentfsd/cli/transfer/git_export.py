"""Writes snapshots and branches as git commits, and moves the refs to them."""

import errno
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentfs_client import locate, wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import NotAllowedError, NotFoundError
from agentfs_files.trees.directory_tree import Directory
from agentfsd.cli.output import printing
from agentfsd.cli.output.progress_bar import Step, progress
from agentfsd.cli.transfer.command_refs import fixed, is_temporary, resolve, snapshot_path
from agentfsd.domain_errors import Refusal
from agentfsd.exchange import remote
from agentfsd.exchange.place import undisturbed
from agentfsd.exchange.record import ChangedPaths, Recorder
from agentfsd.exchange.repository import NOTES, Commit, Oid, Repository, Trees, is_dotgit, ref_name
from agentfsd.exchange.states import (
    HEADS,
    KNOWN,
    KNOWN_BRANCHES,
    REMOTE,
    TAGS,
    ExportState,
    commit_state,
    is_same,
    tag_ref,
    would_lose,
)


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """What the options of `export --git` ask for.

    Attributes:
        repository: Path or URL of the repository.
        url: The remote to push to afterwards; None: push to none.
        refs: The branches and snapshots to export; () for all.
        full: Read every file, not only those that a snapshot changed.
        force: Replace the branches of others.
    """

    repository: str
    url: str | None
    refs: tuple[str, ...]
    full: bool
    force: bool


@contextmanager
def local_repository(mount: locate.Mount, path: str | None) -> Iterator[Repository]:
    """Open the repository at *path*, or the overlay's own in its state directory. Remove a new one if the block fails."""
    with tempfile.TemporaryDirectory(prefix="agentfsd-git-") if path is None and mount.record is None else _nothing() as spare:
        repository = Repository.open(path or own_path(mount) or os.path.join(spare, "history.git"), make=True)
        try:
            yield repository
        except BaseException:
            with undisturbed():
                repository.undo()
            raise


@contextmanager
def _nothing() -> Iterator[str]:
    yield ""


def own_path(mount: locate.Mount) -> str:
    """Return the path of the overlay's own repository, or "" if this process cannot see its state directory."""
    return os.path.join(mount.record.state, "history.git") if mount.record is not None else ""


def export(mount: locate.Mount, daemon: ControlClient, order: ExportOrder) -> None:
    """Write the commits that *order* asks for, move the refs, push them, and print what was done."""
    path, url = order.repository, order.url
    is_url = remote.is_url(path)
    with local_repository(mount, None if is_url else path) as repository, progress("exporting to git") as step:
        url = path if is_url else url
        remote.forget(repository) if url is None else remote.fetch(repository, url, step)
        exporter = _Exporter(mount, daemon, repository, order, step)
        refs = exporter.export()
        pushed = remote.push(repository, url, [*refs, NOTES], step) if url is not None else 0
    printing.say(
        f"{printing.plural(exporter.written, 'commit')} written to {repository.path if url is None else url}"
        + (f", {printing.plural(pushed, 'ref')} pushed" if url is not None else "")
    )


class _Exporter:
    def __init__(
        self, mount: locate.Mount, daemon: ControlClient, repository: Repository, order: ExportOrder, step: Step
    ) -> None:
        self._mount, self._daemon, self._repository, self._order, self._step = mount, daemon, repository, order, step
        self._imported: dict[str, Oid] = {}  # branch id -> the commit that the branch was imported from
        self._commits = self._known()
        self._moves: dict[str, Oid] = {}
        self._snapshots: dict[str, wire.BranchSnapshot] = {}
        self.written = 0

    def _known(self) -> dict[str, Oid]:
        """Map snapshot ids to commits: those in the repository, and those from which this overlay imported a snapshot."""
        self._repository.join_attributes(remote.REMOTE_NOTES)
        commits = self._repository.snapshots((HEADS, TAGS, REMOTE))
        own = own_path(self._mount)
        if own and os.path.isdir(own):
            imported = Repository.open(own, make=False)
            commits |= self._present(imported.refs(KNOWN))
            self._imported = self._present(imported.refs(KNOWN_BRANCHES))
        return commits

    def _present(self, commits: dict[str, Commit]) -> dict[str, Oid]:
        return {number: commit.id for number, commit in commits.items() if self._repository.has(commit.id)}

    def export(self) -> list[str]:
        """Write the commits, then move the refs, and return all refs of the export.

        No ref moves before all objects are written, so that an interrupted export leaves the old refs in place.
        """
        branches = self._choose()
        for snapshot in sorted(self._snapshots.values(), key=lambda snapshot: snapshot.id):
            if snapshot.id not in self._commits:
                self._commits[snapshot.id] = self._commit_snapshot(snapshot)
            commit = self._commits[snapshot.id]
            self._moves[tag_ref(self._repository, snapshot.name, snapshot.id, commit)] = commit
        for branch in branches:
            self._commit_branch(branch)
        self._repository.write_notes(remote.REMOTE_NOTES)
        for ref, commit in self._moves.items():
            self._repository.move(ref, commit)
        self._repository.point_head(HEADS)
        return list(self._moves)

    def _choose(self) -> list[wire.Branch]:
        """Return the branches to export as they are now, and note the snapshots that they and the other refs need."""
        if not self._order.refs:
            self._snapshots = {each.id: each for each in self._daemon.list_snapshots() if not is_temporary(each.name)}
            return [branch for branch in self._daemon.list_branches() if not is_temporary(branch.name)]
        branches = []
        for ref in self._order.refs:
            state = resolve(self._daemon, ref)
            branches += [state] if isinstance(state, wire.Branch) else []
            self._add_history(state.id)
        return branches

    def _add_history(self, ref: str) -> None:
        """Note the snapshots that led to *ref*, also those merged into it, as far as the caller may see them."""
        todo, seen = [ref], {ref}
        while todo:
            try:
                history = self._daemon.log(todo.pop())
            except (NotFoundError, NotAllowedError):
                continue
            self._snapshots |= {snapshot.id: snapshot for snapshot in history if not is_temporary(snapshot.name)}
            new = {other for snapshot in history for other in snapshot.merged} - seen
            todo += new
            seen |= new

    # -- commits

    def _commit_snapshot(self, snapshot: wire.BranchSnapshot) -> Oid:
        before = [self._commits[number] for number in _parents(snapshot) if number in self._commits]
        trees = self._record(snapshot, snapshot.parent)
        author = snapshot.author or f"process {snapshot.author_pid}"
        state = ExportState(snapshot.name, snapshot.branch, "", snapshot.created_ns, author, snapshot.tag, snapshot.id)
        self.written += 1
        return commit_state(self._repository, state, trees, before)

    def _record(self, snapshot: wire.BranchSnapshot, since: str, base: Trees | None = None) -> Trees:
        """Write the trees of a snapshot. Paths unchanged since the snapshot with the id *since* reuse its commit's trees."""
        changed = None
        if since in self._commits:
            base = self._repository.trees(self._repository.commit(self._commits[since]))
            changed = self._changed(since, snapshot.id)
        with Directory(snapshot_path(self._mount, snapshot.name), is_dotgit) as source:
            return Recorder(self._repository, source, base, changed, self._step).record()

    def _changed(self, old: str, new: str) -> ChangedPaths | None:
        if self._order.full:
            return None
        try:
            changes = self._daemon.diff(a=old, b=new)
            return ChangedPaths(path for change in changes for path in (change.path_bytes, change.old_path_bytes))
        except NotFoundError:
            return None  # somebody has deleted the snapshot meanwhile

    def _commit_branch(self, branch: wire.Branch) -> None:
        """Move a branch's ref to the commit of its last snapshot, or to a new commit if it has changed since."""
        last = self._last_snapshot(branch)
        state = ExportState(branch.name, branch.name, branch.id, time.time_ns(), "agentfsd")
        tip = self._commits[last.id] if last is not None else None
        if last is None or self._order.full or self._daemon.diff(a=last.id, b=branch.id):
            tip = self._commit_now(branch, state, last)
        assert tip is not None
        ref = self._ref(branch, state, tip)
        if ref:
            self._moves[HEADS + ref] = tip

    def _last_snapshot(self, branch: wire.Branch) -> wire.BranchSnapshot | None:
        """Return the newest snapshot of the branch's own history.

        Another branch may have taken an empty snapshot of the same state. Such a one counts only if there is no other.
        """
        history = [snapshot for snapshot in self._daemon.log(branch.id) if not is_temporary(snapshot.name)]
        own = (
            snapshot
            for snapshot in history
            if snapshot.branch == branch.name or snapshot.file_count or snapshot.name == branch.base
        )
        return next(own, history[0] if history else None)

    def _ref(self, branch: wire.Branch, state: ExportState, tip: Oid) -> str:
        """Return the branch's name in the repository, or "" to leave the branch out.

        If a branch of another overlay has the name, a branch that the user named is refused. With an export of all branches,
        part of the branch's id is added to its name.
        """
        ref, own = ref_name(branch.name), {snapshot.id for snapshot in self._daemon.list_snapshots()}
        if self._order.force or not would_lose(self._repository, ref, state, tip, own):
            return ref
        if self._order.refs:
            raise Refusal(
                errno.EEXIST, "would-lose", f"branch {branch.name!r} there holds commits that are not of this overlay",
                "import them first, rename your branch, or --force",
            )  # fmt: skip
        other = f"{ref}.{branch.id[-6:]}" if branch.changed else ""
        printing.note(f"another overlay's {branch.name} is there: yours is {'written as ' + other if other else 'left out'}")
        return other

    def _commit_now(self, branch: wire.Branch, state: ExportState, last: wire.BranchSnapshot | None) -> Oid:
        """Commit the branch as it is now. Return the previous commit if nothing has changed since."""
        parents = [self._commits[last.id]] if last is not None else []
        old = self._repository.target(HEADS + ref_name(branch.name))
        with fixed(self._mount, branch) as now:
            base = self._repository.trees(old) if old is not None else None
            trees = self._record(now, last.id if last is not None else "", base)
        same = [*parents, *([self._imported[branch.id]] if branch.id in self._imported else [])]
        for commit_id in [*same, *([old.id] if old is not None else [])]:
            commit = self._repository.commit(commit_id)
            if self._repository.trees(commit) == trees and (commit_id in same or is_same(commit, state, parents)):
                return commit_id
        self.written += 1
        return commit_state(self._repository, state, trees, parents)


def _parents(snapshot: wire.BranchSnapshot) -> list[str]:
    return list(dict.fromkeys([snapshot.parent, *snapshot.merged]))
