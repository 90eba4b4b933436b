"""Open a ZIP file as a tree to import, and report its faults as Refusals."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from agentfs_files.archive.unpack import DEFAULT_MAX_BYTES, Archive
from agentfs_files.filesystem.filesystem_errors import ArchiveError, ArchiveTooLargeError
from agentfs_files.trees.tree_source import Step
from agentfsd.domain_errors import Refusal


@contextmanager
def opened_archive(path: str, max_bytes: int = DEFAULT_MAX_BYTES, step: Step = lambda done, total: None) -> Iterator[Archive]:
    """Yield a checked archive.

    Args:
        path: path of the ZIP file.
        max_bytes: the most that its files may hold together, in bytes, unpacked.
        step: called with the work done so far and the total.

    Raises:
        Refusal: EINVAL if the archive is damaged or malicious, EFBIG if it holds more than *max_bytes*.
    """
    try:
        with Archive(path, max_bytes, step) as archive:
            yield archive
    except ArchiveTooLargeError as exc:
        raise Refusal(errno.EFBIG, "too-large", str(exc), "--max-size allows more, if you trust it") from exc
    except ArchiveError as exc:
        raise Refusal(errno.EINVAL, "bad-archive", str(exc), "nothing was changed") from exc
