"""Putting an archive in the place of all that a file system holds, where it has no way of its own to do that at once."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable

from agentfs_files.archive.unpack import Archive

Export = Callable[[str], int]
Overwrite = Callable[[Archive], int]


def replace_with_backup(export: Export, overwrite: Overwrite, archive: Archive) -> int:
    """Has *overwrite* put what is in the archive in the place of all that is there; how many files that is.

    What was there is kept in a temporary archive, and put back when that fails. When even this fails, the archive stays, and the
    error says where.
    """
    directory = tempfile.mkdtemp(prefix="agentfs-before-")
    before = os.path.join(directory, "before.zip")
    is_needed = False
    try:
        export(before)
        is_needed = True
        try:
            count = overwrite(archive)
        except BaseException as exc:
            _put_back(overwrite, before, exc)
            is_needed = False
            raise
        is_needed = False
    finally:
        if not is_needed:
            shutil.rmtree(directory)
    return count


def _put_back(overwrite: Overwrite, before: str, failure: BaseException) -> None:
    try:
        with Archive(before, 1 << 63) as archive:
            overwrite(archive)
    except Exception as exc:
        what = f"the import failed ({failure}), and so did putting back what was there ({exc}); all of that is in {before}"
        raise OSError(errno.EIO, what) from exc
