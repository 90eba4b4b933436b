"""A process that does one thing at a time when told so over a pipe; and the test's side of it.

Started as a program: reads a line of JSON (name and arguments of a method of Doer), answers with one.
"""

import ctypes
import json
import mmap
import os
import stat
import subprocess
import sys
import threading
from typing import IO, Any

_libc = ctypes.CDLL(None, use_errno=True)
_TIMEOUT_S = 30


class Doer:
    """What can be asked for; answers are what JSON can hold, texts for bytes."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.maps: dict[str, mmap.mmap] = {}

    def pid(self) -> int:
        return os.getpid()

    def cwd(self) -> str:
        return os.getcwd()

    def chdir(self, path: str) -> None:
        os.chdir(path)

    def write(self, path: str, text: str) -> None:
        with open(path, "w") as file:
            file.write(text)

    def append(self, path: str, text: str) -> None:
        with open(path, "a") as file:
            file.write(text)

    def read(self, path: str) -> str:
        with open(path, newline="") as file:
            return file.read()

    def stat(self, path: str) -> list[int]:
        """mode, number of names, size, owner, mtime in ns."""
        found = os.lstat(path)
        is_dir = stat.S_ISDIR(found.st_mode)
        return [found.st_mode, 0 if is_dir else found.st_nlink, 0 if is_dir else found.st_size, found.st_uid, found.st_mtime_ns]

    def ctime(self, path: str) -> int:
        return os.lstat(path).st_ctime_ns

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def tree(self, root: str) -> dict[str, str]:
        """What is in all files below; what vanishes meanwhile is left out."""
        found: dict[str, str] = {}
        for directory, _, files in os.walk(root):
            for name in files:
                path = os.path.join(directory, name)
                try:
                    found[os.path.relpath(path, root)] = self.read(path)
                except OSError:
                    pass
        return found

    def truncate(self, path: str, size: int) -> None:
        os.truncate(path, size)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, path)

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(path, mode)

    def utime(self, path: str, stamp: int) -> None:
        os.utime(path, ns=(stamp, stamp))

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def setxattr(self, path: str, value: str) -> None:
        os.setxattr(path, "user.test", value.encode())

    def getxattr(self, path: str) -> str:
        return os.getxattr(path, "user.test").decode()

    def open(self, name: str, path: str, flags: int) -> None:
        self.files[name] = os.open(path, flags, 0o644)

    def close(self, name: str) -> None:
        os.close(self.files.pop(name))

    def pread(self, name: str, size: int, offset: int) -> str:
        return os.pread(self.files[name], size, offset).decode()

    def pwrite(self, name: str, text: str, offset: int) -> int:
        return os.pwrite(self.files[name], text.encode(), offset)

    def fstat(self, name: str) -> list[int]:
        found = os.fstat(self.files[name])
        return [found.st_mode, found.st_nlink, found.st_size]

    def fsync(self, name: str) -> None:
        os.fsync(self.files[name])

    def map(self, name: str, writable: bool) -> None:
        """Maps the whole of an open file, shared."""
        self.maps[name] = mmap.mmap(self.files[name], 0, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))

    def peek(self, name: str, size: int, offset: int) -> str:
        return self.maps[name][offset : offset + size].decode()

    def poke(self, name: str, text: str, offset: int) -> None:
        self.maps[name][offset : offset + len(text)] = text.encode()

    def copy_range(self, source: str, offset: int, target: str, to: int, length: int) -> int:
        return os.copy_file_range(self.files[source], self.files[target], length, offset, to)

    def fallocate(self, name: str, mode: int, offset: int, length: int) -> None:
        if _libc.fallocate64(self.files[name], mode, ctypes.c_long(offset), ctypes.c_long(length)):
            raise OSError(ctypes.get_errno(), "fallocate")

    def seek(self, name: str, offset: int, whence: int) -> int:
        return os.lseek(self.files[name], offset, whence)

    def blocks(self, name: str) -> int:
        return os.fstat(self.files[name]).st_blocks

    def give_name(self, name: str, path: str) -> None:
        """linkat(2) of an open file."""
        if _libc.linkat(-100, f"/proc/self/fd/{self.files[name]}".encode(), -100, os.fsencode(path), 0x400):
            raise OSError(ctypes.get_errno(), "linkat")

    def ioctl(self, path: str, command: int, sent: str, room: int) -> list[Any]:
        """[result, what came back]; texts stand for bytes."""
        fd = os.open(path, os.O_RDONLY)
        try:
            buffer = ctypes.create_string_buffer(sent.encode("latin-1"), room)
            if _libc.ioctl(fd, ctypes.c_ulong(command), buffer) < 0:
                raise OSError(ctypes.get_errno(), "ioctl")
            return [0, buffer.raw.decode("latin-1")]
        finally:
            os.close(fd)


class Failed(Exception):
    """What the other process could not do; ``errno`` as it had it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.errno = code


class Stepper:
    """The process at the other end: ``stepper("read", "file")`` has it done there."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdin is not None and process.stdout is not None
        self._to: IO[str] = process.stdin
        self._from: IO[str] = process.stdout
        self.pid: int = self("pid")

    def __call__(self, name: str, *arguments: object) -> Any:
        alarm = threading.Timer(_TIMEOUT_S, self.process.kill)  # a mount that hangs must not hang the tests
        alarm.start()
        try:
            self._to.write(json.dumps([name, *arguments]) + "\n")
            self._to.flush()
            line = self._from.readline()
        finally:
            alarm.cancel()
        assert line, f"the process died at {name} {arguments}"
        found, code, complaint = json.loads(line)
        if complaint:
            raise Failed(code, complaint)
        return found

    def fails(self, name: str, *arguments: object) -> int:
        """The errno of what must fail; 0 when it does not."""
        try:
            self(name, *arguments)
        except Failed as exc:
            return exc.errno
        return 0


COMMAND = [sys.executable, __file__]
PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


def main() -> None:
    doer = Doer()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answer: list[Any]
        try:
            answer = [getattr(doer, name)(*arguments), 0, ""]
        except OSError as exc:
            answer = [None, exc.errno, f"{name} {arguments}: {exc}"]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
