"""Find names for refs of theirs that are kept beside ours, and for new refs whose names clash with the directory of another one.

git keeps a ref in a file, so none can have the name of another one's directory. This module sees names and object ids only.
"""

import itertools
import re
from collections.abc import Callable, Iterator

from agentfsd.repositories.commits import Clash
from agentfsd.repositories.joined_history import Joined, MovedRef
from agentfsd.repositories.reading import GitDatabase
from agentfsd.repositories.ref_names import directories_above, part_of_ref, short_name

_TOP = b"agentfsd"


class RefsBeside:
    """Collects what is to be kept of *source*, and then gives each a name that is free in *ours*.

    Args:
        source: The name of their branch of the overlay.
        ours: Our side.
        is_ancestor: Whether a commit is another one, or in its history.
    """

    def __init__(self, source: str, ours: GitDatabase, is_ancestor: Callable[[bytes, bytes], bool]) -> None:
        self._name, self._part, self._ours, self._is_ancestor = source, part_of_ref(source), ours, is_ancestor
        self._kept: list[tuple[bytes, bytes]] = []
        self._there: set[bytes] = set()  # the refs that there will be, and those that somebody has checked out without commits
        self._directories: set[bytes] = set()

    def keep(self, name: bytes, his: bytes) -> None:
        """Keep their value of a ref. A symbolic ref has none of its own."""
        if his and not his.startswith(b"ref: "):
            self._kept.append((name, his))

    def has_kept(self, name: bytes) -> bool:
        """Return whether a ref has a name under which refs of the source are kept."""
        pattern = rb"refs/heads/" + _TOP + rb"(?:-\d+)?/" + re.escape(self._part) + rb"/"
        return re.match(pattern, name) is not None

    def enter(self, joined: Joined) -> None:
        """Rename new refs whose names clash, and enter everything that is kept, with a sentence about each."""
        ours, checked_out = self._ours.refs, {*self._ours.checked_out, *self._ours.linked}
        for name in checked_out | {name for name in ours if name not in joined.refs or joined.refs[name].new}:
            self._note(name)
        coming = [name for name, moved in joined.refs.items() if moved.new and not ours.get(name)]
        for name in coming:
            if self._is_clash(name) and name == self._ours.branch:
                text = f"{short_name(name)} cannot get commits: there are branches below that name. Switch to another branch"
                joined.clashes.append(Clash(b"", "repository", text))
            elif self._is_clash(name):
                self.keep(name, joined.refs.pop(name).new)
        for name in coming:
            if name in joined.refs:
                self._note(name)
        for name, his in self._kept:
            self._enter(joined, name, his, checked_out)

    def _enter(self, joined: Joined, name: bytes, his: bytes, checked_out: set[bytes]) -> None:
        place, is_new = self._free_name(joined, name, his, checked_out)
        joined.kept[name] = place
        if is_new:
            self._note(place)
            joined.refs[place] = MovedRef(self._ours.refs.get(place, b""), his, f"as in {self._name}")
            joined.said.append(f"{short_name(name)} of {self._name} is kept as {short_name(place)}")

    def _note(self, name: bytes) -> None:
        self._there.add(name)
        self._directories.update(directories_above(name))

    def _is_clash(self, name: bytes) -> bool:
        return name in self._directories or not self._there.isdisjoint(directories_above(name))

    def _free_name(self, joined: Joined, name: bytes, his: bytes, checked_out: set[bytes]) -> tuple[bytes, bool]:
        """Find the name under which *his* can be kept without losing what an earlier merge has kept there.

        Returns:
            The name, with a number if a ref of that name leads elsewhere; and False if a ref there has *his* in its history.
        """
        place = next(place for place in self._places(name) if self._there.isdisjoint(directories_above(place)))
        heads = place.startswith(b"refs/heads/")
        for number in itertools.count(1):
            free = place if number == 1 else place + b"-%d" % number
            if free not in self._there and free not in self._directories:
                return free, True
            moved = joined.refs.get(free)
            there = moved.new if moved is not None else self._ours.refs.get(free, b"")
            if not there or there.startswith(b"ref: "):
                continue
            if there == his or (heads and self._is_ancestor(his, there)):
                return free, False
            if heads and free not in checked_out and self._is_ancestor(there, his):
                return free, True
        raise AssertionError("unreachable")

    def _places(self, name: bytes) -> Iterator[bytes]:
        """Yield the names for a ref, the best first: the next one is for a ref that has the name of a directory above."""
        kind, _, rest = name.removeprefix(b"refs/").partition(b"/")
        above = b"refs/" + kind + b"/" if rest and b"refs/" + kind not in self._there else b"refs/"
        last = rest if above != b"refs/" else name.removeprefix(b"refs/")
        for number in itertools.count(1):
            yield above + (_TOP if number == 1 else _TOP + b"-%d" % number) + b"/" + self._part + b"/" + last
