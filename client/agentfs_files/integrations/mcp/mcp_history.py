"""Tools for the states of a workspace: take a snapshot, restore one, list them, compare states."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Protocol, runtime_checkable
from uuid import UUID

import msgspec
from msgspec import Meta

from agentfs_files.filesystem.filesystem_protocol import DiffableFilesystem, PatchingFilesystem, SnapshotableFilesystem
from agentfs_files.filesystem.records import FilesystemDiff, FilesystemSnapshot
from agentfs_files.integrations.mcp.mcp_edits import fenced
from agentfs_files.integrations.mcp.mcp_refusal import McpRefused
from agentfs_files.integrations.mcp.mcp_tool import McpTool, Text, Workspace

_PREFIX_CHARACTERS = 6  # by which an id may be named
_SHOWN_PATHS = 1_000
_SHOWN_CHARACTERS = 200_000  # of a patch

_Ref = Annotated[str, Meta(min_length=1, description="A snapshot by its id or by its tag; the newest one with that tag.")]


class Taken(msgspec.Struct, frozen=True, rename="camel"):
    """A snapshot in a result. ``id`` is the argument for restore and diff."""

    id: str
    tag: str | None
    created_at: str


class SnapshotResult(Text, frozen=True):
    """The result of snapshot and restore."""

    snapshot: Taken


class SnapshotsResult(Text, frozen=True):
    """The result of list_snapshots."""

    snapshots: list[Taken]


class DiffResult(Text, frozen=True):
    """The result of diff. ``git``: what was committed with git, a sentence for each repository."""

    added: Sequence[str]
    modified: Sequence[str]
    deleted: Sequence[str]
    git: Sequence[str] = ()


@runtime_checkable
class GitDiffing(Protocol):
    """A file system that tells git's own files from others."""

    def diff_with_git(
        self, base: FilesystemSnapshot | None = None, target: FilesystemSnapshot | None = None
    ) -> tuple[FilesystemDiff, list[str]]:
        """Compare like diff(), without git's own files, and say what was committed."""
        ...

    def patch(
        self, base: FilesystemSnapshot | None = None, target: FilesystemSnapshot | None = None, *, internal: bool = True
    ) -> str:
        """Return a git patch; without *internal*, git's own files are left out."""
        ...


class TakeSnapshot(McpTool, frozen=True):
    """Record the present state of all files, so that restore can bring it back. Take a snapshot before a risky change."""

    name: ClassVar[str] = "snapshot"
    title: ClassVar[str] = "Take a snapshot"
    changes: ClassVar[bool] = True
    needs: ClassVar[type] = SnapshotableFilesystem
    result: ClassVar[type[SnapshotResult]] = SnapshotResult

    tag: Annotated[str, Meta(description="A name of your own for it.")] | None = None

    def run(self, workspace: Workspace) -> SnapshotResult:
        taken = workspace.snapshot(self.tag)
        return SnapshotResult(f"Took snapshot {_line(taken)}", _taken(taken))


class RestoreSnapshot(McpTool, frozen=True):
    """Put all files back to a snapshot: delete files created since then, and restore changed and deleted files."""

    name: ClassVar[str] = "restore"
    title: ClassVar[str] = "Go back to a snapshot"
    changes: ClassVar[bool] = True
    destroys: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True
    needs: ClassVar[type] = SnapshotableFilesystem
    result: ClassVar[type[SnapshotResult]] = SnapshotResult

    snapshot: _Ref

    def run(self, workspace: Workspace) -> SnapshotResult:
        assert isinstance(workspace.filesystem, SnapshotableFilesystem)
        snapshot = _find(workspace, self.snapshot)
        workspace.filesystem.restore(snapshot)
        return SnapshotResult(f"All files are as they were in snapshot {_line(snapshot)}", _taken(snapshot))


class ListSnapshots(McpTool, frozen=True):
    """List all snapshots, newest first: id, time, tag."""

    name: ClassVar[str] = "list_snapshots"
    title: ClassVar[str] = "List snapshots"
    needs: ClassVar[type] = SnapshotableFilesystem
    result: ClassVar[type[SnapshotsResult]] = SnapshotsResult

    def run(self, workspace: Workspace) -> SnapshotsResult:
        snapshots = workspace.snapshots()
        return SnapshotsResult("\n".join(map(_line, snapshots)) or "No snapshots yet", list(map(_taken, snapshots)))


class DiffSnapshot(McpTool, frozen=True):
    """Tell which files differ between two snapshots, or between a snapshot and now: a line for each with A (added), M (modified)
    or D (deleted)."""

    name: ClassVar[str] = "diff"
    title: ClassVar[str] = "Show what changed"
    needs: ClassVar[type] = DiffableFilesystem
    result: ClassVar[type[DiffResult]] = DiffResult

    base: Annotated[_Ref | None, Meta(description="Since which snapshot; left out: since the newest one.")] = None
    target: Annotated[_Ref | None, Meta(description="Up to which snapshot; left out: to what there is now.")] = None

    def run(self, workspace: Workspace) -> DiffResult:
        assert isinstance(workspace.filesystem, DiffableFilesystem)
        base = _find(workspace, self.base) if self.base else _newest(workspace)
        target = _find(workspace, self.target) if self.target else None
        diff = workspace.filesystem.diff(base, target)
        return DiffResult(_names(diff) or "Nothing differs", diff.added, diff.modified, diff.deleted)


class DiffWithPatch(McpTool, frozen=True):
    """Show what changed between two snapshots, or up to now: a line for each file with A (added), M (modified) or D (deleted), or
    with patch=true a patch as git shows it. Without arguments: everything that was ever changed in this workspace. A sentence
    describes commits; git's own files are listed only with all=true.
    """

    name: ClassVar[str] = "diff"
    title: ClassVar[str] = "Show what changed"
    needs: ClassVar[type] = PatchingFilesystem
    result: ClassVar[type[DiffResult]] = DiffResult

    base: Annotated[_Ref | None, Meta(description="Since which snapshot; left out: since the beginning.")] = None
    target: Annotated[_Ref | None, Meta(description="Up to which snapshot; left out: to what there is now.")] = None
    patch: Annotated[bool, Meta(description="Show the lines that changed, not only the names.")] = False
    all: Annotated[bool, Meta(description="List git's own files, too (.git/objects and the like).")] = False

    def run(self, workspace: Workspace) -> DiffResult:
        filesystem = workspace.filesystem
        assert isinstance(filesystem, PatchingFilesystem)
        base = _find(workspace, self.base) if self.base else None
        target = _find(workspace, self.target) if self.target else None
        git: list[str] = []
        if isinstance(filesystem, GitDiffing) and not self.all:
            diff, git = filesystem.diff_with_git(base, target)
            patch = filesystem.patch(base, target, internal=False) if self.patch else ""
        else:
            diff = filesystem.diff(base, target)
            patch = filesystem.patch(base, target) if self.patch else ""
        shown = _names(diff)
        if shown and self.patch:
            shown = fenced(_cut(patch))
        text = "\n".join(filter(None, [*git, shown]))
        return DiffResult(text or "Nothing differs", diff.added, diff.modified, diff.deleted, git)


def _taken(snapshot: FilesystemSnapshot) -> Taken:
    return Taken(snapshot.commit_ref, snapshot.tag, snapshot.created_at.isoformat())


def _line(snapshot: FilesystemSnapshot) -> str:
    return f"{snapshot.commit_ref}  {snapshot.created_at:%Y-%m-%d %H:%M:%S}  {snapshot.tag or ''}".rstrip()


def _newest(workspace: Workspace) -> FilesystemSnapshot:
    snapshots = workspace.snapshots()
    if not snapshots:
        raise McpRefused("there is no snapshot to compare with yet; snapshot takes one")
    return snapshots[0]


def _find(workspace: Workspace, ref: str) -> FilesystemSnapshot:
    known = workspace.snapshots()
    for snapshot in known:
        if ref in (snapshot.commit_ref, snapshot.tag) or _is_id(ref, snapshot.snapshot_id):
            return snapshot
    matches = [snapshot for snapshot in known if len(ref) >= _PREFIX_CHARACTERS and snapshot.commit_ref.startswith(ref)]
    if len(matches) != 1:
        what = "there is no snapshot" if not matches else f"{len(matches)} snapshots begin with"
        raise McpRefused(f"{what} {ref}; list_snapshots shows those there are")
    return matches[0]


def _is_id(ref: str, number: UUID) -> bool:
    return ref in (str(number), number.hex)


def _names(diff: FilesystemDiff) -> str:
    lines = [f"{mark} {path}" for mark in "AMD" for path in {"A": diff.added, "M": diff.modified, "D": diff.deleted}[mark]]
    lines.sort(key=lambda line: line[2:])
    if len(lines) > _SHOWN_PATHS:
        lines[_SHOWN_PATHS:] = [f"[and {len(lines) - _SHOWN_PATHS} more files]"]
    return "\n".join(lines)


def _cut(patch: str) -> str:
    if len(patch) <= _SHOWN_CHARACTERS:
        return patch
    end = patch.rfind("\n", 0, _SHOWN_CHARACTERS) + 1 or _SHOWN_CHARACTERS
    return f"{patch[:end]}[cut: {len(patch) - end} more characters; two snapshots that lie closer together show less]\n"
