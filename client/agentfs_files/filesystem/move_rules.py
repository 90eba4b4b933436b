"""Move a file or directory on a backend that cannot rename: copy it, then remove the original."""

import errno

from agentfs_files.filesystem.file_results import FileEntry
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.filesystem.virtual_paths import join, name_of, parent_of


def move_by_copy(filesystem: Filesystem, source: str, destination: str) -> None:
    """Move to *destination*, which must be free. After an error everything is as it was.

    Raises:
        OSError: EXDEV for anything but files and directories.
    """
    (entry,) = (child for child in filesystem.list(parent_of(source)) if child.name == name_of(source))
    try:
        _copy(filesystem, entry, destination)
    except BaseException:
        if filesystem.exists(destination):
            filesystem.delete(destination, recursive=True)
        raise
    filesystem.delete(source, recursive=True)


def _copy(filesystem: Filesystem, entry: FileEntry, destination: str) -> None:
    if entry.is_link or entry.kind == "other":
        raise OSError(errno.EXDEV, "only files and directories can be moved to another file system", entry.path)
    if entry.is_directory:
        filesystem.mkdir(destination, exist_ok=False)
        for child in filesystem.list(entry.path):
            _copy(filesystem, child, join(destination, child.name))
        return
    with filesystem.open_read(entry.path) as reader, filesystem.open_write(destination, mode="create") as writer:
        writer.write_all(reader)
