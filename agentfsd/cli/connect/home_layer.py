"""Finds and reads a branch's changes to the home directory, which lie in the state directory. It starts no daemon."""

import os
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentfs_client import locate, wire
from agentfs_host.mount_table import is_within
from agentfsd.cli.command_base import Failure
from agentfsd.history.home_changes import HomeChange, home_changes
from agentfsd.state.home_layer_store import HomeLayerStore
from agentfsd.state.state_directory import StateDirectory

if TYPE_CHECKING:
    from agentfsd.history.compare import PairPatch


class HomeLayer:
    """The changes of one branch to the home directory.

    Args:
        mount: The mount.
        branch: The branch.

    Raises:
        Failure: The state directory cannot be seen, as from inside a run.
    """

    def __init__(self, mount: locate.Mount, branch: wire.Branch) -> None:
        state = StateDirectory(mount.record.state if mount.record is not None else "")
        if not os.path.exists(state.lock):
            raise Failure("a command in a run cannot see the branch's changes to the home directory", "ask outside of the run")
        store = HomeLayerStore(state)
        self.home, self._upper = store.home(branch.id), store.upper(branch.id)

    def changes(self, paths: Sequence[bytes] = ()) -> list[HomeChange]:
        """List the changes, sorted by path. *paths*: only these, each with all below it."""
        if not self.home:
            return []
        wanted = [self._relative(path) for path in paths]
        found = home_changes(self._upper, self.home)
        return [change for change in found if not wanted or any(_is_at(change.path, path) for path in wanted)]

    def _relative(self, path: bytes) -> bytes:
        whole = os.path.join(os.getcwd(), os.fsdecode(path))
        resolved = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
        resolved = os.path.normpath(resolved)
        if not is_within(resolved, self.home):
            raise Failure(f"{os.fsdecode(path)} is not in the home directory {self.home}", "name paths in it, such as ~/.config")
        return os.fsencode(os.path.relpath(resolved, self.home))

    def patches(
        self, changes: list[HomeChange], *, stat_only: bool, context_lines: int, ignore_space: bool
    ) -> list[wire.FilePatch]:
        """Compare the contents of changed files, as `agentfsd diff` does."""
        from agentfsd.history.home_patches import home_patches  # here, as loading libgit2 takes longer than the rest

        with tempfile.TemporaryFile(buffering=0) as spool:
            made = home_patches(
                changes, self._upper, self.home, spool,
                stat_only=stat_only, context_lines=context_lines, ignore_space=ignore_space,
            )  # fmt: skip
        return [_wire_patch(each) for each in made]


def wire_changes(changes: Sequence[HomeChange]) -> list[wire.Change]:
    """Return changes as `agentfsd diff` has them."""
    return [_wire_change(each) for each in changes]


def _wire_change(change: HomeChange) -> wire.Change:
    shown: dict[str, Any] = wire.path_fields(change.path)
    return wire.Change(status=change.status, old_size=_size(change.old), new_size=_size(change.new), **shown)


def _wire_patch(made: "PairPatch") -> wire.FilePatch:
    pair = made.pair
    shown: dict[str, Any] = wire.path_fields(pair.path)
    return wire.FilePatch(
        status=pair.status, added=made.added, removed=made.removed, is_binary=made.is_binary, old_size=pair.old_size,
        new_size=pair.new_size, old_mode=pair.old.mode if pair.old else 0, new_mode=pair.new.mode if pair.new else 0,
        patch=made.patch, note=pair.note, **shown,
    )  # fmt: skip


def _size(info: os.stat_result | None) -> int:
    return -1 if info is None else info.st_size


def _is_at(path: bytes, wanted: bytes) -> bool:
    return wanted == b"." or path == wanted or path.startswith(wanted + b"/")
