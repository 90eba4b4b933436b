"""Conflicts that a merge leaves, settled in the review on a real mount."""

from tests.forty_lines import changed
from tests.mounted import Mounted
from tests.terminal_review.piloted import Reader, make, review


def test_conflicts_are_left_and_settled_block_by_block(project: Mounted) -> None:
    make(project, "one", "sed -i -e s/^line.3$/three/ -e s/^line.20$/twenty/ text; printf '\\0uno' > logo")
    make(project, "two", "sed -i -e s/^line.3$/drei/ -e s/^line.20$/zwanzig/ text; printf '\\0due' > logo")
    project.cli("merge", "one", "--into", "main")

    async def walk(reader: Reader) -> None:
        await reader.press("m")
        await reader.until("into which branch?")
        await reader.press("enter")
        await reader.until("2 conflicts between two and main: nothing was changed.", "Leave them in main")
        await reader.press("1")
        await reader.until("2 conflicts would be left in main")
        await reader.press("y")
        await reader.until("Settle them now")
        await reader.press("s")
        await reader.until("merge of two into main: 2 conflicts undecided", "theirs (two): binary, 4 bytes")
        await reader.press("T")
        await reader.until("Take theirs of logo?")
        await reader.press("y")
        await reader.until("1 conflict undecided")
        await reader.press("f")
        await reader.until("the merge cannot be finished yet")
        await reader.press("escape", "n")
        await reader.until("block 1 of 2: undecided", "drei")
        await reader.press("t")
        await reader.until("block 2 of 2: undecided; 1 decided", "zwanzig")
        await reader.press("o")
        await reader.until("Write text with these decisions?")
        assert "<<<<<<<" in (project.subtree("main") / "text").read_text()
        await reader.press("y")
        await reader.until("all is decided")
        await reader.press("f")
        await reader.until("Finish the merge?")
        assert "finished" in await reader.confirm("y")

    review(project, "two", walk)
    assert (project.subtree("main") / "text").read_text() == changed(l3="drei\n", l20="twenty\n")
    assert (project.subtree("main") / "logo").read_bytes() == b"\0due"
    assert project.json("conflicts", "main")["state"] == "none"


def test_what_is_confirmed_is_done_in_no_other_merge(project: Mounted) -> None:
    """A picture has no markers, so it is the same in both merges."""
    make(project, "one", "printf '\\0uno' > logo")
    make(project, "two", "printf '\\0due' > logo")
    make(project, "three", "printf '\\0tre' > logo")
    project.cli("merge", "one", "--into", "main")
    project.cli("merge", "--conflicts", "two", "main", check=False)

    async def walk(reader: Reader) -> None:
        await reader.press("x")
        await reader.until("1 conflict undecided", "two")
        await reader.press("T")
        await reader.until("Take theirs of logo?")
        project.cli("merge", "--abort", "main")
        project.cli("merge", "--conflicts", "three", "main", check=False)
        await reader.press("y")
        await reader.until("main is in another merge than the one that was seen")
        await reader.press("escape")

    review(project, "main", walk)
    assert project.json("conflicts", "main")["conflicts"][0]["decided"] == ""
    assert (project.subtree("main") / "logo").read_bytes() == b"\0uno"


def test_a_file_that_is_edited_while_its_blocks_are_decided_is_not_overwritten(project: Mounted) -> None:
    make(project, "one", "sed -i s/^line.3$/three/ text")
    make(project, "two", "sed -i s/^line.3$/drei/ text")
    project.cli("merge", "one", "--into", "main")
    project.cli("merge", "--conflicts", "two", "main", check=False)

    async def walk(reader: Reader) -> None:
        await reader.press("x")
        await reader.until("block 1 of 1")
        await reader.press("t")
        await reader.until("Write text")
        project.sh("main", "echo mine >> text")
        await reader.press("y")
        await reader.until("text was changed since it was read")
        await reader.press("escape", "X")
        await reader.until("Take the merge back?")
        assert "taken back" in await reader.confirm("y")

    review(project, "main", walk)
    assert project.json("conflicts", "main")["state"] == "none"
    assert (project.subtree("main") / "text").read_text() == changed(l3="three\n")
