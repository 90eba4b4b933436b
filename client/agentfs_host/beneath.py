"""Open and rename files beneath a directory without leaving it, by openat2(2), or name by name where that call is refused."""

import errno
import os
import stat

from agentfs_host import syscalls
from agentfs_host.syscalls import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS

_NO_SUCH_FLAG = (errno.EINVAL, errno.ENOSYS)
_NO_CALL = (errno.ENOSYS, errno.EPERM)  # EPERM: a sandbox whose filter does not know openat2
_PATH_BYTES = 4096  # PATH_MAX, including the terminating zero
_MOST_LINKS = 40  # the kernel's own limit


class Beneath:
    """A directory and everything in it, by relative paths ("" is the directory itself).

    Symlinks are followed as long as they stay beneath the directory; one that leads out raises EXDEV. The caller closes the
    descriptors that are returned.

    Args:
        root: Path of the directory.
        fd: A descriptor of it, which this object then owns.
        shown_at: Other absolute paths at which processes see this directory. An absolute symlink to a place beneath one of them
            leads to that place in the directory, whatever this process sees there.
    """

    def __init__(self, root: str, fd: int | None = None, *, shown_at: tuple[str, ...] = ()) -> None:
        self._root, self._shown_at = root, shown_at
        self._fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if fd is None else fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)

    def open(self, path: str, flags: int, *, follow: bool = True, permissions: int = 0) -> int:
        """Open a path and return a descriptor.

        Args:
            path: path relative to the directory.
            flags: flags of open(2).
            follow: whether to follow a symlink in the last name.
            permissions: permission bits of a new file.

        Raises:
            OSError: with the kernel's errno.
        """
        if self._fd < 0:
            raise RuntimeError("the file system has been closed")
        if len(path) >= _PATH_BYTES // 4 and len(os.fsencode(path)) >= _PATH_BYTES and "/" in path[len(path) // 2 :]:
            return self._open_far(path, flags, follow, permissions)
        last = 0 if follow else os.O_NOFOLLOW
        try:
            return self._openat2(path, flags | last, permissions, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
        except OSError as exc:
            if exc.errno not in (errno.EXDEV, *_NO_CALL):
                raise
            leads_out = exc.errno == errno.EXDEV
        if leads_out and self._shown_at:
            return self._openat2(self._resolved(path, follow), flags | last, permissions, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
        if leads_out:
            return self._inside_after_all(path, flags | last, permissions)
        return self._name_by_name(path, flags, follow, permissions)

    def behind(self, path: str) -> str:
        """Return the path that a symlink finally leads to, even if nothing exists there; *path* itself if it is not a symlink."""
        for _ in range(_MOST_LINKS):
            try:
                fd = self.open(path, os.O_PATH, follow=False)
            except FileNotFoundError:
                return path
            try:
                if not stat.S_ISLNK(os.fstat(fd).st_mode):
                    return path
                target = os.readlink("", dir_fd=fd)
            finally:
                os.close(fd)
            path = self._from_root(target) if target.startswith("/") else os.path.join(os.path.dirname(path), target).rstrip("/")
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _from_root(self, target: str) -> str:
        for root in (*self._shown_at, self._root, os.path.realpath(self._root)):
            prefix = root.rstrip("/") + "/"
            if f"{target}/".startswith(prefix):
                return target[len(prefix) :].strip("/")
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)

    def _open_far(self, path: str, flags: int, follow: bool, permissions: int) -> int:
        """Open a path that is longer than the kernel accepts: first one half of it, then the rest from there."""
        middle = path.index("/", len(path) // 2)
        above = Beneath(os.path.join(self._root, path[:middle]), self.open(path[:middle], os.O_PATH | os.O_DIRECTORY))
        try:
            return above.open(path[middle + 1 :], flags, follow=follow, permissions=permissions)
        finally:
            above.close()

    def move(self, source: str, destination: str) -> None:
        """Rename a file to a name that is free.

        Raises:
            FileExistsError: *destination* exists.
            OSError: EXDEV also if a parent directory leads out.
        """
        (old_parent, old_name), (new_parent, new_name) = os.path.split(source), os.path.split(destination)
        old = self.open(old_parent, os.O_PATH | os.O_DIRECTORY)
        try:
            new = self.open(new_parent, os.O_PATH | os.O_DIRECTORY)
            try:
                _rename(old, old_name, new, new_name)
            finally:
                os.close(new)
        finally:
            os.close(old)

    def _openat2(self, path: str, flags: int, permissions: int, resolve: int) -> int:
        how = syscalls.OpenHow(flags | os.O_CLOEXEC, permissions, resolve)
        try:
            return syscalls.openat2(self._fd, os.fsencode(path or "."), how)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from None

    def _inside_after_all(self, path: str, flags: int, permissions: int) -> int:
        """Open an absolute symlink that leads back inside. Resolve it here and give the kernel a path without symlinks."""
        root = os.path.realpath(self._root)
        parent, name = os.path.split(os.path.join(root, path))
        real = (
            os.path.join(os.path.realpath(parent), name) if flags & os.O_NOFOLLOW else os.path.realpath(os.path.join(root, path))
        )
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        try:
            return self._openat2(os.path.relpath(real, root), flags, permissions, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from None

    def _resolved(self, path: str, follow: bool) -> str:
        """Return a path without symlinks, as seen where the directory is shown. Its last name need not exist.

        Whoever changes names meanwhile gains nothing: the result is opened without following a symlink.
        """
        found: list[str] = []
        rest, links = path.split("/")[::-1], 0
        while rest:
            name = rest.pop()
            if name == "..":
                if not found:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
                found.pop()
            elif name not in ("", "."):
                target = self._target("/".join([*found, name])) if rest or follow else ""
                if target.startswith("/"):
                    target, found = self._from_root(target), []
                elif not target:
                    found.append(name)
                links += bool(target)
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                rest += target.split("/")[::-1]
        return "/".join(found)

    def _target(self, path: str) -> str:
        """Return the target of a symlink; "" for anything else, and where nothing exists."""
        try:
            fd = self._openat2(path, os.O_PATH | os.O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
        except FileNotFoundError:
            return ""
        try:
            return os.readlink("", dir_fd=fd) if stat.S_ISLNK(os.fstat(fd).st_mode) else ""
        finally:
            os.close(fd)

    def _name_by_name(self, path: str, flags: int, follow: bool, permissions: int) -> int:
        """Open name by name. Refuse every symlink with ELOOP: without openat2 its target cannot be checked without a race."""
        names = path.split("/") if path else ["."]
        if ".." in names:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        fd = os.dup(self._fd)
        try:
            for name in names[:-1]:
                next_fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                os.close(fd)
                fd = next_fd
            last = os.open(names[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, permissions, dir_fd=fd)
        finally:
            os.close(fd)
        if follow and stat.S_ISLNK(os.fstat(last).st_mode):  # only an open with O_PATH reaches a symlink here
            os.close(last)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return last


def _rename(old_fd: int, name: str, new_fd: int, new_name: str) -> None:
    """Rename to a name that does not exist."""
    try:
        syscalls.rename(old_fd, os.fsencode(name), new_fd, os.fsencode(new_name), syscalls.NOREPLACE)
        return
    except OSError as exc:
        if exc.errno not in _NO_SUCH_FLAG:
            raise
    try:
        os.stat(new_name, dir_fd=new_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(name, new_name, src_dir_fd=old_fd, dst_dir_fd=new_fd)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_name)
