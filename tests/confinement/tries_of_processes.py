"""Tries to trace, kill, stop or slow processes outside: the daemon, the holder of the mount, the runner, a bystander."""

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct

from tests.confinement.attempts import RUNNER, attempt, call, marking, read, world


@attempt
def take_a_descriptor_of_the_daemon() -> int:
    return call(438, os.pidfd_open(world.daemon), 3, 0)


@attempt
def read_memory_of_the_daemon() -> str:
    return read(f"/proc/{world.daemon}/mem")


@attempt
def trace_the_daemon() -> None:
    call(101, 0x4206, world.daemon, 0, 0)


@attempt
def trace_a_bystander() -> None:
    call(101, 0x4206, world.bystander, 0, 0)


@attempt
def read_the_environment_of_a_bystander() -> str:
    return read(f"/proc/{world.bystander}/environ")


@attempt
def write_memory_of_the_daemon() -> int:
    """process_vm_writev."""
    data = ctypes.create_string_buffer(b"x")
    ours = struct.pack("=QQ", ctypes.addressof(data), 1)
    theirs = struct.pack("=QQ", 0x400000, 1)
    return call(311, world.daemon, ours, 1, theirs, 1, 0)


@attempt
def open_mapped_files_of_the_daemon() -> None:
    place = f"/proc/{world.daemon}/map_files"
    for name in os.listdir(place):
        os.close(os.open(f"{place}/{name}", os.O_RDONLY))


@attempt
def trace_the_runner() -> None:
    call(101, 0x4206, RUNNER, 0, 0)


@attempt
def stop_the_daemon() -> None:
    os.kill(world.daemon, signal.SIGSTOP)


@attempt
def kill_the_daemon() -> None:
    os.kill(world.daemon, signal.SIGKILL)


@attempt
def kill_the_daemon_by_pidfd() -> None:
    signal.pidfd_send_signal(os.pidfd_open(world.daemon), signal.SIGKILL)


@attempt
def kill_a_thread_of_the_daemon() -> None:
    call(234, world.daemon, world.daemon, 9)


@attempt
def kill_the_group_of_the_daemon() -> None:
    os.kill(-world.daemon_group, signal.SIGKILL)


@attempt
def kill_the_runner() -> None:
    os.kill(RUNNER, signal.SIGKILL)


@attempt
def kill_the_holder_of_the_mount() -> None:
    os.kill(world.holder, signal.SIGKILL)


@attempt
def kill_a_bystander() -> None:
    os.kill(world.bystander, signal.SIGKILL)


@attempt
def queue_a_signal_to_the_daemon() -> None:
    call(129, world.daemon, 9, ctypes.create_string_buffer(struct.pack("=iii", 9, 0, -1) + bytes(116)))


@marking
def have_the_kernel_signal_the_daemon() -> None:
    """By the owner of a descriptor whose input is asynchronous."""
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, 10, signal.SIGKILL)  # F_SETSIG
    fcntl.fcntl(ours, fcntl.F_SETOWN, world.daemon)
    fcntl.fcntl(ours, fcntl.F_SETFL, fcntl.fcntl(ours, fcntl.F_GETFL) | os.O_ASYNC)
    theirs.send(b"x")


@attempt
def limit_the_daemon() -> None:
    import resource

    resource.prlimit(world.bystander, resource.RLIMIT_NOFILE, (3, 1024))


@attempt
def slow_the_daemon() -> None:
    os.setpriority(os.PRIO_PROCESS, world.bystander, 19)


@attempt
def have_a_bystander_killed_for_memory() -> None:
    with open(f"/proc/{world.bystander}/oom_score_adj", "w") as file:
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
    for pid in (world.daemon, world.bystander, world.holder, RUNNER):
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            reached.append(pid)
    if not reached:
        raise OSError(errno.EPERM, "nobody")


@attempt
def keep_the_daemon_on_one_processor() -> None:
    os.sched_setaffinity(world.bystander, {0})


@attempt
def give_the_daemon_no_disk_time() -> None:
    call(251, 1, world.bystander, 3 << 13)  # ioprio_set: idle


@attempt
def type_into_the_terminal() -> None:
    fcntl.ioctl(world.terminal, 0x5412, b"x")


@attempt
def paste_into_the_console() -> None:
    fcntl.ioctl(world.terminal, 0x541C, b"\x03")
