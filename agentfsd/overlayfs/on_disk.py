"""How the kernel's overlayfs stores a layer on disk. Source: overlayfs.rst of the kernel.

A character device 0/0 is a whiteout. What else is not plain is said by extended attributes ``overlay.*``, in the namespace
``trusted`` of root, or in ``user`` (mount option userxattr). A mount reads one of these namespaces only: attributes in the other
are the files' own. A file's own ``trusted.overlay.X`` is stored as ``trusted.overlay.overlay.X``.
"""

import os
import stat
from typing import NamedTuple

from agentfs_host import xattrs

_PREFIXES = (b"trusted.overlay.", b"user.overlay.")
_ESCAPED = b"overlay."  # after the prefix

CONTROL_DIR = b".agentfs"  # at the root of a workspace; never part of a layer


class Marks(NamedTuple):
    """What overlayfs says of a file or directory of a layer.

    Attributes:
        opaque: A directory that shows nothing of the layers below.
        redirect: A directory that has been renamed: its path in the layers below, or a name in the same directory; b"" if it was
            not renamed.
        is_copy: It was copied up from a layer below, and is still the same file.
    """

    opaque: bool = False
    redirect: bytes = b""
    is_copy: bool = False


PLAIN = Marks()


def is_whiteout(status: os.stat_result) -> bool:
    """Return whether a name of a layer hides the name in the layers below."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def prefix() -> bytes:
    """Return what the names of overlayfs' own attributes begin with, in a mount that this process's user makes."""
    return _PREFIXES[os.geteuid() != 0]


def stored_name(name: bytes) -> bytes:
    """Return under which name a layer stores a file's own extended attribute."""
    start = prefix()
    return start + _ESCAPED + name[len(start) :] if name.startswith(start) else name


def own_xattrs(where: bytes) -> dict[bytes, bytes]:
    """Return the extended attributes of a file itself, without those of overlayfs."""
    start = prefix()
    if all(name.startswith(start) and not name.startswith(_ESCAPED, len(start)) for name in xattrs.names(where, follow=False)):
        return {}
    return read_marks(xattrs.read_all(where, follow=False))[1]


def read_marks(found: dict[bytes, bytes]) -> tuple[Marks, dict[bytes, bytes]]:
    """Split the extended attributes of a file into what overlayfs says, and the file's own."""
    if not found:
        return PLAIN, found
    own: dict[bytes, bytes] = {}
    said: dict[bytes, bytes] = {}
    start = prefix()
    for name, value in found.items():
        if not name.startswith(start):
            own[name] = value
        elif name.startswith(_ESCAPED, len(start)):
            own[start + name[len(start) + len(_ESCAPED) :]] = value
        else:
            said[name[len(start) :]] = value
    redirect = said.get(b"redirect")
    if redirect is not None and not _is_plain(redirect):
        return Marks(opaque=True, is_copy=b"origin" in said), own
    return Marks(said.get(b"opaque") == b"y", redirect or b"", b"origin" in said), own


def _is_plain(redirect: bytes) -> bool:
    """Return whether a redirect is a name, or a path from the root, as the kernel writes them."""
    names = redirect[1:].split(b"/") if redirect.startswith(b"/") else [redirect]
    return all(name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name for name in names)
