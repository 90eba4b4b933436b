"""The client of agentfsd: it finds a running daemon and talks to it.

Each name is loaded at its first use, so importing this package costs almost nothing. It also exports the names of the file-system
library, `agentfs_files`. `__init__.pyi` lists the names that type checkers see.
"""

import importlib
from typing import Any

import lazy_loader

from agentfs_client import former_places

_own_name, _, _OWN = lazy_loader.attach(
    __name__,
    submod_attrs={
        "async_control": ["AsyncControlClient"],
        "control": ["ControlClient"],
        "descriptor_operations": ["OpenedFd"],
        "errors": ["AgentFSError", "DaemonGoneError", "NotAllowedError", "NotForwardedError", "NotFoundError"],
        "opening": ["open"],
    },
)
_NOT_BY_STAR = ("AsyncControlClient", "open")  # `import *` must neither need anyio nor hide a builtin

former_places.install()


def _library() -> Any:
    return importlib.import_module("agentfs_files")


def __getattr__(name: str) -> Any:
    if name in _OWN:
        return _own_name(name)
    if name == "__all__":
        return sorted({*_OWN, *_library().__all__}.difference(_NOT_BY_STAR))
    if not name.startswith("_") and name in dir(_library()):
        return getattr(_library(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_OWN, *dir(_library())})
