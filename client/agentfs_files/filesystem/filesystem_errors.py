"""What a file system raises besides the standard exceptions (FileNotFoundError, IsADirectoryError, PermissionError, ...)."""


class PathEscapeError(PermissionError, ValueError):
    """A path leads out of the root."""


class RootError(PermissionError, ValueError):
    """The root itself can be neither written nor deleted."""


class SnapshotError(RuntimeError):
    """Base of whatever goes wrong with snapshots."""


class SnapshotCreationError(SnapshotError):
    """A snapshot could not be taken."""


class SnapshotRestoreError(SnapshotError):
    """A snapshot could not be restored; the file system is as it was, unless the message says otherwise."""


class SnapshotNotFoundError(SnapshotRestoreError, KeyError):
    """There is no such snapshot, or it is no longer kept."""

    def __str__(self) -> str:  # KeyError's shows the repr
        return RuntimeError.__str__(self)


class SnapshotIncompatibleError(SnapshotRestoreError, ValueError):
    """A snapshot of another file system, or of another kind of backend."""


class ArchiveError(ValueError):
    """An archive is damaged or hostile; nothing of it was written."""


class ArchiveTooLargeError(ArchiveError):
    """What is in an archive would take more than the limit."""
