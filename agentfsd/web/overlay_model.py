"""A running daemon as the pages see it: who works in which branch, what differs, what was. Every answer is the daemon's; it must
never keep one."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfs_client.locate import Mount
from agentfs_files.filesystem.virtual_paths import parent_of
from agentfs_files.remote_files import RemoteFiles
from agentfsd.web.cancel_on_disconnect import CURRENT
from agentfsd.web.diff_rows import summary
from agentfsd.web.display_text import ago, visible
from agentfsd.web.history_columns import HistoryNode, NodePlace, places
from agentfsd.web.viewed_trees import LiveTree

MAX_LOOKED_AT = 300  # changed files whose times are asked for, to say when a branch was changed

ROOT = "the real directory"


@dataclass(frozen=True)
class BranchOverview:
    """A branch on the first page. ``since``: what its changes are counted from, "" for the real directory."""

    branch: wire.Branch
    workers: str
    since: str


@dataclass(frozen=True)
class HistoryRow:
    """A snapshot, a branch's present state, or (neither) the real directory, with its place in the graph."""

    place: NodePlace
    snapshot: wire.BranchSnapshot | None = None
    branch: wire.Branch | None = None
    before: str = ""  # the ref it is compared with


class Changed(msgspec.Struct, kw_only=True):
    """What a branch changed, and when it last did: ``when`` in words, "" where that is not known."""

    added: int
    modified: int
    deleted: int
    when: str = ""


class LiveOverlay:
    """*find* says where the daemon is now: it may have been started again since the last request."""

    def __init__(self, find: Callable[[], tuple[Mount, ControlClient]]) -> None:
        self._find = find

    def client(self) -> ControlClient:
        """A new conversation, whoever asks ends it. DaemonGoneError."""
        client = self._find()[1]
        conversations = CURRENT.get()
        if conversations is not None:
            conversations.add(client)
        return client

    def socket(self) -> str | None:
        """Of the daemon; None where only the control file can be reached."""
        mount, client = self._find()
        client.close()
        return mount.socket

    def tree(self, ref: str) -> LiveTree:
        client = self.client()
        try:
            return LiveTree(client, ref or "main")
        except BaseException:
            client.close()
            raise

    # -- the first page

    def branches(self) -> list[BranchOverview]:
        """With those first in which somebody works, then the newest."""
        with self.client() as client:
            bindings = client.bindings()
            found = client.list_branches()
            refs = {branch.name for branch in found} | {snapshot.name for snapshot in client.list_snapshots()}
        workers: dict[str, Counter[str]] = {}
        for binding in bindings:
            workers.setdefault(binding.branch, Counter())[binding.command] += 1
        rows = [
            BranchOverview(
                branch, _workers(branch, workers.get(branch.name, Counter())), branch.base if branch.base in refs else ""
            )
            for branch in found
        ]
        return sorted(rows, key=lambda row: (row.branch.processes == 0, row.branch.name == "main", -row.branch.created_ns))

    def changed(self, ref: str, since: str) -> Changed:
        with self.client() as client:
            found = client.changes(ref, since or None).changes
            times = _times(RemoteFiles(client, ref), found) if len(found) <= MAX_LOOKED_AT else []
        return Changed(**summary(found), when=ago(max(times)) if times else "")

    def refs(self) -> tuple[list[wire.Branch], list[wire.BranchSnapshot]]:
        """What can be compared: branches, and snapshots, the newest first."""
        with self.client() as client:
            return client.list_branches(), client.list_snapshots()[::-1]

    # -- the history

    def history(self, only: str = "") -> list[HistoryRow]:
        """Newest first; a branch's present state stands above the snapshot that it goes on from. *only*: of that branch, with
        what it goes back to."""
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

        for snapshot in sorted(snapshots, key=lambda found: (found.created_ns, found.id), reverse=True):
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
        found = by_id.get(todo.pop())
        if found is not None and found.id not in kept:
            kept.add(found.id)
            todo += [found.parent, *found.merged]
    return [snapshot for snapshot in snapshots if snapshot.id in kept]


def _workers(branch: wire.Branch, commands: Counter[str]) -> str:
    if not commands:
        return f"{branch.processes} processes" if branch.processes else ""
    return ", ".join(visible(command) + (f" \u00d7{count}" if count > 1 else "") for command, count in commands.most_common(4))


def _times(files: RemoteFiles, found: list[wire.Change]) -> list[int]:
    """When what changed was changed; of what was deleted, when its directory was."""
    times, directories = [], set()
    for change in found:
        path = change.path_bytes.decode("utf-8", "surrogateescape")
        if change.status == "D":
            directories.add(parent_of(path))
            continue
        try:
            times.append(files.stat(path, follow=False).ctime_ns)
        except (OSError, AgentFSError):
            pass  # went meanwhile
    for directory in directories:
        try:
            times.append(files.stat(directory).ctime_ns)
        except (OSError, AgentFSError):
            pass  # it went as a whole
    return times
