"""Replace everything in a host directory by an archive: stage it inside the directory, then exchange each name. The root itself
stays.

A failure before the last name undoes everything.
"""

import errno
import os
import secrets
import shutil
import stat
import unicodedata

from agentfs_files.archive.permitted import Permitted
from agentfs_files.archive.unpack import Archive
from agentfs_files.filesystem.filesystem_errors import ArchiveError
from agentfs_files.trees.equal_trees import make_equal
from agentfs_files.trees.tree_source import TreeSource, walk
from agentfs_host.tree_removal import remove_tree

_STAGE = ".agentfs-import-"
_NEW, _OLD = "new", "old"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def overwrite(root_fd: int, archive: Archive, keep: bytes | None) -> int:
    """Change only what differs. An error leaves the work half done. *keep* is the path of the archive itself, which is not
    touched.
    """
    tree = Permitted(archive, os.fstat(root_fd))
    make_equal(f"/proc/self/fd/{root_fd}", tree, keep=lambda path: path == keep)
    return tree.file_count


def replace_all(root_fd: int, archive: Archive, keep: bytes | None) -> int:
    """Replace everything, and return the number of files and symlinks in the archive.

    Raises:
        OSError: nothing has changed, unless the message says otherwise.
    """
    _check_room(root_fd, archive)
    name = _STAGE + secrets.token_hex(8)
    stage = f"/proc/self/fd/{root_fd}/{name}"
    os.mkdir(stage, 0o700)
    try:
        for part in (_NEW, _OLD):
            os.mkdir(f"{stage}/{part}", 0o700)
        tree = Permitted(archive, os.fstat(root_fd))
        if os.path.lexists(f"{stage}/{_NEW.upper()}"):
            check_case(tree)
        make_equal(f"{stage}/{_NEW}", tree)
        if keep is not None:
            _keep(archive.path, os.path.join(stage, _NEW, os.fsdecode(keep)))
        _change_hands(root_fd, stage, name)
    except BaseException as exc:
        _tidy(stage, name, exc)
        if isinstance(exc, OSError) and exc.errno is not None:
            message = f"nothing was imported, and nothing changed: {exc.strerror}"
            raise OSError(exc.errno, message, os.fsdecode(exc.filename or archive.path)) from exc
        raise
    try:
        remove_tree(stage)
    except OSError as exc:
        message = f"the archive was imported, but what was there before could not be removed from {name}: {exc.strerror}"
        raise OSError(exc.errno, message) from exc
    return tree.file_count


def _keep(path: str, target: str) -> None:
    """Link a file into the stage, unless the archive has a file at that path."""
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        return  # the archive has a file at this path
    if not os.path.lexists(target):
        try:
            os.link(path, target)
        except OSError:
            shutil.copy2(path, target)


def _check_room(root_fd: int, archive: Archive) -> None:
    status = os.fstatvfs(root_fd)
    free = status.f_bavail * status.f_frsize
    if status.f_blocks and archive.data_bytes > free:
        message = f"{archive.path} takes {archive.data_bytes} bytes, and {free} are free; nothing was changed"
        raise OSError(errno.ENOSPC, message)


def check_case(tree: TreeSource) -> None:
    """Refuse names that differ only in case or in the encoding of an accent, on a file system that treats them as equal."""
    for entry in walk(tree):
        if entry.is_dir:
            seen: dict[str, bytes] = {}
            for child in tree.children(entry):
                folded = unicodedata.normalize("NFD", os.fsdecode(child.name).casefold())
                if seen.setdefault(folded, child.path) != child.path:
                    message = f"it holds both {seen[folded]!r} and {child.path!r}, which are one name on this file system"
                    raise ArchiveError(f"the archive is refused: {message}")


def _change_hands(root_fd: int, stage: str, stage_name: str) -> None:
    """Move each name of the root to the old directory, and the new one into its place."""
    new, old = os.open(f"{stage}/{_NEW}", _DIRECTORY), os.open(f"{stage}/{_OLD}", _DIRECTORY)
    moved: list[tuple[str, int, int]] = []
    try:
        there, coming = set(os.listdir(root_fd)) - {stage_name}, set(os.listdir(new))
        for name in sorted(there | coming):
            steps = [(root_fd, old)] * (name in there) + [(new, root_fd)] * (name in coming)
            for source, target in steps:
                _move(name, source, target)
                moved.append((name, source, target))
    except BaseException:
        for name, source, target in reversed(moved):
            try:
                _move(name, target, source)
            except OSError:
                pass  # it stays in the old directory, and _tidy reports it
        raise
    finally:
        os.close(new)
        os.close(old)


def _move(name: str, source: int, target: int) -> None:
    """Move a name. A directory must itself be writable to be moved, since its ``..`` changes."""
    try:
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
        return
    except PermissionError:
        mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode) or mode & stat.S_IWUSR:
            raise
    os.chmod(name, stat.S_IMODE(mode) | stat.S_IWUSR, dir_fd=source)
    where = source
    try:
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
        where = target
    finally:
        os.chmod(name, stat.S_IMODE(mode), dir_fd=where)


def _tidy(stage: str, name: str, failure: BaseException) -> None:
    try:
        remove_tree(f"{stage}/{_NEW}")
        if os.path.lexists(f"{stage}/{_OLD}"):
            os.rmdir(f"{stage}/{_OLD}")
        os.rmdir(stage)
    except OSError as exc:
        message = f"the import failed ({failure}), and not all could be put back: what is missing is in {name}/{_OLD}"
        if exc.errno != errno.ENOTEMPTY:
            message = f"the import failed ({failure}); nothing was changed, but {name} could not be removed: {exc.strerror}"
        raise OSError(exc.errno, message) from failure
