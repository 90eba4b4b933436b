"""What the pages show of a running daemon: branches and their workers, differences, history.

It asks the daemon for every answer and never keeps one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfs_client.locate import Mount
from agentfs_files.filesystem.virtual_paths import parent_of
from agentfs_files.remote_files import RemoteFiles
from agentfsd.web.branch_board import BranchOnBoard, board, pulse
from agentfsd.web.cancel_on_disconnect import CURRENT
from agentfsd.web.diff_rows import summary
from agentfsd.web.display_text import ago
from agentfsd.web.history_columns import HistoryNode, NodePlace, places
from agentfsd.web.viewed_trees import LiveTree

MAX_COUNTED = 2_000  # with more changed files, their lines are not counted
MAX_LOOKED_AT = 300  # with more changed files, it does not ask for their times to say when the branch changed


@dataclass(frozen=True)
class HistoryRow:
    """A row of the history: a snapshot, a branch's present state, or the real directory (neither), with its place."""

    place: NodePlace
    snapshot: wire.BranchSnapshot | None = None
    branch: wire.Branch | None = None
    before: str = ""  # the ref to compare it with


class Changed(msgspec.Struct, kw_only=True):
    """How much a branch changed since it was made: paths, and lines (-1: too many paths to count them). ``when``: the time of its
    last change in words, "" if that is not known.
    """

    added: int
    modified: int
    deleted: int
    lines_added: int
    lines_removed: int
    when: str = ""


class LiveOverlay:
    """A live overlay. *find* connects to its daemon, which may have been started again since the last request."""

    def __init__(self, find: Callable[[], tuple[Mount, ControlClient]]) -> None:
        self._find = find
        self._state: str | None = None

    def client(self) -> ControlClient:
        """Connect to the daemon; the caller closes the connection. DaemonGoneError."""
        client = self._find()[1]
        conversations = CURRENT.get()
        if conversations is not None:
            conversations.add(client)
        return client

    def socket(self) -> str | None:
        """Return the daemon's socket; None if only the control file can be reached."""
        mount, client = self._find()
        client.close()
        return mount.socket

    def state_directory(self) -> str:
        """Return the daemon's state directory. It is asked for once: it stays the same while the overlay is mounted."""
        if self._state is None:
            with self.client() as client:
                self._state = client.status().state
        return self._state

    def tree(self, ref: str) -> LiveTree:
        """Return a branch's or snapshot's tree, over a conversation of its own."""
        client = self.client()
        try:
            return LiveTree(client, ref or "main")
        except BaseException:
            client.close()
            raise

    # -- the first page

    def branches(self, *, quickly: bool) -> tuple[str, list[BranchOnBoard]]:
        """Describe the branches for the first page, after its pulse: see pulse() and board()."""
        with self.client() as client:
            return pulse(client), board(client, quickly=quickly)

    def pulse(self) -> str:
        """Return another text as soon as the first page has to be asked for again, although there was no event."""
        with self.client() as client:
            return pulse(client)

    def changed(self, ref: str) -> Changed:
        """Count the changes of a branch and their lines, and find the time of the last one."""
        with self.client() as client:
            changes = client.changes(ref, own=True).changes
            times = _times(RemoteFiles(client, ref), changes) if len(changes) <= MAX_LOOKED_AT else []
            if len(changes) > MAX_COUNTED:
                lines = (-1, -1)
            else:
                patches = client.patches(ref, stat_only=True, own=True, internal=False)
                lines = sum(max(0, each.added) for each in patches), sum(max(0, each.removed) for each in patches)
        return Changed(**summary(changes), lines_added=lines[0], lines_removed=lines[1], when=ago(max(times)) if times else "")

    def refs(self) -> tuple[list[wire.Branch], list[wire.BranchSnapshot]]:
        """List the branches, and the snapshots with the newest first."""
        with self.client() as client:
            return client.list_branches(), client.list_snapshots()[::-1]

    # -- the history

    def history(self, only: str = "") -> list[HistoryRow]:
        """List the states, newest first, each branch's present state above its last snapshot.

        *only*: the name of a branch; the history then covers this branch and the snapshots that led to it.
        """
        branches, snapshots = self.refs()
        if only:
            branches = [branch for branch in branches if branch.name == only]
            snapshots = _of_branch(only, branches, snapshots)
        known = {snapshot.id for snapshot in snapshots}
        tips: dict[str, list[wire.Branch]] = {}
        for branch in branches:
            tips.setdefault(branch.last if branch.last in known else "", []).append(branch)
        nodes: list[HistoryNode] = []
        rows: list[tuple[wire.BranchSnapshot | None, wire.Branch | None, str]] = []

        def add_tips(last: str, name: str) -> None:
            for branch in tips.get(last, []):
                nodes.append(HistoryNode(branch.id, [last]))
                rows.append((None, branch, name))

        for snapshot in sorted(snapshots, key=lambda snapshot: (snapshot.created_ns, snapshot.id), reverse=True):
            add_tips(snapshot.id, snapshot.id)
            parents = [parent if parent in known else "" for parent in (snapshot.parent, *snapshot.merged)]
            nodes.append(HistoryNode(snapshot.id, parents))
            rows.append((snapshot, None, snapshot.parent if snapshot.parent in known else ""))
        add_tips("", "")
        nodes.append(HistoryNode("", []))
        rows.append((None, None, ""))
        return [HistoryRow(place, *row) for place, row in zip(places(nodes), rows, strict=True)]


def _of_branch(name: str, branches: list[wire.Branch], snapshots: list[wire.BranchSnapshot]) -> list[wire.BranchSnapshot]:
    by_id = {snapshot.id: snapshot for snapshot in snapshots}
    todo = [branch.last for branch in branches] + [snapshot.id for snapshot in snapshots if snapshot.branch == name]
    kept = set[str]()
    while todo:
        snapshot = by_id.get(todo.pop())
        if snapshot is not None and snapshot.id not in kept:
            kept.add(snapshot.id)
            todo += [snapshot.parent, *snapshot.merged]
    return [snapshot for snapshot in snapshots if snapshot.id in kept]


def _times(files: RemoteFiles, changes: list[wire.Change]) -> list[int]:
    """Return the times at which paths changed, in nanoseconds; for a deleted path, the time of its directory."""
    times, directories = [], set()
    for change in changes:
        path = change.path_bytes.decode("utf-8", "surrogateescape")
        if change.status == "D":
            directories.add(parent_of(path))
            continue
        try:
            times.append(files.stat(path, follow=False).ctime_ns)
        except (OSError, AgentFSError):
            pass  # deleted meanwhile
    for directory in directories:
        try:
            times.append(files.stat(directory).ctime_ns)
        except (OSError, AgentFSError):
            pass  # the directory was deleted too
    return times
