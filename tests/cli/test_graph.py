"""Histories as they are drawn."""

import msgspec

from agentfs_client import wire
from agentfsd.cli.output.history_graph import GraphNode, draw
from agentfsd.cli.output.history_list import branch_line


def drawn(*nodes: tuple[str, str]) -> list[str]:
    """*nodes*: an id and its parents, all of one letter."""
    return draw([GraphNode(name, list(parents), name) for name, parents in nodes])


def test_one_line_of_history_is_a_column() -> None:
    assert drawn(("c", "b"), ("b", "a"), ("a", "")) == ["* c", "* b", "* a"]


def test_two_branches_meet_where_they_parted() -> None:
    assert drawn(("d", "b"), ("c", "b"), ("b", "a"), ("a", "")) == ["* d", "| * c", "|/", "* b", "* a"]


def test_a_merge_has_two_parents() -> None:
    assert drawn(("m", "ab"), ("b", "o"), ("a", "o"), ("o", "")) == ["* m", "|\\", "| * b", "* | a", "|/", "* o"]


def test_columns_between_are_crossed() -> None:
    nodes = ("x", "o"), ("y", "p"), ("z", "o"), ("p", ""), ("o", "")
    assert drawn(*nodes) == ["* x", "| * y", "| | * z", "| * | p", "|---'", "* o"]


def test_a_merge_of_three() -> None:
    nodes = ("m", "abc"), ("c", "o"), ("b", "o"), ("a", "o"), ("o", "")
    assert drawn(*nodes) == ["* m", "|\\", "|-|-.", "| | * c", "| * | b", "* | | a", "|/  |", "|---'", "* o"]


def test_what_is_not_shown_has_no_line() -> None:
    assert drawn(("b", "missing"), ("a", "")) == ["* b", "* a"]


def test_a_branch_has_the_number_of_its_changes_where_they_were_counted() -> None:
    branch = wire.Branch(name="one", id="1", base="main", created_ns=0, changed=1)
    assert branch_line(branch) == "branch one: 1 change since main"
    assert branch_line(msgspec.structs.replace(branch, changed=37, counted=False)) == "branch one: changes since main"
