"""Modules of the file-system library can be imported by the names they had while it was part of this package."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_LIBRARY = "agentfs_files"
_ROOMS = ("integrations", "testing")  # those whose modules are imported by their own names
_PREFIXES = tuple(f"agentfs_client.{room}" for room in _ROOMS)


class _FormerPlaces(MetaPathFinder, Loader):
    """Answers an import of `agentfs_client.testing` with the module `agentfs_files.testing`, the same object."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not any(name == prefix or name.startswith(prefix + ".") for prefix in _PREFIXES):
            return None
        try:
            importlib.import_module(_present(name))
        except ModuleNotFoundError as exc:
            if exc.name == _present(name):
                return None
            raise
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = sys.modules[_present(spec.name)]
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # the import system has put *spec* in the place of the module's own
            module.__spec__ = module.__spec__.loader_state


def _present(name: str) -> str:
    return _LIBRARY + name.removeprefix("agentfs_client")


def install() -> None:
    """Make imports by the former names work.

    The finder comes first: the usual one would find a room's modules a second time, below their package's path.
    """
    if not any(isinstance(finder, _FormerPlaces) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FormerPlaces())
