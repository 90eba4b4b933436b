"""Patches between two trees, applied with the real git; what they read and what they count."""

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfsd.core import directory_entries, inode_attributes
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.domain_errors import Refusal
from agentfsd.history import compare, patch
from agentfsd.history.paths import among, parse
from agentfsd.types import PathChange
from tests.history.patching import (
    EXEC,
    LINK,
    PLAIN,
    Files,
    change,
    compared,
    count_opens,
    files_of,
    git,
    put,
    remove,
    rename,
    run,
    shown,
    text_of,
)
from tests.overlays import OWNER, Opened

LINES = b"".join(b"%d\n" % number for number in range(300))
OLD: Files = {
    b"same": (PLAIN, b"same\n"),
    b"deleted": (PLAIN, b"gone\n"),
    b"modified": (PLAIN, LINES),
    b"mode": (PLAIN, b"#!/bin/sh\n"),
    b"unmode": (EXEC, b"#!/bin/sh\nx\n"),
    b"binary": (PLAIN, bytes(range(256)) * 20),
    b"deleted-binary": (PLAIN, b"\0\1\2\xff"),
    b"emptied": (PLAIN, b"x\n"),
    b"filled": (PLAIN, b""),
    b"deleted-empty": (PLAIN, b""),
    b"no-newline": (PLAIN, b"a\nb"),
    b"newline-lost": (PLAIN, b"a\nb\n"),
    b"crlf": (PLAIN, b"one\r\ntwo\r\nthree\r\n"),
    b"latin-1": (PLAIN, b"caf\xe9\n"),
    b" sp ace ": (PLAIN, b"1\n2\n3\n"),
    b"quo\"te\\'s": (PLAIN, b"1\n"),
    b"new\nline\ttab": (PLAIN, b"1\n"),
    b"\xff \n": (PLAIN, b"1\n"),
    "ü/é".encode(): (PLAIN, b"1\n"),
    b"link": (LINK, b"same"),
    b"link-to-file": (LINK, b"same"),
    b"file-to-link": (PLAIN, b"same"),
    b"file-to-directory": (PLAIN, b"1\n"),
    b"directory-to-file/a": (PLAIN, b"1\n"),
    b"directory-to-file/b/c": (EXEC, b"1\n"),
    b"directory-to-link/a": (PLAIN, b"1\n"),
    b"--- a": (PLAIN, b"-- x\n"),
    b"big": (PLAIN, LINES * 2000),
}
NEW: Files = {
    b"same": (PLAIN, b"same\n"),
    b"added": (PLAIN, b"new\n"),
    b"added-exec": (EXEC, b"#!/bin/sh\n"),
    b"added-binary": (PLAIN, b"\0\1\2\xff"),
    b"added-empty": (EXEC, b""),
    b"added-link": (LINK, b"no\xffwhere\n"),
    b"deep/er/added": (PLAIN, b"new\n"),
    b"modified": (PLAIN, LINES.replace(b"\n77\n", b"\nseventy-seven\n").replace(b"\n250\n", b"\n")),
    b"mode": (EXEC, b"#!/bin/sh\n"),
    b"unmode": (PLAIN, b"#!/bin/sh\ny\n"),
    b"binary": (EXEC, bytes(range(256)) * 19 + b"changed" * 30),
    b"emptied": (PLAIN, b""),
    b"filled": (PLAIN, b"x"),
    b"no-newline": (PLAIN, b"a\nc"),
    b"newline-lost": (PLAIN, b"a\nb"),
    b"crlf": (PLAIN, b"one\r\n2\r\nthree\n"),
    b"latin-1": (PLAIN, b"caf\xe8\n"),
    b" sp ace ": (PLAIN, b"1\n2\n4\n"),
    b"quo\"te\\'s": (PLAIN, b"2\n"),
    b"new\nline\ttab": (PLAIN, b"2\n"),
    b"\xff \n": (EXEC, b"2\n"),
    "ü/é".encode(): (PLAIN, b"2\n"),
    b"link": (LINK, b"added"),
    b"link-to-file": (PLAIN, b"same"),
    b"file-to-link": (LINK, b"same"),
    b"file-to-directory/a": (PLAIN, b"2\n"),
    b"directory-to-file": (PLAIN, b"2\n"),
    b"directory-to-link": (LINK, b"same"),
    b"--- a": (PLAIN, b"++ x\n-- x\n"),
    b"big": (PLAIN, LINES * 1000 + b"in the middle\n" + LINES * 1000),
}


@pytest.fixture
def copy(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / "copy")


@pytest.fixture
def start(opened: Opened, copy: bytes) -> Callable[[Files], None]:
    """Puts files into the lower, and into a copy to which patches are applied."""

    def both(files: Files) -> None:
        put(os.fsencode(opened.base / "lower"), files)
        os.mkdir(copy)
        put(copy, files)

    return both


def test_a_patch_makes_the_branch_of_a_copy_of_the_lower(opened: Opened, copy: bytes, start: Callable[[Files], None]) -> None:
    start(OLD)
    change(opened, OLD, NEW)
    found = compared(opened)
    git(copy, "apply", text=text_of(found))
    assert files_of(copy) == NEW
    git(copy, "apply", "--reverse", text=text_of(found))
    assert files_of(copy) == OLD


def test_a_patch_applies_in_a_repository_and_counts_as_git_does(
    opened: Opened, copy: bytes, start: Callable[[Files], None]
) -> None:
    start(OLD)
    change(opened, OLD, NEW)
    git(copy, "init", "-q")
    git(copy, "add", "-A")
    git(copy, "commit", "-qm", "old")
    found = compared(opened)
    git(copy, "apply", "--index", text=text_of(found))
    assert files_of(copy) == NEW
    counted = {
        file.pair.path: (b"-", b"-") if file.is_binary else (b"%d" % file.added, b"%d" % file.removed)
        for file in compared(opened, stat_only=True)
    }
    for path in (b"link-to-file", b"file-to-link"):  # git counts the same bytes as no change, though its patch has two lines
        assert counted.pop(path) == (b"1", b"1")
    lines = git(copy, "diff", "--cached", "--numstat", "--no-renames", "-z").rstrip(b"\0").split(b"\0")
    by_git = {path: (added, removed) for added, removed, path in (line.split(b"\t", 2) for line in lines)}
    assert counted == {path: counts for path, counts in by_git.items() if counts != (b"0", b"0") or path in counted}
    assert all(not file.patch for file in compared(opened, stat_only=True))


MOVES: Files = {
    b"plain": (PLAIN, LINES),
    b"changed": (PLAIN, LINES),
    b"rewritten": (PLAIN, LINES),
    b"empty": (PLAIN, b""),
    b"link": (LINK, b"plain"),
    b"one": (PLAIN, b"one\n"),
    b"two": (PLAIN, b"two\n"),
    b"dir/a": (PLAIN, b"a\n" * 10),
    b"dir/b\xff c": (PLAIN, b"b\n" * 10),
    b"dir/deep/c": (EXEC, b"c\n" * 10),
    b"dir/deep/d": (PLAIN, b"d\n" * 10),
    b"dir/gone": (PLAIN, b"gone\n"),
}


def test_renamed_files_are_renames_to_git(opened: Opened, copy: bytes, start: Callable[[Files], None]) -> None:
    start(MOVES)
    moves = {b"x": b"plain", b"y y": b"changed", b"z": b"rewritten", b"e": b"empty", b"l": b"link"}
    for new, old in moves.items():
        rename(opened, old, new)
    opened.write("y y", LINES + b"more\n")
    opened.write("z", b"nothing of it\n")
    inode_attributes.setattr_(opened.tree(), opened.tree().walk(b"x"), NewAttributes(mode=0o755))
    found = compared(opened)
    text = text_of(found)
    assert b"rename from plain\nrename to x\n" in text
    assert b"similarity index 9" in text
    assert {file.pair.path: file.added for file in found} == {b"x": 0, b"y y": 1, b"z": 1, b"e": 0, b"l": 1}
    git(copy, "apply", text=text)
    moved = {path: MOVES[old] for path, old in moves.items()} | {
        b"x": (EXEC, LINES), b"y y": (PLAIN, LINES + b"more\n"), b"z": (PLAIN, b"nothing of it\n"),
    }  # fmt: skip
    assert files_of(copy) == {path: MOVES[path] for path in MOVES if path not in moves.values()} | moved


def test_two_files_that_change_places_do_so_in_the_copy(opened: Opened, copy: bytes, start: Callable[[Files], None]) -> None:
    start(MOVES)
    for old, new in ((b"one", b"t"), (b"two", b"one"), (b"t", b"two")):
        rename(opened, old, new)
    git(copy, "apply", text=text_of(compared(opened)))
    assert files_of(copy) == MOVES | {b"one": MOVES[b"two"], b"two": MOVES[b"one"]}


def test_a_second_name_is_a_new_file(opened: Opened, copy: bytes, start: Callable[[Files], None]) -> None:
    start(MOVES)
    tree = opened.tree()
    for old, new in ((b"one", b"one-a"), (b"one", b"one-b"), (b"two", b"two-a")):
        directory_entries.link(tree, tree.walk(old), tree.root, new)
    remove(opened, b"one")
    git(copy, "apply", text=text_of(compared(opened)))
    moved = {b"one-a": MOVES[b"one"], b"one-b": MOVES[b"one"], b"two-a": MOVES[b"two"]}
    assert files_of(copy) == {path: MOVES[path] for path in MOVES if path != b"one"} | moved


def test_a_renamed_directory_takes_along_what_is_in_it(opened: Opened, copy: bytes, start: Callable[[Files], None]) -> None:
    start(MOVES)
    rename(opened, b"dir", b"moved")
    rename(opened, b"moved/deep", b"moved/deeper")
    opened.write("moved/a", b"a\n" * 11)
    opened.write("moved/new", b"new\n")
    opened.write("moved/deeper/d", b"d\n" * 9)
    opened.unlink("moved/gone")
    changes = opened.overlay.comparison.diff(None, "main")
    assert len([change for change in changes if change.status == "R"]) == 2
    opens = count_opens(opened)
    text = text_of(compared(opened, changes))
    assert opens == {b"dir/a": 1, b"dir/gone": 1, b"dir/deep/d": 1}
    assert [file.pair.path for file in compared(opened, changes, b"dir/deep/c")] == [b"moved/deeper/c"]
    git(copy, "apply", text=text)
    moves = [(b"dir/deep/", b"moved/deeper/"), (b"dir/", b"moved/")]
    expected = dict(MOVES)
    for old, new in moves:
        expected = {path.replace(old, new): file for path, file in expected.items()}
    del expected[b"moved/gone"]
    changed = {b"moved/a": b"a\n" * 11, b"moved/new": b"new\n", b"moved/deeper/d": b"d\n" * 9}
    assert files_of(copy) == expected | {path: (PLAIN, content) for path, content in changed.items()}


# no link leads to itself: git apply cannot replace such a link by a directory
TARGETS = st.sampled_from([b"nowhere", b"\xfe \n"])


names = st.sampled_from([b"a", b"b", b"c \xff", b'"\n'])
paths_ = st.lists(names, min_size=1, max_size=3).map(b"/".join)
contents = st.sampled_from([b"", b"a\n", b"a\nb\n", b"a\nb", b"\0b", b"\r\n\xe9\n", b"-- a\n++ b\n", LINES, LINES[50:] + b"x"])
entries = st.one_of(st.tuples(st.sampled_from([PLAIN, EXEC]), contents), st.tuples(st.just(LINK), TARGETS))


def without_clashes(files: Files) -> Files:
    """No file is where another has a directory."""
    parents = {path[:end] for path in files for end in range(len(path)) if path[end : end + 1] == b"/"}
    return {path: entry for path, entry in files.items() if path not in parents}


trees = st.dictionaries(paths_, entries, max_size=7).map(without_clashes)


moves_ = st.lists(st.tuples(paths_, paths_), max_size=4)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(old=trees, moves=moves_, new=st.none() | trees)
def test_any_two_small_trees(old: Files, moves: list[tuple[bytes, bytes]], new: Files | None) -> None:
    """Some renames, of files and directories, and then whatever leads to *new* (None: nothing more)."""
    with tempfile.TemporaryDirectory() as base:
        opened, copy = Opened(Path(base)), os.fsencode(base) + b"/copy"
        try:
            put(os.fsencode(base) + b"/lower", old)
            os.mkdir(copy)
            put(copy, old)
            for source, target in moves:
                with contextlib.suppress(OSError):
                    rename(opened, source, target)
            if new is not None:
                change(opened, shown(opened), new)
            text = text_of(compared(opened))
            if text:
                git(copy, "apply", text=text)
            assert files_of(copy) == shown(opened)
        finally:
            opened.close()


def test_what_git_cannot_say_is_noted(opened: Opened, start: Callable[[Files], None]) -> None:
    start({b"f": (PLAIN, b"f\n"), b"d/f": (PLAIN, b"f\n"), b"x": (PLAIN, b"x\n")})
    tree = opened.tree()
    inode_attributes.setattr_(tree, tree.walk(b"f"), NewAttributes(mode=0o600))
    inode_attributes.setattr_(tree, tree.walk(b"d"), NewAttributes(mode=0o700))
    inode_attributes.setxattr(tree, tree.walk(b"x"), b"user.a", b"1")
    opened.mkdir("empty")
    opened.mkdir("full")
    opened.write("full/f", b"1\n")
    directory_entries.make(tree, tree.root, b"pipe", stat.S_IFIFO | 0o644, OWNER)
    found = compared(opened)
    assert {file.pair.path: file.pair.note for file in found} == {
        b"d": "mode 0755 -> 0700",
        b"empty": "empty directory added",
        b"f": "mode 0644 -> 0600",
        b"full/f": "",
        b"pipe": "named pipe added",
        b"x": "extended attributes",
    }
    assert [file.pair.path for file in found if file.patch] == [b"full/f"]


def test_paths_keep_to_files_and_what_is_below_directories(opened: Opened, start: Callable[[Files], None]) -> None:
    start({b"sub/a": (PLAIN, b"1\n"), b"sub/deep/b": (PLAIN, b"1\n"), b"subway": (PLAIN, b"1\n"), b"c": (PLAIN, b"1\n")})
    for path in ("sub/a", "sub/deep/b", "subway", "c"):
        opened.write(path, b"2\n")
    assert [file.pair.path for file in compared(opened, None, b"./sub/", b"c")] == [b"c", b"sub/a", b"sub/deep/b"]
    assert [change.path for change in among(opened.overlay.comparison.diff(None, "main"), parse([b"sub/deep"]))] == [
        b"sub/deep/b"
    ]
    assert len(compared(opened, None, b"")) == 4
    assert compared(opened, None, b"nowhere") == []
    for wrong in (b"/sub", b"sub/../..", b"a\0b"):
        with pytest.raises(Refusal):
            parse([wrong])


def test_a_rename_counts_by_either_name() -> None:
    moved = PathChange("R", b"new/f", 1, 1, old_path=b"old/f")
    assert [among([moved], parse([path])) for path in (b"old", b"new/f", b"newer")] == [[moved], [moved], []]


def test_context_lines_are_as_many_as_asked(opened: Opened, start: Callable[[Files], None]) -> None:
    start({b"f": (PLAIN, LINES)})
    opened.write("f", LINES.replace(b"\n77\n", b"\nx\n"))
    counts = [text_of(compared(opened, context_lines=count)).count(b"\n ") for count in (0, 1, 7)]
    assert counts == [0, 2, 14]


def test_a_file_that_is_too_large_is_named_and_counts_by_its_size(
    opened: Opened, start: Callable[[Files], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patch, "MAX_FILE_BYTES", 1000)
    start({b"large": (PLAIN, b"x" * 1001), b"small": (PLAIN, b"1\n")})
    opened.write("large", b"y" * 10)
    opened.write("small", b"2\n")
    with pytest.raises(Refusal, match="large is larger"):
        compared(opened)
    large, small = compared(opened, stat_only=True)
    assert (large.is_binary, large.pair.old_size, large.pair.new_size) == (True, 1001, 10)
    assert (small.added, small.removed) == (1, 1)
    assert text_of(compared(opened, None, b"small"))
    monkeypatch.setattr(compare, "MAX_PATCH_BYTES", 10)
    with pytest.raises(AssertionError):
        compared(opened, None, b"small")


def test_a_branch_that_is_restored_meanwhile_is_not_mixed_with_its_past(opened: Opened) -> None:
    opened.overlay.snapshots.create("main", "empty")
    opened.write("a", b"1\n")
    opened.write("b", b"1\n")
    changes = opened.overlay.comparison.diff(None, "main")
    with tempfile.TemporaryFile() as spool:
        steps = patch.read(opened.overlay.trees.side(None), opened.tree(), changes, (), spool.fileno(), stat_only=False)
        next(steps)
        opened.overlay.branches.restore("main", "empty")
        with pytest.raises(Refusal, match="restored"):
            run(steps)


def test_only_what_changed_is_read(tmp_path: Path) -> None:
    """Ten changes over 2,000 files; the time is for whoever runs it with -s."""
    lower = tmp_path / "lower"
    for number in range(20):
        (lower / f"d{number}").mkdir(parents=True)
        for other in range(100):
            (lower / f"d{number}" / f"f{other}").touch()
    (lower / "d0" / "f0").write_text("1\n")
    opened = Opened(tmp_path)
    try:
        opened.overlay.branches.create("one")
        opened.overlay.branches.create("two")
        for number in range(5):
            opened.write(f"d{number}/f{number}", b"one\n", "one")
            opened.write(f"d{number}/f{number + 50}", b"two\n", "two")
        opens = count_opens(opened)
        listed: list[bytes] = []
        plain = opened.lower.readdir
        opened.lower.readdir = lambda path: listed.append(path) or plain(path)  # type: ignore[method-assign,func-returns-value]
        old, new = opened.overlay.trees.side("one"), opened.overlay.trees.side("two")
        began = time.perf_counter()
        with tempfile.TemporaryFile() as spool:
            pairs = run(patch.read(old, new, opened.overlay.comparison.diff("one", "two"), (), spool.fileno(), stat_only=False))
            found = compare.compare(compare.Job(pairs, False, 3), spool.fileno())
        print(f"{time.perf_counter() - began:.4f} s")
        assert len(found.patches) == 10
        assert set(opens) == {b"d%d/f%d" % (number, other) for number in range(5) for other in (number, number + 50)}
        assert sum(opens.values()) <= 20
        assert listed == []
    finally:
        opened.close()
        shutil.rmtree(lower)
