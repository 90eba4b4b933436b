"""Draws a history as a graph of lines, newest first, beside the text of each state. It does not know what the states are."""

from collections.abc import Sequence
from typing import NamedTuple


class GraphNode(NamedTuple):
    """A state. ``parents``: ids of states that come later in the list; other ids are ignored."""

    id: str
    parents: Sequence[str]
    text: str
    mark: str = "*"


def draw(nodes: Sequence[GraphNode]) -> list[str]:
    """Return one line for each node, with lines between where histories part or meet."""
    known = {node.id for node in nodes}
    columns: list[str] = []  # for each column, the node that it leads down to; "" if it is free
    lines: list[str] = []
    for node in nodes:
        at = columns.index(node.id) if node.id in columns else _free(columns, -1)
        columns[at] = node.id
        for other in range(at + 1, len(columns)):
            if columns[other] == node.id:  # several come together here
                lines.append(_turn(columns, at, other, "/", "'"))
                columns[other] = ""
        cells = [node.mark if column == at else _cell(wanted) for column, wanted in enumerate(columns)]
        lines.append(f"{' '.join(cells).rstrip()} {node.text}")
        first, *further = [parent for parent in node.parents if parent in known] or [""]
        columns[at] = first
        for parent in further:
            other = _free(columns, at)
            lines.append(_turn(columns, at, other, "\\", "."))
            columns[other] = parent
        while columns and not columns[-1]:
            del columns[-1]
    return [line.rstrip() for line in lines]


def _free(columns: list[str], beyond: int) -> int:
    """Return a free column to the right of *beyond*."""
    for column in range(beyond + 1, len(columns)):
        if not columns[column]:
            return column
    columns.append("")
    return len(columns) - 1


def _cell(wanted: str) -> str:
    return "|" if wanted else " "


def _turn(columns: list[str], left: int, right: int, near: str, far: str) -> str:
    """Draw a line from one column to another: a slash to the next column, dashes across more columns."""
    line = ""
    for column, wanted in enumerate(columns):
        within = left <= column < right
        cell = far if column == right and right > left + 1 else "" if column == right else _cell(wanted)
        if column == right:
            line += cell.ljust(2)
        elif within and right == left + 1:
            line += cell + near
        else:
            line += (cell if cell != " " or not within else "-") + ("-" if within else " ")
    return line
