"""Escape names that git refuses in a tree, or that git itself would interpret."""

import re
from typing import Final
from urllib.parse import quote_from_bytes

MANIFEST: Final = b"%manifest"  # never the result of to_git(), which leaves "manifest" unchanged
_SUSPICIOUS = re.compile(rb"(^|\\)(\.git|git~|gi[0-9a-f]{4}|gitmod~)")
_HARMLESS = re.compile(rb"\.git(ignore|keep|hub|lab|lab-ci\.yml|-blame-ignore-revs)")


def to_git(name: bytes) -> bytes:
    """Escape one name for a git tree; different names stay different.

    git compares names as HFS+ and NTFS do: without case, without some invisible characters, and with short names such as
    ``GIT~1``.
    """
    plain = bytes(byte for byte in name if byte < 128).lower()
    if name.startswith(b"%") or (_SUSPICIOUS.search(plain) and not _HARMLESS.fullmatch(name)):
        return b"%" + quote_from_bytes(name, safe="").encode()
    return name
