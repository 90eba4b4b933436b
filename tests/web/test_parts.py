"""What the pages are made of, without a server: differences side by side, the graph, stretches of a file, who is let in."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from agentfs_client import wire
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfsd.web import diff_rows, display_text
from agentfsd.web.file_view import PART_BYTES, view
from agentfsd.web.guard import Keys, is_loopback
from agentfsd.web.highlighting import coloured, text_of
from agentfsd.web.history_columns import HistoryNode, places
from agentfsd.web.viewed_trees import ArchiveTree


def patch(*lines: str, path: str = "a.py", **fields: object) -> wire.FilePatch:
    text = "\n".join(["diff --git a/a.py b/a.py", "--- a/a.py", "+++ b/a.py", *lines, ""]).encode()
    values = {"status": "M", "added": 1, "removed": 1, "is_binary": False, "old_size": 1, "new_size": 1, **fields}
    return wire.FilePatch(path=path, patch=text, **values)  # type: ignore[arg-type]


def sides(diff: diff_rows.FileDiff) -> list[tuple[int, str, int, str]]:
    return [(row.old, text_of(row.was or []), row.new, text_of(row.now or [])) for hunk in diff.hunks for row in hunk.rows]


def test_changed_line_stands_beside_what_it_became() -> None:
    found = diff_rows.file_diff(
        patch("@@ -3,4 +3,3 @@ class A:", " same", "-    # a note", "-def one(): pass", "+def two(): pass", " end")
    )
    assert sides(found) == [
        (3, "same", 3, "same"), (4, "    # a note", 0, ""), (5, "def one(): pass", 4, "def two(): pass"), (6, "end", 5, "end"),
    ]  # fmt: skip
    row = found.hunks[0].rows[2]
    assert [text for colour, text in row.was or [] if "*" in colour] == ["one"]
    assert [text for colour, text in row.now or [] if "*" in colour] == ["two"]
    assert found.hunks[0].head == "class A:"
    indented = diff_rows.file_diff(patch("@@ -3,1 +3,1 @@     def one(self):", "-a", "+b"))
    assert indented.hunks[0].head == "def one(self):"


@pytest.mark.parametrize(
    ("gone", "came", "expected"),
    [
        (["x = 1"], [], [(0, None)]),
        ([], ["x = 1"], [(None, 0)]),
        (["x = 1", "y = 2"], ["x = 3", "y = 4"], [(0, 0), (1, 1)]),
        (["alpha beta", "gamma delta"], ["gamma delte", "omega"], [(0, None), (1, 0), (None, 1)]),
        (["!!!!"], ["????"], [(0, 0)]),
    ],
)
def test_similar_lines_are_found_in_order(
    gone: list[str], came: list[str], expected: Sequence[tuple[int | None, int | None]]
) -> None:
    assert list(diff_rows.align(gone, came)) == expected


def test_long_difference_is_cut_and_says_so() -> None:
    count = diff_rows.MAX_LINES + 100
    found = diff_rows.file_diff(patch(f"@@ -0,0 +1,{count} @@", *(f"+line {n}" for n in range(count)), status="A"))
    assert len(sides(found)) == diff_rows.MAX_LINES
    assert any("first 5,000 lines" in note for note in found.notes)


def test_what_lines_cannot_say_is_said_in_words() -> None:
    found = diff_rows.file_diff(patch(is_binary=True, added=-1, removed=-1, old_size=-1, new_size=2048))
    assert found.hunks == []
    assert "nothing before, 2.0 KiB now" in found.notes[0]
    moved = diff_rows.file_diff(patch(old_mode=0o100644, new_mode=0o100755, lower_moved=True))
    assert moved.notes == [
        "Its mode was 100644 and is 100755 now.", "The real file has changed since this branch changed its own.",
    ]  # fmt: skip


def test_colours_lose_no_character() -> None:
    lines = ['def f(x):  # "quoted"', '    """Two', "    lines.", '    """', "", "    return '\u202e' + x\t\x1b[31m"]
    found = coloured("f.py", lines)
    assert [text_of(line) for line in found] == [*lines[:5], "    return '\u27e8U+202E\u27e9' + x\t\u241b[31m"]
    assert {colour for line in found for colour, _ in line} >= {"k", "s", "c", "f"}


def test_text_that_is_made_to_be_slow_loses_colours_and_no_character() -> None:
    lines, begun = ["[" * 99] * 800, time.process_time()
    assert [text_of(line) for line in coloured("made.sql", lines)] == lines
    assert time.process_time() - begun < 10


def test_paths_survive_an_address() -> None:
    path = "sub/a#b?c&d=%41 \udcff<x>\n.txt"
    assert display_text.query(f"path={display_text.key(path)}".encode()) == [("path", path)]
    assert display_text.visible(path) == "sub/a#b?c&d=%41 \\xff<x>\\n.txt"


def test_names_that_differ_look_different() -> None:
    given = [
        "app.py", " app.py", "app.py ", "d/app.py", "d/ app.py", "app\u200b.py", "app\u00ad.py", "\ufeffapp.py", "app .py",
        "app  .py", "\u202eapp.py", "app\n.py", "app\udcff.py", "app\U000e0041.py", "\u65e5\u672c.py",
    ]  # fmt: skip
    seen = [" ".join(display_text.visible(name).replace("\u200b", "").replace("\u00ad", "").split()) for name in given]
    assert len(set(seen)) == len(given)
    assert display_text.visible("a b/\u65e5\u672c \u00e9") == "a b/\u65e5\u672c \u00e9"
    assert display_text.visible(" lead/in  it ") == "\u2423lead/in\u2423\u2423it\u2423"


def test_lines_of_descent_keep_their_columns_and_join() -> None:
    parents = {"b": "2", "a": "1", "2": "1", "1": ""}
    nodes = [*(HistoryNode(name, [parent]) for name, parent in parents.items()), HistoryNode("", [])]
    found = places(nodes)
    assert [place.column for place in found] == [0, 1, 0, 1, 1]
    assert found[0].segments == [(0, 1, 0, 2)]
    assert (0, 1, 1, 2) in found[2].segments  # snapshot 2 joins the line to snapshot 1
    assert found[-1].segments == [(1, 0, 1, 1)]


def test_merge_has_a_line_to_each_parent() -> None:
    found = places([HistoryNode("m", ["1", "2"]), HistoryNode("2", ["1"]), HistoryNode("1", [])])
    assert found[0].segments == [(0, 1, 0, 2), (0, 1, 1, 2)]
    assert (1, 1, 0, 2) in found[1].segments


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("0.0.0.0", False), ("192.168.0.2", False),
     ("localhost.evil.example", False), ("127.0.0.1.evil.example", False), ("", False)],
)  # fmt: skip
def test_only_this_machine_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_token_for_one_visit_is_good_once() -> None:
    keys = Keys()
    once = keys.new_once()
    assert [keys.admits(once), keys.admits(once), keys.admits(keys.token), keys.admits(keys.token)] == [True, False, True, True]
    assert not keys.admits("")
    assert not keys.admits("\udcff")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[ArchiveTree]:
    long_line = "\u00e4" * PART_BYTES
    text = "".join(f"line {n}\n" for n in range(200_000))
    draft = InMemoryFilesystem({"log.txt": text, "one-line.txt": long_line, "dir/empty": "", "dir/end.txt": "no newline"})
    draft.write_bytes("data.bin", bytes(range(256)) * 40)
    draft.write_bytes("latin.txt", "Gr\u00fc\u00dfe aus K\u00f6ln, viele davon\n".encode("latin-1") * 50)
    draft.export_archive(str(tmp_path / "a.zip"))
    with closing(ArchiveTree(tmp_path / "a.zip")) as made:
        yield made


@pytest.mark.parametrize("path", ["log.txt", "one-line.txt"])
def test_stretches_of_a_large_file_make_the_whole(tree: ArchiveTree, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfsd.web.highlighting.MAX_LINE_CHARACTERS", 10 * PART_BYTES)
    found: list[str] = []
    offset, stretches = 0, 0
    while True:
        part = view(tree, path, offset)
        assert part.lines is not None
        found += [text_of(line) for line in part.lines]
        stretches, offset = stretches + 1, part.next
        if not offset:
            break
        assert "large file" in part.notes[0]
    with tree.open(path) as content:
        text = content.read(0, content.size).decode()
    joint = "\n" if path == "log.txt" else ""
    assert joint.join(found) + joint == text
    assert stretches > 1


def test_what_is_no_text_is_shown_as_bytes(tree: ArchiveTree) -> None:
    found = view(tree, "data.bin", 0)
    assert found.hex is not None
    assert found.hex[4] == ("00000040", "40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f", "@ABCDEFGHIJKLMNO")
    assert view(tree, "data.bin", found.next).hex is not None
    latin = view(tree, "latin.txt", 0)
    assert latin.lines is not None
    assert text_of(latin.lines[0]) == "Gr\\xfc\\xdfe aus K\\xf6ln, viele davon"


def test_notes_tell_of_directories_and_ends(tree: ArchiveTree) -> None:
    assert view(tree, "dir", 0).notes == ["This is a directory."]
    assert view(tree, "dir/empty", 0).lines == []
    assert view(tree, "dir/end.txt", 0).notes == ["The last line ends without a newline."]
