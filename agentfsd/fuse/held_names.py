"""Which names of a directory the kernel may hold, in memory and in the ledger."""

from collections.abc import Collection, Iterator

from agentfsd.fuse.ledger import Ledger

HELD_NAME = 6  # the kind of record, among those of node_records.py: directory's node; payload: name


class HeldNames:
    """The names in one directory that the kernel may hold for long."""

    __slots__ = ("_at", "_ledger", "_node_id")

    def __init__(self, ledger: Ledger, node_id: int) -> None:
        self._ledger, self._node_id = ledger, node_id
        self._at: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, name: object) -> bool:
        return name in self._at

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._at)

    def add(self, name: bytes, *, is_recorded: bool = False) -> None:
        """Add a name. *is_recorded*: the record of a node says so already."""
        if name not in self._at:
            self._at[name] = 0 if is_recorded else self._ledger.put(HELD_NAME, (self._node_id, 0, 0, 0, 0, 0), name)

    def take(self, names: Collection[bytes]) -> set[bytes]:
        """Take out those of *names* that are held; return them. The caller must expire them."""
        held = self._at.keys() & set(names)
        places = [at for name in held if (at := self._at.pop(name))]
        if places:
            self._ledger.drop_later(places)
        return held

    def take_over(self, names: dict[bytes, int]) -> None:
        """Take names over from the daemon before, each with its record; 0: the record of a node says so."""
        self._at = names

    def take_all(self) -> set[bytes]:
        """Take out all names; return them. The caller must expire them."""
        return self.take(self._at)
