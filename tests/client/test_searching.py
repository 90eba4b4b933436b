"""glob finds what pathlib finds, grep what Python's re finds; and no pattern takes long."""

import re
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import bracex
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem import search
from agentfs_files.filesystem.size_limits import Limits

QUICK = settings(max_examples=100, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NAMES = ("a", "b", "ab", ".a")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories two deep, with a file of each name and one more in each."""
    root = tmp_path_factory.mktemp("tree")
    for names in product(("a", "b", ".a"), repeat=2):
        (root / "/".join(names)).mkdir(parents=True)
    for directory in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        for name in ("ab", "f.py", "[a]", ".h"):
            (directory / name).write_text("")
    return root


PIECES = st.sampled_from(
    ["a", "b", "ab", ".a", "f.py", "*", "**", "**", "?", "a*", "*b", "*.py", "[ab]", "[!a]*", "[[]a]", "??", ".*", "*a*"]
)


@QUICK
@given(pieces=st.lists(PIECES, min_size=1, max_size=6))
def test_glob_finds_what_pathlib_finds(tree: Path, pieces: list[str]) -> None:
    pattern = "/".join(pieces)
    for_pathlib = f"{pattern}/*" if pieces[-1] == "**" else pattern  # there a last ** stands for directories
    expected = sorted({str(path.relative_to(tree)) for path in tree.glob(for_pathlib) if path.is_file()})
    fs = HostFilesystem(tree)
    assert [match.path for match in fs.glob(pattern)] == expected
    assert [match.path for match in fs.glob(f"{tree}/./{pattern}")] == expected
    fs.close()


@QUICK
@given(first=st.lists(PIECES, min_size=1, max_size=2), second=st.lists(PIECES, min_size=1, max_size=3), last=PIECES)
@example(first=["a"], second=["**", "**", "**"], last="a")
def test_braces_are_all_their_ways(tree: Path, first: list[str], second: list[str], last: str) -> None:
    pattern = f"{{{'/'.join(first)},{'/'.join(second)}}}/{last}"
    fs = HostFilesystem(tree)
    found = {match.path for way in bracex.expand(pattern) for match in fs.glob(way)}
    assert [match.path for match in fs.glob(pattern)] == sorted(found)
    fs.close()


@QUICK
@given(pattern=st.text(alphabet="ab*?[]!{},./\\^-", min_size=1, max_size=12))
def test_glob_of_anything_ends(pattern: str) -> None:
    fs = InMemoryFilesystem(dict.fromkeys(("a", "b/a", "ab/b/a", "[a]", "a-b", "a\\b"), ""))
    try:
        assert {match.path for match in fs.glob(pattern)} <= {match.path for match in fs.glob("**")}
    except (PermissionError, ValueError):
        assert ".." in pattern or "{" in pattern


def test_patterns_that_are_too_much_are_refused() -> None:
    fs = InMemoryFilesystem({"a": ""})
    for pattern in ("{1..100000}", "{a,b}" * 20, "**/" * 3 + "{a,b}" * 20):
        with pytest.raises(ValueError, match="cannot be matched"):
            fs.glob(pattern)


def test_files_are_chosen_from_where_the_search_begins() -> None:
    fs = InMemoryFilesystem({"src/a.py": "x", "src/deep/b.py": "x", "c.py": "x"})
    for glob, expected in {
        "./deep/*.py": ["src/deep/b.py"],
        "/a.py": ["src/a.py"],
        "deep/": [],
        "**/b.*": ["src/deep/b.py"],
        "deep/**/b.py": ["src/deep/b.py"],
        "{a,b}.py": ["src/a.py", "src/deep/b.py"],
    }.items():
        assert [match.path for match in fs.grep("x", path="src", glob=glob)] == expected, glob


LINES = st.text(alphabet="ab \r\x0b\x85\u2028ü😀\t", max_size=9)
EXPRESSIONS = st.sampled_from(
    [
        "a",
        "^a",
        "a$",
        "^$",
        "a+b",
        "(?i)A",
        "a|ü",
        "[^a]",
        "ü.",
        "b*",
        r"\ba",
        "^(a|b)+$",
        "a{2}",
        ".*b",
        "(?s)a.b",
        r"a\b",
        "😀+",
        r"\Aa",
    ]
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(search, "BLOCK_BYTES", 16)
    yield


@QUICK
@given(
    lines=st.lists(LINES, max_size=12),
    ends=st.booleans(),
    expression=EXPRESSIONS,
    chunk=st.integers(1, 9),
    most=st.integers(1, 20),
)
@pytest.mark.usefixtures("small_blocks")
def test_grep_finds_what_re_finds(lines: list[str], ends: bool, expression: str, chunk: int, most: int) -> None:
    text = "".join(f"{line}\n" for line in lines) if ends else "\n".join(lines)
    fs = InMemoryFilesystem({"file": text}, limits=Limits(chunk_bytes=chunk))
    compiled = re.compile(expression, re.ASCII)
    kept = text.split("\n")[: -1 if text.endswith("\n") or not text else None]
    found = [(number, line, compiled.search(line)) for number, line in enumerate(kept, 1)]
    expected = [(number, line, *match.span()) for number, line, match in found if match][:most]
    matches = fs.grep(expression, max_matches=most)
    assert [(one.line_number, one.line_content, one.match_start, one.match_end) for one in matches] == expected
    assert matches.truncated == (len(expected) == most)


def test_look_around_and_back_references() -> None:
    fs = InMemoryFilesystem({"file": "foobar\nfoobaz\nabab\nab\n"})
    found = {
        expression: [match.line_number for match in fs.grep(expression)]
        for expression in ("foo(?!bar)", r"^(ab)\1$", "(?<=foo)ba")
    }
    assert found == {"foo(?!bar)": [2], r"^(ab)\1$": [3], "(?<=foo)ba": [1, 2]}


def test_quotes_without_an_end() -> None:
    fs = InMemoryFilesystem({"file": "a.b\na+b (x\n"})
    assert [match.line_number for match in fs.grep(r"\Qa+b (")] == [2]


def test_look_around_takes_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_LINE_SECONDS", 0.05)
    fs = InMemoryFilesystem({"file": ("a" * 40 + "b\n") * 3})
    start = time.monotonic()
    with pytest.raises(ValueError, match="takes too long"):
        fs.grep("^(?=x|a)(a|a)+$")
    assert time.monotonic() - start < 2


def test_look_around_takes_limited_time_over_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_TOTAL_SECONDS", 0.1)
    fs = InMemoryFilesystem({"file": ("a" * 20 + "b\n") * 10_000})
    start = time.monotonic()
    with pytest.raises(ValueError, match="takes too long"):
        fs.grep("^(?=x|a)(a|a)+$")
    assert time.monotonic() - start < 3


def test_match_in_a_line_of_megabytes() -> None:
    fs = InMemoryFilesystem({"file": "short\n" + "é" * (2 << 20) + "needle\n"})
    (match,) = fs.grep("needle")
    assert (match.line_number, match.match_start, match.match_end) == (2, 2 << 20, (2 << 20) + 6)
