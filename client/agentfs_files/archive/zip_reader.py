"""Replace the whole content of a file system by an archive, for file systems that cannot do so atomically."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable

from agentfs_files.archive.unpack import Archive

Export = Callable[[str], int]
Overwrite = Callable[[Archive], int]


def replace_with_backup(export: Export, overwrite: Overwrite, archive: Archive) -> int:
    """Replace everything by the content of an archive.

    Everything is first saved in a temporary archive, which is restored if *overwrite* fails. If restoring fails as well, the
    temporary archive is kept, and the error says where.

    Returns:
        The number of imported files.
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
        message = f"the import failed ({failure}), and so did putting back what was there ({exc}); all of that is in {before}"
        raise OSError(errno.EIO, message) from exc
