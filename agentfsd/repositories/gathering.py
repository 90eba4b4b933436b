"""Collects what a workshop needs from the trees of a merge: the object files that branches have of their own, and the lower's."""

import os
from collections.abc import Container, Generator, Iterable, Iterator

from agentfsd.core import inode_stat
from agentfsd.core.copyup import content_fd
from agentfsd.core.tree import Parts, Tree, join
from agentfsd.core.whole_contents import content_of
from agentfsd.lower.host_lower import HostLower
from agentfsd.repositories import reading
from agentfsd.repositories.workshop import Workshop
from agentfsd.repositories.workshop_inputs import Bundle

Progress = tuple[int, int, str]


class Workshops:
    """The workshops of one request, one for each database: what was collected for one branch serves the next one, too.

    A context manager, which removes them.

    Attributes:
        meanwhile: Steps of other work of the same request, which may be run while git works.
    """

    def __init__(self, parts: Parts) -> None:
        self.place = workplace(parts)
        self.meanwhile: Iterator[object] = iter(())
        self._made: dict[bytes, Workshop] = {}

    def __enter__(self) -> "Workshops":
        return self

    def __exit__(self, *exc: object) -> None:
        for workshop in self._made.values():
            workshop.close()
        self._made.clear()

    def at(self, database: bytes, form: str) -> Workshop:
        """The workshop of a database.

        Args:
            database: Its path in the workspace.
            form: git's object format.
        """
        found = self._made.get(database)
        if found is not None and found.form == form:
            return found
        if found is not None:
            found.close()
        self._made[database] = Workshop(self.place, form)
        return self._made[database]

    def forget_merge(self) -> None:
        """Forget the objects of the latest merge in each repository: the target does not get them."""
        for workshop in self._made.values():
            workshop.forget_merge()


def bundle_of(trees: Iterable[Tree], path: bytes, known: Container[bytes] = ()) -> Generator[Progress, None, Bundle]:
    """Collect the object files that trees have of their own.

    Args:
        trees: The trees.
        path: The database.
        known: Paths below the objects directory that are not read again.
    """
    bundle, steps = Bundle({}, {}, set()), 0
    try:
        for tree in trees:
            for file in reading.own_files(tree, join(path, b"objects")):
                steps += 1
                if steps % 20 == 0:
                    yield steps, 0, "reading objects"
                if file is None or file[0] in bundle.seen or is_passing_object(file[0]) or file[0].startswith(b"info/"):
                    continue
                name, inode = file
                bundle.seen.add(name)
                if name in known:
                    continue
                if inode_stat.data_stat(inode).st_size > reading.INLINE_BYTES:
                    bundle.descriptors[name] = content_fd(inode)
                else:
                    bundle.contents[name] = content_of(inode)
    except BaseException:
        bundle.close()
        raise
    return bundle


def lower_objects(trees: Iterable[Tree], path: bytes) -> list[tuple[HostLower, bytes]]:
    """The object directories of the lowers that trees see beneath their own."""
    places = dict[tuple[HostLower, bytes], None]()
    for tree in trees:
        node, lower = reading.at(tree, join(path, b"objects")), tree.lower
        if isinstance(lower, HostLower) and node is not None and node.is_dir and node.lower_path is not None:
            try:
                lower.stat(node.lower_path)
            except OSError:
                continue
            places[lower, node.lower_path] = None
    return list(places)


def workplace(parts: Parts) -> str:
    """Where workshops are made: beside the contents of the branches, never in the mount."""
    return os.path.dirname(parts.backstore.place)


def is_passing_object(name: bytes) -> bool:
    """Whether a file below an objects directory is one that git has not finished."""
    last = name.rpartition(b"/")[2]
    return last.startswith((b"tmp_", b"incoming-")) or last.endswith((b".lock", b".tmp"))
