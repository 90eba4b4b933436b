"""Snapshots as frozen layers: the directory gets an overlayfs mounted on it, and each snapshot freezes what was written since.

Taking and restoring cost a mount and a scan of the names, for files of any size. The original content of the directory is the
lowest layer. It stays where it is, covered by the mount, and ``close`` writes the present state into it. A layer may be frozen
only when no process can write to it any more. So taking (if something has changed), restoring and closing are refused

* while a process stands in the directory or has anything open there, since the old mount would live on with it;
* while that mount is also in a mount namespace which unmounting does not reach, such as a container's;
* at first also while the directory, or a part of it, is mounted elsewhere.

overlayfs has its own limits: a write to a hard link separates it from its other names, and a mount namespace that our mounts do
not reach shows the lowest layer. Only root may mount, and the storage must support layers (it cannot be on an overlayfs). While
layers are exchanged, which takes a millisecond, the directory shows its lowest layer.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID, uuid4

import msgspec

from agentfs_files.filesystem.filesystem_errors import SnapshotCreationError, SnapshotError, SnapshotNotFoundError
from agentfs_files.filesystem.records import SnapshotStrategy
from agentfs_files.snapshots.build import Into
from agentfs_files.snapshots.index import Index, write_file
from agentfs_files.snapshots.overlay_layers import LayerState, Stack
from agentfs_files.snapshots.places import all_places, new_place, read_manifest, remove_place, write_manifest
from agentfs_files.snapshots.restore import restore
from agentfs_files.snapshots.snapshot_tree import Scan, SnapshotEntry
from agentfs_files.snapshots.strategy import Strategy
from agentfs_files.snapshots.tree_strategy import fill_from, is_same_in, kept
from agentfs_host.descent import Descent, opened

_NOW = ""  # the ref of the directory's present content


class OverlayStrategy(Strategy):
    kind = SnapshotStrategy.OVERLAY
    is_exact = False

    def __init__(self, home: str, root: str) -> None:
        self.home = home
        self._stack = Stack(home, root)
        self._shown: dict[str, str] = {}  # ref -> directory where its content can be read
        self._now: list[SnapshotEntry] = []

    def take(self, root: str, snapshot_id: UUID, tag: str | None) -> tuple[str, list[SnapshotEntry]]:
        state = self._stack.load()
        if state is None:
            state = self._stack.cover()
        elif not self._stack.is_mounted(state):
            raise SnapshotCreationError("its layers are not mounted any more: restore a snapshot first")
        elif self._has_changed(state):
            state = self._stack.freeze(state)
        with new_place(self.home, snapshot_id) as ref:
            with self._stack.shown(state.layers) as tree, opened(tree) as beneath:
                entries = _numbered(Scan(beneath, self._known(state)), snapshot_id)
            write_file(os.path.join(ref, "layers"), msgspec.json.encode(state.layers))
            write_manifest(ref, entries)
        self._stack.save(msgspec.structs.replace(state, ref=ref))
        return ref, entries

    def restore(self, root: str, ref: str) -> None:
        entries, state = self.load(ref), self._stack.load()
        if state is None:
            raise SnapshotNotFoundError("its layers are gone")
        new = self._stack.show(state, self._layers_of(ref), entries[0])
        self._stack.save(msgspec.structs.replace(new, ref=ref))
        self._drop_unused(all_places(self.home))

    def delete(self, ref: str, remaining: Iterable[str]) -> None:
        remove_place(self.home, ref)
        self._drop_unused(remaining)

    def close(self) -> None:
        """Uncover the directory with its present content, and delete all snapshots. If a restart of the machine ended the mount,
        the snapshots are kept, so that they can be restored.
        """
        state = self._stack.load()
        if state is None or not self._stack.is_mounted(state):
            return
        with self._stack.uncovered(state) as layers, self._stack.shown(layers) as tree:
            with opened(tree) as beneath:
                self._now = _numbered(Scan(beneath), uuid4())
            self._shown[_NOW] = tree
            with opened(state.root) as beneath:
                restore(beneath, self, _NOW, Index((0, 0), _NOW, self._now))
        for ref in all_places(self.home):
            remove_place(self.home, ref)
        self._stack.end()

    # -- contents

    def known(self, beneath: Descent) -> dict[bytes, SnapshotEntry]:
        state = self._stack.load()
        return {} if state is None else self._known(state)

    def load(self, ref: str) -> list[SnapshotEntry]:
        return self._now if ref == _NOW else read_manifest(self.home, ref)

    @contextlib.contextmanager
    def reading(self, ref: str) -> Iterator[None]:
        with self._stack.shown(self._layers_of(ref)) as tree:
            self._shown[ref] = tree
            yield

    def fill(self, ref: str, files: Sequence[SnapshotEntry], into: Into) -> None:
        fill_from(self._shown[ref], files, into)

    def holds(self, ref: str, entry: SnapshotEntry, fd: int) -> bool:
        return is_same_in(self._shown[ref], entry, fd)

    def is_same(self, ref: str, entry: SnapshotEntry, other_ref: str, other: SnapshotEntry) -> bool:
        with kept(self._shown[other_ref], other) as fd:
            return self.holds(ref, entry, fd)

    # -- layers

    def _layers_of(self, ref: str) -> list[str]:
        try:
            with open(os.path.join(ref, "layers"), "rb") as file:
                return msgspec.json.decode(file.read(), type=list[str])
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise SnapshotNotFoundError(f"{ref} is damaged, or no longer kept") from exc

    def _drop_unused(self, refs: Iterable[str]) -> None:
        state = self._stack.load()
        if state is None:
            return
        kept = [*state.layers, state.upper]
        for ref in refs:
            if os.path.exists(os.path.join(ref, "layers")):  # otherwise a process began this snapshot and did not finish
                kept += self._layers_of(ref)
        self._stack.drop_all_but(kept)

    def _has_changed(self, state: LayerState) -> bool:
        known = self._known(state)
        return not (
            known and self._stack.is_empty(state.upper) and known[b""].attributes() == self._stack.top_entry().attributes()
        )

    def _known(self, state: LayerState) -> dict[bytes, SnapshotEntry]:
        """Return the entries of the frozen layers."""
        try:
            return {entry.path: entry for entry in self.load(state.ref)} if state.ref else {}
        except SnapshotError:
            return {}


def _numbered(entries: Iterable[SnapshotEntry], snapshot_id: UUID) -> list[SnapshotEntry]:
    """Name the contents that have no name yet."""
    done = []
    for number, entry in enumerate(entries):
        if entry.is_file and not entry.content:
            entry = msgspec.structs.replace(entry, content=snapshot_id.bytes + number.to_bytes(4, "big"))
        done.append(entry)
    return done
