"""Which layers of the kernel's overlayfs lie over the lower for a sealed state of a branch, and where they are kept.

Each layer is a directory ``layer-N``, where N is the sealed layer of the branch that it shows, together with the layers beneath.
The upper directory of a run becomes one when the run has ended. Where there is none, LayerWriter writes one from the rows, with a
name ``layer-N-1``, which needs no other beneath it.
"""

import itertools
import logging
import os
import stat
import time
from collections.abc import Collection, Sequence

import msgspec

from agentfs_host.tree_removal import remove_tree
from agentfsd.core.inode import LowerIdentity
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.origin import now_in_lower
from agentfsd.metadata import layer_rows
from agentfsd.overlayfs.layer_writer import LayerWriter

log = logging.getLogger(__name__)

_MOST = 12  # layers of a run; then one is written that has all of it
_LAYER, _UNFINISHED, _BENEATH = "layer-", ".new-", ".beneath"


class _Record(msgspec.Struct):
    """What is stored of a layer.

    Attributes:
        beneath: The names of the layers beneath it, the newest first.
        copies: What it has copied from the lower: path, and the identity that the lower's file had.
    """

    beneath: list[str] = []
    copies: list[tuple[bytes, tuple[int, ...]]] = []


class LayerStack:
    """The layers of one overlay.

    Args:
        place: The directory that holds them.
        objects: The directory of the content objects, on the same file system.
        trees: Opens the trees of sealed states.
    """

    def __init__(self, place: str, objects: str, trees: OpenTrees) -> None:
        self._place, self._objects, self._trees = place, objects, trees

    def below(self, sealed: int) -> list[str]:
        """Return the names of the layers that show a sealed state, the newest first; write one if there is none.

        Args:
            sealed: The sealed layer; 0: the bare lower.

        Raises:
            CannotBeLayer: The kernel cannot show that state.
            OSError: There is no room, for example.
        """
        if self._is_bare(sealed):
            return []
        known = self._known(sealed)
        if known is None or len(known) > _MOST or not self._are_true(known, sealed):
            known = [self._write(sealed)]
        return known

    def _is_bare(self, sealed: int) -> bool:
        store = self._trees.parts.store
        return all(layer_rows.is_empty(store, number) for number in layer_rows.chain(store, sealed))

    def _known(self, sealed: int) -> list[str] | None:
        """Return the layers that are there for a sealed state, the newest first."""
        written = [name for name in self.names() if name.startswith(f"{_LAYER}{sealed}-")]
        name = max(written, key=lambda name: int(name.rpartition("-")[2]), default=f"{_LAYER}{sealed}")
        record = self._read(name) if os.path.isdir(self._path(name)) else None
        return [name, *record.beneath] if record is not None else None

    def _read(self, name: str) -> _Record | None:
        """Return what is stored of a layer; None if nobody knows."""
        try:
            with open(self._path(name) + _BENEATH, "rb") as file:
                return msgspec.json.decode(file.read(), type=_Record)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _are_true(self, names: Sequence[str], sealed: int) -> bool:
        """Return whether what the layers have copied from the lower is what the lower still has."""
        records = [self._read(name) for name in names]
        copies = [copy for record in records if record is not None for copy in record.copies]
        with self._trees.kept(sealed) as tree:
            return all(now_in_lower(tree, path) == LowerIdentity(*identity) for path, identity in copies)

    def _write(self, sealed: int) -> str:
        """Write one layer that shows a sealed state over the bare lower, and return its name.

        It gets a name of its own: runs and other layers may lie over an earlier one.
        """
        taken = {name.removeprefix(_UNFINISHED) for name in self.names()}
        name = next(name for name in (f"{_LAYER}{sealed}-{number}" for number in itertools.count(1)) if name not in taken)
        unfinished = self._path(_UNFINISHED + name)
        os.mkdir(unfinished, 0o700)
        objects = os.open(self._objects, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with self._trees.kept(sealed) as tree:  # pinned() would merge the layer into the head at its end
                writer = LayerWriter(tree, objects)
                writer.write(unfinished)
        except BaseException:
            remove(unfinished)
            raise
        finally:
            os.close(objects)
        self._put(unfinished, name, _Record(copies=writer.copies))
        return name

    def add(self, upper: str, sealed: int, beneath: Sequence[str]) -> None:
        """Make the upper directory of a run that has ended the layer of a sealed state. OSError."""
        name = f"{_LAYER}{sealed}"
        if os.path.isdir(upper) and not os.path.isdir(self._path(name)):
            self._put(upper, name, _Record(list(beneath)))

    def _put(self, directory: str, name: str, record: _Record) -> None:
        mode = stat.S_IMODE(os.stat(directory).st_mode)
        with open(self._path(name) + _BENEATH, "wb") as file:  # before: without it the layer would lie over the bare lower
            file.write(msgspec.json.encode(record))
        os.chmod(directory, mode | stat.S_IRWXU)  # a directory that may not be written cannot get another parent
        try:
            os.rename(directory, self._path(name))
        except OSError:
            os.chmod(directory, mode)
            raise
        os.chmod(self._path(name), mode)

    def put_aside_unneeded(self, heads: Collection[int], in_use: Collection[str]) -> list[str]:
        """Take away the layers that no branch needs.

        Args:
            heads: The sealed layers beneath the heads of all branches.
            in_use: The names of the layers that are mounted.

        Returns:
            The paths of what to remove(), in any thread.
        """
        kept = set(in_use)
        for head in heads:
            known = map(self._known, layer_rows.chain(self._trees.parts.store, head))
            kept.update(next((names for names in known if names is not None), []))
        gone = []
        for number, name in enumerate(sorted(set(self.names()) - kept)):
            aside = self._path(f"{_UNFINISHED}{number}-{time.monotonic_ns()}")
            os.rename(self._path(name), aside)
            remove(self._path(name))  # what belongs to it
            gone.append(aside)
        return gone

    def names(self) -> list[str]:
        """Return the names of all layers, unfinished ones too."""
        try:
            listed = os.listdir(self._place)
        except FileNotFoundError:
            return []
        return [name for name in listed if name.startswith((_LAYER, _UNFINISHED)) and not name.endswith(_BENEATH)]

    def _path(self, name: str) -> str:
        return os.path.join(self._place, name)


def remove(path: str) -> None:
    """Remove a layer. What cannot be removed now is removed later."""
    try:
        if os.path.isdir(path):
            remove_tree(path)
        if os.path.exists(path + _BENEATH):
            os.unlink(path + _BENEATH)
    except OSError as exc:
        log.warning("%s cannot be removed: %s", path, exc.strerror)
