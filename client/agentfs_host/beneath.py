"""Opening and renaming what lies beneath a directory without leaving it: openat2(2), or name by name where the kernel refuses
that."""

import ctypes
import errno
import os
import stat

_SYS_OPENAT2 = 437
_RENAME_NOREPLACE = 1
_NO_SUCH_FLAG = (errno.EINVAL, errno.ENOSYS)
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_EXTRA = os.O_CLOEXEC
_PATH_BYTES = 4096  # PATH_MAX, with the zero at the end
_MOST_LINKS = 40  # as the kernel


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t)
_renameat2 = getattr(_libc, "renameat2", None)  # glibc 2.28
if _renameat2 is not None:
    _renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)


class Beneath:
    """A directory and what is in it, by relative paths ("" is the directory itself). Symlinks are followed as long as they stay
    beneath it; one that leads out is EXDEV. Descriptors that are returned belong to the caller."""

    def __init__(self, root: str, fd: int | None = None) -> None:
        self._root = root
        self._fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if fd is None else fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)

    def open(self, path: str, flags: int, *, follow: bool = True, permissions: int = 0) -> int:
        """A descriptor; OSError with the kernel's errno. *follow* is about the last name only, *permissions* about a new file."""
        if self._fd < 0:
            raise RuntimeError("the file system has been closed")
        if len(path) >= _PATH_BYTES // 4 and len(os.fsencode(path)) >= _PATH_BYTES and "/" in path[len(path) // 2 :]:
            return self._open_far(path, flags, follow, permissions)
        last = 0 if follow else os.O_NOFOLLOW
        fd = self._openat2(path, flags | last, permissions)
        if fd >= 0:
            return fd
        number = -fd
        if number == errno.EXDEV:
            return self._inside_after_all(path, flags | last, permissions)
        if number in (errno.ENOSYS, errno.EPERM):
            return self._name_by_name(path, flags, follow, permissions)
        raise OSError(number, os.strerror(number), path)

    def behind(self, path: str) -> str:
        """What a symlink leads to, followed to its end even where nothing is there; *path* itself where that is no symlink."""
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
        for root in (self._root, os.path.realpath(self._root)):
            prefix = root.rstrip("/") + "/"
            if target.startswith(prefix):
                return target[len(prefix) :].strip("/")
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)

    def _open_far(self, path: str, flags: int, follow: bool, permissions: int) -> int:
        """Where the path is longer than the kernel takes at once: the first half of it, and the rest from there."""
        middle = path.index("/", len(path) // 2)
        above = Beneath(os.path.join(self._root, path[:middle]), self.open(path[:middle], os.O_PATH | os.O_DIRECTORY))
        try:
            return above.open(path[middle + 1 :], flags, follow=follow, permissions=permissions)
        finally:
            above.close()

    def move(self, source: str, destination: str) -> None:
        """FileExistsError where *destination* is something already; OSError EXDEV also where a parent leads out."""
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

    def _openat2(self, path: str, flags: int, permissions: int, resolve: int = _BENEATH | _NO_MAGICLINKS) -> int:
        """A descriptor, or an errno as a negative number."""
        how = _OpenHow(flags | _EXTRA, permissions, resolve)
        for _ in range(16):
            fd = int(_syscall(_SYS_OPENAT2, self._fd, os.fsencode(path or "."), ctypes.byref(how), ctypes.sizeof(how)))
            if fd >= 0:
                return fd
            if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: something was renamed on the way
                break
        return -ctypes.get_errno()

    def _inside_after_all(self, path: str, flags: int, permissions: int) -> int:
        """An absolute symlink may lead back inside. The kernel then takes the path that it leads to, and no symlink any more."""
        root = os.path.realpath(self._root)
        parent, name = os.path.split(os.path.join(root, path))
        real = (
            os.path.join(os.path.realpath(parent), name) if flags & os.O_NOFOLLOW else os.path.realpath(os.path.join(root, path))
        )
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        fd = self._openat2(os.path.relpath(real, root), flags, permissions, _BENEATH | _NO_SYMLINKS)
        if fd < 0:
            raise OSError(-fd, os.strerror(-fd), path)
        return fd

    def _name_by_name(self, path: str, flags: int, follow: bool, permissions: int) -> int:
        """No symlink is followed then, which is ELOOP: whether it would stay inside cannot be told without a race."""
        names = path.split("/") if path else ["."]
        if ".." in names:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        fd = os.dup(self._fd)
        try:
            for name in names[:-1]:
                next_fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                os.close(fd)
                fd = next_fd
            last = os.open(names[-1], flags | os.O_NOFOLLOW | _EXTRA, permissions, dir_fd=fd)
        finally:
            os.close(fd)
        if follow and stat.S_ISLNK(os.fstat(last).st_mode):  # only O_PATH opens one
            os.close(last)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return last


def _rename(old_fd: int, name: str, new_fd: int, new_name: str) -> None:
    """To a name that is free."""
    number = errno.ENOSYS
    if _renameat2 is not None:
        if _renameat2(old_fd, os.fsencode(name), new_fd, os.fsencode(new_name), _RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
    if number not in _NO_SUCH_FLAG:
        raise OSError(number, os.strerror(number), new_name)
    try:
        os.stat(new_name, dir_fd=new_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(name, new_name, src_dir_fd=old_fd, dst_dir_fd=new_fd)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_name)
