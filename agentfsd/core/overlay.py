"""All branches and snapshots of one lower, as one object. It is synchronous and knows no transport (mount, socket, web).

Overlay assembles its parts, such as branches and snapshots; the logic is in their modules.
"""

import os
from collections.abc import Callable, Collection, Generator

from agentfsd.core import consistency_check
from agentfsd.core.branch_comparison import BranchComparison
from agentfsd.core.branch_notes import BranchNotes
from agentfsd.core.content_comparison import run_to_end
from agentfsd.core.layer_lifecycle import Layers
from agentfsd.core.linked_worktrees import LinkedWorktrees
from agentfsd.core.lower_changes import LowerChanges
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.overlay_branches import Branches
from agentfsd.core.overlay_rules import OverlayRules
from agentfsd.core.overlay_settings import OverlaySettings
from agentfsd.core.overlay_snapshots import Snapshots
from agentfsd.core.overlay_state import load_state
from agentfsd.core.overlay_temporary import TemporaryRefs
from agentfsd.core.recorded_runs import RecordedRuns
from agentfsd.core.recovery import recover
from agentfsd.core.refs import Refs
from agentfsd.core.retention import SnapshotRetention
from agentfsd.core.session_steps import SessionSteps
from agentfsd.core.undo_log import UndoLog
from agentfsd.core.unfinished_merges import UnfinishedMerges
from agentfsd.metadata.row_store import Store
from agentfsd.types import Backstore, Lower


class Overlay:
    """The whole state of the daemon, in parts. A part that cannot do something raises Refusal (an OSError) and changes nothing.

    Attributes:
        store: The metadata.
        backstore: The contents of changed files.
        parts: What all trees share: store, lower, backstore, copy-up settings, events.
        events: The listeners that are told of changes.
        refs: Finds branches and snapshots by name or id.
        layers: Seals and frees layers.
        trees: The open trees.
        snapshots: Takes, lists and deletes snapshots.
        retention: Deletes snapshots that the retention settings no longer keep.
        undo_log: The operations that can be undone.
        unfinished: The merges that left conflicts in their target.
        steps: The steps of agents' sessions.
        runs: The commands that were run in branches.
        notes: The notes about branches.
        branches: Makes, lists, replaces and deletes branches.
        temporary: The branches and snapshots that are removed with the conversation that made them.
        worktrees: The branches that are linked worktrees of a git repository.
        comparison: Finds the differences between two refs.
        settings: The settings that are stored in the database.
        rules: The rules by path.
        lowers: The real directory, and the frozen bases beneath branches.
        lower_changes: Updates inodes after a commit has changed the lower.
        default_id: Id of the default branch.
        recovered: The damage that this start has found, and what it did about it.
    """

    def __init__(
        self, store: Store, lower: Lower, backstore: Backstore, *, spared: Collection[str] = (),
        open_base: Callable[[str], Lower] | None = None,
    ) -> None:  # fmt: skip
        """Open it.

        Args:
            spared: Ids of temporary branches in which processes work since before the daemon was started again.
            open_base: Opens a frozen base by its id, or raises Refusal; None where there are none.
        """
        state = load_state(store, lower, backstore, open_base)
        self.store, self.backstore = store, backstore
        self.parts, self.events, self._state, self.lowers = state.parts, state.events, state, state.lowers
        self.refs = Refs(state)
        self.layers = Layers(state)
        self.trees = OpenTrees(state, self.refs, self.layers)
        self.snapshots = Snapshots(state, self.refs, self.layers, self.trees)
        self.retention = SnapshotRetention(state, self.refs, self.snapshots)
        self.undo_log = UndoLog(state, self.refs, self.layers, self.trees, self.snapshots)
        self.unfinished = UnfinishedMerges(state, self.layers)
        self.steps = SessionSteps(state, self.refs, self.layers, self.snapshots)
        self.runs = RecordedRuns(state)
        self.notes = BranchNotes(state)
        self.rules = OverlayRules(store)
        self.branches = Branches(
            state, self.refs, self.layers, self.trees, self.snapshots, self.retention, self.undo_log, self.rules
        )  # fmt: skip
        self.temporary = TemporaryRefs(state, self.branches, self.snapshots)
        self.worktrees = LinkedWorktrees(state)
        self.comparison = BranchComparison(self.refs, self.trees)
        self.settings = OverlaySettings(state.parts)
        self.lower_changes = LowerChanges(state)
        self.default_id = self.branches.default_id
        self.layers.drop_unfinished()
        self.recovered = recover(store, backstore)
        self.temporary.drop_all(spared)
        self.rules.forget_gone(self.branches.ids_in_use())
        self.notes.forget_gone(self.branches.ids_in_use())

    def fsck(self, *, scrub: bool = False) -> list[str]:
        """Check the stored state without interruption.

        Args:
            scrub: Whether to read the sealed contents as well and compare them with their checksums.

        Returns:
            The problems found, one sentence each.
        """
        return run_to_end(self.fsck_in_steps(scrub=scrub, alone=True))

    def fsck_in_steps(self, *, scrub: bool = False, alone: bool = False) -> Generator[tuple[int, int, str], None, list[str]]:
        """Check the stored state in steps, like fsck(). See consistency_check.check().

        Args:
            scrub: Whether to read the sealed contents as well and compare them with their checksums.
            alone: Whether no request waits meanwhile, so that one step may check the structure of a large database.
        """
        return consistency_check.check(self.trees, scrub=scrub, alone=alone)

    def damage_notes(self) -> list[str]:
        """Return notes for the user, one sentence each: damage that this start has found, and contents that were set aside."""
        kept = self.backstore.aside()
        size_bytes = sum(content.size for content in kept)
        place = os.path.dirname(kept[0].path) if kept else ""
        aside = [f"{len(kept)} set-aside contents ({size_bytes} bytes) are kept in {place}"] if kept else []
        return [*self.recovered.notes, *aside]

    def usage(self, contents: dict[str, int] | None = None) -> dict[str, int]:
        """Count branches, snapshots, objects and bytes.

        Args:
            contents: The result of Backstore.usage() if the caller has it already: that call looks at every object.
        """
        used = self.backstore.usage() if contents is None else contents
        return {"branches": len(self._state.branches), "snapshots": len(self._state.snapshots), **used}
