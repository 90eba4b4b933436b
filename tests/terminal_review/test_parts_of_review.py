"""What the review knows without a daemon: blocks of conflicts, rows of a diff, the order of branches."""

import anyio
import pytest
from textual.app import App, ComposeResult

from agentfs_client import wire
from agentfsd.cli.terminal_review.board_model import BoardRow, chosen_rows
from agentfsd.cli.terminal_review.conflict_blocks import MarkedText, Taken
from agentfsd.cli.terminal_review.diff_layout import DiffLayout, DiffPlace
from agentfsd.cli.terminal_review.hunk_text import PIECE, HunkText
from agentfsd.cli.terminal_review.reviewed_branch import FileUnderReview, NewNameLeftOutError, fill
from agentfsd.cli.terminal_review.text_pane import TextPane
from agentfsd.review.hunks import ChangedFile

_MARKED = b"""one
<<<<<<< main
ours
||||||| base
base
=======
theirs
>>>>>>> fix
two
<<<<<<< main
=======
added
>>>>>>> fix
"""


@pytest.mark.parametrize(("taken", "made"), [("ours", b"a\nx"), ("theirs", b"a\ny\n"), ("both", b"a\nx\ny\n")])
def test_the_end_of_a_text_without_a_line_end_stays_so(taken: Taken, made: bytes) -> None:
    text = MarkedText(b"a\n<<<<<<< main\nx\n=======\ny\n>>>>>>> one\n")
    text.end_as(b"a\nx", b"a\ny\n")
    text.blocks[0].taken = taken
    assert text.result() == made


def test_blocks_are_taken_one_by_one() -> None:
    text = MarkedText(_MARKED)
    first, second = text.blocks
    assert (first.ours, first.base, first.theirs) == ([b"ours\n"], [b"base\n"], [b"theirs\n"])
    assert text.around(first, 3) == ([b"one\n"], [b"two\n"])
    assert not text.is_decided
    first.taken, second.taken = "theirs", "ours"
    assert text.is_decided
    assert text.result() == b"one\ntheirs\ntwo\n"
    first.taken, second.taken = "both", "theirs"
    assert text.result() == b"one\nours\ntheirs\ntwo\nadded\n"


@pytest.mark.parametrize(
    "text", [b"", b"no end", b"<<<<<<< main\nours\n", b"=======\n", b"<<<<<<< a\n=======\n<<<<<<< b\n", b"a\rb\x0bc\n\x0c\n"]
)
def test_a_text_without_whole_blocks_stays_as_it_is(text: bytes) -> None:
    marked = MarkedText(text)
    assert marked.blocks == []
    assert marked.result() == text
    assert not marked.is_decided


def test_carriage_returns_and_a_missing_line_feed_stay() -> None:
    text = MarkedText(_MARKED.replace(b"\n", b"\r\n") + b"end")
    for block in text.blocks:
        block.taken = "ours"
    assert text.result() == b"one\r\nours\r\ntwo\r\nend"


def _file(patch: bytes, status: str = "M", **more: object) -> FileUnderReview:
    found = wire.FilePatch(
        path="a.py", status=status, added=1, removed=1, is_binary=False, old_size=1, new_size=1, patch=patch,
        old_mode=0o100644, new_mode=0o100644, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    change = wire.Change(path="a.py", status=status, old_size=1, new_size=1, old_path=found.old_path)
    file = FileUnderReview(change, (1, 1))
    fill(file, ChangedFile(found), None)
    return file


def _patch(count: int, *changed: int) -> bytes:
    lines = b"".join(b"-line %d\n+LINE %d\n" % (at, at) if at in changed else b" line %d\n" % at for at in range(count))
    return b"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,%d +1,%d @@\n" % (count, count) + lines


def test_each_row_of_a_diff_is_found_and_all_heights_add_up() -> None:
    files = [_file(_patch(40, 3, 5, 30)), _file(_patch(10, 2)), _file(_patch(10, 2))]
    files[1].is_folded = True
    layout = DiffLayout(files)
    places = [layout.place(row) for row in range(layout.height)]
    assert layout.place(layout.height) is None
    assert [place.kind for place in places if place is not None and place.kind in ("file", "hunk")] == [
        "file", "hunk", "hunk", "file", "file", "hunk",
    ]  # fmt: skip
    for row, place in enumerate(places):
        assert place is not None
        if place.kind in ("file", "hunk"):
            assert layout.row_of(place.file, place.choice) == row
        if place.kind == "line":
            assert layout.text(place).line(place.line).sign in " +-"
    assert layout.next_hunk((0, 0), 1) == (0, 1)
    assert layout.next_hunk((0, 1), 1) == (1, -1)
    assert layout.next_hunk((1, -1), 1) == (2, 0)
    assert layout.next_hunk((2, 0), 1) is None
    assert layout.next_hunk((2, 0), -1) == (1, -1)
    assert layout.next_hunk((1, -1), -1) == (0, 1)


def test_a_split_hunk_is_two_that_are_chosen_alone() -> None:
    file = _file(_patch(40, 3, 6))
    layout = DiffLayout([file])
    before = layout.height
    file.choices[0].is_taken = True
    assert file.split(0)
    assert [choice.is_taken for choice in file.choices] == [True, True]
    assert not file.split(0)
    layout.measure([0])
    assert layout.height > before
    assert layout.place(layout.row_of(0, 1)) == DiffPlace("hunk", 0, 1)


def test_words_that_differ_are_marked_and_numbers_go_on_over_pieces() -> None:
    count = 3 * PIECE
    text = HunkText(
        b"a.py",
        b"@@ -1,%d +1,%d @@\n" % (count, count)
        + b"".join(b" same %d\n" % at for at in range(count))
        + b"-x = old + 1\n+x = new + 1\n",
    )
    line = text.line(2 * PIECE + 5)
    assert (line.old, line.new) == (2 * PIECE + 6, 2 * PIECE + 6)
    marked = [part for colour, part in text.line(count).parts if colour.endswith("*")]
    assert marked == ["old"]
    assert [part for colour, part in text.line(count + 1).parts if colour.endswith("*")] == ["new"]


def test_what_a_terminal_would_obey_is_escaped_in_lines() -> None:
    text = HunkText(b"x", "@@ -0,0 +1,1 @@\n+a\x1b[31mb\x07\u202e\r\n".encode() + b"+\xff\n")
    shown = ["".join(part for _, part in text.line(at).parts) for at in range(2)]
    assert shown == ["a^[[31mb^G\\u202e^M", "\\xff"]


def test_lines_of_a_renamed_file_need_its_new_name() -> None:
    from agentfsd.cli.terminal_review.reviewed_branch import ReviewedBranch

    file = _file(_patch(20, 3), "R", old_path="b.py")
    reviewed = ReviewedBranch.__new__(ReviewedBranch)
    reviewed.files = [file]
    file.choices[1].is_taken = True
    with pytest.raises(NewNameLeftOutError):
        reviewed.selection()
    file.choices[0].is_taken = True
    assert reviewed.selection().said == "2 hunks in 1 file"


def _row(name: str, code: int | None = None, **more: object) -> BoardRow:
    branch = wire.Branch(name=name, id=name, base="", created_ns=int(more.pop("made", 0)), **{"changed": 1, **more})  # type: ignore[arg-type,call-overload]
    run = None
    if code is not None:
        run = wire.RecordedRun(
            id=1, branch=name, branch_id=name, command=f"make {name}", exit_code=code, started_ns=0, ended_ns=1, changed=0
        )
    return BoardRow(branch, run=run)


def test_branches_are_ordered_and_filtered() -> None:
    rows = [
        _row("main", changed=0), _row("old", 0, made=1), _row("new", 1, made=2),
        _row("merging", made=0, merging=["x"], undecided=2), _row("empty", changed=0, made=9),
    ]  # fmt: skip

    def shown(order: str = "newest", wanted: str = "", *, passed: bool = False) -> list[str]:
        return [row.branch.name for row in chosen_rows(rows, order, wanted, passed=passed)]

    assert shown() == ["merging", "new", "old", "empty", "main"]
    assert shown("name") == ["merging", "new", "old", "empty", "main"]
    assert shown("result") == ["merging", "old", "new", "empty", "main"]
    assert shown(passed=True) == ["old"]
    assert shown(wanted="MAKE n") == ["new"]
    assert shown(wanted="conflicts left") == ["merging"]


def test_long_lines_of_a_conflict_are_wrapped_and_nothing_is_cut_off() -> None:
    class Shown(App[None]):
        def compose(self) -> ComposeResult:
            yield TextPane(id="pane")

    async def look() -> None:
        app = Shown()
        async with app.run_test(size=(30, 12)) as pilot:
            pane = app.query_one(TextPane)
            pane.show([("raise ParseError(path, number, line) " * 3 + "END", ""), ("", ""), ("\u4e2d" * 40, "bold")])
            for width in (30, 13):
                await pilot.resize_terminal(width, 40)
                await pilot.pause()
                rows = [pane.render_line(row).text.rstrip() for row in range(40)]
                assert max(len(row) for row in rows) < width
                assert "".join(rows).replace(" ", "").count("raiseParseError(path,number,line)") == 3
                assert ("END" in "".join(rows), "".join(rows).count("\u4e2d")) == (True, 40)

    anyio.run(look)
