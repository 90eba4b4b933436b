"""Directories to take snapshots of, with one of each kind of file; what an agent may do to them; how they are compared."""

import os
import shutil
import socket
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from agentfs_client.address import unix_address
from agentfs_files.filesystem.records import SnapshotStrategy
from agentfs_files.snapshots.directory_snapshots import DirectorySnapshots

KINDS = ["copy", "git", "archive", "reflink-btrfs", "reflink-xfs", "overlay"]


@dataclass
class Workspace:
    root: Path
    strategy: SnapshotStrategy
    storage: Path

    def snapshots(self, **options: object) -> DirectorySnapshots:
        return DirectorySnapshots(self.root, strategy=self.strategy, storage=self.storage, **options)  # type: ignore[arg-type]


def unmount_all(base: Path) -> None:
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        path = line.split()[4]
        if path.startswith(f"{base}/"):
            subprocess.run(["umount", "-l", path], check=True)


def picture(root: Path) -> dict[bytes, object]:
    """All that a restore has to bring back."""
    found: dict[bytes, object] = {}
    names: dict[int, bytes] = {}

    def look(path: bytes) -> None:
        info = os.lstat(path)
        relative = os.path.relpath(path, os.fsencode(root))
        content: bytes | None = None
        if stat.S_ISLNK(info.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(info.st_mode):
            content = Path(os.fsdecode(path)).read_bytes()
        xattrs = {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)}
        first = names.setdefault(info.st_ino, relative) if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode) else b""
        found[relative] = (info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, content, xattrs, first)
        if stat.S_ISDIR(info.st_mode):
            for name in sorted(os.listdir(path)):
                look(os.path.join(path, name))

    look(os.fsencode(root))
    return found


STRANGE = [
    b"\xff\xfe not utf-8",
    b"%manifest",
    b"%",
    b"manifest",
    b".GIT",
    b"git~1",
    b".g\xe2\x80\x8cit",
    b"a\\.git",
    b"new\nline",
    b" ",
]


def fill(root: Path) -> None:
    """One of each kind."""
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "main.py").write_text("print('hello')\n")
    (root / "src" / "deep" / "leaf").write_text("leaf\n")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o751)
    (root / "secret").write_text("x")
    (root / "secret").chmod(0o600)
    (root / "none").touch()
    (root / "empty").mkdir(mode=0o700)
    (root / ".gitignore").write_text("*.log\nbuild/\n")
    (root / "kept.log").write_text("ignored, but kept\n")
    (root / ".git" / "refs").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "sub" / ".git").mkdir(parents=True)
    (root / "sub" / ".git" / "config").write_text("[core]\n")
    (root / ".gitmodules").symlink_to("src/main.py")
    (root / ".gitattributes").write_text("x" * 5000)
    (root / "link").symlink_to("src")
    (root / "dangling").symlink_to(b"no\xffwhere")
    (root / "one").write_text("several names")
    os.link(root / "one", root / "src" / "two")
    with (root / "sparse").open("wb") as file:
        file.write(b"start")
        file.seek(3 << 20)
        file.write(b"end")
    os.mkfifo(root / "pipe", 0o640)
    os.setxattr(root / "run", "user.note", b"\0binary")
    os.setxattr(root / "src", "user.note", b"on a directory")
    for name in STRANGE:
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(name)
    if os.geteuid() == 0:
        os.chown(root / "secret", 1234, 1235)
        (root / "none").chmod(0o4755)
    os.utime(root / "src" / "main.py", ns=(1, 1_000_000_007))
    os.utime(root / "src", ns=(1, 2_000_000_009))
    root.chmod(0o755)


def wreck(root: Path, outside: Path) -> None:
    """Whatever an agent may do."""
    (root / "src" / "main.py").write_text("print('broken')\n")
    (root / "src" / "deep" / "leaf").unlink()
    (root / "src" / "deep" / "leaf").mkdir()
    (root / "src" / "deep" / "leaf" / "inner").write_text("x")
    (root / "build").mkdir()
    (root / "build" / "ignored.log").write_text("new and ignored")
    (root / "new.log").write_text("new and ignored")
    (root / "run").chmod(0o600)
    os.removexattr(root / "run", "user.note")
    os.setxattr(root / "secret", "user.new", b"1")
    shutil.rmtree(root / "sub")
    (root / "sub").symlink_to(outside)
    shutil.rmtree(root / ".git")
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "one").unlink()
    (root / "one").write_text("several names")
    os.link(root / "none", root / "another none")
    (root / "sparse").write_text("short")
    (root / "pipe").unlink()
    (root / "empty").rmdir()
    os.utime(root / "kept.log", ns=(1, 1))
    os.rename(root / ".gitignore", root / "moved")
    with socket.socket(socket.AF_UNIX) as server, unix_address(str(root / "socket")) as address:
        server.bind(address)
    root.chmod(0o700)
