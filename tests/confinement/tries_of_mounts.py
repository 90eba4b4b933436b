"""Tries to get past the mounts of a run: to unmount, clone or enter them, or to read the disk and its files without them."""

import ctypes
import errno
import fcntl
import os
import struct

from tests.confinement.attempts import RUNNER, attempt, call, mark, marking, sh, world


def enter(namespace: str) -> None:
    fd = os.open(namespace, os.O_RDONLY)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = ctypes.CDLL(None).setns(fd, 0x20000) and 1
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise OSError(errno.EPERM, "setns")


@attempt
def enter_inherited_mounts() -> None:
    enter(f"/proc/self/fd/{world.fd_of_mounts}")


@attempt
def unmount_the_real_path() -> None:
    sh(f"umount -l {world.lower}")


@attempt
def unmount_the_workspace() -> None:
    sh(f"umount -l {world.point}")


@attempt
def unmount_a_pin() -> None:
    sh(f"umount -l {world.home}")


@attempt
def unmount_in_a_namespace() -> None:
    sh(f"unshare -m umount -l {world.lower}")


@attempt
def unmount_in_a_user_namespace() -> None:
    sh(f"unshare -Urm umount -l {world.lower}")


@attempt
def bind_what_holds_the_real_directory() -> None:
    inside = f"{world.outside}/empty"
    said = "echo ESCAPED bind_what_holds_the_real_directory"
    sh(f"unshare -Urm sh -ec 'mount --bind {world.home} {inside}; {said} > {inside}/proj/m'")


@attempt
def bind_as_root() -> None:
    sh(f"mount --bind {world.home} /mnt && echo ESCAPED bind_as_root > /mnt/proj/mark17")


@attempt
def unmount_in_a_recursive_bind() -> None:
    sh(f"unshare -Urm sh -ec 'mount --rbind {world.home} {world.home}/dir && umount -l {world.home}/dir/proj'")


@attempt
def pivot_into_a_bind() -> None:
    pivoted = f"mount --bind {world.home} {world.home}/dir; cd {world.home}/dir; pivot_root . dir"
    sh(f"unshare -Urm sh -ec '{pivoted}; echo ESCAPED pivot_into_a_bind >/proj/m'")


@marking
def copy_the_tree_below_a_cover() -> None:
    fd = call(428, -100, world.home.encode(), 1)  # open_tree(OPEN_TREE_CLONE)
    mark("copy_the_tree_below_a_cover", "proj/mark18", dir_fd=fd)


@attempt
def make_the_root_writable() -> None:
    sh(f"mount -o remount,bind,rw / && echo ESCAPED make_the_root_writable > {world.outside}/mark19")


@attempt
def mount_the_disk() -> None:
    sh(f"mkdir -p {world.point}/d && mount -t {world.disk_type} {world.disk} {world.point}/d && ls {world.point}/d{world.lower}")


@attempt
def make_a_node_of_the_disk() -> str:
    os.mknod(f"{world.home}/dir/disk", 0o60600, world.disk_number)
    return f"{os.read(os.open(f'{world.home}/dir/disk', os.O_RDONLY), 1)!r}"


@attempt
def open_the_disk() -> str:
    return f"{os.read(os.open(world.disk, os.O_RDWR), 1)!r}"


@attempt
def open_memory() -> str:
    return f"{os.read(os.open('/dev/mem', os.O_RDWR), 1)!r}"


@marking
def open_by_handle() -> None:
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    call(303, -100, world.home.encode(), handle, ctypes.byref(ctypes.c_int()), 0)
    fd = call(304, os.open(world.home, os.O_RDONLY), handle, os.O_DIRECTORY)
    mark("open_by_handle", "proj/mark20", dir_fd=fd)


@attempt
def walk_the_mount_namespaces() -> int:
    return len(fcntl.ioctl(os.open("/proc/self/ns/mnt", os.O_RDONLY), 0x8010B70B, struct.pack("=IIQ", 16, 0, 0)))


@attempt
def enter_the_mounts_of_process_1() -> None:
    enter("/proc/1/ns/mnt")


@attempt
def enter_the_mounts_of_the_daemon() -> None:
    enter(f"/proc/{world.daemon}/ns/mnt")


@attempt
def enter_the_mounts_of_the_daemon_by_pidfd() -> None:
    fd = os.pidfd_open(world.daemon)
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x20000):
        raise OSError(ctypes.get_errno() or errno.EPERM, "setns")


@marking
def open_by_io_uring() -> None:
    """openat of the real path, not by a system call of its own: IORING_OP_OPENAT."""
    params = ctypes.create_string_buffer(120)
    ring = call(425, 4, params)
    numbers = struct.unpack_from("=30I", params)
    sq, cq = numbers[10:20], numbers[20:30]
    import mmap

    size = max(sq[6] + 16, cq[5] + 4 * 16 + 64)
    rings = mmap.mmap(ring, max(size, 4096), mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=0)
    entries = mmap.mmap(ring, 4096, mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=0x10000000)
    path = ctypes.create_string_buffer(f"{world.lower}/mark21".encode())
    flags = os.O_WRONLY | os.O_CREAT
    struct.pack_into("=BBHiQQIIQ", entries, 0, 18, 0, 0, -100, 0, ctypes.addressof(path), 0o600, flags, 1)
    struct.pack_into("=I", rings, sq[6], 0)
    (tail,) = struct.unpack_from("=I", rings, sq[1])
    struct.pack_into("=I", rings, sq[1], tail + 1)
    call(426, ring, 1, 1, 1, None, 0)
    (result,) = struct.unpack_from("=i", rings, cq[5] + 8)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    os.write(result, b"ESCAPED open_by_io_uring\n")


@attempt
def unmount_by_the_new_calls() -> None:
    call(429, -100, world.lower.encode(), -100, f"{world.outside}/empty".encode(), 0)  # move_mount


@attempt
def make_the_covers_writable() -> None:
    attributes = ctypes.create_string_buffer(struct.pack("=QQQQ", 0, 1, 0, 0))  # mount_setattr: clear MOUNT_ATTR_RDONLY
    call(442, -100, os.path.dirname(world.state).encode(), 0x8000, attributes, 32)
    mark("make_the_covers_writable", f"{world.state}/mark30")
    raise OSError(errno.EROFS, "in the cover only")


@attempt
def lay_an_overlay_over_what_holds_the_real_directory() -> str:
    """The kernel clones what lies below an overlay without what is mounted there."""
    for name in ("upper", "work"):
        os.makedirs(f"{world.point}/ovl/{name}", exist_ok=True)
    made = f"mount -t tmpfs none {world.outside}/empty; cd {world.outside}/empty; mkdir u w m"
    said = f"mount -t overlay -o userxattr,lowerdir={world.home},upperdir=u,workdir=w none m; ls m/proj/victims"
    return sh(f"unshare -Urm sh -ec '{made}; {said}'")


@attempt
def lay_an_overlay_as_root() -> str:
    return sh(f"mkdir -p /tmp/l; mount -t overlay -o lowerdir={world.home}:/tmp/l none /mnt && ls /mnt/proj/victims")


@marking
def change_root_to_that_of_process_1() -> None:
    os.chroot("/proc/1/root")


@attempt
def enter_the_mounts_of_the_runner_by_pidfd() -> None:
    fd = os.pidfd_open(RUNNER)
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x20000):
        raise OSError(ctypes.get_errno() or errno.EPERM, "setns")


@attempt
def enter_the_user_namespace_of_the_holder() -> None:
    fd = os.open(f"/proc/{world.holder}/ns/user", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x10000000):
        raise OSError(ctypes.get_errno() or errno.EPERM, "setns")


@attempt
def watch_all_files_of_the_disk() -> int:
    """fanotify, whose events come with descriptors of the files: FAN_CLASS_CONTENT, then a mark on the file system."""
    fd = call(300, 4, os.O_RDWR)
    return call(301, fd, 0x101, 0x20, -100, world.home.encode())
