"""What is heard of real changes to the lower, on a disk and in memory, and when nothing can be heard."""

import mmap
import os
import random
import select
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfsd.lower.host_lower import HostLower
from agentfsd.lower.watch import LowerWatch
from tests.lower.watching import told, watches_in_kernel
from tests.mounted import needs_root


def test_names_that_come_and_go_change_their_directory_too(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir")
    (root / "dir" / "new").mkdir()
    assert told(watcher) == {(b"dir", b"new"): True, (b"dir", b""): False}
    (root / "dir" / "leaf").unlink()
    assert told(watcher) == {(b"dir", b"leaf"): True, (b"dir", b""): False}
    (root / "dir" / "new").rename(root / "dir" / "newer")
    assert told(watcher) == {(b"dir", b"new"): True, (b"dir", b"newer"): True, (b"dir", b""): False}
    os.symlink("leaf", root / "dir" / "link")
    assert told(watcher) == {(b"dir", b"link"): True, (b"dir", b""): False}


@pytest.mark.parametrize(
    "act",
    [
        lambda path: path.write_bytes(b"other"),
        lambda path: os.truncate(path, 1),
        lambda path: path.chmod(0o600),
        lambda path: os.utime(path, (1, 1)),
        lambda path: os.setxattr(path, "user.of", b"us"),
    ],
    ids=["write", "truncate", "chmod", "utime", "setxattr"],
)
def test_a_file_that_stays_the_same_file_is_not_replaced(watcher: LowerWatch, root: Path, act: Callable[[Path], object]) -> None:
    assert watcher.watch(b"")
    act(root / "file")
    assert told(watcher) == {(b"", b"file"): False}


def test_a_file_open_from_before_is_heard_while_it_is_written(watcher: LowerWatch, root: Path) -> None:
    with (root / "file").open("r+b", buffering=0) as file:
        assert watcher.watch(b"")
        for _ in range(2):
            file.write(b"more")
            assert told(watcher) == {(b"", b"file"): False}


def test_a_write_through_a_map_is_heard_at_its_end(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"")
    with (root / "file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[:4] = b"more"
    assert told(watcher) == {(b"", b"file"): False}


def test_a_file_renamed_over_another_replaces_it(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir/sub")
    (root / "file").rename(root / "dir" / "sub" / "leaf")
    assert told(watcher) == {(b"", b"file"): True, (b"", b""): False, (b"dir/sub", b"leaf"): True, (b"dir/sub", b""): False}


def test_a_new_hard_link_is_a_new_name(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir")
    os.link(root / "dir" / "leaf", root / "dir" / "second")
    (root / "dir" / "second").write_bytes(b"through the second name")
    assert told(watcher) == {(b"dir", b"second"): True, (b"dir", b""): False}  # and not b"leaf": see LowerWatch


def test_attributes_of_directories(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir")
    (root / "dir").chmod(0o700)
    assert told(watcher) == {(b"", b"dir"): False, (b"dir", b""): False}
    (root / "dir" / "sub").chmod(0o700)  # not watched itself
    assert told(watcher) == {(b"dir", b"sub"): False}
    root.chmod(0o700)
    assert told(watcher) == {(b"", b""): False}


def test_reading_is_no_change(watcher: LowerWatch, lower: HostLower, root: Path) -> None:
    assert watcher.watch(b"dir")
    os.utime(root / "dir" / "leaf", (1, 2))
    watcher.news()
    (root / "dir" / "leaf").read_bytes()
    lower.readdir(b"dir")
    assert watcher.news() == []


def test_many_events_are_few_changes(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"")
    for number in range(1000):
        (root / str(number)).write_bytes(b"content")
    assert len(watcher.news()) == 1000 + 1
    assert watcher.news() == []


def test_the_descriptor_is_readable_while_there_is_news(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"")
    assert select.select([watcher.fd], [], [], 0)[0] == []
    (root / "file").chmod(0o600)
    assert select.select([watcher.fd], [], [], 0)[0] == [watcher.fd]
    watcher.news()
    assert select.select([watcher.fd], [], [], 0)[0] == []
    assert not os.get_inheritable(watcher.fd)


def test_only_what_was_asked_for_is_watched(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir")
    (root / "dir" / "sub" / "leaf").write_bytes(b"other")
    assert watcher.news() == []


def test_names_of_any_bytes(watcher: LowerWatch, root: Path) -> None:
    name = b"\xff\n " + b"x" * 252
    os.mkdir(os.fsencode(root) + b"/" + name)
    assert watcher.watch(name)
    os.mkdir(os.fsencode(root) + b"/" + name + b"/\xfe")
    assert told(watcher) == {(name, b"\xfe"): True, (name, b""): False}


def test_a_renamed_directory_takes_the_watches_below_it_along(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir/sub/deep")
    assert watcher.watch(b"dir/sub")
    (root / "dir").rename(root / "moved")
    assert told(watcher) == {
        (b"", b"dir"): True, (b"", b"moved"): True, (b"", b""): False,
        (b"dir", None): True, (b"dir/sub", None): True, (b"dir/sub/deep", None): True,
    }  # fmt: skip
    (root / "moved" / "sub" / "leaf").write_bytes(b"other")
    assert watcher.news() == []
    assert not watcher.watch(b"dir/sub")
    assert watcher.watch(b"moved/sub")
    (root / "moved" / "sub" / "leaf").write_bytes(b"another")
    assert told(watcher) == {(b"moved/sub", b"leaf"): False}


def test_a_replaced_directory_is_watched_anew(watcher: LowerWatch, lower: HostLower, root: Path) -> None:
    assert watcher.watch(b"dir/sub")
    assert lower.stat(b"dir/sub/leaf").st_size == 7
    (root / "dir").rename(root / "old")
    (root / "dir" / "sub").mkdir(parents=True)
    assert {(b"", b"dir"), (b"dir", None), (b"dir/sub", None)} <= set(told(watcher))
    assert watcher.watch(b"dir/sub")
    with pytest.raises(FileNotFoundError):  # at once, although the lower holds directories for a while
        lower.stat(b"dir/sub/leaf")
    (root / "dir" / "sub" / "leaf").touch()
    (root / "old" / "sub" / "leaf").write_bytes(b"other")
    assert told(watcher) == {(b"dir/sub", b"leaf"): True, (b"dir/sub", b""): False}


def test_what_is_watched_before_news_of_a_rename_was_read_is_told_to_be_stale(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir")
    (root / "dir").rename(root / "old")
    shutil.copytree(root / "old", root / "dir")
    assert watcher.watch(b"dir/sub")
    assert watcher.watch(b"old")
    assert {(b"dir", None), (b"dir/sub", None), (b"old", None)} <= set(told(watcher))
    assert watches_in_kernel(watcher) == 0
    assert watcher.watch(b"dir/sub")
    (root / "dir" / "sub" / "new").mkdir()
    assert (b"dir/sub", b"new") in told(watcher)


def test_a_rename_while_a_watch_is_being_made_is_told(
    watcher: LowerWatch, lower: HostLower, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew = lower.renew

    def renew_and_lose(path: bytes) -> object:
        found = renew(path)
        if path == b"dir/sub":
            (root / "dir").rename(root / "moved")
        return found

    monkeypatch.setattr(lower, "renew", renew_and_lose)
    assert watcher.watch(b"dir/sub")
    assert (b"dir/sub", None) in told(watcher)


def test_directories_that_change_places(watcher: LowerWatch, root: Path) -> None:
    (root / "other" / "sub").mkdir(parents=True)
    assert watcher.watch(b"dir/sub")
    assert watcher.watch(b"other/sub")
    (root / "dir").rename(root / "third")
    (root / "other").rename(root / "dir")
    (root / "third").rename(root / "other")
    assert {(b"dir/sub", None), (b"other/sub", None)} <= set(told(watcher))
    assert watcher.watch(b"dir/sub")
    assert watcher.watch(b"other/sub")
    (root / "other" / "sub" / "leaf").write_bytes(b"other")
    assert told(watcher) == {(b"other/sub", b"leaf"): False}


def test_a_removed_tree(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir/sub/deep")
    shutil.rmtree(root / "dir")
    changes = told(watcher)
    assert {(b"", b"dir"), (b"dir", None), (b"dir/sub", None), (b"dir/sub/deep", None)} <= set(changes)
    assert watcher.news() == []
    assert watches_in_kernel(watcher) == 0  # nor the root: nobody asked for it
    assert not watcher.watch(b"dir/sub")
    (root / "dir" / "sub").mkdir(parents=True)
    assert watcher.watch(b"dir/sub")


def test_forgotten_directories_are_watched_as_long_as_one_below_is(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir/sub/deep")
    assert watcher.watch(b"dir")
    assert watches_in_kernel(watcher) == 4
    watcher.forget(b"dir")
    assert watches_in_kernel(watcher) == 4
    watcher.forget(b"dir/sub/deep")
    assert watches_in_kernel(watcher) == 0
    watcher.forget(b"dir/sub/deep")
    watcher.forget(b"never")
    (root / "dir").rename(root / "moved")
    assert watcher.news() == []
    assert watcher.watch(b"moved/sub")


def test_forgetting_keeps_what_is_asked_for_above(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir")
    assert watcher.watch(b"dir/sub/deep")
    watcher.forget(b"dir/sub/deep")
    assert watches_in_kernel(watcher) == 2
    (root / "dir" / "leaf").chmod(0o600)
    assert told(watcher) == {(b"dir", b"leaf"): False}


@pytest.mark.parametrize("path", [b"none", b"file", b"link", b"link/sub", b"..", b"dir//sub", b"/", b"dir/", b"none/none"])
def test_what_is_no_directory_beneath_the_root_is_refused_without_a_trace(watcher: LowerWatch, root: Path, path: bytes) -> None:
    (root / "link").symlink_to("dir")
    assert not watcher.watch(path)
    assert watches_in_kernel(watcher) == 0


def test_what_may_not_be_read_is_refused(watcher: LowerWatch, lower: HostLower) -> None:
    needs_root()
    assert watcher.watch(b"")
    held = lower.renew(b"dir")
    os.chmod(b"/proc/self/fd/%d" % held.fd, 0o700)
    os.seteuid(65534)
    try:
        assert not watcher.watch(b"dir")
    finally:
        os.seteuid(0)
    assert watcher.watch(b"dir")


def inodes_in_kernel(watcher: LowerWatch) -> dict[int, int]:
    lines = Path(f"/proc/self/fdinfo/{watcher.fd}").read_text().splitlines()
    fields = [dict(field.split(":") for field in line.split()[1:4]) for line in lines if line.startswith("inotify")]
    return {int(each["wd"], 16): int(each["ino"], 16) for each in fields}


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_a_watched_path_leads_to_the_watched_directory(watcher: LowerWatch, root: Path, seed: int) -> None:
    chance = random.Random(seed)
    actions: list[Callable[[Path, Path], object]] = [
        lambda at, _: at.mkdir(parents=True),
        lambda at, to: at.rename(to),
        lambda at, _: at.rmdir(),
        lambda at, _: shutil.rmtree(at),
        lambda at, _: watcher.watch(bytes(at.relative_to(root))),
        lambda at, _: watcher.forget(bytes(at.relative_to(root))),
    ]
    for step in range(400):
        at, to = ("/".join(chance.choices("abc", k=chance.randint(1, 4))) for _ in range(2))
        try:
            chance.choices(actions, [4, 2, 1, 1, 4, 1])[0](root / at, root / to)
        except OSError:
            continue
        if step % 3 == 0:
            told(watcher)
            known = inodes_in_kernel(watcher)
            assert {path: known.pop(number) for path, number in watcher._watches.items()} == {
                path: os.stat(os.fsencode(root) + b"/" + path).st_ino for path in watcher._watches
            }
            assert not known
            assert all(path.rpartition(b"/")[0] in watcher._watches for path in watcher._watches)


def test_a_closed_watch_says_no_and_nothing(watcher: LowerWatch, root: Path) -> None:
    assert watcher.watch(b"dir")
    (root / "dir" / "leaf").chmod(0o600)
    watcher.close()
    assert watcher.news() == []
    assert not watcher.watch(b"dir")
    watcher.forget(b"dir")
    watcher.close()
