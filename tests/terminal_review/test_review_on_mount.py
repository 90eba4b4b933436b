"""The review of branches on a real mount: every key that changes something, and what stands in its way."""

import os

import pytest
from textual.widgets import DataTable

from agentfsd.cli.terminal_review.branch_screen import BranchScreen
from agentfsd.cli.terminal_review.diff_view import DiffView
from agentfsd.cli.terminal_review.hunk_text import PIECE
from tests.forty_lines import LINES, changed
from tests.mounted import Mounted, agentfsd
from tests.terminal_review.piloted import Reader, make, review, reviews


def obeyed(text: str) -> set[str]:
    """The characters that a terminal would obey."""
    return {char for char in text if (ord(char) < 32 and char != "\n") or 0x7F <= ord(char) < 0xA0}


_CHANGE = "sed -i -e 's/^line 3$/three/' -e 's/^line 20$/twenty/' -e '/^line 38$/d' text"


def test_only_chosen_hunks_are_committed_and_nothing_before_the_confirmation(project: Mounted) -> None:
    make(project, "fix", _CHANGE)

    async def walk(reader: Reader) -> None:
        await reader.press("space", "j", "j", "space", "c")
        await reader.until("Commit 2 hunks in 1 file of fix?", "1 change would go into the real directory")
        await reader.press("n")
        assert (project.lower / "text").read_text() == "".join(LINES)
        await reader.press("c")
        said = await reader.confirm("y", "Commit 2 hunks in 1 file of fix?")
        assert "fix was committed into the real directory: 1 change." in said
        assert (project.lower / "text").read_text() == changed(l3="three\n", l38="")
        await reader.until("0 of 1 hunk chosen", "+twenty")
        await reader.press("c")  # nothing is chosen: everything
        await reader.confirm("y", "Commit everything of fix?")
        await reader.until("no changes")

    review(project, "fix", walk)
    assert (project.lower / "text").read_text() == changed(l3="three\n", l20="twenty\n", l38="")
    assert project.fsck() == []


def test_renames_modes_binaries_and_new_files_are_hunks_and_a_hunk_is_split(project: Mounted) -> None:
    script = """
        mv 'old name' name; echo more >> name; chmod 755 tool; echo more >> tool; printf '\\0two' > logo; echo new > new
        sed -i -e 's/^line 3$/three/' -e 's/^line 5$/five/' text
    """
    make(project, "fix", script)

    async def walk(reader: Reader) -> None:
        files = reader.branch.reviewed.files if reader.branch.reviewed else []
        kinds = {file.path: [choice.hunk.kind for choice in file.choices if choice.hunk] for file in files}
        assert kinds == {
            b"logo": ["whole"], b"name": ["rename", "lines"], b"new": ["whole"], b"text": ["lines"], b"tool": ["mode", "lines"],
        }  # fmt: skip
        await reader.press("n", "j", "space", "c")  # the lines of the renamed file without its name
        await reader.until("has a new name, which was not chosen")
        await reader.press("escape", "space")
        await reader.press("n", "n", "e", "j", "space")  # the second part of what was one hunk
        await reader.press("n", "space", "p", "p", "p", "p", "a", "c")  # the mode of tool, and all of logo
        said = await reader.confirm("y", "Commit 3 hunks in 3 files of fix?")
        assert "3 changes" in said

    review(project, "fix", walk)
    assert (project.lower / "text").read_text() == changed(l5="five\n")
    assert (project.lower / "logo").read_bytes() == b"\0two"
    assert (project.lower / "tool").stat().st_mode & 0o777 == 0o755
    assert (project.lower / "tool").read_text() == "#!/bin/sh\n"
    assert sorted(os.listdir(project.lower)) == ["logo", "old name", "other", "text", "tool"]


@pytest.mark.parametrize("which", ["text", "binary"])
def test_what_an_agent_changes_between_look_and_commit_is_refused_and_shown_again(project: Mounted, which: str) -> None:
    make(project, "fix", "sed -i s/^line.3$/three/ text other; printf '\\0two' > logo")
    again = {"text": "sed -i s/three/THREE/ text", "binary": "printf '\\0six' > logo"}[which]

    async def walk(reader: Reader) -> None:
        await reader.press("A", "c")
        await reader.until("Commit 3 hunks in 3 files of fix?")
        project.sh("fix", again)
        said = await reader.confirm("y")
        assert f"{'text' if which == 'text' else 'logo'} of fix was changed since it was read." in said
        assert (project.lower / "text").read_text() == "".join(LINES)
        assert (project.lower / "other").read_text() == "".join(LINES)
        assert (project.lower / "logo").read_bytes() == b"\0one"
        await reader.read()
        await reader.until("2 of 3 hunks chosen")  # the files that are the same are still chosen
        assert which != "text" or "+THREE" in reader.text
        await reader.press("A", "c")
        await reader.confirm("y", "Commit 3 hunks in 3 files of fix?")

    review(project, "fix", walk)
    assert (project.lower / "text").read_text() == changed(l3="THREE\n" if which == "text" else "three\n")


def test_everything_is_refused_when_the_branch_is_another(project: Mounted) -> None:
    make(project, "fix", "sed -i s/^line.3$/three/ text")

    async def walk(reader: Reader) -> None:
        await reader.press("c")
        await reader.until("Commit everything of fix?")
        project.sh("fix", "echo new > unseen")
        assert "fix was changed since it was read." in await reader.confirm("y")
        await reader.until("unseen")

    review(project, "fix", walk)
    assert not (project.lower / "unseen").exists()
    assert (project.lower / "text").read_text() == "".join(LINES)


def test_a_branch_that_changes_or_goes_while_it_is_open_says_so(project: Mounted) -> None:
    make(project, "fix", "sed -i s/^line.3$/three/ text")

    async def walk(reader: Reader) -> None:
        project.sh("fix", "sed -i s/three/THREE/ text")
        await reader.until("fix has changed since it was read: r reads it again", "+three")
        await reader.press("r")
        await reader.until("+THREE")
        project.cli("discard", "fix")
        await reader.until("fix was deleted")
        await reader.press("space", "c")
        await reader.until("fix was deleted meanwhile.")
        await reader.press("escape", "u")
        await reader.confirm("y", "Undo the discard of fix?")
        await reader.gone("fix was deleted")

    review(project, "fix", walk)
    assert (project.subtree("fix") / "text").read_text() == changed(l3="THREE\n")


def test_hunks_are_taken_back_and_undo_brings_them_back(project: Mounted) -> None:
    make(project, "fix", _CHANGE)

    async def walk(reader: Reader) -> None:
        await reader.press("d")
        await reader.until("Nothing is chosen.")
        await reader.press("escape", "j", "space", "d")
        await reader.confirm("y", "Take back 1 hunk in 1 file of fix?")
        assert (project.subtree("fix") / "text").read_text() == changed(l3="three\n", l38="")
        await reader.until("0 of 2 hunks chosen")
        await reader.press("u")
        await reader.until("Undo the restore of fix?")
        await reader.press("n", "u")
        await reader.confirm("y", "Undo the restore of fix?")
        await reader.until("0 of 3 hunks chosen")
        await reader.press("D")
        assert "fix was discarded" in await reader.confirm("y", "Discard fix?", "fix is deleted with all its changes")

    review(project, "fix", walk)
    assert [branch["name"] for branch in project.json("branch list")] == ["main"]


def test_two_reviews_at_once_commit_a_hunk_once(project: Mounted) -> None:
    make(project, "fix", _CHANGE)

    async def walk(one: Reader, other: Reader) -> None:
        for reader in (one, other):
            await reader.press("space", "c")
            await reader.until("Commit 1 hunk in 1 file of fix?")
        await one.confirm("y")
        assert "text of fix was changed since it was read." in await other.confirm("y")
        await other.read()
        await other.until("0 of 2 hunks chosen")
        await other.press("space", "c")
        await other.confirm("y", "Commit 1 hunk in 1 file of fix?")

    reviews(project, "fix", walk)
    assert (project.lower / "text").read_text() == changed(l3="three\n", l20="twenty\n")


def test_names_and_contents_cannot_command_the_terminal(project: Mounted) -> None:
    make(
        project,
        "fix",
        "name=$(printf 'a\\033[31mb\\007'); printf 'x\\033]0;title\\007\\r\\n' > \"$name\"; printf '\\302\\233' > \"[bold]\"",
    )
    project.cli("commit", "fix", "--dry-run")
    project.run("fix", "sh", "-c", "exit 0 # \x1b[2J")

    async def walk(reader: Reader) -> None:
        assert "[bold]" in reader.text
        assert obeyed(reader.text) == set()
        await reader.press("A", "c")
        await reader.until("Commit 2 hunks")
        assert obeyed(reader.text) == set()

    review(project, "fix", walk)

    async def look(reader: Reader) -> None:
        await reader.until("fix", "exit 0")
        assert "\x1b" not in reader.text

    review(project, None, look)


def test_a_large_file_and_many_files_make_few_widgets_and_colour_few_lines(project: Mounted) -> None:
    make(
        project,
        "fix",
        "seq 100000 | sed 's/$/ and some more words of a line that is long enough/' > big\n"
        "for n in $(seq 1000); do echo new >new-$n; done",
    )

    async def walk(reader: Reader) -> None:
        assert len(list(reader.app.screen.walk_children())) < 40
        view = reader.app.screen.query_one(DiffView)
        text = view.rows.text(view.rows.place(2))  # type: ignore[arg-type]
        assert len(text) == 100_000
        await reader.press("pagedown", "G", "g")
        assert text.piece.cache_info().misses <= 6, "lines are coloured that nobody sees"
        assert view.rows.height > 102_000
        view.action_rows(50_000)
        await reader.until(" 50000 +50000 and some more")
        assert text.piece.cache_info().misses * PIECE < 3_000
        await reader.press("slash", *"new-777", "enter")
        await reader.until("A new-777 ")

    review(project, "fix", walk)


def test_the_table_finds_what_passed_and_follows(project: Mounted) -> None:
    for number in range(1, 11):
        code = 0 if number in (2, 5, 9) else 1
        project.run(f"agent-{number}", "sh", "-c", f"echo {number} > text; exit {code}", new=True, check=False)

    async def walk(reader: Reader) -> None:
        await reader.until("agent-10", "exit 1", "+1 -40")
        await reader.press("p")
        await reader.until("3 of 11 branches", "only passed")
        for number in (2, 5, 9):
            assert f"agent-{number} " in reader.text
        await reader.press("slash", *"agent-5", "enter")
        await reader.until("1 of 11 branches")
        await reader.press("escape")
        await reader.until("11 of 11 branches")
        table = reader.app.screen.query_one(DataTable)
        await reader.press("j", "j")
        row = table.cursor_row
        project.run("agent-10", "true")
        project.run("late", "sh", "-c", "echo new > late", new=True)
        await reader.until("late", "12 of 12 branches")
        assert table.cursor_row == row + 1, "the cursor has left its branch"
        await reader.press("space", "space", "c")
        await reader.until("2 branches compared", "PATH THAT SEVERAL CHANGED", "conflict")
        await reader.press("enter")
        await reader.read()
        await reader.press("q", "q")
        await reader.until("12 of 12 branches", "2 marked")

    review(project, None, walk)


def test_the_table_says_that_the_daemon_is_gone_and_goes_on_with_the_next(project: Mounted) -> None:
    make(project, "fix", _CHANGE)

    async def walk(reader: Reader) -> None:
        await reader.until("fix")
        project.kill()
        await reader.until("trying again")
        agentfsd("mount", str(project.lower), str(project.path), "--state", str(project.state))
        await reader.gone("trying again")
        await reader.press("enter")
        await reader.read()
        await reader.press("space", "c")
        await reader.confirm("y", "Commit 1 hunk in 1 file of fix?")

    review(project, None, walk)
    assert (project.lower / "text").read_text() == changed(l3="three\n")


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (30, 8)])
def test_every_screen_fits(project: Mounted, size: tuple[int, int]) -> None:
    make(project, "one", "sed -i s/^line.3$/three/ text")
    make(project, "two", "sed -i s/^line.3$/drei/ text")
    project.cli("merge", "one", "--into", "main")
    project.cli("merge", "--conflicts", "two", "main", check=False)

    async def walk(reader: Reader) -> None:
        await reader.until("main")
        await reader.press("question_mark", "escape", "enter")
        await reader.read()
        await reader.press("question_mark", "escape", "j", "space", "c", "escape")
        assert isinstance(reader.app.screen, BranchScreen)
        await reader.press("x")
        await reader.until("undecided")
        await reader.pilot.resize_terminal(size[1] * 2, size[0] // 2)
        await reader.press("w", "q")
        await reader.pilot.resize_terminal(*size)
        await reader.press("q")
        await reader.until("branches")

    review(project, None, walk, size)


def test_viewed_files_are_folded_until_they_change(project: Mounted) -> None:
    make(project, "fix", "sed -i s/^line.3$/three/ text other")

    async def walk(reader: Reader) -> None:
        await reader.press("v")
        await reader.until("other  +1 -1  viewed", "1 viewed")
        await reader.press("r")
        await reader.read()
        await reader.until("other  +1 -1  viewed")
        project.sh("fix", "echo more >> other")
        await reader.press("r")
        await reader.read()
        await reader.gone("viewed")
        await reader.until("+more")

    review(project, "fix", walk)


def test_an_edit_of_the_same_length_is_seen_without_an_audit_trail(project: Mounted) -> None:
    project.cli("policy set", "audit.enabled", "no")
    make(project, "fix", "sed -i s/^line.3$/three/ text other; chmod 700 tool")

    async def walk(reader: Reader) -> None:
        await reader.press("c")
        await reader.until("Commit everything of fix?")
        project.sh("fix", "printf THREE | dd of=text bs=1 seek=14 conv=notrunc status=none")
        assert "text of fix was changed since it was read." in await reader.confirm("y")
        await reader.until("+THREE")
        await reader.press("m")
        await reader.until("into which branch?")
        await reader.press("enter")
        await reader.confirm("y", "Merge everything of fix into main?")

    review(project, "fix", walk)
    assert (project.lower / "text").read_text() == "".join(LINES)
    assert (project.subtree("main") / "text").read_text() == changed(l3="THREE\n")


def test_a_branch_that_is_renamed_is_called_by_its_new_name_and_one_made_under_the_old_is_another(project: Mounted) -> None:
    make(project, "fix", "sed -i s/^line.3$/three/ text")

    async def walk(reader: Reader) -> None:
        project.cli("branch rename", "fix", "better")
        make(project, "fix", "echo evil > text")
        await reader.until(" better  1 file")
        await reader.press("c")
        await reader.confirm("y", "Commit everything of better?")

    review(project, "fix", walk)
    assert (project.lower / "text").read_text() == changed(l3="three\n")


def test_a_branch_that_is_made_again_under_its_name_is_not_touched(project: Mounted) -> None:
    make(project, "fix", "sed -i s/^line.3$/three/ text")

    async def walk(reader: Reader) -> None:
        await reader.press("space", "c")
        await reader.until("Commit 1 hunk in 1 file of fix?")
        project.cli("discard", "fix")
        make(project, "fix", "sed -i s/^line.3$/three/ text")
        assert "fix was deleted meanwhile." in await reader.confirm("y")

    review(project, "fix", walk)
    assert (project.lower / "text").read_text() == "".join(LINES)


def test_markup_and_long_names_are_shown_as_they_are(project: Mounted) -> None:
    long = "n" * 255
    make(
        project, "fix", f"mkdir '[bold]' {long}; echo '[/] [link=x]' > '[bold]/[-]'; echo 1 > {long}/{long}; echo 1 > '[link=a]'"
    )

    async def walk(reader: Reader) -> None:
        await reader.until("[bold]/", "[link=a]", "[/] [link=x]")
        await reader.press("A", "c")
        await reader.until("Commit 3 hunks in 3 files of fix?", "[bold]/[-]", "[link=a]")
        await reader.confirm("y")
        await reader.press("slash", *"[/nothing]", "enter", "w", "escape", "v", "N", "escape")
        await reader.pilot.resize_terminal(20, 5)
        await reader.press("j", "c", "escape", "question_mark", "escape", "D", "escape")

    review(project, "fix", walk)
    assert (project.lower / "[bold]" / "[-]").exists()


def _reversed(reader: Reader) -> set[str]:
    """The texts that stand in reverse."""
    strips = reader.app.screen._compositor.render_strips()
    return {segment.text.strip() for strip in strips for segment in strip if segment.style and segment.style.reverse}


def test_what_keys_are_about_stands_out_without_colours(project: Mounted) -> None:
    for name in ("one", "two"):
        make(project, name, f"echo {name} > text")

    async def walk(reader: Reader) -> None:
        await reader.press("m")
        await reader.until("into which branch?")
        assert "main" in _reversed(reader)
        await reader.press("j")
        assert "two" in _reversed(reader)
        assert "main" not in _reversed(reader)
        await reader.press("escape", "c")
        await reader.until("Commit everything of one?")
        assert "[n] Cancel" in _reversed(reader)
        await reader.press("left")
        assert "[y] Commit" in _reversed(reader)

    review(project, "one", walk)


def test_the_answers_of_a_window_are_seen_on_a_tiny_terminal(project: Mounted) -> None:
    make(project, "fix", "echo new > text")

    async def walk(reader: Reader) -> None:
        await reader.press("c")
        await reader.until("[n] Cance")
        await reader.press("escape", "j", "k", "m", "enter")
        await reader.until("[n] Cance")

    review(project, "fix", walk, (24, 7))
