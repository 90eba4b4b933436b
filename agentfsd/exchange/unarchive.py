"""A ZIP as a tree to import. What is refused is said as the daemon's commands say it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from agentfs_files.archive.unpack import DEFAULT_MAX_BYTES, Archive
from agentfs_files.filesystem.filesystem_errors import ArchiveError, ArchiveTooLargeError
from agentfs_files.trees.tree_source import Step
from agentfsd.domain_errors import Refusal


@contextmanager
def opened_archive(path: str, max_bytes: int = DEFAULT_MAX_BYTES, step: Step = lambda done, total: None) -> Iterator[Archive]:
    """Refusal (EINVAL) when it is damaged or hostile, (EFBIG) when it is larger than *max_bytes*."""
    try:
        with Archive(path, max_bytes, step) as archive:
            yield archive
    except ArchiveTooLargeError as exc:
        raise Refusal(errno.EFBIG, "too-large", str(exc), "--max-size allows more, if you trust it") from exc
    except ArchiveError as exc:
        raise Refusal(errno.EINVAL, "bad-archive", str(exc), "nothing was changed") from exc
