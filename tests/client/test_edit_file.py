"""edit_file: one place or all of them, nothing else changed, and an error that helps where it does not fit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.tools.context import ToolContext
from agentfs_files.tools.dispatch import call_tool
from agentfs_files.tools.edit_tools import replaced
from agentfs_files.tools.handling import ToolRefused
from agentfs_files.tools.parameters import EditFileParams


def edit(content: str | bytes, old: str, new: str, *, replace_all: bool = False) -> tuple[Any, bytes]:
    filesystem = InMemoryFilesystem({"f": content})
    arguments = {"path": "f", "old_string": old, "new_string": new, "replace_all": replace_all}
    result = call_tool("edit_file", arguments, ToolContext(filesystem=filesystem))
    return result, filesystem.read_bytes("f").content


def refused(content: str, old: str, new: str = "new") -> str:
    result, after = edit(content, old, new)
    assert not result.success
    assert after == content.encode()
    return result.message


def test_one_place_is_replaced_and_shown() -> None:
    result, after = edit("a\nb\nc\nd\ne\nf\n", "c\nd", "C\nD\nDD")
    assert after == b"a\nb\nC\nD\nDD\ne\nf\n"
    assert result.value.lines == (3,)
    assert result.message.splitlines()[1:] == [
        "     1\ta", "     2\tb", "     3\tC", "     4\tD", "     5\tDD", "     6\te", "     7\tf",
    ]  # fmt: skip


def test_all_places_are_replaced_and_counted() -> None:
    result, after = edit("x = 1\ny = x\n", "x", "long\nname", replace_all=True)
    assert after == b"long\nname = 1\ny = long\nname\n"
    assert result.value.replacements == 2
    assert result.value.lines == (1, 3)


@pytest.mark.parametrize(
    ("content", "old", "new", "after"),
    [
        (b"one\r\ntwo\r\nthree", "two\nthree", "2\n3", b"one\r\n2\r\n3"),
        (b"one\r\ntwo\r\n", "two", "two\nmore", b"one\r\ntwo\r\nmore\r\n"),
        (b"one\r\ntwo\r\n", "two\r\n", "2\r\n", b"one\r\n2\r\n"),
        (b"one\ntwo\r\nthree\n", "one\ntwo\nthree", "one\ntwo\nfour", b"one\ntwo\r\nfour\n"),
        (b"one\ntwo\n", "two", "two\r\nmore", b"one\ntwo\r\nmore\n"),
        (b"one\ntwo\n", "one\r\ntwo", "1\r\n2", b"1\n2\n"),
        (b"\xef\xbb\xbfone\n", "one", "1", b"\xef\xbb\xbf1\n"),
        (b"no end", "end", "newline", b"no newline"),
        (b"a\rb\r\n", "b", "c", b"a\rc\r\n"),
    ],
)
def test_line_endings_stay_as_the_file_has_them(content: bytes, old: str, new: str, after: bytes) -> None:
    result, found = edit(content, old, new)
    assert result.success, result.message
    assert found == after


def test_several_places_are_named() -> None:
    assert "lines 1, 3. " in refused("x\ny\nx\n", "x")
    assert "replace_all" in refused("x\ny\nx\n", "x")
    assert "lines 1." in refused("aaa", "aa")  # which of the two is meant cannot be told


def test_white_space_that_differs_is_shown() -> None:
    message = refused("def f():\n\treturn 1\n", "    return 1")
    assert "the file has tabs there, old_string spaces" in message
    assert "     2\t\treturn 1" in message


def test_line_numbers_in_the_text_are_recognised() -> None:
    assert "line numbers" in refused("one\ntwo\n", "     1\tone\n     2\ttwo")


def test_closest_lines_are_shown_with_the_first_difference() -> None:
    message = refused("import os\n\n\ndef first(a, b):\n    return a\n", "def first(a, b):\n    return b")
    assert "     4\tdef first(a, b):" in message
    assert "The first difference is in line 5: the file has '    return a', old_string has '    return b'." in message


def test_nothing_alike_is_said() -> None:
    assert "Nothing there is like it" in refused("import os\n", "quite another thing")
    assert "Nothing there is like it" in refused("", "x")


@pytest.mark.parametrize(("old", "new", "hint"), [("", "x", "write_file"), ("a", "a", "the same"), ("a", "x" * 48_001, "48,000")])
def test_edits_that_make_no_sense_are_refused(old: str, new: str, hint: str) -> None:
    assert hint in refused("a\n", old, new)


def test_binary_and_other_encodings_are_not_edited() -> None:
    for content in (b"a\0b", b"caf\xe9"):
        result, after = edit(content, "a", "b")
        assert not result.success
        assert after == content


def test_miss_in_a_large_file_is_explained_quickly() -> None:
    text = "".join(f"value_{number} = compute(value_{number - 1}, {number % 7})\n" for number in range(30_000))
    assert "line 20001: the file has" in refused(text, "value_20000 = compute(value_19999, 99)")


texts = st.text(st.sampled_from("ab \n\t"), max_size=40)
endings = st.sampled_from(["\n", "\r\n"])


@given(before=texts, after=texts, old=st.text(st.sampled_from("xyz\n"), min_size=1, max_size=8), new=texts, ending=endings)
def test_what_is_around_the_place_stays_and_the_place_is_new(before: str, after: str, old: str, new: str, ending: str) -> None:
    old = f"<{old}>"

    def written(text: str) -> str:
        return text.replace("\n", ending)

    params = EditFileParams("f", old, new)
    edited = replaced(written(before + old + after), params)
    if "\n" in before + old + after:
        assert edited.text == written(before + new + after)
    else:
        assert edited.text == before + new + after
    assert edited.lines == (before.count("\n") + 1,)


@given(
    pieces=st.lists(st.tuples(texts, endings), min_size=1, max_size=6), old=st.sampled_from(["a", "a\nb", "b\n", "aa"]), new=texts
)
def test_replacing_all_is_what_str_replace_does_but_for_line_endings(pieces: list[tuple[str, str]], old: str, new: str) -> None:
    text = "".join(piece.replace("\n", ending) for piece, ending in pieces)
    plain = text.replace("\r\n", "\n")
    params = EditFileParams("f", old, new, replace_all=True)
    if old not in plain:
        with pytest.raises(ToolRefused):
            replaced(text, params)
        return
    edited = replaced(text, params)
    assert edited.text.replace("\r\n", "\n") == plain.replace(old, new)
    assert edited.count == plain.count(old)
    if "\r\n" not in text:
        assert "\r" not in edited.text
