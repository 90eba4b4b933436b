"""Some named paths, as a comparison of two trees walks to them. It never looks at a tree."""

from collections.abc import Iterable


class NamedPaths:
    """Tells where a walk from the root has to go to reach each of some paths, and what is below them.

    Args:
        paths: Relative to the root, in normal form. None of them, or b"" for the root, names everything.
    """

    def __init__(self, paths: Iterable[bytes] = ()) -> None:
        self._named = set(paths)
        self._above = {above for path in self._named for above in _directories_above(path)}
        self.is_all = not self._named or b"" in self._named

    def leads(self, path: bytes) -> bool:
        """Tell whether *path* is one of them, below one, or a directory above one."""
        if self.is_all or path in self._above or path in self._named:
            return True
        return any(above in self._named for above in _directories_above(path))


def _directories_above(path: bytes) -> Iterable[bytes]:
    at = path.rfind(b"/")
    while at > 0:
        yield path[:at]
        at = path.rfind(b"/", 0, at)
