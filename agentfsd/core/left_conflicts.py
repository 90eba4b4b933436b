"""What a merge that left conflicts in its target has noted of them, as it is stored. Records only."""

import msgspec

from agentfsd.metadata.rows import UnfinishedRow


class LeftSource(msgspec.Struct, frozen=True):
    """A source of the merge that left conflicts.

    Attributes:
        id: The branch or snapshot.
        name: Its name at that time, which is in the markers.
        layer: Its state that was merged.
        base: A layer that shows the conflicting paths as they were in the common state.
        ours: Likewise in the target, before this source was merged.
        theirs: Likewise in the source.
        whole: Nothing of it was left out: it counts as merged once the merge is finished.
        commits: The commits that git is merging, by the path of its database.
    """

    id: str
    name: str
    layer: int
    base: int
    ours: int
    theirs: int
    whole: bool
    commits: list[tuple[bytes, bytes]] = []


class LeftConflict(msgspec.Struct, frozen=True):
    """A path that was left to be decided.

    Attributes:
        path: Where the result belongs.
        kind: As in PathConflict of history/merge_records.py.
        message: What is wrong, in words.
        source: The number of the source in the record.
        base: The path in the common state; others if a side renamed the file.
        ours: The path in the target.
        theirs: The path in the source.
        marked: The file got conflict markers.
        database: The git database that has the path in its index as a conflict; None for none.
        work_tree: The directory of that database's files.
    """

    path: bytes
    kind: str
    message: str
    source: int
    base: bytes
    ours: bytes
    theirs: bytes
    marked: bool
    database: bytes | None = None
    work_tree: bytes = b""


class LeftRecord(msgspec.Struct, frozen=True):
    """What a merge left open. *target* is the branch's name at that time, which is in the markers."""

    target: str
    sources: list[LeftSource]
    conflicts: list[LeftConflict]

    def layers(self) -> list[int]:
        """Return the layers that the record needs, some of them several times."""
        return [layer for one in self.sources for layer in (one.layer, one.base, one.ours, one.theirs)]


def needed_layers(row: UnfinishedRow) -> list[int]:
    """Return the layers that a stored merge needs, some of them several times."""
    return [row.before, row.layer, *msgspec.json.decode(row.record, type=LeftRecord).layers()]
