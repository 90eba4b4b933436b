"""Find the library that is preloaded into programs to get real descriptors, and define the messages that it exchanges.

client/interpose/conversation.c has the same messages in C. This module must never start a program or talk to a daemon.
"""

import os
import resource
import struct
from collections.abc import Mapping

LIBRARY = "libagentfs-interpose.so.1"  # a name that ends in .so would look like a Python module

VERSION = 1
MAGIC = b"AGENTFS\1"
HELLO = struct.Struct("=8sIIQ")  # magic, version, 0, cookie
REQUEST = struct.Struct("=QQIIQQ")  # cookie, ticket, flags, version; the answer adds st_dev and st_ino of the object
PARCEL = struct.Struct("=QQQ")  # sent with a descriptor: ticket, st_dev and st_ino of the object
FORWARD = 3 << 30 | REQUEST.size << 16 | 0xAF << 8 | 2  # _IOWR(0xAF, 2, struct request), on a file of the mount

_HIGHEST_SHADOWS = 1024  # fork copies the descriptor table up to the highest descriptor


def library() -> str | None:
    """Return the path of the library; None if the installation had no C compiler."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), LIBRARY)
    return path if os.path.exists(path) else None


def environment(inherited: Mapping[str, str], path: str, socket: str, min_read_bytes: int) -> dict[str, str]:
    """Return the variables that make a program preload the library.

    Args:
        inherited: the present environment; libraries that it preloads stay preloaded.
        path: path of the library.
        socket: path of the socket where the daemon forwards descriptors.
        min_read_bytes: files smaller than this that are only read stay with the mount.
    """
    first_shadow = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, _HIGHEST_SHADOWS)
    preloaded = [name for name in inherited.get("LD_PRELOAD", "").replace(":", " ").split() if name != path]
    return {
        "LD_PRELOAD": ":".join([path, *preloaded]),
        "AGENTFS_INTERPOSE": f"{VERSION}:{first_shadow}:{min_read_bytes}:{socket}",
    }
