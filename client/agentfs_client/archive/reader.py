"""Putting an archive in the place of all that a file system holds, where it has no way of its own to do that at once."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable

from agentfs_client.archive.plain import Plain
from agentfs_client.archive.unpack import Archive
from agentfs_client.trees.tree import Tree

Export = Callable[[str], int]
Refill = Callable[[Tree], None]


def replace_with_backup(export: Export, refill: Refill, archive: Archive) -> int:
    """Has *refill* empty the file system and write the archive; how many files that is.

    What was there is kept in a temporary archive, and put back when that fails. When even this fails, the archive stays, and the
    error says where.
    """
    plain = Plain(archive)
    directory = tempfile.mkdtemp(prefix="agentfs-before-")
    before = os.path.join(directory, "before.zip")
    is_needed = False
    try:
        export(before)
        is_needed = True
        try:
            refill(plain)
        except BaseException as exc:
            _put_back(refill, before, exc)
            is_needed = False
            raise
        is_needed = False
    finally:
        if not is_needed:
            shutil.rmtree(directory)
    return plain.file_count


def _put_back(refill: Refill, before: str, failure: BaseException) -> None:
    try:
        with Archive(before) as archive:
            refill(Plain(archive))
    except Exception as exc:
        what = f"the import failed ({failure}), and so did putting back what was there ({exc}); all of that is in {before}"
        raise OSError(errno.EIO, what) from exc
