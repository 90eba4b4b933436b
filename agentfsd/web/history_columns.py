"""Places the points and lines of a history in columns, one for each line of descent. It does not know what a node is."""

from collections.abc import Sequence
from dataclasses import dataclass, field

Segment = tuple[int, int, int, int]  # from (column, half row) to (column, half row); half rows count from 0, the top of its row


@dataclass(frozen=True)
class HistoryNode:
    """A state and the ids of the states it was made from."""

    id: str
    parents: Sequence[str]


@dataclass(frozen=True)
class NodePlace:
    """The column of a node, and the lines through its row."""

    column: int
    segments: list[Segment] = field(default_factory=list)


def places(nodes: Sequence[HistoryNode]) -> list[NodePlace]:
    """Place each node. Nodes come before their parents; parents that are not among the nodes are left out."""
    known = {node.id for node in nodes}
    columns: list[str | None] = []  # for each column, the node that its line leads to
    placed = []
    for node in nodes:
        before = columns[:]
        column = _column(columns, node.id)
        columns = [None if wanted == node.id else wanted for wanted in columns]
        leads_to = []
        for parent in dict.fromkeys(parent for parent in node.parents if parent in known):
            at = columns.index(parent) if parent in columns else _free(columns, column)
            columns[at] = parent
            leads_to.append(at)
        segments = [(at, 0, column if wanted == node.id else at, 1) for at, wanted in enumerate(before) if wanted is not None]
        segments += [
            (at, 1, at, 2)
            for at, wanted in enumerate(columns)
            if wanted is not None and at < len(before) and before[at] == wanted
        ]
        segments += [(column, 1, at, 2) for at in leads_to]
        placed.append(NodePlace(column, segments))
        while columns and columns[-1] is None:
            columns.pop()
    return placed


def _column(columns: list[str | None], node: str) -> int:
    if node in columns:
        return columns.index(node)
    return _free(columns, 0)


def _free(columns: list[str | None], wish: int) -> int:
    """Return a free column: *wish* if it is free, else the first."""
    if wish < len(columns) and columns[wish] is None:
        return wish
    if None in columns:
        return columns.index(None)
    columns.append(None)
    return len(columns) - 1
