"""Nothing outside the lower's root is ever reached: not by a path, not by a link, not by a swap in the middle."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentfs_host import syscalls
from agentfsd.lower.host_lower import HostLower

# What a name answers that has become something else, or was never one. Never EIO, never EXDEV.
REFUSALS = (errno.ENOTDIR, errno.ENOENT, errno.ESTALE, errno.EINVAL)


@pytest.fixture(params=["openat2", "name by name"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "name by name":
        monkeypatch.setattr(syscalls, "_SYS_OPENAT2", 1 << 20)  # answers ENOSYS, as a kernel before 5.6 does
    root = tmp_path / "root"
    (root / "dir" / "sub").mkdir(parents=True)
    (root / "file").write_bytes(b"harmless")
    (root / "dir" / "sub" / "secret").write_bytes(b"harmless")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return root


@pytest.fixture
def lower(root: Path) -> Iterator[HostLower]:
    made = HostLower(str(root))
    yield made
    made.close()


def acts(lower: HostLower) -> list[Callable[[bytes], object]]:
    return [
        lower.stat, lower.open, lower.readlink, lower.readdir, lower.listxattr,
        lambda path: lower.getxattr(path, b"user.k"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        b"..", b".", b"../outside/secret", b"dir/..", b"dir/../file", b"dir/../../outside/secret", b"./file", b"dir//sub",
        b"/", b"/file", b"/etc/passwd", b"dir/", b"dir/\0/x", b"file\0", b"d\0/sub",
    ],
)  # fmt: skip
def test_a_path_that_is_no_plain_list_of_names_is_refused(lower: HostLower, path: bytes) -> None:
    for act in acts(lower):
        with pytest.raises(OSError) as caught:
            act(path)
        assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize("target", ["../outside", "{outside}", "/proc/self/cwd/{outside}", "/proc/self/fd/{fd}"])
def test_a_symlink_in_the_way_is_no_directory(lower: HostLower, root: Path, target: str) -> None:
    outside = os.open(root.parent / "outside", os.O_RDONLY | os.O_DIRECTORY)
    try:
        (root / "link").symlink_to(target.format(outside=root.parent / "outside", fd=outside))
        (root / "dir" / "link").symlink_to("../link")
        for path in (b"link/secret", b"dir/link/secret", b"link/../outside/secret"):
            for act in acts(lower):
                with pytest.raises(OSError) as caught:
                    act(path)
                assert caught.value.errno in (errno.ENOTDIR, errno.EINVAL)
        with pytest.raises(NotADirectoryError):
            lower.readdir(b"link")
    finally:
        os.close(outside)


def test_magic_links_of_a_process_lead_nowhere(tmp_path: Path) -> None:
    lower = HostLower("/proc/self")
    try:
        for path in (b"root/etc", b"cwd/anything", b"root", b"cwd"):
            with pytest.raises(NotADirectoryError):
                lower.readdir(path)
        with pytest.raises(OSError) as caught:
            lower.open(b"exe")
        assert caught.value.errno == errno.ESTALE
    finally:
        lower.close()


@contextmanager
def swapping(step: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            step()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def outcomes(root: Path, path: bytes, rounds: int) -> set[bytes | int]:
    """What opening *path* again and again gave, with nothing cached: contents and error numbers.

    It goes on until the file was met once, so that the race was run and not only lost.
    """
    found: set[bytes | int] = set()
    while rounds > 0 or not any(isinstance(outcome, bytes) for outcome in found):
        rounds -= 1
        lower = HostLower(str(root))
        try:
            fd = lower.open(path)
        except OSError as exc:
            found.add(exc.errno or -1)
        else:
            found.add(os.read(fd, 100))
            os.close(fd)
        lower.close()
    return found


def test_a_directory_swapped_for_a_symlink_leads_nowhere(root: Path) -> None:
    sub, away = root / "dir" / "sub", root / "dir" / "away"

    def step() -> None:
        os.rename(sub, away)
        os.symlink(root.parent / "outside", sub)
        os.unlink(sub)
        os.rename(away, sub)

    with swapping(step):
        found = outcomes(root, b"dir/sub/secret", 3000)
    assert b"harmless" in found
    assert found - {b"harmless"} <= set(REFUSALS)


def test_a_file_swapped_for_a_symlink_is_not_followed(root: Path) -> None:
    file, link = root / "file", root / "link"

    def step() -> None:
        os.symlink(root.parent / "outside" / "secret", link)
        os.rename(link, file)
        (root / "new").write_bytes(b"harmless")
        os.rename(root / "new", file)

    with swapping(step):
        found = outcomes(root, b"file", 3000)
    assert b"harmless" in found
    assert found - {b"harmless"} <= {errno.ESTALE}


def test_a_path_longer_than_the_kernel_takes_is_walked(lower: HostLower, root: Path) -> None:
    names = [b"n" * 200] * 30
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for name in names:
        os.mkdir(name, dir_fd=fd)
        deeper = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.mkdir(b"end", dir_fd=fd)
    os.close(fd)
    path = b"/".join(names)
    assert len(path) > 4096
    assert [entry.name for entry in lower.readdir(path)] == [b"end"]
    with pytest.raises(OSError) as caught:
        lower.stat(b"x" * 256 + b"/y")
    assert caught.value.errno == errno.ENAMETOOLONG
