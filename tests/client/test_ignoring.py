"""What the tools leave out is what git ignores: git itself is asked."""

import subprocess
from pathlib import Path

import pytest

from agentfs_files.backends.host import HostFilesystem
from agentfs_files.tools.ignoring import without_ignored

RULES = [
    {".gitignore": "*.log\n!keep.log\nbuild/\n/top\n", "sub/.gitignore": "!x.log\n*.tmp\n"},
    {".gitignore": "sub/*\n!sub/deep\n", "sub/deep/.gitignore": "a.py\n"},
    {".gitignore": "sub/\n!sub/x.log\n"},
    {".gitignore": "**/deep/*.py\n# a comment\n\\#odd\n\n", "sub/.gitignore": "/deep\n"},
    {".gitignore": "*\n!*/\n!*.py\n"},
    {".gitignore": "*.log\n", "sub/.gitignore": "!deep/\n!er/\n"},
    {".gitignore": "doc/*.txt\r\n[ab].tmp\r\n"},
    {".gitignore": "\ufeff*.py\n//\n", ".git/info/exclude": "top\n"},
]
FILES = [
    "a.py", "top", "x.log", "keep.log", "#odd", "a.tmp", "c.tmp", "build/a.py", "build/keep.log", "sub/x.log", "sub/top",
    "sub/b.tmp", "sub/deep/a.py", "sub/deep/b.py", "sub/deep/er/a.py", "sub/deep/er/y.log",
    "doc/a.txt", "doc/sub/a.txt", "build.log/x.py",
]  # fmt: skip


@pytest.mark.parametrize("rules", RULES, ids=range(len(RULES)))
def test_the_same_files_as_git(tmp_path: Path, rules: dict[str, str]) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name, content in {**dict.fromkeys(FILES, ""), **rules}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, newline="")
    ignored = subprocess.run(
        ["git", "-C", str(tmp_path), "check-ignore", "--no-index", "--stdin", "-z"],
        input="\0".join([*FILES, "sub"]), capture_output=True, text=True, check=False,
    ).stdout.split("\0")  # fmt: skip
    for base in {".", "sub"}.difference(ignored):
        wanted = [name for name in FILES if base == "." or name.startswith(f"{base}/")]
        _, left_out = without_ignored(HostFilesystem(tmp_path), base, wanted)
        assert left_out == [name for name in wanted if name in ignored]
    assert set(ignored) & set(FILES)


def test_inner_repositories_and_dot_ignore_files(tmp_path: Path) -> None:
    filesystem = HostFilesystem(tmp_path)
    for name, content in {
        ".gitignore": "*.csv\n",
        ".ignore": "!a.csv\nb\n",
        "a.csv": "",
        "b": "",
        "c.csv": "",
        "in/.git/x": "",
    }.items():
        filesystem.write(name, content)
    assert without_ignored(filesystem, ".", ["a.csv", "b", "c.csv", "in/.git/x"]) == (["a.csv"], ["b", "c.csv", "in/.git/x"])
    assert without_ignored(filesystem, "in/.git", ["in/.git/x"]) == (["in/.git/x"], [])


def test_ignored_base_has_rules_of_its_own(tmp_path: Path) -> None:
    filesystem = HostFilesystem(tmp_path)
    for name, content in {".gitignore": "out/\n", "out/.gitignore": "*.o\n", "out/a.o": "", "out/a.c": ""}.items():
        filesystem.write(name, content)
    assert without_ignored(filesystem, "out", ["out/a.c", "out/a.o"]) == (["out/a.c"], ["out/a.o"])
