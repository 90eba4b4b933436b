"""The exceptions of file systems, besides the standard ones (FileNotFoundError, IsADirectoryError, PermissionError, ...)."""


class PathEscapeError(PermissionError, ValueError):
    """A path leads out of the root."""


class RootError(PermissionError, ValueError):
    """The root itself can be neither written nor deleted."""


class SnapshotError(RuntimeError):
    """Base of all errors with snapshots."""


class SnapshotCreationError(SnapshotError):
    """A snapshot could not be taken."""


class SnapshotRestoreError(SnapshotError):
    """A snapshot could not be restored; the file system is as it was, unless the message says otherwise."""


class SnapshotNotFoundError(SnapshotRestoreError, KeyError):
    """There is no such snapshot, or it is no longer kept."""

    def __str__(self) -> str:  # KeyError would show the repr
        return RuntimeError.__str__(self)


class SnapshotIncompatibleError(SnapshotRestoreError, ValueError):
    """The snapshot belongs to another file system or another kind of backend."""


class ArchiveError(ValueError):
    """An archive is damaged or malicious; nothing from it was written."""


class ArchiveTooLargeError(ArchiveError):
    """The content of an archive exceeds the limit."""
