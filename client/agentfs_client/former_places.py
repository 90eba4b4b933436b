"""Keep the former module names of the file-system library importable. It was once part of this package."""

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_LIBRARY = "agentfs_files"
_ROOMS = ("integrations", "testing")  # packages whose modules users import by name
_PREFIXES = tuple(f"agentfs_client.{room}" for room in _ROOMS)


class _FormerPlaces:
    """Import `agentfs_files.testing` for `agentfs_client.testing`, and likewise: both names give the same module object.

    It has no base in importlib.abc, which would take a tenth of the start of every command to import.
    """

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not any(name == prefix or name.startswith(prefix + ".") for prefix in _PREFIXES):
            return None
        try:
            importlib.import_module(_present(name))
        except ModuleNotFoundError as exc:
            if exc.name == _present(name):
                return None
            raise
        return ModuleSpec(name, self)  # type: ignore[arg-type]  # what it needs of a Loader is here

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = sys.modules[_present(spec.name)]
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # the import system replaced the module's own spec by *spec*
            module.__spec__ = module.__spec__.loader_state


def _present(name: str) -> str:
    return _LIBRARY + name.removeprefix("agentfs_client")


def install() -> None:
    """Make imports by the former names work.

    The finder comes first in the list. Otherwise the default finder would load these modules a second time, through the path of
    their package.
    """
    if not any(isinstance(finder, _FormerPlaces) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FormerPlaces())
