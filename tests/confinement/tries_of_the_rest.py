"""Tries to reach the home, services, and the machine."""

import ctypes
import errno
import os
import socket

from tests.confinement.attempts import attempt, call, mark, marking, read, world


@attempt
def read_a_key() -> str:
    return read(f"{world.home}/.ssh/id")


@marking
def write_into_the_home() -> None:
    mark("write_into_the_home", f"{world.home}/.bashrc")


@marking
def remove_from_the_home() -> None:
    os.unlink(f"{world.home}/victim")


@marking
def write_beside_the_home() -> None:
    mark("write_beside_the_home", f"{world.outside}/mark27")


@marking
def write_into_the_shared_tmp() -> None:
    mark("write_into_the_shared_tmp", f"{world.tmp}/mark28")


@attempt
def talk_to_a_service() -> str:
    with socket.socket(socket.AF_UNIX) as service:
        service.connect(world.service)
        return service.recv(100).decode()


@attempt
def talk_to_an_abstract_service() -> str:
    with socket.socket(socket.AF_UNIX) as service:
        service.connect(f"\0{world.abstract}")
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
    os.mkdir(f"{world.cgroup}/escaped")
    os.rmdir(f"{world.cgroup}/escaped")


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
