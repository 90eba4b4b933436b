"""A lower that commits are written into, and short ways to say what they put there."""

import os
import stat
from pathlib import Path

from agentfsd.lower import commit_writer
from agentfsd.lower.commit_plan import FileAttributes, Identity, Put, Step
from agentfsd.lower.host_lower import HostLower

FILE = stat.S_IFREG | 0o644
DIRECTORY = stat.S_IFDIR | 0o755
WHEN = 1_650_000_000_111_222_333


class Text:
    """Content from memory."""

    def __init__(self, content: bytes, size: int | None = None) -> None:
        self._content, self.size = content, len(content) if size is None else size

    def open(self) -> int:
        fd = os.memfd_create("content")
        os.write(fd, self._content)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd


class Workspace:
    """A lower, and a place for the journal."""

    def __init__(self, base: Path) -> None:
        self.root, self.state = base / "root", base / "state"
        self.state.mkdir()
        self.lower: HostLower

    def open(self) -> "Workspace":
        self.lower = HostLower(str(self.root))
        return self

    def stage(self, *steps: Step, **options: object) -> commit_writer.LowerCommit:
        return commit_writer.stage(self.lower, str(self.state), steps, note={"branch": "b"}, **options)  # type: ignore[arg-type]

    def commit(self, *steps: Step) -> None:
        self.stage(*steps).apply()
        self.check_no_trace()

    def resume(self) -> bool:
        return commit_writer.resume(self.lower, str(self.state))

    def abort(self) -> bool:
        return commit_writer.abort(self.lower, str(self.state))

    def check_no_trace(self) -> None:
        assert list(self.state.iterdir()) == []
        assert not (self.root / ".agentfs").exists()

    def identity(self, name: str) -> Identity:
        info = (self.root / name).lstat()
        return Identity(info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


def attributes(mode: int = FILE, **changes: int) -> FileAttributes:
    found = {"uid": os.geteuid(), "gid": os.getegid(), "atime_ns": WHEN, "mtime_ns": WHEN + 1} | changes
    return FileAttributes(mode, **found)


def put(path: str, content: bytes = b"new", **options: object) -> Put:
    return Put(path.encode(), attributes(), Text(content), **options)  # type: ignore[arg-type]


def die(_: int) -> None:
    """In place of a system call: the process is killed there."""
    raise KeyboardInterrupt
