"""What a mount covers is still the lower: the daemon must never look into its own mount, where it would wait for itself."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentfsd.lower.host_lower import HostLower
from tests.mounted import needs_root

Cover = Callable[[Path], None]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "dir" / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "root" / "dir" / "sub" / "leaf").write_bytes(b"leaf")
    os.setxattr(tmp_path / "root" / "dir", "user.of", b"lower")
    return tmp_path / "root"


@pytest.fixture
def cover() -> Iterator[Cover]:
    """Mounts an empty file system over a directory."""
    needs_root()
    with ExitStack() as mounted:

        def mount(path: Path) -> None:
            subprocess.run(["mount", "-t", "tmpfs", "none", str(path)], check=True)
            mounted.callback(subprocess.run, ["umount", "--lazy", str(path)], check=True)  # a failed test may hold it

        yield mount


def names(lower: HostLower, path: bytes) -> list[bytes]:
    return sorted(entry.name for entry in lower.readdir(path))


def leaf(lower: HostLower, path: bytes = b"dir/sub/leaf") -> bytes:
    fd = lower.open(path)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def test_the_root_itself_may_be_covered(root: Path, cover: Cover) -> None:
    lower = HostLower(str(root), masks=[b""])
    cover(root)
    assert os.listdir(root) == []
    assert names(lower, b"") == [b"dir"]
    assert leaf(lower) == b"leaf"
    assert lower.stat(b"").st_dev == lower.stat(b"dir/sub").st_dev != root.stat().st_dev
    assert lower.getxattr(b"dir", b"user.of") == b"lower"
    assert lower.listxattr(b"") == []
    lower.close()


def test_below_a_covered_directory_everything_is_the_lowers(root: Path, cover: Cover) -> None:
    lower = HostLower(str(root), masks=[b"dir"])
    cover(root / "dir")
    assert os.listdir(root / "dir") == []
    assert lower.stat(b"dir").st_dev == lower.stat(b"").st_dev
    assert lower.stat(b"dir").st_ino == lower.readdir(b"")[0].ino
    assert (names(lower, b"dir"), names(lower, b"dir/sub")) == ([b"sub"], [b"deep", b"leaf"])
    assert leaf(lower) == b"leaf"
    assert (lower.getxattr(b"dir", b"user.of"), lower.listxattr(b"dir")) == (b"lower", [b"user.of"])
    lower.close()


def test_no_call_enters_the_covering_mount(root: Path, cover: Cover) -> None:
    lower = HostLower(str(root))
    lower.mask(b"dir")
    cover(root / "dir")
    (root / "dir" / "inside").write_bytes(b"of the mount")
    for act, number in ((lower.open, errno.ESTALE), (lower.readlink, errno.EINVAL)):
        with pytest.raises(OSError) as caught:
            act(b"dir")
        assert caught.value.errno == number
    for path in (b"dir/inside", b"./dir/inside", b"dir/./inside", b"dir//inside", b"dir/sub/../inside"):
        for act in (lower.stat, lower.open, lower.listxattr):
            with pytest.raises(OSError):
                act(path)
    lower.close()


def test_what_was_looked_up_before_the_mount_stays_right(root: Path, cover: Cover) -> None:
    lower = HostLower(str(root))
    assert leaf(lower) == b"leaf"
    lower.mask(b"dir/sub")
    cover(root / "dir" / "sub")
    assert leaf(lower) == b"leaf"
    lower._cache.clear()
    assert leaf(lower) == b"leaf"
    lower.close()


def test_masks_within_masks(root: Path, cover: Cover) -> None:
    (root / "dir" / "sub" / "deep" / "end").write_bytes(b"end")
    lower = HostLower(str(root))
    lower.mask(b"dir")
    cover(root / "dir")
    (root / "dir" / "sub" / "deep").mkdir(parents=True)  # the second mount stands upon the first
    lower.mask(b"dir/sub")
    cover(root / "dir" / "sub")
    assert names(lower, b"dir/sub") == [b"deep", b"leaf"]
    assert leaf(lower, b"dir/sub/deep/end") == b"end"
    lower.close()


def test_a_mask_of_a_missing_directory_is_an_error(root: Path) -> None:
    lower = HostLower(str(root))
    for path, number in ((b"none", errno.ENOENT), (b"dir/sub/leaf", errno.ENOTDIR), (b"dir/..", errno.EINVAL)):
        with pytest.raises(OSError) as caught:
            lower.mask(path)
        assert caught.value.errno == number
    lower.close()
