"""All branches and snapshots of one lower, as one object. Synchronous and pure of any transport.

An Overlay is put together here from parts, one for each noun; it has no logic of its own.
"""

import os
from collections.abc import Generator

from agentfsd.core import consistency_check
from agentfsd.core.branch_comparison import BranchComparison
from agentfsd.core.content_comparison import run_to_end
from agentfsd.core.layer_lifecycle import Layers
from agentfsd.core.lower_changes import LowerChanges
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.overlay_branches import Branches
from agentfsd.core.overlay_policy import OverlayPolicy
from agentfsd.core.overlay_snapshots import Snapshots
from agentfsd.core.overlay_state import load_state
from agentfsd.core.overlay_temporary import TemporaryRefs
from agentfsd.core.recovery import recover
from agentfsd.core.refs import Refs
from agentfsd.core.retention import SnapshotRetention
from agentfsd.core.undo_log import UndoLog
from agentfsd.metadata.row_store import Store
from agentfsd.types import Backstore, Lower


class Overlay:
    """The daemon's whole state, by parts. They raise Refusal (an OSError) for what cannot be done; nothing has changed then.

    Attributes:
        store: The metadata.
        backstore: The contents of changed files.
        parts: What every tree is made with.
        events: Who hears of changes.
        refs: Finding branches and snapshots by name.
        layers: Sealing and freeing layers.
        trees: The trees that are open.
        snapshots: Taking, listing and deleting snapshots.
        retention: How long snapshots are kept.
        undo_log: What can be undone.
        branches: Making, listing, replacing and deleting branches.
        temporary: Branches and snapshots that go with a conversation.
        comparison: What differs between two refs.
        policy: The settings that are stored with the state.
        lower_changes: What commits have changed in the lower.
        default_id: Id of the default branch.
        recovered: What this start has found.
    """

    def __init__(self, store: Store, lower: Lower, backstore: Backstore) -> None:
        state = load_state(store, lower, backstore)
        self.store, self.backstore = store, backstore
        self.parts, self.events, self._state = state.parts, state.events, state
        self.refs = Refs(state)
        self.layers = Layers(state)
        self.trees = OpenTrees(state, self.refs, self.layers)
        self.snapshots = Snapshots(state, self.refs, self.layers, self.trees)
        self.retention = SnapshotRetention(state, self.refs, self.snapshots)
        self.undo_log = UndoLog(state, self.refs, self.layers, self.trees, self.snapshots)
        self.branches = Branches(
            state, self.refs, self.layers, self.trees, self.snapshots, self.retention, self.undo_log
        )  # fmt: skip
        self.temporary = TemporaryRefs(state, self.branches, self.snapshots)
        self.comparison = BranchComparison(self.refs, self.trees)
        self.policy = OverlayPolicy(state.parts)
        self.lower_changes = LowerChanges(state)
        self.default_id = self.branches.default_id
        self.layers.drop_unfinished()
        self.recovered = recover(store, backstore)
        self.temporary.drop_all()

    def fsck(self, *, scrub: bool = False) -> list[str]:
        """Return the problems of the stored state, one sentence each; none when it is sound. *scrub*: read contents, too."""
        return run_to_end(self.fsck_in_steps(scrub=scrub, alone=True))

    def fsck_in_steps(self, *, scrub: bool = False, alone: bool = False) -> Generator[tuple[int, int, str], None, list[str]]:
        """Check likewise in steps, between which anything may change: see consistency_check.check()."""
        return consistency_check.check(self.trees, scrub=scrub, alone=alone)

    def damage_notes(self) -> list[str]:
        """Return what people should know of damage: what this start has found, and what was set aside."""
        kept = self.backstore.aside()
        size_bytes = sum(content.size for content in kept)
        place = os.path.dirname(kept[0].path) if kept else ""
        aside = [f"{len(kept)} set-aside contents ({size_bytes} bytes) are kept in {place}"] if kept else []
        return [*self.recovered.notes, *aside]

    def usage(self, contents: dict[str, int] | None = None) -> dict[str, int]:
        """Count branches, snapshots, objects and bytes.

        Args:
            contents: The backstore's usage, which looks at every object, where somebody has asked it already.
        """
        used = self.backstore.usage() if contents is None else contents
        return {"branches": len(self._state.branches), "snapshots": len(self._state.snapshots), **used}
