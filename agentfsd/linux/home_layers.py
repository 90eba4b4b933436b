"""Mounts a copy-on-write layer over a home directory with the kernel's overlayfs. This module knows nothing of branches.

What the kernel does with an upper directory that lies in its own lower is undefined, and the layers usually lie below the home
directory. The lower is then a read-only overlay of the home directory: to the kernel a file system of its own.

The kernel refuses, to an ordinary user, a lower directory in which something is mounted that the user may not unmount. So
kept_by_child() makes a namespace for layers before the daemon mounts anything. If the user's other daemons have mounted something
there already, it starts from the namespace that one of them has made in time.

Each function enters namespaces: call them in a single-threaded process that does nothing else afterwards. Source: mount(2),
overlayfs.rst of the kernel, mount_namespaces(7).
"""

import contextlib
import errno
import fcntl
import functools
import os
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator

from agentfs_host import syscalls
from agentfsd.linux import namespaces

MERGED, LOWER, LAYERS = "/merged", "/lower", "/layers"  # in a namespace that prepare() has made

_INNER, _EMPTY = "/inner", "/empty"
_NS_GET_USERNS = 0xB701  # linux/nsfs.h
_RDONLY, _NOSUID, _NODEV = 1, 2, 4  # mount(2)
_PLAIN = "redirect_dir=nofollow,metacopy=off,index=off"  # a layer that a walk over its files can read


def prepare(home: str, layers: str) -> None:
    """Enter a mount namespace that holds nothing but *home*, at LOWER, and *layers*, a directory in which layers are kept.

    Raises:
        OSError: EINVAL for an ordinary user when something is mounted in *home*; EPERM without user namespaces.
    """
    namespaces.enter_private_mounts()
    arrange(namespaces.copy_mount(home), namespaces.copy_mount(layers), layers)


def arrange(lower: int, layers: int, place: str) -> None:
    """Leave nothing in this mount namespace but two detached mounts, at LOWER and LAYERS, and room for overlays of them.

    Args:
        lower: A descriptor of the one for LOWER; it is closed.
        layers: Likewise for LAYERS.
        place: Any directory.

    Raises:
        OSError: The kernel refuses.
    """
    namespaces.mount_tmpfs(place, "mode=700,size=64k")
    for name in (LOWER, LAYERS, _INNER, _EMPTY, MERGED):
        os.mkdir(place + name)
    for name, mount in ((LOWER, lower), (LAYERS, layers)):
        namespaces.move_mount(mount, place + name)
        os.close(mount)
    namespaces.keep_only(place)


def _prepare_beside(user_namespace: int, mount_namespace: int, home: str, layers: str) -> None:
    """Enter a copy of what another daemon has prepared for the same home directory, with *layers* in place of its own.

    Raises:
        OSError: Among others EINVAL, if that namespace shows another home directory.
    """
    status = os.stat(home)
    namespaces.enter_mounts_beside(user_namespace)
    own = namespaces.copy_mount(layers)
    namespaces.enter_copy_of_mounts(None, mount_namespace)
    if not os.path.samestat(os.stat(LOWER), status):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    namespaces.move_mount(own, LAYERS)
    os.close(own)


def kept_by_child(home: str, layers: str, others: Iterable[int] = ()) -> tuple[int, int]:
    """Prepare in a child process. Call it before threads start.

    Args:
        home: The home directory.
        layers: The directory in which layers are kept.
        others: Process ids of daemons that may have prepared the same home directory before something was mounted in it.

    Returns:
        Descriptors of the user namespace and of the mount namespace, to be entered by enter(). The caller closes them.

    Raises:
        OSError: As prepare().
    """
    try:
        return _kept(lambda: prepare(home, layers))
    except OSError as exc:
        if exc.errno == errno.EINVAL:
            for pair in _namespaces_of(others):
                with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
                    for fd in pair:
                        opened.callback(os.close, fd)
                    return _kept(functools.partial(_prepare_beside, *pair, home, layers))
        raise


def _namespaces_of(pids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the mount namespaces of which processes have descriptors: user namespace, mount namespace. The caller closes them."""
    for pid in pids:
        place = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                with contextlib.suppress(OSError):
                    if os.readlink(f"{place}/{name}").startswith("mnt:"):
                        yield _with_owner(os.open(f"{place}/{name}", os.O_RDONLY))


def _with_owner(mount_namespace: int) -> tuple[int, int]:
    try:
        return fcntl.ioctl(mount_namespace, _NS_GET_USERNS), mount_namespace
    except OSError:
        os.close(mount_namespace)
        raise


def _kept(enter_prepared: Callable[[], None]) -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if child == 0:
            _prepare_for(theirs, enter_prepared)
        theirs.close()
        try:
            said, kept, _, _ = socket.recv_fds(ours, 8, 2)
        finally:
            os.waitpid(child, 0)
    if len(kept) != 2:
        code = int(said or str(errno.EIO))
        raise OSError(code, os.strerror(code))
    for fd in kept:
        os.set_inheritable(fd, False)
    return kept[0], kept[1]


def _prepare_for(parent: socket.socket, enter_prepared: Callable[[], None]) -> None:
    """The child's side: never returns."""
    try:
        proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)  # there is none in what is prepared
        enter_prepared()
        kept = [os.open(f"{os.getpid()}/ns/{kind}", os.O_RDONLY, dir_fd=proc) for kind in ("user", "mnt")]
        socket.send_fds(parent, [b"0"], kept)
    except OSError as exc:
        parent.send(str(exc.errno or errno.EIO).encode())
    finally:
        os._exit(0)


def enter(user_namespace: int, mount_namespace: int) -> None:
    """Enter a copy of what kept_by_child() has prepared. OSError."""
    namespaces.enter_copy_of_mounts(user_namespace, mount_namespace)


def mount(layer: str, source: str) -> None:
    """Mount the layer of that name over the home directory, at MERGED, after prepare() or enter().

    Args:
        layer: The name of a directory in the directory of layers.
        source: What the mount table shall show as the mount's source.

    Raises:
        OSError: The kernel or the file system of the layers cannot do it.
    """
    own = _PLAIN + (",userxattr" if _is_in_user_namespace() else "")
    lower = LOWER
    if os.stat(LOWER).st_dev == os.stat(LAYERS).st_dev:
        _mount(source + "-lower", _INNER, _RDONLY, f"lowerdir={_EMPTY}:{LOWER},{own}")
        lower = _INNER
    upper = f"upperdir={LAYERS}/{layer}/upper,workdir={LAYERS}/{layer}/work"
    _mount(source, MERGED, 0, f"lowerdir={lower},{upper},{own}")


def _is_in_user_namespace() -> bool:
    """Return whether the kernel denies us the extended attributes trusted.*. (There is no /proc here to ask.)"""
    try:
        os.setxattr(_EMPTY, "trusted.agentfsd", b"")
    except OSError:
        return True
    return False


def _mount(source: str, target: str, flags: int, data: str) -> None:
    syscalls.mount(source.encode(), target.encode(), b"overlay", flags | _NOSUID | _NODEV, data.encode())


def why_not(directory: str) -> str:
    """Try to mount a layer in a temporary directory in *directory*. Return why that is impossible; "" if it works."""
    with tempfile.TemporaryDirectory(dir=directory, prefix=".agentfsd-try-") as place:
        for name in ("home", "layers/try/upper", "layers/try/work"):
            os.makedirs(os.path.join(place, name))
        child = os.fork()
        if child == 0:
            code = errno.EIO
            try:
                prepare(os.path.join(place, "home"), os.path.join(place, "layers"))
                mount("try", "agentfsd-try")
                code = 0
            except OSError as exc:
                code = exc.errno or errno.EIO
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        made = os.path.join(place, "layers", "try", "work", "work")
        if os.path.isdir(made):
            os.chmod(made, 0o700)  # overlayfs makes it without any permission
    return os.strerror(code) if code else ""


def is_mounted_anywhere(source: str, without: int = 0) -> bool:
    """Return whether a process whose mount table we may read, but *without*, has a mount with that source."""
    wanted = f" {source} ".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != without:
            try:
                with open(f"/proc/{name}/mountinfo", "rb") as file:
                    if wanted in file.read():
                        return True
            except OSError:
                continue  # it has ended, or is another user's
    return False
