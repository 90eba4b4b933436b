"""The trees that are measured on. Each function fills one directory of the lower; nothing of it is random."""

import hashlib
import json
import os
from pathlib import Path

from benchmark.settings import MIB
from benchmark.site import Site, program

FLAT_FILES = 1_000
OPENED_SMALL, OPENED_LARGE = 100, 16  # files of opened()
_LONG_AGO_S = 1_600_000_000  # a git index does not trust files that are as new as itself
_DIRECTORY_FILES = 100
_LINE = "int value_{number} = {number}; /* the quick brown fox jumps over the lazy dog */\n"


def flat(path: Path, site: Site) -> None:
    """A thousand files of 1 KiB in one directory."""
    small(FLAT_FILES, path)


def small(count: int, path: Path) -> None:
    """Files of 1 KiB in one directory."""
    for number in range(count):
        (path / f"f{number}").write_bytes(b"x" * 1024)


def tree(path: Path, site: Site) -> None:
    """Many small files, a hundred in each directory, ten directories in each."""
    for number in range(site.settings.tree_files):
        group = number // _DIRECTORY_FILES
        directory = path / f"g{group // 10}" / f"d{group}"
        if number % _DIRECTORY_FILES == 0:
            directory.mkdir(parents=True)
        (directory / f"f{number}").write_bytes(b"x" * 64)


def wide(path: Path, site: Site) -> None:
    """Many files of one line; see wide_name."""
    for number in range(site.settings.wide_files):
        file = path / wide_name(number)
        if number % _DIRECTORY_FILES == 0:
            file.parent.mkdir(parents=True)
        file.write_text(_LINE.format(number=number))


def wide_name(number: int) -> str:
    group = number // _DIRECTORY_FILES
    return f"g{group // 10}/d{group}/f{number}"


def empty(path: Path, site: Site) -> None:
    """Nothing."""


def large(size_bytes: int, path: Path) -> None:
    """One file ``f0`` of a size, without holes, that compresses badly."""
    block = hashlib.shake_256(b"agentfsd").digest(MIB)
    with (path / "f0").open("wb") as file:
        for _ in range(size_bytes // MIB):
            file.write(block)


def opened(path: Path, site: Site) -> None:
    """In ``small`` files of 1 KiB, in ``large`` such of 4 MiB, which are worth a descriptor of their content."""
    for name in ("small", "large"):
        (path / name).mkdir()
    small(OPENED_SMALL, path / "small")
    for number in range(OPENED_LARGE):
        (path / "large" / f"f{number}").write_bytes(b"x" * (4 * MIB))


def repository(path: Path, site: Site) -> None:
    """A git checkout with the tags ``first`` and ``second``: a tenth of the files differs, some come and some go."""
    git, count = program("git"), site.settings.repository_files
    names = [_module(number) for number in range(count)]
    for number, name in enumerate(names):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("".join(_LINE.format(number=number * 100 + line) for line in range(number % 100)))
    _age(path)
    site.command(git, "init", "-q", "-b", "main", cwd=path)
    _commit(git, path, site, "first")
    for number in range(0, count, 10):
        (path / names[number]).write_text(f"changed {number}\n")
    for number in range(5, count, 50):
        (path / names[number]).unlink()
        (path / f"{names[number]}.new").write_text(f"new {number}\n")
    _commit(git, path, site, "second")
    site.command(git, "checkout", "-q", "first", cwd=path)
    _age(path)
    site.command(git, "status", cwd=path)


def _module(number: int) -> str:
    return f"src/p{number // 50}/m{number % 50}.c"


def long_modules(site: Site) -> list[str]:
    """The files of the repository that have at least 50 lines."""
    return [_module(number) for number in range(site.settings.repository_files) if number % 100 >= 50]


def _commit(git: str, path: Path, site: Site, tag: str) -> None:
    site.command(git, "add", "-A", cwd=path)
    site.command(git, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", tag, cwd=path)
    site.command(git, "tag", tag, cwd=path)


def _age(path: Path) -> None:
    for directory, directories, files in os.walk(path):
        if ".git" in directories:
            directories.remove(".git")
        for name in files:
            os.utime(f"{directory}/{name}", (_LONG_AGO_S, _LONG_AGO_S))


def archive(path: Path, site: Site) -> None:
    """An archive of many small files beside the lower, and nothing in it."""
    content = site.materials / "content"
    for number in range(site.settings.repository_files):
        (content / f"p{number // 50}").mkdir(parents=True, exist_ok=True)
        (content / f"p{number // 50}" / f"m{number}.txt").write_text(_LINE.format(number=number) * (number % 60))
    site.command("tar", "cf", str(site.materials / "archive.tar"), "-C", str(content), ".")
    site.command("rm", "-rf", str(content))


def sources(path: Path, site: Site) -> None:
    """C files with a common header, and a Makefile that links them."""
    program("make")
    count = site.settings.sources
    (path / "common.h").write_text("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
    for number in range(count):
        body = "".join(f"int f{number}_{part}(int x) {{ return x * {part} + {number}; }}\n" for part in range(20))
        (path / f"s{number}.c").write_text(f'#include "common.h"\n{body}')
    (path / "main.c").write_text("int f0_1(int);\nint main(void) { return f0_1(0); }\n")
    objects = " ".join(["main.o", *(f"s{number}.o" for number in range(count))])
    rules = "program: $(O)\n\tcc -o $@ $(O)\n%.o: %.c common.h\n\tcc -O0 -c -o $@ $<\n"
    (path / "Makefile").write_text(f"O = {objects}\n{rules}")


def python_tests(path: Path, site: Site) -> None:
    """A package with tests in as many files as the settings say, some of which use files."""
    (path / "pytest.ini").write_text("[pytest]\naddopts = -q\n")
    for number in range(site.settings.test_files):
        (path / f"module_{number}.py").write_text(f"def double(x):\n    return 2 * x\n\nNUMBER = {number}\n")
        (path / f"test_{number}.py").write_text(
            f"import pathlib\nimport pytest\nimport module_{number} as module\n\n"
            "@pytest.mark.parametrize('x', range(5))\ndef test_double(x):\n    assert module.double(x) == x + x\n\n"
            f"def test_file():\n    file = pathlib.Path('written_{number}')\n"
            "    file.write_text('x')\n    assert file.read_text() == 'x'\n    file.unlink()\n"
        )


def node_project(path: Path, site: Site) -> None:
    """A package.json with its lock, and npm's cache beside the lower: afterwards no network is needed."""
    npm = program("npm")
    wanted = {"name": "sample", "version": "1.0.0", "dependencies": site.settings.node_packages}
    (path / "package.json").write_text(json.dumps(wanted))
    site.command(npm, "install", *npm_options(site), cwd=path)
    site.command("rm", "-rf", str(path / "node_modules"))


def npm_options(site: Site) -> list[str]:
    return ["--cache", str(site.materials / "npm-cache"), "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"]


def wheels(path: Path, site: Site) -> None:
    """Wheels beside the lower, to install from without network; nothing in the lower."""
    site.command(
        program("python"), "-m", "pip", "download", "-q", "--only-binary=:all:", "-d", str(site.materials / "wheels"),
        *site.settings.python_packages,
    )  # fmt: skip
