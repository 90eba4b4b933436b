"""What is heard of a lower with mounts in it, on file systems that keep silent, and when the kernel's limits are reached."""

import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from agentfsd.lower import watch
from agentfsd.lower.host_lower import HostLower
from agentfsd.lower.watch import LowerWatch
from agentfsd.types import LOWER_LOST, LowerChange
from tests.lower.watching import told, watches_in_kernel
from tests.mounted import needs_root

LIMITS = Path("/proc/sys/fs/inotify")
Mount = Callable[..., None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    needs_root()
    with ExitStack() as mounted:

        def act(*arguments: str | Path) -> None:
            subprocess.run(["mount", *map(str, arguments)], check=True)
            mounted.callback(subprocess.run, ["umount", "--lazy", "--quiet", str(arguments[-1])], check=False)

        yield act


@contextmanager
def limit(name: str, value: int) -> Iterator[None]:
    """One of the kernel's limits, lowered for a moment."""
    needs_root()
    setting = LIMITS / name
    before = setting.read_text()
    try:
        setting.write_text(str(value))
    except OSError as exc:
        pytest.skip(f"{setting} cannot be changed here: {exc.strerror}")
    try:
        yield
    finally:
        setting.write_text(before)


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """When what was refused may be tried again."""
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + watch.RETRY_S + 0.1)


def test_a_covered_root_is_watched_by_descriptor(watcher: LowerWatch, root: Path, mount: Mount) -> None:
    fd = os.open(root, os.O_PATH)
    try:
        mount("-t", "tmpfs", "none", root)
        assert watcher.watch(b"dir")
        (root / "dir").mkdir()  # in what covers it
        assert watcher.news() == []
        os.mkdir("dir/new", dir_fd=fd)
        assert told(watcher) == {(b"dir", b"new"): True, (b"dir", b""): False}
    finally:
        os.close(fd)


def test_a_masked_directory_is_watched_beneath_what_covers_it(
    watcher: LowerWatch, lower: HostLower, root: Path, mount: Mount
) -> None:
    fd = os.open(root / "dir", os.O_PATH)
    try:
        lower.mask(b"dir")
        mount("-t", "tmpfs", "none", root / "dir")
        assert watcher.watch(b"dir/sub")
        (root / "dir" / "sub").mkdir()
        assert watcher.news() == []
        os.chmod("sub/leaf", 0o600, dir_fd=fd)
        assert told(watcher) == {(b"dir/sub", b"leaf"): False}
    finally:
        os.close(fd)


def test_one_directory_in_two_places_is_told_under_both(watcher: LowerWatch, root: Path, mount: Mount) -> None:
    (root / "again").mkdir()
    mount("--bind", root / "dir", root / "again")
    assert watcher.watch(b"dir/sub")
    assert watcher.watch(b"again/sub")
    (root / "dir" / "sub" / "leaf").chmod(0o600)
    assert told(watcher) == {(b"dir/sub", b"leaf"): False, (b"again/sub", b"leaf"): False}
    watcher.forget(b"dir/sub")
    (root / "dir" / "sub" / "leaf").chmod(0o644)
    assert told(watcher) == {(b"again/sub", b"leaf"): False}
    assert watcher.watch(b"dir/sub")
    (root / "dir" / "sub").rename(root / "dir" / "moved")
    assert {(b"dir/sub", None), (b"again/sub", None)} <= set(told(watcher))


def test_an_unmounted_file_system(watcher: LowerWatch, lower: HostLower, root: Path, mount: Mount) -> None:
    mount("-t", "tmpfs", "none", root / "dir")
    (root / "dir" / "inner").mkdir()
    assert watcher.watch(b"dir/inner")
    lower._cache.clear()
    subprocess.run(["umount", str(root / "dir")], check=True)
    assert told(watcher) == {
        (b"dir", b""): False, (b"dir/inner", b""): False, (b"", b"dir"): True, (b"dir", b"inner"): True,
        (b"dir", None): True, (b"dir/inner", None): True,
    }  # fmt: skip
    assert watcher.watch(b"dir/sub")


def test_file_systems_that_may_keep_silent_are_refused(
    watcher: LowerWatch, root: Path, tmp_path: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [tmp_path / name for name in ("layer", "upper", "work")]
    for layer in layers:
        layer.mkdir()
    try:
        mount("-t", "overlay", "none", "-o", "lowerdir={},upperdir={},workdir={}".format(*layers), root / "dir" / "sub")
    except subprocess.CalledProcessError:
        pytest.skip("no overlayfs here")
    (root / "dir" / "sub" / "inner").mkdir()
    assert not watcher.watch(b"dir/sub/inner")
    assert watcher.watch(b"dir")
    subprocess.run(["umount", "--lazy", str(root / "dir" / "sub")], check=True)
    assert not watcher.watch(b"dir/sub/deep")  # not asked again at once: statfs may go over a network
    later(monkeypatch)
    assert watcher.watch(b"dir/sub/deep")


def test_a_lower_that_keeps_silent_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = HostLower("/proc/self")
    watcher = LowerWatch(lower)
    assert not watcher.watch(b"fd")
    monkeypatch.setattr(lower, "renew", None)
    assert not watcher.watch(b"")
    assert not watcher.watch(b"task")
    watcher.close()
    lower.close()


def test_no_more_watches(
    watcher: LowerWatch, root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert watcher.watch(b"dir")
    with limit("max_user_watches", 0), caplog.at_level(logging.WARNING):
        monkeypatch.setattr(watch, "RETRY_S", 0.0)
        assert not watcher.watch(b"dir/sub/deep")
        assert not watcher.watch(b"dir/sub")
        monkeypatch.undo()
        assert watcher.watch(b"dir")
        assert not watcher.watch(b"dir/sub")
        (root / "dir" / "leaf").chmod(0o600)
        assert told(watcher) == {(b"dir", b"leaf"): False}
    assert [record.message for record in caplog.records] == [
        "changes are watched in 2 directories of the lower and not in more: fs.inotify.max_user_watches is too low"
    ]
    assert not watcher.watch(b"dir/sub")  # not tried again at once
    later(monkeypatch)
    assert watcher.watch(b"dir/sub/deep")


def test_no_more_instances(lower: HostLower, caplog: pytest.LogCaptureFixture) -> None:
    with limit("max_user_instances", 0), caplog.at_level(logging.WARNING):
        watcher = LowerWatch(lower)
    assert watcher.fd == -1
    assert not watcher.watch(b"")
    assert watcher.news() == []
    watcher.forget(b"")
    watcher.close()
    assert "max_user_instances" in caplog.text


def test_after_too_many_events_everything_is_stale(lower: HostLower, root: Path) -> None:
    with limit("max_queued_events", 8):
        watcher = LowerWatch(lower)
    for number in range(20):
        (root / "dir" / str(number)).mkdir()
        assert watcher.watch(b"dir/%d" % number)
    (root / "dir").rename(root / "moved")
    for number in range(10):
        (root / str(number)).touch()
    assert watcher.news() == [LOWER_LOST]
    assert watcher.news() == []  # the end of 22 watches is not one more overflow
    assert watches_in_kernel(watcher) == 0
    assert watcher.watch(b"moved/1")
    (root / "moved" / "1" / "new").touch()
    assert LowerChange(b"moved/1", b"new", True) in watcher.news()
    watcher.close()
