"""Commits into the real directory: check whether one may be written, make its journal, and adapt the branch afterwards.

These are plain functions. The caller runs them in its event loop, but ``write``, ``end`` and ``clean`` in a thread: they block,
and touch only the lower and the journal, never the database.
"""

import errno
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from agentfs_host.mount_table import mount_table
from agentfsd.core.inode import LowerIdentity
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree
from agentfsd.domain_errors import Refusal
from agentfsd.history import commit, settling
from agentfsd.history.listed_changes import ListedChanges
from agentfsd.history.merge_records import PathConflict
from agentfsd.lower import commit_writer
from agentfsd.lower.commit_plan import Drifted, Identity
from agentfsd.lower.host_lower import HostLower
from agentfsd.types import PathChange

Progress = Callable[[int, int, int], None]
"""Called with: steps done, all steps, bytes written."""


class Interrupted(NamedTuple):
    """A commit that was interrupted, with what its journal notes."""

    phase: str
    note: Mapping[str, str]

    @property
    def listed(self) -> ListedChanges:
        """What the commit changes, as far as the journal says it."""
        return ListedChanges([PathChange("", b64decode(path), -1, -1) for path in json.loads(self.note["paths"])], [])

    @property
    def same(self) -> list[settling.Same]:
        """The paths that are the same in the branch and in the real directory once the commit is done."""
        return msgspec.json.decode(self.note["same"], type=list[settling.Same])


class WriteOutcome(NamedTuple):
    """The result of writing a commit, or of finishing or undoing one."""

    done: bool  # the lower has what was committed
    conflicts: list[PathConflict]  # somebody changed these paths meanwhile; nothing was changed
    originals: list[tuple[bytes, Identity]]  # files that were taken out of the lower; put back, unless done
    clean: Callable[[], object] | None = None  # removes the journal; blocks


class LowerCommits:
    """Commits of one overlay's branches into its lower.

    Args:
        overlay: The overlay; its lower is a real directory.
        state: The state directory's path, where the journal of a commit lies.
        into: The path at which the lower was opened.
    """

    def __init__(self, overlay: Overlay, state: str, into: str) -> None:
        self._overlay, self._state, self._into = overlay, state, into

    @property
    def lower(self) -> HostLower:
        """The lower, if commits can be written to it.

        Raises:
            Refusal: This kind of lower cannot be written.
        """
        lower = self._overlay.parts.lower
        if not isinstance(lower, HostLower):
            raise Refusal(errno.EROFS, "read-only-lower", "this lower cannot be written")
        return lower

    def check(self) -> None:
        """Refuse to begin a commit that could not be finished, or would go to another place.

        Raises:
            Refusal: An earlier commit was interrupted; or the directory was moved or removed, or something is mounted over it.
        """
        if commit_writer.pending(self._state) is not None:
            hint = "finish it with `agentfsd commit --resume`, or take it back with --abort"
            raise Refusal(errno.EBUSY, "commit-pending", "an earlier commit was interrupted", hint)
        into, place = self._into, self.lower.place()
        if place == f"{into} (deleted)":
            hint = "`agentfsd export` saves a branch elsewhere; unmount and mount again for a new directory there"
            raise Refusal(errno.ESTALE, "lower-gone", f"the real directory {into} was removed", hint)
        if place.startswith("/") and place != into:
            hint = "move it back; or unmount, and mount it where it is, with the same --state"
            raise Refusal(errno.ESTALE, "lower-gone", f"the real directory is not {into} any more: it is {place} now", hint)
        covers = [mount for mount in mount_table() if mount.mountpoint == into and mount.fstype != "fuse.agentfsd"]
        if covers and covers[-1].device != self.lower.device():
            message = f"the real directory is hidden: {covers[-1].fstype} is mounted over it on {into}"
            raise Refusal(errno.ESTALE, "lower-gone", message, "unmount that first")

    @staticmethod
    def note(plan: commit.Plan, branch_id: str, tree: Tree, *, partial: bool) -> dict[str, str]:
        """Return what the journal records, so that the commit can be finished or undone after a kill."""
        return {
            "branch": branch_id, "layer": str(tree.head), "whole": "" if partial else "yes",
            "paths": json.dumps([b64encode(change.path).decode() for change in plan.listed.changes]),
            "same": msgspec.json.encode(plan.same).decode(), "id": str(time.time_ns()),
        }  # fmt: skip

    def write(
        self, plan: commit.Plan, note: Mapping[str, str], *, cancelled: Callable[[], bool], staging: Progress, applying: Progress
    ) -> WriteOutcome:
        """Write the plan into the lower. It blocks. Once the first name has changed, it runs to the end.

        Args:
            plan: The steps.
            note: What the journal records.
            cancelled: Returns whether the client has gone. It is asked only until the first name changes.
            staging: Called with the progress of creating the new files.
            applying: Called with the progress of exchanging them with the old files.

        Raises:
            Refusal: The commit is impossible, or was cancelled.
        """
        originals: list[tuple[bytes, Identity]] = []
        try:
            made = commit_writer.stage(self.lower, self._state, plan.steps, note=note, cancelled=cancelled, progress=staging)
            originals.extend(commit_writer.originals(self._state))
            made.apply(applying, clean=False, conditions=plan.conditions)
        except Drifted as exc:
            return WriteOutcome(False, _drifted(exc, "changed in the real directory at this moment"), originals)
        return WriteOutcome(True, [], originals, made.clean)

    def interrupted(self) -> Interrupted:
        """Return the commit that was interrupted.

        Raises:
            Refusal: There is none.
        """
        pending = commit_writer.pending(self._state)
        if pending is None:
            raise Refusal(errno.ENOENT, "no-commit-pending", "no commit was interrupted")
        return Interrupted(pending.phase, pending.note)

    def end(self, pending: Interrupted, *, abort: bool, progress: Progress) -> WriteOutcome:
        """Finish an interrupted commit, or undo it. It blocks.

        Args:
            pending: The commit.
            abort: Undo it, unless all names have changed already.
            progress: Called with the progress.
        """
        originals = commit_writer.originals(self._state)
        try:
            if abort and pending.phase != "committed":
                done = commit_writer.abort(self.lower, self._state, progress)
            else:
                done = commit_writer.resume(self.lower, self._state, progress, clean=False)
        except Drifted as exc:
            return WriteOutcome(False, _drifted(exc, "changed in the real directory since"), originals)
        return WriteOutcome(done, [], originals, self._clean)

    def _clean(self) -> None:
        commit_writer.resume(self.lower, self._state)

    def know_again(self, originals: list[tuple[bytes, Identity]]) -> None:
        """Record files that an undone commit took out of the lower and put back.

        Only their change time differs. Without this, branches would take it for a change by somebody else.
        """
        touched = {}
        for path, original in originals:
            try:
                info = self.lower.stat(path)
            except OSError:
                continue
            now = LowerIdentity(info.st_ino, 0, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            old = LowerIdentity(original.ino, 0, original.size, original.mtime_ns, original.ctime_ns)
            if now != old and now._replace(ctime_ns=old.ctime_ns) == old:
                touched[old] = now
        self._overlay.lower_changes.touched(touched)


def _drifted(exc: Drifted, detail: str) -> list[PathConflict]:
    return [PathConflict(path, "drift", detail) for path in exc.paths]
