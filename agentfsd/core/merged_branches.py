"""Tells which branches another branch holds since a merge, by layers: a merge is recorded with those that it has brought in."""

from collections.abc import Iterator
from typing import NamedTuple

from agentfsd.core.layer_lifecycle import Layers, ancestors
from agentfsd.core.overlay_state import OverlayState
from agentfsd.metadata import layer_rows


class MergedInto(NamedTuple):
    """Where a branch was merged last. ``into``: the other branch's id. ``since``: the changes that it has stored since then."""

    into: str
    since: int


def merged_branches(state: OverlayState, layers: Layers, default_id: str) -> dict[str, MergedInto]:
    """Return where each branch was merged, by its id; those are missing that no other branch has taken in since it was made.

    Of several branches that hold the same of it, the default branch counts, or else the one that it was made from. The default
    branch itself is where others are collected: it is never said to be in another one.

    A fast-forward leaves two branches with one layer, and does not say whose it was. It counts only into the default branch and
    into the one that a branch was made from.
    """
    parents, merges = layer_rows.parents(state.store), layer_rows.merges(state.store)
    held = {
        row.id: ancestors([row.head], parents, merges) - ancestors([row.base_layer], parents, merges)
        for row in state.branches.values()
    }
    chains = {row.id: set(layer_rows.chain(state.store, row.head)) for row in state.branches.values()}
    found = dict[str, MergedInto]()
    for row in state.branches.values():
        if row.id == default_id:
            continue
        others = sorted(held.keys() - {row.id}, key=lambda each: (each != default_id, each != row.base_id, each))
        for layer, since in _states(state, layers.own(row)):
            nearest = (default_id, row.base_id)
            into = next((each for each in others if layer in held[each] and (each in nearest or layer not in chains[each])), None)
            if into is not None:
                found[row.id] = MergedInto(into, sum(layer_rows.counting_entries(state.store, since)))
                break
    return found


def _states(state: OverlayState, own: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield the states of a branch in which it had changes, newest first, each with the layers since. *own*: likewise."""
    is_empty = [layer_rows.is_empty(state.store, layer) for layer in own]
    for number, layer in enumerate(own):
        if not all(is_empty[number:]):
            yield layer, [each for each, nothing in zip(own[:number], is_empty, strict=False) if not nothing]
