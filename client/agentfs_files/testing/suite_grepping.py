"""Tests of grep()."""

import time
from collections.abc import Sequence

import pytest

from agentfs_files.filesystem.file_results import GrepMatch
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings, fill


def _places(matches: Sequence[GrepMatch]) -> list[tuple[str, int]]:
    return [(match.path, match.line_number) for match in matches]


class GreppingTests(Settings):
    def test_matches_come_by_path_and_line(self, fs: Filesystem) -> None:
        fill(fs, {"b.py": "x\nTODO one\nTODO two\n", "a/c.py": "a TODO here TODO", "a.txt": "nothing\n"})
        found = [(match.path, match.line_number, match.line_content) for match in fs.grep("TODO")]
        assert found == [("a/c.py", 1, "a TODO here TODO"), ("b.py", 2, "TODO one"), ("b.py", 3, "TODO two")]

    def test_match_says_where_in_the_line_it_is(self, fs: Filesystem) -> None:
        fs.write("file", "😀 ü key=value\n")
        (match,) = fs.grep(r"k\w+=")
        assert (match.match_start, match.match_end) == (4, 8)
        assert match.line_content[match.match_start : match.match_end] == "key="

    def test_expression_is_about_one_line(self, fs: Filesystem) -> None:
        fs.write("file", "one\n\ntwo ends\n")
        found = {
            expression: _places(fs.grep(expression)) for expression in ("^$", "one$", "^two", "^o.*s$", r"one\s+two", "(?i)TWO")
        }
        assert found == {
            "^$": [("file", 2)],
            "one$": [("file", 1)],
            "^two": [("file", 3)],
            "^o.*s$": [],
            r"one\s+two": [],
            "(?i)TWO": [("file", 3)],
        }

    def test_lines_end_with_newline_alone_for_grep(self, fs: Filesystem) -> None:
        fs.write("file", "a\rb\u2028c\r\nlast")
        assert [(match.line_number, match.line_content) for match in fs.grep("c|last")] == [(1, "a\rb\u2028c\r"), (2, "last")]

    def test_files_are_chosen_by_glob(self, fs: Filesystem) -> None:
        fill(fs, {"top.py": "x", "top.md": "x", "src/a.py": "x", "src/deep/b.py": "x", "docs/c.md": "x"})
        found = {
            glob: [match.path for match in fs.grep("x", glob=glob)]
            for glob in ("*.py", "src/*.py", "src/**", "*.{md,rst}", "a.*")
        }
        assert found == {
            "*.py": ["src/a.py", "src/deep/b.py", "top.py"],
            "src/*.py": ["src/a.py"],
            "src/**": ["src/a.py", "src/deep/b.py"],
            "*.{md,rst}": ["docs/c.md", "top.md"],
            "a.*": ["src/a.py"],
        }

    def test_grep_in_a_directory_or_a_file(self, fs: Filesystem) -> None:
        fill(fs, {"src/a": "x", "src/b": "x", "other": "x"})
        found = {path: _places(fs.grep("x", path=path)) for path in ("src", "src/a", "./other", "none", "other/x")}
        assert found == {
            "src": [("src/a", 1), ("src/b", 1)], "src/a": [("src/a", 1)], "./other": [("other", 1)], "none": [], "other/x": [],
        }  # fmt: skip

    def test_number_of_matches_is_limited(self, fs: Filesystem) -> None:
        most = self.limits.max_grep_matches
        fill(fs, {"a": "x\n" * most, "b": "x\n" * 3})
        assert _places(fs.grep("x", max_matches=2)) == [("a", 1), ("a", 2)]
        assert len(fs.grep("x", max_matches=0)) == 0
        assert len(fs.grep("x")) == most
        assert len(fs.grep("x", max_matches=most + 2)) == most + 2
        with pytest.raises(ValueError):
            fs.grep("x", max_matches=-1)

    def test_what_holds_zero_bytes_is_passed_over(self, fs: Filesystem) -> None:
        fs.write("zero", "needle \0\n")
        fs.write("empty", "")
        fs.write("text", "needle\n")
        assert _places(fs.grep("needle")) == [("text", 1)]

    def test_invalid_expressions_are_refused(self, fs: Filesystem) -> None:
        for expression in ("[", "(", "*a", "a{2,1}", "(?P<n"):
            with pytest.raises(ValueError):
                fs.grep(expression)

    def test_no_expression_takes_exponential_time(self, fs: Filesystem) -> None:
        fs.write("file", "a" * 29 + "b\n")
        start = time.monotonic()
        assert len(fs.grep("^(a+)+$")) == 0
        assert time.monotonic() - start < 5

    def test_long_lines_are_found_whole(self, fs: Filesystem) -> None:
        line = "x" * 70_000 + "needle" + "y" * 70_000
        fs.write("file", f"before\n{line}\nafter needle\n")
        matches = fs.grep("needle")
        assert [(match.line_number, match.match_start) for match in matches] == [(2, 70_000), (3, 6)]
        assert matches[0].line_content == line

    def test_grep_stays_inside(self, fs: Filesystem) -> None:
        with pytest.raises(PermissionError):
            fs.grep("x", path="..")


class FileGlobTests(Settings):
    """Tests that ``file_glob`` works like ``glob``. Source: the specification of the tool operations, which uses that name."""

    def test_file_glob_is_another_name_of_glob(self, fs: Filesystem) -> None:
        fill(fs, {"a.py": "x", "docs/b.md": "x", "docs/c.py": "x"})
        assert _places(fs.grep("x", file_glob="*.md")) == [("docs/b.md", 1)]
        assert _places(fs.grep("x", file_glob="*.py", path="docs")) == [("docs/c.py", 1)]
        with pytest.raises(ValueError):
            fs.grep("x", glob="*.py", file_glob="*.py")
