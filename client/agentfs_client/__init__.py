"""The client of agentfsd: what finds a running daemon and talks to it.

Importing it costs next to nothing: each name is loaded when it is first asked for. The names of the file-system library,
`agentfs_files`, can be imported from here as well. `__init__.pyi` lists what type checkers see.
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
        "daemon_operations": ["OpenedFd"],
        "errors": ["AgentFSError", "DaemonGoneError", "NotAllowedError", "NotForwardedError", "NotFoundError"],
        "opening": ["open"],
    },
)
_NOT_BY_STAR = ("AsyncControlClient", "open")  # `import *` needs no anyio, and hides no builtin

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
