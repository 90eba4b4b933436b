"""Finds what lies beneath a layer: the real directory, or a frozen base, which is the real directory as it was at one moment.

A layer that has a base shows it, and so do all layers above, up to one that has another base. So branches, snapshots and undo
have the right one without a record of their own.
"""

from collections.abc import Callable

from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import Store
from agentfsd.types import Lower


class BaseLowers:
    """The lowers of one overlay.

    Args:
        store: The metadata.
        live: The real directory.
        opener: Opens a frozen base by its id, or raises Refusal; None where there are none.

    Attributes:
        live: As above.
    """

    def __init__(self, store: Store, live: Lower, opener: Callable[[str], Lower] | None = None) -> None:
        self.live, self._store, self._opener = live, store, opener
        self._open: dict[str, Lower] = {}
        self._any = bool(layer_rows.bases(store))  # whether a layer may have a base

    def name(self, layer: int) -> str:
        """Return the id of the frozen base beneath a layer; "" for the real directory."""
        bases = layer_rows.bases(self._store) if self._any else {}
        return next((bases[number] for number in layer_rows.chain(self._store, layer) if number in bases), "") if bases else ""

    def new_layer(self, parent: int, base: str) -> int:
        """Make an empty layer that has a frozen base, in the open transaction, and return it."""
        self._any = True
        return layer_rows.new_layer(self._store, parent, base)

    def of(self, layer: int) -> Lower:
        """Return what lies beneath a layer. Refusal ``no-base`` if it is a frozen base that cannot be read."""
        return self.called(self.name(layer))

    def called(self, name: str) -> Lower:
        """Return a frozen base by its id; the real directory for ""."""
        if not name:
            return self.live
        if name not in self._open:
            assert self._opener is not None
            self._open[name] = self._opener(name)
        return self._open[name]

    def beneath(self, layer: int) -> int:
        """Return the newest layer of a chain that has no base of its own; 0 for none."""
        bases, parents = layer_rows.bases(self._store), layer_rows.parents(self._store)
        while layer in bases:
            layer = parents[layer]
        return layer

    def frozen_layers(self) -> set[int]:
        """Return the layers that have a frozen base beneath them."""
        bases, parents = layer_rows.bases(self._store), layer_rows.parents(self._store)
        frozen = set[int]()
        for number in sorted(parents):  # a child's number is greater than its parent's
            if number in bases or parents[number] in frozen:
                frozen.add(number)
        return frozen

    def why_lost(self, name: str) -> str:
        """Say why a frozen base cannot be read; "" if it can."""
        try:
            self.called(name)
        except OSError as exc:
            return exc.strerror or str(exc)
        return ""

    def opened(self, name: str) -> Lower | None:
        """Return a frozen base by its id if it is open."""
        return self._open.get(name)

    def needed(self) -> set[str]:
        """Return the id of every base that a layer has."""
        return set(layer_rows.bases(self._store).values())

    def forget(self, name: str) -> None:
        """Close a base that is about to be removed."""
        lower = self._open.pop(name, None)
        if lower is not None:
            lower.close()

    def close(self) -> None:
        """Close all frozen bases."""
        for name in list(self._open):
            self.forget(name)
