"""Which layers of the kernel's overlayfs lie over the lower for a sealed state of a branch, and where they are kept.

Each layer is a directory ``layer-N``, where N is the sealed layer of the branch that it shows, together with the layers beneath.
The upper directory of a run becomes one when the run has ended. Where there is none, LayerWriter writes one from the rows.
"""

import logging
import os
import time
from collections.abc import Collection, Sequence

import msgspec

from agentfs_host.tree_removal import remove_tree
from agentfsd.core.open_trees import OpenTrees
from agentfsd.metadata import layer_rows
from agentfsd.overlayfs.layer_writer import LayerWriter

log = logging.getLogger(__name__)

_MOST = 12  # layers of a run; then one is written that has all of it
_LAYER, _UNFINISHED, _BENEATH = "layer-", ".new-", ".beneath"


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
        if known is None or len(known) > _MOST:
            self._write(sealed)
            known = [_name(sealed)]
        return known

    def _is_bare(self, sealed: int) -> bool:
        store = self._trees.parts.store
        return all(layer_rows.is_empty(store, number) for number in layer_rows.chain(store, sealed))

    def _known(self, sealed: int) -> list[str] | None:
        name = _name(sealed)
        if not os.path.isdir(self._path(name)):
            return None
        return [name, *self._beneath(name)]

    def _beneath(self, name: str) -> list[str]:
        try:
            with open(self._path(name) + _BENEATH, "rb") as file:
                return msgspec.json.decode(file.read(), type=list[str])
        except FileNotFoundError:
            return []

    def _write(self, sealed: int) -> None:
        """Write one layer that shows a sealed state over the bare lower."""
        name = _name(sealed)
        unfinished = self._path(_UNFINISHED + name)
        remove(unfinished)
        os.mkdir(unfinished, 0o700)
        objects = os.open(self._objects, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with self._trees.kept(sealed) as tree:  # pinned() would merge the layer into the head at its end
                LayerWriter(tree, objects, privileged=os.geteuid() == 0).write(unfinished)
        except BaseException:
            remove(unfinished)
            raise
        finally:
            os.close(objects)
        self._put(unfinished, name, [])

    def add(self, upper: str, sealed: int, beneath: Sequence[str]) -> None:
        """Make the upper directory of a run that has ended the layer of a sealed state. OSError."""
        if os.path.isdir(upper):
            self._put(upper, _name(sealed), beneath)

    def _put(self, directory: str, name: str, beneath: Sequence[str]) -> None:
        path = self._path(name)
        if os.path.isdir(path):
            os.rename(path, self._path(f"{_UNFINISHED}{name}-old"))
        with open(path + _BENEATH, "wb") as file:  # before: without it the layer would lie over the bare lower
            file.write(msgspec.json.encode(list(beneath)))
        os.rename(directory, path)
        remove(self._path(f"{_UNFINISHED}{name}-old"))

    def put_aside_unneeded(self, heads: Collection[int], in_use: Collection[str]) -> list[str]:
        """Take away the layers that no branch needs.

        Args:
            heads: The sealed layers beneath the heads of all branches.
            in_use: The names of the layers that are mounted.

        Returns:
            The paths of what to remove(), in any thread.
        """
        kept = set(in_use)
        chains = [layer_rows.chain(self._trees.parts.store, head) for head in heads]
        for chain in chains:
            newest = next((_name(layer) for layer in chain if os.path.isdir(self._path(_name(layer)))), "")
            kept |= {newest, *self._beneath(newest)} if newest else set()
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


def _name(sealed: int) -> str:
    return f"{_LAYER}{sealed}"


def remove(path: str) -> None:
    """Remove a layer. What cannot be removed now is removed later."""
    try:
        if os.path.isdir(path):
            remove_tree(path)
        if os.path.exists(path + _BENEATH):
            os.unlink(path + _BENEATH)
    except OSError as exc:
        log.warning("%s cannot be removed: %s", path, exc.strerror)
