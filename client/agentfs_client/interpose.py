"""The library that is preloaded into programs, so that they get real descriptors: where it lies, and the words in which they are
asked for (client/interpose/conversation.c has those in C).

It must never start a program or talk to a daemon.
"""

import os
import resource
import struct
from collections.abc import Mapping

LIBRARY = "libagentfs-interpose.so.1"  # ending in .so alone it would pass for a module

VERSION = 1
MAGIC = b"AGENTFS\1"
HELLO = struct.Struct("=8sIIQ")  # magic, version, 0, cookie
REQUEST = struct.Struct("=QQIIQQ")  # cookie, ticket, flags, version; then of the object, in the answer: st_dev, st_ino
PARCEL = struct.Struct("=QQQ")  # ticket, st_dev and st_ino of the object: what comes with a descriptor
FORWARD = 3 << 30 | REQUEST.size << 16 | 0xAF << 8 | 2  # _IOWR(0xAF, 2, struct request), on a file of the mount

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
        "AGENTFS_INTERPOSE": f"{VERSION}:{first_shadow}:{min_read_bytes}:{socket}",
    }
