"""System calls on processes that Python lacks. (Those on files, trees and mounts: agentfs_host/syscalls.py.)

Each function raises OSError with the kernel's errno, and names the manual page that says what it does. System call numbers are
the same on every architecture.
"""

import ctypes
import os
import struct
from typing import Final

from agentfs_host.syscalls import check_result

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


# -- attributes of the process: prctl

_PR_SET_NAME, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 15, 24, 36, 38


def set_name(name: bytes) -> None:
    """Set what ps and top show as this thread's name: at most 15 bytes. See PR_SET_NAME(2const)."""
    check_result(_libc.prctl(_PR_SET_NAME, name, *_unused(3)))


def drop_capability(number: int) -> None:
    """Remove a capability from this thread's bounding set, from which root gets its own at exec. See capabilities(7)."""
    check_result(_libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), *_unused(3)))


def become_subreaper() -> None:
    """Make orphaned descendants children of this process, from now on. See PR_SET_CHILD_SUBREAPER(2const)."""
    check_result(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), *_unused(3)))


def set_no_new_privileges() -> None:
    """Have exec grant no privilege any more, as setuid programs get: for this thread and what it starts, for good."""
    check_result(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), *_unused(3)))


def _unused(count: int) -> tuple[ctypes.c_ulong, ...]:
    return (ctypes.c_ulong(0),) * count


# -- descriptors of processes

_SYS_PIDFD_OPEN: Final = 434
_PIDFD_THREAD: Final = os.O_EXCL  # Linux 6.9


def pidfd_open(number: int, *, thread: bool) -> int:
    """Return a descriptor that becomes readable when a process, or a thread, ends. See pidfd_open(2), Linux 5.3.

    os.pidfd_open is missing where Python was built on an older Linux, as the one that uv installs.

    Args:
        number: The process's id, or the thread's.
        thread: Tell of the thread alone. Linux 6.9 and later can.
    """
    return check_result(int(_libc.syscall(_SYS_PIDFD_OPEN, number, _PIDFD_THREAD if thread else 0)))


# -- filters of system calls: seccomp

_SECCOMP_SET_MODE_FILTER: Final = 1
_SECCOMP_FILTER_FLAG_SPEC_ALLOW: Final = 1 << 2  # without it older kernels make every branch of the program slower
_INSTRUCTION_BYTES: Final = 8  # struct sock_filter


class _Program(ctypes.Structure):  # struct sock_fprog
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_system_calls(number: int, instructions: bytes) -> None:
    """Put this thread and all that it starts under a filter of system calls, for good. See seccomp(2).

    Args:
        number: The system call number of seccomp itself, which differs between architectures.
        instructions: The filter in classic BPF: struct sock_filter after struct sock_filter.

    Raises:
        OSError: ENOSYS or EINVAL where the kernel knows no filters; EACCES without CAP_SYS_ADMIN in the caller's user namespace
            and without no_new_privs.
    """
    program = _Program(len(instructions) // _INSTRUCTION_BYTES, instructions)
    flags = _SECCOMP_FILTER_FLAG_SPEC_ALLOW
    check_result(int(_libc.syscall(number, _SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(program))))


# -- Landlock domains

LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, LANDLOCK_SCOPE_SIGNAL = 1 << 0, 1 << 1  # Linux 6.12
_SYS_LANDLOCK_CREATE_RULESET, _SYS_LANDLOCK_RESTRICT_SELF = 444, 446
_LANDLOCK_CREATE_RULESET_VERSION: Final = 1
_RULESET: Final = struct.Struct("=QQQ")  # struct landlock_ruleset_attr: handled accesses to files, to the network, scopes


def landlock_abi() -> int:
    """Return the version of Landlock that this kernel has; 0 without Landlock. See landlock_create_ruleset(2)."""
    number = _SYS_LANDLOCK_CREATE_RULESET
    return max(0, int(_libc.syscall(number, None, ctypes.c_size_t(0), _LANDLOCK_CREATE_RULESET_VERSION)))


def enter_landlock_domain(scopes: int) -> None:
    """Put this thread and all that it starts into a Landlock domain without rules for files or the network, for good.

    Args:
        scopes: LANDLOCK_SCOPE_*: what the domain does not reach outside itself.

    Raises:
        OSError: EPERM without CAP_SYS_ADMIN and without no_new_privs; E2BIG when 16 domains lie within each other already.
    """
    handled = _RULESET.pack(0, 0, scopes)
    create = _SYS_LANDLOCK_CREATE_RULESET
    ruleset = check_result(int(_libc.syscall(create, handled, ctypes.c_size_t(len(handled)), 0)))
    try:
        check_result(int(_libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)))
    finally:
        os.close(ruleset)
