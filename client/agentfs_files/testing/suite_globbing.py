"""Tests of glob()."""

import time

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings, fill

_FILES = ("a.py", "b.txt", ".hidden.py", "src/c.py", "src/deep/d.py", "src/deep/e.txt", "src/.secret/f.py", "[x].md")
_FOUND = {
    "*.py": [".hidden.py", "a.py"],
    "?.py": ["a.py"],
    "*": [".hidden.py", "[x].md", "a.py", "b.txt"],
    "**": sorted(_FILES),
    "**/*.py": [".hidden.py", "a.py", "src/.secret/f.py", "src/c.py", "src/deep/d.py"],
    "**/d.py": ["src/deep/d.py"],
    "**/deep/**": ["src/deep/d.py", "src/deep/e.txt"],
    "src/*.py": ["src/c.py"],
    "src/*": ["src/c.py"],
    "src/**": ["src/.secret/f.py", "src/c.py", "src/deep/d.py", "src/deep/e.txt"],
    "src/**/*.py": ["src/.secret/f.py", "src/c.py", "src/deep/d.py"],
    "./src/c.py": ["src/c.py"],
    "src//c.py": ["src/c.py"],
    "src/c.py": ["src/c.py"],
    "*/*/*.txt": ["src/deep/e.txt"],
    "[ab].*": ["a.py", "b.txt"],
    "[!a].*": ["b.txt"],
    "[[]x].md": ["[x].md"],
    "*.{py,txt}": [".hidden.py", "a.py", "b.txt"],
    "{src/deep,src}/[cd].py": ["src/c.py", "src/deep/d.py"],
    "A.py": [],
    "src": [],
    "src/": [],
    "a.py/": [],
    "a.py/*": [],
    "missing/**": [],
    "[unclosed": [],
}


class GlobbingTests(Settings):
    def test_patterns(self, fs: Filesystem) -> None:
        fill(fs, dict.fromkeys(_FILES, ""))
        fs.mkdir("directory.py")
        found = {pattern: [match.path for match in fs.glob(pattern)] for pattern in _FOUND}
        assert found == _FOUND

    def test_matches_are_files(self, fs: Filesystem) -> None:
        fs.write("dir/file", "")
        assert [(match.path, match.is_file) for match in fs.glob("**")] == [("dir/file", True)]

    def test_pattern_counts_from_the_path(self, fs: Filesystem) -> None:
        fill(fs, dict.fromkeys(_FILES, ""))
        found = {
            path: [match.path for match in fs.glob("**/*.txt", path=path)] for path in ("src", "./src/deep/", "a.py", "none")
        }
        assert found == {"src": ["src/deep/e.txt"], "./src/deep/": ["src/deep/e.txt"], "a.py": [], "none": []}
        assert [match.path for match in fs.glob("*.py", path="src")] == ["src/c.py"]
        assert [match.path for match in fs.glob("../*.txt", path="src")] == ["b.txt"]

    def test_absolute_patterns_count_from_the_root(self, fs: Filesystem) -> None:
        fs.write("src/c.py", "")
        top = fs.root.rstrip("/")
        assert [match.path for match in fs.glob(f"{top}/**/*.py", path="elsewhere")] == ["src/c.py"]

    def test_names_with_special_characters_are_found(self, fs: Filesystem) -> None:
        fill(fs, {"a*b": "", "a?b": "", "line\nbreak.py": "", "ümläut.py": "", "a b.py": ""})
        assert [match.path for match in fs.glob("*.py")] == ["a b.py", "line\nbreak.py", "ümläut.py"]
        assert [match.path for match in fs.glob("a[*]b")] == ["a*b"]

    def test_glob_stays_inside(self, fs: Filesystem) -> None:
        for pattern, path in (("../*", "."), ("**", "../.."), ("a/../../*", ".")):
            with pytest.raises(PermissionError):
                fs.glob(pattern, path=path)

    def test_empty_pattern_is_refused(self, fs: Filesystem) -> None:
        with pytest.raises(ValueError):
            fs.glob("")

    def test_pattern_of_many_stars_takes_no_time(self, fs: Filesystem) -> None:
        fs.write("a/" * 12 + "a" * 40, "")
        start = time.monotonic()
        assert len(fs.glob("**/*" + "a*" * 15 + "b")) == len(fs.glob("**/a/" * 12 + "b")) == 0
        assert time.monotonic() - start < 5
