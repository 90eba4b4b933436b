"""The library that is preloaded into programs, so that they get real descriptors: where it lies. Its source is client/interpose/.

It must never start a program or talk to a daemon.
"""

import os
import resource
from collections.abc import Mapping

LIBRARY = "libagentfs-interpose.so.1"  # ending in .so alone it would pass for a module

_VERSION = 1
_HIGHEST_SHADOWS = 1024  # fork copies the table of descriptors up to the highest one


def library() -> str | None:
    """Its path; None where this installation was made without a C compiler."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), LIBRARY)
    return path if os.path.exists(path) else None


def environment(inherited: Mapping[str, str], path: str, socket: str, min_read_bytes: int) -> dict[str, str]:
    """The variables that make a program preload the library at *path*; what *inherited* preloads stays.

    *socket*: where the daemon takes conversations; *min_read_bytes*: below that what is only read stays with the mount.
    """
    first_shadow = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, _HIGHEST_SHADOWS)
    preloaded = [name for name in inherited.get("LD_PRELOAD", "").replace(":", " ").split() if name != path]
    return {
        "LD_PRELOAD": ":".join([path, *preloaded]),
        "AGENTFS_INTERPOSE": f"{_VERSION}:{first_shadow}:{min_read_bytes}:{socket}",
    }
