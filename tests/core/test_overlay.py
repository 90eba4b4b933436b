"""Branches, snapshots and what becomes of their content, each behaviour by itself."""

import os
import time
from pathlib import Path

import pytest

from agentfsd.core import copyup, data, directory_entries, inode_attributes, inode_stat
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.retention import Retention
from agentfsd.domain_errors import Refusal
from agentfsd.metadata import layer_rows
from tests.overlays import Opened


def code_of(caught: pytest.ExceptionInfo[Refusal]) -> str:
    return caught.value.code


def test_snapshot_keeps_content_that_is_written_later(opened: Opened) -> None:
    opened.write("f", b"one")
    opened.overlay.snapshots.create("main", "s")
    opened.write("f", b"two")
    assert (opened.read("f", "s"), opened.read("f")) == (b"one", b"two")


def test_snapshot_keeps_content_that_is_written_in_place(opened: Opened) -> None:
    inode = opened.write("f", b"12345")
    data.open_(inode, os.O_RDWR)
    opened.overlay.snapshots.create("main", "s")
    data.write(inode, b"X", 2)
    assert (opened.read("f", "s"), opened.read("f")) == (b"12345", b"12X45")
    data.release(inode)


def test_a_copy_that_ends_late_replaces_nothing_that_was_written_meanwhile(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "lower" / "file").write_bytes(b"lower")
    inode = opened.tree().walk(b"file")
    copy = copyup.Copy(inode)
    copy.run()
    opened.write("file", b"written since")
    opened.overlay.snapshots.create("main", "one")
    copy.install()
    assert opened.read("file") == opened.read("file", "one") == b"written since"
    opened.write("file", b"and again")
    assert opened.overlay.fsck() == []


def test_clock_that_is_years_ahead_for_once_deletes_no_young_snapshot(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Retention(max_count=0, max_age_s=30 * 86400, keep_tagged=False, keep_named=False)
    opened.overlay.snapshots.create("main")
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + 10 * 365 * 86400 * 10**9)
    assert opened.overlay.retention.prune(keep) == []
    boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: boot_ns + 31 * 86400 * 10**9)
    assert len(opened.overlay.retention.prune(keep)) == 1


def test_clock_that_is_years_ahead_when_the_daemon_starts_deletes_no_young_snapshot(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.overlay.settings.set("retention.max_age", "30d")
    first = opened.overlay.snapshots.create("main").id
    opened.overlay.retention.apply(opened.overlay.default_id)
    now_ns, boot_ns = time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    day_ns = 86400 * 10**9

    def restart(*, clock_days: int, uptime_days: float = 0) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: now_ns + clock_days * day_ns)
        monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: boot_ns + int(uptime_days * day_ns))

    def kept() -> bool:
        opened.overlay.snapshots.create("main")
        opened.overlay.retention.apply(opened.overlay.default_id)
        return first in {info.id for info in opened.overlay.snapshots.all()}

    restart(clock_days=3, uptime_days=3)
    assert kept()
    restart(clock_days=3650, uptime_days=3.01)
    assert kept()  # a daemon that has run for days doubts it as well
    restart(clock_days=3, uptime_days=3.02)
    assert kept()
    for clock_days in (3650, 3650, 1, 3650):  # also when it is wrong twice, and what was taken then is years ahead
        restart(clock_days=clock_days)
        opened.reopen()
        assert kept()
    restart(clock_days=3650, uptime_days=1.1)
    assert not kept()


def test_touching_a_file_of_a_snapshot_copies_no_data(opened: Opened) -> None:
    inode = opened.write("f", b"data")
    opened.overlay.snapshots.create("main", "s")
    inode_attributes.setattr_(inode.tree, inode, NewAttributes(mode=0o600, mtime_ns=5_000))
    assert inode_stat.attributes(inode).mtime_ns == 5_000
    snapshot = opened.tree("s")
    assert inode_stat.attributes(snapshot.walk(b"f")).mtime_ns != 5_000
    assert opened.overlay.usage()["objects"] == 1


def test_times_survive_the_merge_of_two_layers(opened: Opened) -> None:
    inode = opened.write("f", b"data")
    opened.overlay.snapshots.create("main", "s")
    inode_attributes.setattr_(inode.tree, inode, NewAttributes(mtime_ns=5_000))
    opened.overlay.snapshots.delete("s")
    assert inode_stat.attributes(inode).mtime_ns == 5_000
    opened.reopen()
    tree = opened.tree()
    assert inode_stat.attributes(tree.walk(b"f")).mtime_ns == 5_000
    assert opened.overlay.fsck() == []


def test_branch_of_a_branch_is_independent_of_it(opened: Opened) -> None:
    opened.write("f", b"one")
    opened.overlay.branches.create("b")
    opened.write("f", b"two", "b")
    opened.write("g", b"main only")
    assert (opened.read("f"), opened.read("f", "b")) == (b"one", b"two")
    assert opened.tree("b").names(opened.tree("b").root) == [b"f"]


def test_content_goes_with_the_last_that_holds_it(opened: Opened) -> None:
    opened.write("f", b"x" * 10_000)
    opened.overlay.snapshots.create("main", "s")
    opened.overlay.branches.create("b", "s")
    opened.unlink("f")
    opened.overlay.snapshots.delete("s")
    opened.reap()
    assert opened.overlay.usage()["objects"] == 1
    assert opened.read("f", "b") == b"x" * 10_000
    opened.overlay.branches.discard("b", keep=False)
    opened.reap()
    assert opened.overlay.usage()["objects"] == 0
    assert opened.overlay.fsck() == []


def test_discarded_main_is_the_bare_lower(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "lower" / "f").write_text("lower")
    opened.write("f", b"mine")
    opened.overlay.branches.discard("main", keep=False)
    assert opened.read("f") == b"lower"
    assert opened.overlay.comparison.diff(None, "main") == []


def test_history_names_snapshots_newest_first(opened: Opened) -> None:
    for number in range(3):
        opened.write(f"f{number}", b"x" * 100)
        opened.overlay.snapshots.create("main", f"s{number}", tag=str(number))
    opened.overlay.branches.create("b", "s1")
    opened.write("more", b"", "b")
    opened.overlay.snapshots.create("b", "sb")
    assert [found.name for found in opened.overlay.snapshots.log("main")] == ["s2", "s1", "s0"]
    assert [found.name for found in opened.overlay.snapshots.log("b")] == ["sb", "s1", "s0"]
    newest = opened.overlay.snapshots.log("main")[0]
    assert (newest.tag, newest.file_count, newest.bytes_changed) == ("2", 1, 100)
    assert newest.parent == opened.overlay.snapshots.info("s1").id


def test_refs_are_names_ids_and_unique_prefixes(opened: Opened) -> None:
    time.sleep(0.002)  # identifiers of one millisecond may differ in their last character alone
    made = opened.overlay.branches.create("b")
    assert opened.overlay.branches.info(made.id).name == "b"
    assert opened.overlay.branches.info(made.id[:25].lower()).name == "b"
    with pytest.raises(Refusal) as caught:
        opened.overlay.branches.info(made.id[:6])  # main was made in the same moment
    assert code_of(caught) == "ambiguous"
    with pytest.raises(Refusal) as caught:
        opened.overlay.branches.info(made.id[:3])
    assert code_of(caught) == "no-such-branch"


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "a/b", "a b", "a\n", "\u00e9", "x" * 129, ".agentfs"])
def test_bad_names_are_refused(opened: Opened, name: str) -> None:
    for make in (lambda: opened.overlay.branches.create(name), lambda: opened.overlay.snapshots.create("main", name)):
        with pytest.raises(Refusal) as caught:
            make()
        assert code_of(caught) == "bad-name"
    assert len(opened.overlay.branches.all()) == 1


def test_what_cannot_be_is_refused_and_changes_nothing(opened: Opened) -> None:
    overlay = opened.overlay
    overlay.branches.create("b")
    opened.write("f", b"", "b")
    overlay.snapshots.create("b", "s")
    refused = {
        "branch-exists": lambda: overlay.branches.create("b"),
        "snapshot-exists": lambda: overlay.snapshots.create("b", "s"),
        "no-such-branch or snapshot": lambda: overlay.branches.create("c", "missing"),
        "no-such-branch": lambda: overlay.snapshots.create("missing"),
        "no-such-snapshot": lambda: overlay.snapshots.delete("missing"),
        "branch-has-changes": lambda: overlay.branches.delete("b"),
        "default-branch": lambda: overlay.branches.delete("main"),
        "invalid": lambda: overlay.branches.restore("b", "b"),
    }
    for code, act in refused.items():
        with pytest.raises(Refusal) as caught:
            act()
        assert code_of(caught) == code
        assert caught.value.message
    assert [info.name for info in overlay.branches.all()] == ["main", "b"]
    assert [info.name for info in overlay.snapshots.all()] == ["s"]
    assert overlay.fsck() == []


def test_failed_commit_leaves_memory_as_it_was(opened: Opened) -> None:
    opened.write("f", b"x")
    for what in ("INSERT", "DELETE"):
        opened.store.db.execute(f"CREATE TEMP TRIGGER no{what} BEFORE {what} ON dentry BEGIN SELECT raise(ABORT, 'no'); END")
    with pytest.raises(OSError, match="metadata database"):
        opened.write("g", b"y")
    with pytest.raises(OSError, match="metadata database"):
        opened.unlink("f")
    for what in ("INSERT", "DELETE"):
        opened.store.db.execute(f"DROP TRIGGER no{what}")
    assert opened.tree().names(opened.tree().root) == [b"f"]
    opened.write("g", b"z")
    assert opened.read("g") == b"z"
    opened.reopen()
    assert opened.overlay.fsck() == []


def test_lookup_cost_does_not_grow_with_snapshots(opened: Opened) -> None:
    """Counted in queries, not in seconds: a directory is read once, whatever the number of snapshots."""
    opened.mkdir("d")
    for number in range(20):
        opened.write(f"d/f{number}", b"x")
    counts = []
    for snapshots in (1, 100):
        while len(opened.overlay.snapshots.all()) < snapshots:
            opened.write("d/f0", b"y")
            opened.overlay.snapshots.create("main")
        opened.reopen()
        tree = opened.tree()
        statements: list[str] = []
        opened.store.db.trace(statements.append)
        directory = tree.walk(b"d")
        held = [tree.lookup(directory, f"f{number}".encode()) for number in range(20)]
        first = len(statements)
        for number in range(20):
            tree.lookup(directory, f"f{number}".encode())
        counts.append((first, len(statements) - first, len(held)))
        opened.store.db.trace(None)
    assert counts[0] == counts[1]
    assert counts[0][1] == 0


def test_snapshot_and_branch_write_the_same_few_rows_at_any_size(opened: Opened) -> None:
    changes = []
    for size in (1, 500):
        opened.mkdir(f"d{size}")
        for number in range(size):
            opened.write(f"d{size}/f{number}", b"")
        before = opened.store.db.total_changes
        opened.overlay.snapshots.create("main")
        opened.overlay.branches.create(f"b{size}")
        changes.append(opened.store.db.total_changes - before)
    assert changes[0] == changes[1] < 10


def test_numbers_of_inodes_and_objects_are_not_used_twice(opened: Opened) -> None:
    seen = set()
    for _ in range(3):
        seen.add(opened.write(f"f{len(seen)}", b"").id)
        opened.reopen()
    assert len(seen) == 3


def test_diff_sees_what_a_moved_directory_brings_to_a_name_that_was_there(opened: Opened) -> None:
    for name in ("a", "b"):
        (opened.base / "lower" / name / "deep").mkdir(parents=True)
        (opened.base / "lower" / name / "deep" / "file").write_text(name)
    tree = opened.tree()
    directory_entries.rename(tree, tree.root, b"b", tree.root, b"c")
    directory_entries.rename(tree, tree.root, b"a", tree.root, b"b")
    assert (b"b/deep/file", "M") in [(change.path, change.status) for change in opened.overlay.comparison.diff(None, "main")]


def test_diff_sees_what_a_directory_that_was_made_anew_lacks(opened: Opened) -> None:
    opened.mkdir("d")
    opened.write("d/f", b"f")
    opened.overlay.snapshots.create("main", "s")
    opened.unlink("d/f")
    tree = opened.tree()
    directory_entries.rmdir(tree, tree.root, b"d")
    opened.mkdir("d")
    assert [(change.path, change.status) for change in opened.overlay.comparison.diff("s", "main")] == [(b"d/f", "D")]


def test_history_holds_no_other_branchs_snapshots_of_the_bare_lower(opened: Opened) -> None:
    overlay = opened.overlay
    for name in ("one", "two"):
        overlay.branches.create(name)
        overlay.snapshots.create(name, f"{name}-bare")
    assert [found.name for found in overlay.snapshots.log("two")] == ["two-bare"]
    assert overlay.snapshots.create("two", "two-2").parent == overlay.refs.snapshot("two-bare").id
    assert overlay.branches.info("one").last == overlay.refs.snapshot("one-bare").id
    overlay.snapshots.create("main", "main-bare")
    overlay.branches.create("three", "main-bare")
    assert [found.name for found in overlay.snapshots.log("three")] == ["main-bare"]


def test_changes_are_counted_some_at_a_time(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        (opened.base / "lower" / f"old-{number}").write_text("x")
    opened.overlay.branches.create("work")
    for number in range(11):
        opened.write(f"new-{number}", b"x", "work")
    tree = opened.tree("work")
    for number in range(7):
        directory_entries.unlink(tree, tree.root, b"old-%d" % number)
    assert sum(opened.overlay.branches.stored_changes("main")) == 0
    for page in (1, 3, 7, 11, 18):
        monkeypatch.setattr(layer_rows, "_PAGE", page)
        counted = list(opened.overlay.branches.stored_changes("work"))
        assert sum(counted) == 18
        assert len(counted) >= 18 // page


def test_a_snapshot_is_never_given_the_name_of_another_that_has_gone(opened: Opened) -> None:
    made = [opened.overlay.snapshots.create("main").name for _ in range(3)]
    for name in made:
        opened.overlay.snapshots.delete(name)
    opened.reopen()
    assert opened.overlay.snapshots.create("main").name not in made
