"""Readers over a source that gives a few bytes at a time are as the bytes themselves, and as Python's own files."""

import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfs_files.filesystem.file_streams import BinaryReader, Utf8Reader
from agentfs_files.filesystem.paging import read_bytes, read_lines
from agentfs_files.filesystem.size_limits import Limits

QUICK = settings(max_examples=100, deadline=None, database=None)
TEXTS = st.text(alphabet="ab\n\n\r\u2028ü漢😀", max_size=40)


class Slow:
    """Gives less than it is asked for, but nothing only at the end."""

    def __init__(self, content: bytes, seed: int) -> None:
        self.size = len(content)
        self._file = io.BytesIO(content)
        self._random = random.Random(seed)

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, self._random.randint(1, 5)))

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def close(self) -> None:
        self._file.close()


@QUICK
@given(
    content=st.binary(max_size=60), seed=st.integers(0, 99), steps=st.lists(st.tuples(st.integers(-1, 30), st.integers(-9, 70)))
)
def test_reads_and_seeks_are_those_of_a_file(content: bytes, seed: int, steps: list[tuple[int, int]]) -> None:
    ours, theirs = BinaryReader("file", Slow(content, seed), 7), io.BytesIO(content)
    for size, position in steps:
        assert ours.read(size) == theirs.read(size)
        assert ours.position == theirs.tell()
        whence = size % 3
        target = position + (0, theirs.tell(), len(content))[whence]
        if target < 0:
            with pytest.raises(ValueError):
                ours.seek(position, whence)
        else:
            assert ours.seek(position, whence) == theirs.seek(target)


@QUICK
@given(content=st.binary(max_size=60), seed=st.integers(0, 99), size=st.integers(1, 9))
def test_chunks_have_their_size(content: bytes, seed: int, size: int) -> None:
    chunks = list(BinaryReader("file", Slow(content, seed), 7).chunks(size))
    assert chunks == [content[start : start + size] for start in range(0, len(content), size)]


@QUICK
@given(content=st.binary(max_size=60), seed=st.integers(0, 99), offset=st.integers(0, 70), limit=st.none() | st.integers(0, 70))
def test_windows_of_bytes(content: bytes, seed: int, offset: int, limit: int | None) -> None:
    found = read_bytes(BinaryReader("file", Slow(content, seed), 7), offset, limit, Limits())
    assert found.content == content[offset : None if limit is None else offset + limit]
    assert found.truncated == (offset + len(found.content) < len(content))


@QUICK
@given(text=TEXTS, seed=st.integers(0, 99), offset=st.integers(0, 12), limit=st.integers(-1, 12))
def test_windows_of_lines(text: str, seed: int, offset: int, limit: int) -> None:
    lines = list(io.StringIO(text, newline="\n"))
    found = read_lines(BinaryReader("file", Slow(text.encode(), seed), 7), offset, limit, Limits())
    end = len(lines) if limit < 0 else offset + limit
    assert (found.content, found.total_lines) == ("".join(lines[offset:end]), len(lines))
    assert found.truncated == (end < len(lines))


@QUICK
@given(text=TEXTS, seed=st.integers(0, 99), sizes=st.lists(st.integers(-1, 12) | st.none(), max_size=12))
def test_text_is_read_as_by_python(text: str, seed: int, sizes: list[int | None]) -> None:
    ours, theirs = Utf8Reader(BinaryReader("file", Slow(text.encode(), seed), 7)), io.StringIO(text, newline="\n")
    for size in sizes:
        assert (
            (ours.readline(), ours.line_number >= 0) == (theirs.readline(), True)
            if size is None
            else ours.read(size) == theirs.read(size)
        )
    assert list(ours) == list(theirs)
    assert ours.line_number in (text.count("\n"), text.count("\n") + 1)


@QUICK
@given(
    start=TEXTS, wrong=st.sampled_from([b"\xff", b"\xc3(", b"\xf0\x9f\x98", b"\xed\xa0\x80"]), rest=TEXTS, seed=st.integers(0, 99)
)
def test_what_is_no_text_is_named_by_its_place(start: str, wrong: bytes, rest: str, seed: int) -> None:
    content = start.encode() + wrong + rest.encode()
    with pytest.raises(UnicodeDecodeError) as expected:
        content.decode()
    reader = Utf8Reader(BinaryReader("file", Slow(content, seed), 7))
    with pytest.raises(UnicodeDecodeError, match=f"at byte {expected.value.start} of file: .*read_bytes"):
        list(reader)
    with pytest.raises(UnicodeDecodeError, match=f"at byte {expected.value.start} of file: .*read_bytes"):
        read_lines(BinaryReader("file", Slow(content, seed), 7), 0, -1, Limits())
