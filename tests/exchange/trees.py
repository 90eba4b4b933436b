"""A directory with everything that a file system can hold, for tests of its other forms."""

import os
import subprocess
from pathlib import Path

from agentfs_files.trees.directory_tree import Directory
from agentfs_files.trees.equal_trees import make_equal
from tests.compare import describe, differences


def make_rich_tree(root: Path) -> None:
    """As an ordinary user what that one may make; as root devices, owners and file capabilities as well."""
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "text").write_text("one\ntwo\n")
    (root / "binary").write_bytes(bytes(range(256)) * 300)
    (root / "sub" / "program").write_text("#!/bin/sh\n")
    (root / "sub" / "program").chmod(0o4750)
    os.link(root / "text", root / "sub" / "deep" / "linked")
    (root / "sub" / "symlink").symlink_to("../text")
    (root / "dangling").symlink_to("/no/such/place")
    os.mkfifo(root / "fifo")
    with open(root / "holes", "wb") as file:
        file.seek(3 << 20)
        file.write(b"end")
        file.truncate(8 << 20)
    (root / os.fsdecode(b"caf\xe9")).write_text("no UTF-8")
    (root / "back\\slash").write_text("no Windows")
    (root / "new\nline ").write_text("no line")
    os.setxattr(root / "text", "user.note", b"\x00binary")
    subprocess.run(["setfacl", "-m", "u:12:rw", str(root / "binary")], check=True)
    if os.geteuid() == 0:
        os.mknod(root / "device", 0o20600, os.makedev(1, 3))
        os.chown(root / "binary", 12, 13)
    os.utime(root / "text", ns=(1, 1_000_000_001))
    (root / "sub" / "deep").chmod(0o555)
    os.utime(root / "sub", ns=(1, -86_400_000_000_000))


def copy_tree(source: Path, target: Path) -> list[str]:
    with Directory(str(source)) as tree:
        return make_equal(str(target), tree)


def unlike(one: Path, two: Path) -> list[str]:
    return differences(describe(one, times=True), describe(two, times=True))
