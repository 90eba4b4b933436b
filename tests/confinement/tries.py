"""What a command of `run` tries to reach beyond its branch. Run in the branch, with the world's description as JSON.

Prints for each try what came of it: an errno, or what it read. Whether anything outside has changed is looked at from outside:
each try that writes leaves a mark with its name, and each that removes or moves has a victim of its own.
"""

import collections
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

W: Any = json.loads(sys.argv[1]) if __name__ == "__main__" else collections.defaultdict(str)
HOME, LOWER, POINT, STATE, OUTSIDE = W["home"], W["lower"], W["point"], W["state"], W["outside"]
RUNNER = os.getppid()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
TRIES: dict[str, Callable[[], object]] = {}
MARKING: set[str] = set()


def attempt(function: Callable[[], object]) -> Callable[[], object]:
    """One that is to be refused."""
    TRIES[function.__name__] = function
    return function


def marking(function: Callable[[], object]) -> Callable[[], object]:
    """One that may be carried out as long as nothing is different outside: in the branch it may."""
    MARKING.add(function.__name__)
    return attempt(function)


def call(number: int, *arguments: object) -> int:
    shaped = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = libc.syscall(ctypes.c_long(number), *shaped)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def mark(name: str, path: str, dir_fd: int | None = None) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=dir_fd)
    os.write(fd, f"ESCAPED {name}\n".encode())
    os.close(fd)


def read(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read(200)


def sh(script: str) -> str:
    """OSError when it fails."""
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise OSError(errno.EPERM, done.stderr.strip()[-200:] or str(done.returncode))
    return done.stdout


def agentfsd(*words: str) -> str:
    done = subprocess.run([*W["agentfsd"], *words], capture_output=True, text=True, timeout=60, cwd=POINT)
    if done.returncode != 0:
        raise OSError(errno.EPERM, done.stderr.strip()[-200:])
    return done.stdout


def victim(name: str) -> str:
    return f"{LOWER}/victims/{name}"


# -- the real files of the workspace ------------------------------------------------------------------------------------


@marking
def write_at_the_real_path() -> None:
    mark("write_at_the_real_path", f"{LOWER}/mark1")


@marking
def write_through_a_symlinked_parent() -> None:
    mark("write_through_a_symlinked_parent", f"{HOME}/links/proj/mark2")


@marking
def write_through_a_bind_mount() -> None:
    mark("write_through_a_bind_mount", f"{W['alias']}/mark3")


@marking
def write_through_a_bind_mount_of_a_part() -> None:
    mark("write_through_a_bind_mount_of_a_part", f"{W['alias_of_part']}/mark4")


@marking
def write_by_own_root() -> None:
    mark("write_by_own_root", f"/proc/self/root{LOWER}/mark5")


@marking
def write_by_the_root_of_process_1() -> None:
    mark("write_by_the_root_of_process_1", f"/proc/1/root{LOWER}/mark6")


@marking
def write_by_the_root_of_the_daemon() -> None:
    mark("write_by_the_root_of_the_daemon", f"/proc/{W['daemon']}/root{LOWER}/mark7")


@marking
def write_by_the_cwd_of_somebody_outside() -> None:
    mark("write_by_the_cwd_of_somebody_outside", f"/proc/{W['bystander']}/cwd/mark8")


@marking
def write_by_descriptors_of_the_daemon() -> None:
    for name in os.listdir(f"/proc/{W['daemon']}/fd"):
        mark("write_by_descriptors_of_the_daemon", f"/proc/{W['daemon']}/fd/{name}/mark9")


@marking
def write_by_the_root_of_the_runner() -> None:
    mark("write_by_the_root_of_the_runner", f"/proc/{RUNNER}/root{LOWER}/mark10")


@marking
def write_by_the_cwd_of_the_runner() -> None:
    mark("write_by_the_cwd_of_the_runner", f"/proc/{RUNNER}/cwd/../proj/mark11")


@attempt
def write_by_the_mounts_of_the_runner() -> None:
    sh(f"nsenter --mount=/proc/{RUNNER}/ns/mnt sh -c 'echo ESCAPED write_by_the_mounts_of_the_runner > {LOWER}/mark12'")


@marking
def write_by_an_inherited_directory() -> None:
    mark("write_by_an_inherited_directory", "mark13", dir_fd=W["fd_of_lower"])


@marking
def write_by_an_inherited_parent() -> None:
    mark("write_by_an_inherited_parent", "proj/mark14", dir_fd=W["fd_of_home"])


@marking
def change_to_an_inherited_directory() -> None:
    os.fchdir(W["fd_of_lower"])
    mark("change_to_an_inherited_directory", "mark15")


def reopen(fd: int, name: str) -> None:
    again = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_TRUNC)
    os.write(again, f"ESCAPED {name}\n".encode())


@attempt
def open_an_inherited_file_for_writing() -> None:
    reopen(W["fd_of_file"], "open_an_inherited_file_for_writing")


@attempt
def open_what_an_inherited_descriptor_names() -> None:
    """O_PATH, by which nothing was opened yet."""
    reopen(W["fd_of_path"], "open_what_an_inherited_descriptor_names")


@attempt
def enter_inherited_mounts() -> None:
    enter(f"/proc/self/fd/{W['fd_of_mounts']}")


@marking
def link_a_real_file_elsewhere() -> None:
    os.link(victim("link_a_real_file_elsewhere"), f"{HOME}/linked")
    mark("link_a_real_file_elsewhere", f"{HOME}/linked")


@marking
def move_a_real_file_away() -> None:
    os.rename(victim("move_a_real_file_away"), f"{HOME}/moved")


@marking
def remove_a_real_file() -> None:
    os.unlink(victim("remove_a_real_file"))


@marking
def remove_a_real_file_by_another_name() -> None:
    os.unlink(f"{W['alias']}/victims/remove_a_real_file_by_another_name")


@attempt
def move_the_real_directory() -> None:
    os.rename(LOWER, f"{HOME}/proj2")


@attempt
def move_what_the_real_directory_lies_in() -> None:
    os.rename(os.path.dirname(HOME), f"{W['base']}2")


@attempt
def exchange_the_real_directory() -> None:
    call(316, -100, LOWER.encode(), -100, f"{HOME}/dir".encode(), 2)


@attempt
def remove_the_real_directory() -> None:
    os.rmdir(LOWER)


@attempt
def unmount_the_real_path() -> None:
    sh(f"umount -l {LOWER}")


@attempt
def unmount_the_workspace() -> None:
    sh(f"umount -l {POINT}")


@attempt
def unmount_a_pin() -> None:
    sh(f"umount -l {HOME}")


@attempt
def unmount_in_a_namespace() -> None:
    sh(f"unshare -m umount -l {LOWER}")


@attempt
def unmount_in_a_user_namespace() -> None:
    sh(f"unshare -Urm umount -l {LOWER}")


@attempt
def bind_what_holds_the_real_directory() -> None:
    inside = f"{OUTSIDE}/empty"
    said = "echo ESCAPED bind_what_holds_the_real_directory"
    sh(f"unshare -Urm sh -ec 'mount --bind {HOME} {inside}; {said} > {inside}/proj/m'")


@attempt
def bind_as_root() -> None:
    sh(f"mount --bind {HOME} /mnt && echo ESCAPED bind_as_root > /mnt/proj/mark17")


@attempt
def unmount_in_a_recursive_bind() -> None:
    sh(f"unshare -Urm sh -ec 'mount --rbind {HOME} {HOME}/dir && umount -l {HOME}/dir/proj'")


@attempt
def pivot_into_a_bind() -> None:
    pivoted = f"mount --bind {HOME} {HOME}/dir; cd {HOME}/dir; pivot_root . dir"
    sh(f"unshare -Urm sh -ec '{pivoted}; echo ESCAPED pivot_into_a_bind >/proj/m'")


@marking
def copy_the_tree_below_a_cover() -> None:
    fd = call(428, -100, HOME.encode(), 1)  # open_tree(OPEN_TREE_CLONE)
    mark("copy_the_tree_below_a_cover", "proj/mark18", dir_fd=fd)


@attempt
def make_the_root_writable() -> None:
    sh(f"mount -o remount,bind,rw / && echo ESCAPED make_the_root_writable > {OUTSIDE}/mark19")


@attempt
def mount_the_disk() -> None:
    sh(f"mkdir -p {POINT}/d && mount -t {W['disk_type']} {W['disk']} {POINT}/d && ls {POINT}/d{LOWER}")


@attempt
def make_a_node_of_the_disk() -> str:
    os.mknod(f"{HOME}/dir/disk", 0o60600, W["disk_number"])
    return f"{os.read(os.open(f'{HOME}/dir/disk', os.O_RDONLY), 1)!r}"


@attempt
def open_the_disk() -> str:
    return f"{os.read(os.open(W['disk'], os.O_RDWR), 1)!r}"


@attempt
def open_memory() -> str:
    return f"{os.read(os.open('/dev/mem', os.O_RDWR), 1)!r}"


@marking
def open_by_handle() -> None:
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    call(303, -100, HOME.encode(), handle, ctypes.byref(ctypes.c_int()), 0)
    fd = call(304, os.open(HOME, os.O_RDONLY), handle, os.O_DIRECTORY)
    mark("open_by_handle", "proj/mark20", dir_fd=fd)


@attempt
def walk_the_mount_namespaces() -> int:
    return len(fcntl.ioctl(os.open("/proc/self/ns/mnt", os.O_RDONLY), 0x8010B70B, struct.pack("=IIQ", 16, 0, 0)))


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
def enter_the_mounts_of_process_1() -> None:
    enter("/proc/1/ns/mnt")


@attempt
def enter_the_mounts_of_the_daemon() -> None:
    enter(f"/proc/{W['daemon']}/ns/mnt")


@attempt
def enter_the_mounts_of_the_daemon_by_pidfd() -> None:
    fd = os.pidfd_open(W["daemon"])
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x20000):
        raise OSError(ctypes.get_errno() or errno.EPERM, "setns")


@attempt
def take_a_descriptor_of_the_daemon() -> int:
    return call(438, os.pidfd_open(W["daemon"]), 3, 0)


@attempt
def read_memory_of_the_daemon() -> str:
    return read(f"/proc/{W['daemon']}/mem")


@attempt
def trace_the_daemon() -> None:
    call(101, 0x4206, W["daemon"], 0, 0)


@attempt
def trace_a_bystander() -> None:
    call(101, 0x4206, W["bystander"], 0, 0)


@attempt
def read_the_environment_of_a_bystander() -> str:
    return read(f"/proc/{W['bystander']}/environ")


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
    path = ctypes.create_string_buffer(f"{LOWER}/mark21".encode())
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
    call(429, -100, LOWER.encode(), -100, f"{OUTSIDE}/empty".encode(), 0)  # move_mount


@attempt
def make_the_covers_writable() -> None:
    attributes = ctypes.create_string_buffer(struct.pack("=QQQQ", 0, 1, 0, 0))  # mount_setattr: clear MOUNT_ATTR_RDONLY
    call(442, -100, os.path.dirname(STATE).encode(), 0x8000, attributes, 32)
    mark("make_the_covers_writable", f"{STATE}/mark30")
    raise OSError(errno.EROFS, "in the cover only")


@attempt
def lay_an_overlay_over_what_holds_the_real_directory() -> str:
    """The kernel clones what lies below an overlay without what is mounted there."""
    for name in ("upper", "work"):
        os.makedirs(f"{POINT}/ovl/{name}", exist_ok=True)
    made = f"mount -t tmpfs none {OUTSIDE}/empty; cd {OUTSIDE}/empty; mkdir u w m"
    said = f"mount -t overlay -o userxattr,lowerdir={HOME},upperdir=u,workdir=w none m; ls m/proj/victims"
    return sh(f"unshare -Urm sh -ec '{made}; {said}'")


@attempt
def lay_an_overlay_as_root() -> str:
    return sh(f"mkdir -p /tmp/l; mount -t overlay -o lowerdir={HOME}:/tmp/l none /mnt && ls /mnt/proj/victims")


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
    fd = os.open(f"/proc/{W['holder']}/ns/user", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x10000000):
        raise OSError(ctypes.get_errno() or errno.EPERM, "setns")


@attempt
def write_memory_of_the_daemon() -> int:
    """process_vm_writev."""
    data = ctypes.create_string_buffer(b"x")
    ours = struct.pack("=QQ", ctypes.addressof(data), 1)
    theirs = struct.pack("=QQ", 0x400000, 1)
    return call(311, W["daemon"], ours, 1, theirs, 1, 0)


@attempt
def open_mapped_files_of_the_daemon() -> None:
    place = f"/proc/{W['daemon']}/map_files"
    for name in os.listdir(place):
        os.close(os.open(f"{place}/{name}", os.O_RDONLY))


@attempt
def trace_the_runner() -> None:
    call(101, 0x4206, RUNNER, 0, 0)


@attempt
def watch_all_files_of_the_disk() -> int:
    """fanotify, whose events come with descriptors of the files: FAN_CLASS_CONTENT, then a mark on the file system."""
    fd = call(300, 4, os.O_RDWR)
    return call(301, fd, 0x101, 0x20, -100, HOME.encode())


@marking
def mount_the_workspace_again() -> None:
    """A daemon of one's own over the real directory, which is the branch here."""
    agentfsd("mount", LOWER, f"{OUTSIDE}/empty", "--state", f"{OUTSIDE}/empty/state")


@marking
def run_without_confinement() -> None:
    agentfsd("run", "--confine", "off", "-b", "mine", "--", "sh", "-c", f"echo ESCAPED run_without_confinement >{LOWER}/mark31")


@attempt
def merge_into_main() -> None:
    agentfsd("merge", "mine", "main")


@attempt
def undo_what_a_person_did() -> None:
    agentfsd("undo")


@attempt
def forget_what_can_be_undone() -> None:
    agentfsd("gc", "--forget-undo")


@attempt
def change_the_rules() -> None:
    agentfsd("rules", "add", "allow **")


@attempt
def export_another_branch() -> None:
    agentfsd("export", "other", f"{POINT}/exported")


@attempt
def compare_with_another_branch() -> str:
    return agentfsd("diff", "other", "--patch")


@attempt
def restore_another_branch_here() -> None:
    agentfsd("restore", "other")


@attempt
def ask_for_a_descriptor_of_another_branch() -> str:
    from agentfs_client.control import ControlClient

    with ControlClient.connect(f"{STATE}/control.sock") as client:
        return os.read(client.open_fd("secret", os.O_RDONLY, branch="other").fd, 100).decode()


# -- the state of agentfsd -----------------------------------------------------------------------------------------------


@attempt
def list_contents() -> list[str]:
    found = [name for name in os.listdir(STATE) if name not in ("control.sock", "handoff.sock")]
    if not found:
        raise OSError(errno.ENOENT, "covered")
    return found


@attempt
def remove_the_state() -> None:
    os.unlink(f"{STATE}/meta.db")


@marking
def write_into_the_state() -> None:
    mark("write_into_the_state", f"{STATE}/mark22")


@marking
def write_into_the_state_by_another_name() -> None:
    mark("write_into_the_state_by_another_name", f"{W['alias_of_state']}/mark23")


@marking
def write_contents_by_another_name() -> None:
    mark("write_contents_by_another_name", f"{W['alias_of_state']}/objects/mark24")


@attempt
def move_what_the_state_lies_in() -> None:
    os.rename(f"{HOME}/.local", f"{HOME}/.local2")


@attempt
def move_the_state() -> None:
    os.rename(os.path.dirname(STATE), f"{HOME}/states")


@attempt
def replace_the_socket() -> None:
    os.unlink(f"{STATE}/control.sock")


@attempt
def read_the_registry() -> list[str]:
    found = [name for name in os.listdir(W["registry"]) if W["other_record"] in name]
    if not found:
        raise OSError(errno.ENOENT, "covered")
    return found


@marking
def write_into_the_registry() -> None:
    mark("write_into_the_registry", f"{W['registry']}/mark25.json")


@marking
def make_a_registry_that_does_not_exist_yet() -> None:
    os.makedirs(f"/tmp/agentfsd-{os.geteuid()}", exist_ok=True)
    mark("make_a_registry_that_does_not_exist_yet", f"/tmp/agentfsd-{os.geteuid()}/mark.json")


@attempt
def talk_to_another_daemon() -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(W["other_socket"])


@attempt
def discard_another_branch() -> None:
    agentfsd("discard", "other")


@attempt
def commit_the_branch() -> None:
    agentfsd("commit", "mine")


@attempt
def be_bound_to_another_branch() -> None:
    agentfsd("bind", str(os.getpid()), "other")


@attempt
def change_the_policy() -> None:
    agentfsd("policy", "set", "confine", "off")


@attempt
def run_in_another_branch() -> None:
    agentfsd("run", "-b", "other", "--", "true")


@attempt
def end_the_daemon() -> None:
    agentfsd("umount", POINT)


@attempt
def read_another_branch() -> str:
    return read(f"{POINT}/.agentfs/branches/other/secret")


@attempt
def read_another_mount() -> str:
    return read(f"{W['other_point']}/secret")


@marking
def write_into_another_mount() -> None:
    mark("write_into_another_mount", f"{W['other_point']}/mark26")


@attempt
def read_what_lies_below_another_mount() -> list[str]:
    found = os.listdir(f"{W['other_point']}/.agentfs")
    return found


# -- processes outside ---------------------------------------------------------------------------------------------------


@attempt
def stop_the_daemon() -> None:
    os.kill(W["daemon"], signal.SIGSTOP)


@attempt
def kill_the_daemon() -> None:
    os.kill(W["daemon"], signal.SIGKILL)


@attempt
def kill_the_daemon_by_pidfd() -> None:
    signal.pidfd_send_signal(os.pidfd_open(W["daemon"]), signal.SIGKILL)


@attempt
def kill_a_thread_of_the_daemon() -> None:
    call(234, W["daemon"], W["daemon"], 9)


@attempt
def kill_the_group_of_the_daemon() -> None:
    os.kill(-W["daemon_group"], signal.SIGKILL)


@attempt
def kill_the_runner() -> None:
    os.kill(RUNNER, signal.SIGKILL)


@attempt
def kill_the_holder_of_the_mount() -> None:
    os.kill(W["holder"], signal.SIGKILL)


@attempt
def kill_a_bystander() -> None:
    os.kill(W["bystander"], signal.SIGKILL)


@attempt
def queue_a_signal_to_the_daemon() -> None:
    call(129, W["daemon"], 9, ctypes.create_string_buffer(struct.pack("=iii", 9, 0, -1) + bytes(116)))


@marking
def have_the_kernel_signal_the_daemon() -> None:
    """By the owner of a descriptor whose input is asynchronous."""
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, 10, signal.SIGKILL)  # F_SETSIG
    fcntl.fcntl(ours, fcntl.F_SETOWN, W["daemon"])
    fcntl.fcntl(ours, fcntl.F_SETFL, fcntl.fcntl(ours, fcntl.F_GETFL) | os.O_ASYNC)
    theirs.send(b"x")


@attempt
def limit_the_daemon() -> None:
    import resource

    resource.prlimit(W["bystander"], resource.RLIMIT_NOFILE, (3, 1024))


@attempt
def slow_the_daemon() -> None:
    os.setpriority(os.PRIO_PROCESS, W["bystander"], 19)


@attempt
def have_a_bystander_killed_for_memory() -> None:
    with open(f"/proc/{W['bystander']}/oom_score_adj", "w") as file:
        file.write("1000")


@attempt
def break_the_connections_of_mounts() -> None:
    """By the kernel's directory of FUSE connections."""
    place = "/sys/fs/fuse/connections"
    if not any(os.access(f"{place}/{name}/abort", os.W_OK) for name in os.listdir(place)):
        raise OSError(errno.EACCES, "none may be broken")


@attempt
def signal_everybody() -> None:
    """Signal 0 to each process: which would have got another one?"""
    reached = []
    for pid in (W["daemon"], W["bystander"], W["holder"], RUNNER):
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            reached.append(pid)
    if not reached:
        raise OSError(errno.EPERM, "nobody")


@attempt
def keep_the_daemon_on_one_processor() -> None:
    os.sched_setaffinity(W["bystander"], {0})


@attempt
def give_the_daemon_no_disk_time() -> None:
    call(251, 1, W["bystander"], 3 << 13)  # ioprio_set: idle


@attempt
def type_into_the_terminal() -> None:
    fcntl.ioctl(W["terminal"], 0x5412, b"x")


@attempt
def paste_into_the_console() -> None:
    fcntl.ioctl(W["terminal"], 0x541C, b"\x03")


# -- everything else -----------------------------------------------------------------------------------------------------


@attempt
def read_a_key() -> str:
    return read(f"{HOME}/.ssh/id")


@marking
def write_into_the_home() -> None:
    mark("write_into_the_home", f"{HOME}/.bashrc")


@marking
def remove_from_the_home() -> None:
    os.unlink(f"{HOME}/victim")


@marking
def write_beside_the_home() -> None:
    mark("write_beside_the_home", f"{OUTSIDE}/mark27")


@marking
def write_into_the_shared_tmp() -> None:
    mark("write_into_the_shared_tmp", f"{W['tmp']}/mark28")


@attempt
def talk_to_a_service() -> str:
    with socket.socket(socket.AF_UNIX) as service:
        service.connect(W["service"])
        return service.recv(100).decode()


@attempt
def talk_to_an_abstract_service() -> str:
    with socket.socket(socket.AF_UNIX) as service:
        service.connect(f"\0{W['abstract']}")
        return service.recv(100).decode()


@attempt
def change_what_the_kernel_runs() -> None:
    with open("/proc/sys/kernel/core_pattern") as file:
        pattern = file.read()
    with open("/proc/sys/kernel/core_pattern", "w") as file:
        file.write(pattern)


@attempt
def write_into_sysfs() -> None:
    with open("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan", "r+") as file:
        value = file.read()
        file.seek(0)
        file.write(value)


@attempt
def make_a_control_group() -> None:
    os.mkdir(f"{W['cgroup']}/escaped")
    os.rmdir(f"{W['cgroup']}/escaped")


@attempt
def load_a_module() -> None:
    try:
        call(175, b"", 0, b"")
    except OSError as exc:
        if exc.errno not in (errno.EPERM, errno.ENOSYS):
            return  # the kernel did look at it
        raise


@attempt
def set_the_clock() -> None:
    import time

    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))


@attempt
def name_the_machine() -> None:
    socket.sethostname(socket.gethostname())


@attempt
def load_a_program_into_the_kernel() -> None:
    try:
        call(321, 5, ctypes.create_string_buffer(128), 128)
    except OSError as exc:
        if exc.errno != errno.EPERM:
            return
        raise


def outcome(work: Callable[[], object]) -> dict[str, object]:
    """What came of a try, made in a child: what is done after one that got out must not be done to the whole machine."""
    low = os.pipe()
    reading, writing = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200) for fd in low)  # low numbers are those of inherited ones
    for fd in low:
        os.close(fd)
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(attempted(work), default=repr).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        told = file.read()
    os.waitpid(child, 0)
    return json.loads(told) if told else {"errno": -1, "why": "it died"}


def attempted(work: Callable[[], object]) -> dict[str, object]:
    try:
        return {"got": work()}
    except OSError as exc:
        return {"errno": exc.errno or 0, "why": str(exc)}
    except (AttributeError, ValueError, subprocess.TimeoutExpired) as exc:
        return {"errno": -1, "why": repr(exc)}


if __name__ == "__main__":
    print(json.dumps({name: outcome(work) for name, work in TRIES.items()}, default=repr))
