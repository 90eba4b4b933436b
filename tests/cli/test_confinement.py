"""The filter of system calls as a program, for machines that we do not have, too; the pieces of a command's confinement alone."""

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Callable

import pytest

from agentfsd.cli.sandbox import confinement, locked_mounts, seccomp_filter
from agentfsd.linux import namespaces
from tests.mounted import needs_root

X86_64, I386, AARCH64, ARM, RISCV = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028, 0xC00000F3
TIOCSTI, TIOCLINUX, TCGETS = 0x5412, 0x541C, 0x5401
MNT_GET_NEXT, MNT_GET_PREV, MNT_GET_INFO, GET_PARENT = 0x8010B70B, 0x8010B70C, 0x8010B70A, 0xB702
ABIS = {  # machine, number of ioctl, of open_by_handle_at
    "x86_64": ("x86_64", X86_64, 16, 304),
    "x32": ("x86_64", X86_64, 0x40000000 | 514, 0x40000000 | 304),
    "x32 by its other number": ("x86_64", X86_64, 514, 304),
    "i386": ("x86_64", I386, 54, 342),
    "aarch64": ("aarch64", AARCH64, 29, 265),
    "arm": ("aarch64", ARM, 54, 371),
}


def refuses(machine: str, arch: int, number: int, second: int = 0) -> bool:
    """What the kernel would do: an interpreter of the few instructions of classic BPF that there are."""
    data = struct.pack("=IIQQQQQQQ", number, arch, 0, 7, second, 0, 0, 0, 0)
    program = list(struct.iter_unpack("=HBBI", seccomp_filter.program(seccomp_filter.MACHINES[machine])))
    at = value = 0
    while True:
        code, if_equal, otherwise, operand = program[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code == 0x54:
            value &= operand
        elif code == 0x15:
            at += if_equal if value == operand else otherwise
        else:
            assert code == 0x06
            assert operand in (0x7FFF0000, 0x00050000 | errno.EPERM)
            return bool(operand & 0xFFFF)


@pytest.mark.parametrize("high", [0, 1 << 32, 0xFFFFFFFF << 32])
@pytest.mark.parametrize("abi", ABIS)
def test_filter_refuses_few_calls(abi: str, high: int) -> None:
    machine, arch, ioctl, open_by_handle = ABIS[abi]
    for command in (TIOCSTI, TIOCLINUX, MNT_GET_NEXT, MNT_GET_PREV, 0xC040B70B):
        assert refuses(machine, arch, ioctl, high | command), hex(command)
    for command in (TCGETS, MNT_GET_INFO, GET_PARENT, 0x5413, 0):
        assert not refuses(machine, arch, ioctl, high | command), hex(command)
    assert refuses(machine, arch, open_by_handle, high)
    others = set(range(600)) - {16, 29, 54, 265, 304, 342, 371, 514}
    assert not any(refuses(machine, arch, number, high | TIOCSTI) for number in others)
    assert not refuses(machine, RISCV, ioctl, high | TIOCSTI)


def confined(work: Callable[[], int]) -> int:
    """What *work* returns in a confined child process, below 128."""
    child = os.fork()
    if child == 0:
        code = 127
        try:
            confinement.confine()
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_kernel_takes_the_filter_for_32_bit_calls_too() -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the code is x86_64's")
    # push rbx; mov eax, edi; mov ebx, esi; mov ecx, edx; xor edx, edx; int 0x80; pop rbx; ret
    code = bytes.fromhex("5389f889f389d131d2cd805bc3")
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    interrupt = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)(at)
    libc = ctypes.CDLL(None, use_errno=True)

    def x32() -> int:
        libc.syscall(ctypes.c_long(0x40000000 | 514), 0, ctypes.c_long(TIOCSTI), 0)
        return ctypes.get_errno()

    if interrupt(54, -1, TCGETS) == -errno.ENOSYS:
        pytest.skip("this kernel takes no 32-bit calls")
    assert confined(lambda: -interrupt(54, -1, TIOCSTI)) == errno.EPERM
    assert confined(lambda: -interrupt(54, -1, TCGETS)) == errno.EBADF
    assert confined(x32) == errno.EPERM


def test_seventeen_within_each_other_are_refused() -> None:
    if not confinement.has_domains():
        pytest.skip("this kernel's Landlock has no scopes (6.12)")

    def deeper() -> int:
        for _ in range(15):
            confinement.confine()
        try:
            confinement.confine()
        except OSError as exc:
            return exc.errno or 0
        return 0

    assert confined(deeper) == errno.E2BIG
    assert "16" in confinement.refusal(errno.E2BIG)[0]


def test_locking_mounts_leaves_user_namespace_and_powers() -> None:
    needs_root()

    def powers() -> tuple[str, str]:
        with open("/proc/self/status") as file:
            return os.readlink("/proc/self/ns/user"), next(line for line in file if line.startswith("CapEff"))

    def unmounted(place: bytes) -> bool:
        return ctypes.CDLL(None).umount2(place, 2) == 0  # MNT_DETACH

    child = os.fork()
    if child == 0:
        code = 1
        try:
            before = powers()
            namespaces.enter_private_mounts()
            namespaces.bind_over("/usr", "/mnt")
            locked_mounts.lock()
            namespaces.bind_over("/usr", "/media")
            code = 0 if powers() == before and unmounted(b"/media") and not unmounted(b"/mnt") else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
