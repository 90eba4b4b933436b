"""Notes in the review on the terminal: shown below their lines, written, answered, settled, all on a real mount."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forty_lines import LINES
from tests.mounted import AGENTFSD, Mounted
from tests.terminal_review.piloted import Reader, review


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "text").write_text("".join(LINES))
    made = make_mount(lower)
    made.run("fix", "sh", "-ec", "sed -i -e 's/^line 3$/three/' -e 's/^line 20$/twenty/' text; printf 'a\\nb\\n' > new", new=True)
    return made


def _rows(reader: Reader) -> list[str]:
    return [row[33:].rstrip() for row in reader.text.splitlines()]


def _below(reader: Reader, wanted: str) -> str:
    """The row below the one with a text."""
    rows = _rows(reader)
    (at,) = [number for number, row in enumerate(rows) if wanted in row]
    return rows[at + 1]


def test_notes_stand_below_their_lines_or_the_files_head(project: Mounted) -> None:
    project.cli("notes", "add", "fix", "--path", str(project.path / "text"), "--line", "3", "why three?")
    project.cli("notes", "add", "fix", "--path", str(project.path / "text"), "--line", "20-21", "and twenty?")
    project.cli("notes", "add", "fix", "--path", str(project.path / "text"), "--line", "35", "of a line that no hunk shows")
    project.cli("notes", "add", "fix", "on the branch")
    project.run("fix", *AGENTFSD, "notes", "reply", "1", "because")

    async def walk(reader: Reader) -> None:
        text = await reader.until("4 open notes: N", "why three?", "because", "text +2 -2 3 notes")
        assert "note 1" in _below(reader, "+three")
        assert "note 2" in _below(reader, "21  line 21")
        rows = _rows(reader)
        order = [next(at for at, row in enumerate(rows) if word in row) for word in (
            "M text", "note 3", "+three", "note 1", "why three?", "agent,", "because", " 4  line 4", "+twenty", "note 2",
        )]  # fmt: skip
        assert order == sorted(order)
        assert "on the branch" not in text
        await reader.press("N")
        await reader.until("Notes on fix", "the branch  note 4", "on the branch")

    review(project, "fix", walk)


def test_a_note_is_written_on_a_hunk_answered_resolved_and_reopened(project: Mounted) -> None:
    async def walk(reader: Reader) -> None:
        await reader.press("n")
        await reader.press("w")
        await reader.until("Note on text in fix")
        await reader.press("enter")
        await reader.until("A note needs a text.")
        await reader.press(*"why?", "enter")
        await reader.until("note 1", "1 open note: N")
        assert "note 1" in _below(reader, "+three")
        await reader.press("N")
        await reader.until("Notes on fix", "text:3  note 1")
        await reader.press("a")
        await reader.until("Answer note 1", "why?")
        await reader.press(*"so", "enter")
        await reader.until("┃   so")
        await reader.press("N", "x")
        await reader.until("resolved by")
        assert project.json("notes", "list", "fix") == []
        await reader.gone("1 open note")
        await reader.press("N", "x")
        await reader.until("1 open note: N")
        await reader.press("N", "w", *"all", "enter")
        await reader.until("2 open notes: N")
        await reader.press("w", "tab", "ctrl+u", *"0x", "enter")
        await reader.until("A note needs a text.")
        await reader.press("shift+tab", "y", "enter")
        await reader.until("0x is no line")
        await reader.press("tab", "ctrl+u", "enter")
        await reader.until("3 open notes: N")

    review(project, "fix", walk)
    notes = project.json("notes", "list", "fix")
    assert [(note["path"], note["line"], note["text"]) for note in notes] == [
        ("text", 3, "why?"),
        ("", 0, "all"),
        ("text", 0, "y"),
    ]
    assert [answer["text"] for answer in notes[0]["answers"]] == ["so"]


def test_a_note_on_a_line_that_has_changed_is_refused_and_leaves_nothing(project: Mounted) -> None:
    async def walk(reader: Reader) -> None:
        await reader.press("n", "w")
        await reader.until("Note on text in fix")
        project.sh("fix", "sed -i s/three/THREE/ text")
        await reader.press(*"why?", "enter")
        await reader.until("line 3 of text was changed since it was read.", "The note was not stored.")

    review(project, "fix", walk)
    assert project.json("notes", "list", "fix") == []


def test_an_agents_answer_comes_by_itself_and_lines_that_move_stay_where_they_are_read(project: Mounted) -> None:
    project.cli("notes", "add", "fix", "--path", str(project.path / "text"), "--line", "20", "twenty?")

    async def walk(reader: Reader) -> None:
        await reader.until("twenty?")
        project.sh("fix", "sed -i 1ifirst text")
        project.run("fix", *AGENTFSD, "notes", "reply", "1", "it was asked for")
        await reader.until("it was asked for", "has changed since it was read")
        assert "note 1" in _below(reader, "+twenty")
        await reader.press("r")
        await reader.until("+first", "was line 20")
        assert "note 1" in _below(reader, "+twenty")

    review(project, "fix", walk)


def test_notes_cannot_command_the_terminal_and_fit_it(project: Mounted) -> None:
    text = "[bold]x[/] [/nothing] [link=file:///]\x1b]0;title\x07\x1b[2J\u202e " + "word " * 60
    project.cli("notes", "add", "fix", "--path", str(project.path / "text"), "--line", "3", text)
    project.run("fix", *AGENTFSD, "notes", "reply", "1", text)

    async def walk(reader: Reader) -> None:
        await reader.until("[bold]x[/] [/nothing]")
        await reader.press("N")
        await reader.until("Notes on fix")
        assert not {char for char in reader.text if not char.isprintable() and char != "\n"}
        await reader.press("a")
        await reader.until("Answer note 1", "[bold]x[/] [/nothing]")
        await reader.press("escape")
        for size in ((20, 5), (60, 15), (200, 50)):
            await reader.pilot.resize_terminal(*size)
            await reader.press("N", "j", "enter", "w", "escape", "g", "pagedown", "G", "N", "escape")

    review(project, "fix", walk)


def test_notes_of_a_folded_file_are_shown_when_one_goes_there(project: Mounted) -> None:
    project.cli("notes", "add", "fix", "--path", str(project.path / "text"), "--line", "20", "twenty?")

    async def walk(reader: Reader) -> None:
        await reader.press("n", "v")
        await reader.gone("twenty?")
        await reader.until("1 note ")
        await reader.press("N", "enter")
        await reader.until("twenty?")

    review(project, "fix", walk)
    assert os.listdir(project.lower) == ["text"]
