"""A seccomp filter that refuses a few system calls through which a command could reach beyond its branch.

These fail with EPERM:

- ioctl TIOCSTI and TIOCLINUX, which put input into a terminal as if the user had typed it;
- ioctl NS_MNT_GET_NEXT and NS_MNT_GET_PREV, and open_by_handle_at(2), which give access to another process's mount namespace
  without access to the process (Linux 6.12, 6.18). With a handle, root can also open any file of a file system of which it sees
  one.
- prlimit(2) with new limits for another process, such as the daemon. A process that asks for its own says 0.
"""

import errno
import os
import struct
import sys
from dataclasses import dataclass

from agentfsd.linux import process_syscalls

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # asm-generic/ioctls.h: the same for all machines below
_NS_MNT_GET_NEXT, _NS_MNT_GET_PREV = 0xB70B, 0xB70C  # linux/nsfs.h: type and number; direction and size may differ
_TYPE_AND_NUMBER = 0xFFFF

_X32_BIT = 0x40000000

_OF_NUMBER, _OF_MACHINE, _OF_SECOND_ARGUMENT = 0, 4, 24  # struct seccomp_data; a little-endian machine's low 32 bits of the last
_OF_FIRST_ARGUMENT, _OF_THIRD_ARGUMENT = 16, 32
_LOAD, _AND, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06  # linux/bpf_common.h
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM  # linux/seccomp.h

_POINTER_BYTES = 8  # of the machines below


@dataclass(frozen=True, slots=True)
class Abi:
    """A calling convention of this kernel. ``machine`` is an AUDIT_ARCH of linux/audit.h."""

    machine: int
    ioctls: tuple[int, ...]
    open_by_handle: int
    set_limits: int
    ignored_bits: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine name of uname(2): the calling conventions of its programs, and the number of seccomp(2)."""

    seccomp: int
    abis: tuple[Abi, ...]


MACHINES = {
    "x86_64": Machine(
        317,
        (
            Abi(0xC000003E, (16, 514), 304, 302, _X32_BIT),  # x32 has the same AUDIT_ARCH, a bit, and an ioctl of its own
            Abi(0x40000003, (54,), 342, 340),
        ),
    ),
    "aarch64": Machine(277, (Abi(0xC00000B7, (29,), 265, 261), Abi(0x40000028, (54,), 371, 369))),
}


def is_known_here() -> bool:
    """Return whether there is a filter for this machine."""
    return _here() is not None


def install() -> bool:
    """Put this process and all that it starts under the filter. Return False if the machine or the kernel does not support it.

    Raises:
        PermissionError: It takes CAP_SYS_ADMIN in the caller's user namespace, or no_new_privs.
    """
    machine = _here()
    if machine is None:
        return False
    try:
        process_syscalls.filter_system_calls(machine.seccomp, program(machine))
    except OSError as exc:
        if exc.errno in (errno.ENOSYS, errno.EINVAL):
            return False
        raise
    return True


def _here() -> Machine | None:
    if sys.byteorder != "little" or struct.calcsize("P") != _POINTER_BYTES:
        return None
    return MACHINES.get(os.uname().machine)


def program(machine: Machine) -> bytes:
    """Return the filter in classic BPF: an array of struct sock_filter.

    It tests the ioctl's command last. Before that it tests only the machine and the call's number, so the kernel need not run it
    for other calls.
    """
    parts = [_statement(_LOAD, _OF_MACHINE)]
    for abi in machine.abis:
        part = _of_abi(abi)
        parts += [_branch(abi.machine, 0, len(part)), *part]
    parts.append(_statement(_RETURN, _ALLOW))
    return b"".join(parts)


def _of_abi(abi: Abi) -> list[bytes]:
    commands = [
        _statement(_LOAD, _OF_SECOND_ARGUMENT),
        _branch(_TIOCSTI, 4, 0),
        _branch(_TIOCLINUX, 3, 0),
        _statement(_AND, _TYPE_AND_NUMBER),
        _branch(_NS_MNT_GET_NEXT, 1, 0),
        _branch(_NS_MNT_GET_PREV, 0, 1),
        _statement(_RETURN, _REFUSE),
        _statement(_RETURN, _ALLOW),
    ]
    refuse = len(commands) - 2
    numbers = [_statement(_LOAD, _OF_NUMBER)]
    if abi.ignored_bits:
        numbers.append(_statement(_AND, 0xFFFFFFFF & ~abi.ignored_bits))
    asked = len(abi.ioctls)
    numbers.append(_branch(abi.open_by_handle, asked + 2 + refuse, 0))
    numbers.append(_branch(abi.set_limits, asked + 1 + len(commands), 0))
    numbers += [_branch(number, asked - at, 0) for at, number in enumerate(abi.ioctls)]
    numbers.append(_statement(_RETURN, _ALLOW))
    return numbers + commands + _of_limits()


def _of_limits() -> list[bytes]:
    """Refuse new limits (the third argument) for another process (the first); who asks for its own says 0."""
    return [
        _statement(_LOAD, _OF_FIRST_ARGUMENT),
        _branch(0, 5, 0),
        _statement(_LOAD, _OF_THIRD_ARGUMENT),
        _branch(0, 0, 2),
        _statement(_LOAD, _OF_THIRD_ARGUMENT + 4),
        _branch(0, 1, 0),
        _statement(_RETURN, _REFUSE),
        _statement(_RETURN, _ALLOW),
    ]


def _statement(code: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, value)


def _branch(value: int, if_equal: int, otherwise: int) -> bytes:
    """Return a conditional jump. The numbers say how many instructions to skip."""
    return struct.pack("=HBBI", _JUMP_IF_EQUAL, if_equal, otherwise, value)
