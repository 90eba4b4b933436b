"""Where the lines of a note are after a file has changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfsd.core.noted_lines import LINES_OF_A_FILE, SearchedFile, kept


def content(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def moved(before: bytes, line: int, after: bytes, last: int = 0) -> int:
    return SearchedFile(after).find(SearchedFile(before).remember(line, last or line), line)


def test_of_equal_lines_the_one_with_the_same_neighbours_is_found() -> None:
    before = content("def a():", "    return None", "", "def b():", "    return None", "")
    after = content("import os", "", "", *before.decode().splitlines())
    assert [moved(before, line, after) for line in (2, 5)] == [5, 8]


def test_the_nearest_of_equal_places_is_found() -> None:
    assert moved(content("x", "found", "y"), 2, content("found", "found", "found", "found")) == 2
    assert moved(content(*["-"] * 9, "found"), 10, content("found", *["+"] * 10, "found")) == 12


def test_a_line_without_a_word_needs_a_neighbour() -> None:
    assert moved(content("a", "", "b"), 2, content("c", "", "d")) == 0
    assert moved(content("a", "", "b"), 2, content("c", "", "b")) == 2
    assert moved(content(""), 1, content("")) == 1


def test_a_part_of_several_lines_is_not_enough() -> None:
    before = content("one", "two", "three", "four")
    assert moved(before, 2, content("zero", "one", "two", "three", "four"), last=3) == 3
    assert moved(before, 2, content("one", "two", "four"), last=3) == 0
    assert moved(before, 4, content("one", "two", "three")) == 0


def test_far_away_is_nowhere() -> None:
    assert moved(content("here it is"), 1, content(*["-"] * 500, "here it is")) == 501
    assert moved(content("here it is"), 1, content(*["-"] * 501, "here it is")) == 0


def test_the_end_of_a_long_line_counts() -> None:
    before, after = "x" * 5000, "x" * 4999 + "y"
    assert len(kept(before.encode())) == 500
    assert moved(content(before), 1, content(before)) == 1
    assert moved(content(before), 1, content(after)) == 0


def test_a_file_of_too_many_lines_is_refused() -> None:
    assert len(SearchedFile(b"\n" * LINES_OF_A_FILE)) == LINES_OF_A_FILE
    with pytest.raises(OSError, match="too many lines"):
        SearchedFile(b"\n" * (LINES_OF_A_FILE + 1))


@given(st.lists(st.sampled_from(["a", "", "}", "word", "other"]), min_size=1, max_size=30), st.data())
def test_an_unchanged_file_has_each_line_where_it_was(lines: list[str], data: st.DataObject) -> None:
    line = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(line, len(lines)))
    same = content(*lines)
    assert moved(same, line, same, last) == line
    before = data.draw(st.integers(1, 20))
    assert moved(same, line, content(*[f"new {n}" for n in range(before)], *lines), last) in range(1, line + before + 1)
