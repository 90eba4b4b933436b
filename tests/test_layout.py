"""The map agrees with the territory: rooms in ARCHITECTURE.md, and what an installation contains."""

import ast
import collections
import graphlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from agentfsd import __version__
from agentfsd.cli import shell_completion
from agentfsd.cli.main import main

ROOT = Path(__file__).parent.parent
PACKAGES = ("agentfsd", "client/agentfs_client", "client/agentfs_files", "client/agentfs_host")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_is_on_the_map(package: str) -> None:
    text = (ROOT / package / "ARCHITECTURE.md").read_text()
    table = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    named = {name.rstrip("/") for line in table.splitlines() for name in re.findall(r"`([a-z_]+(?:/|\.py))`", line.split("|")[1])}
    rooms = {path.name for path in (ROOT / package).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert named == rooms - {"__init__.py"}


def test_top_level_is_what_was_agreed() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True).stdout
    packages = {"agentfsd", "client", "docs", "tests", "systemd", "scripts", ".ci"}
    files = {"pyproject.toml", ".gitignore", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"}
    assert {path.partition("/")[0] for path in listed.splitlines()} <= packages | files


def sources() -> dict[str, Path]:
    """Every module of the project by its dotted name; a package by its own."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to((ROOT / package).parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """The project's modules that a file imports: at its top, within functions, and for types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            for alias in node.names:
                yield from {f"{node.module}.{alias.name}", node.module or ""} & modules.keys()
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & modules.keys()


def test_no_two_modules_have_the_same_name() -> None:
    places = collections.defaultdict(list)
    for name, path in sources().items():
        if path.name not in ("__init__.py", "__main__.py"):
            places[path.stem].append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_two_public_classes_have_the_same_name() -> None:
    places = collections.defaultdict(list)
    for name, path in sources().items():
        for found in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            places[found].append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = sources()
    graph = {name: set(imports_of(path, modules)) - {name} for name, path in modules.items()}
    assert sum(map(len, graph.values())) > 1000
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as exc:
        pytest.fail(" -> ".join(reversed(exc.args[1])))


def test_handlers_change_files_only_where_the_change_is_reported() -> None:
    """conversation_files.py writes step by step what its caller then reports as one change."""
    unreported = re.compile(
        r"\bdirectory_entries\.(?:make|link|unlink|rmdir|rename)\("
        r"|\binode_attributes\.(?:setattr_|setxattr|removexattr|truncate)\(|\bdata\.(?:write|allocate|copy_range)\("
    )
    for path in (*(ROOT / "agentfsd/fuse").rglob("*.py"), *(ROOT / "agentfsd/control").rglob("*.py")):
        if path.name != "conversation_files.py":
            assert {(path.name, call) for call in unreported.findall(path.read_text())} == set()


def commands(group: click.Group, prefix: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        found[prefix + name] = command
        if isinstance(command, click.Group):
            found |= commands(command, f"{prefix}{name} ")
    return found


@pytest.mark.parametrize("name", sorted(commands(main)))
def test_every_command_has_help_with_an_example(name: str) -> None:
    command = commands(main)[name]
    assert command.help
    assert "Example:" in command.help
    assert len(command.get_short_help_str(limit=1000)) <= 60  # a line of the group's help


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_stands_in_a_file_named_after_it(name: str) -> None:
    command = main.commands[name]
    callback = inspect.unwrap(command.callback or pytest.fail(f"{name} has no function"))
    assert callback.__module__ == f"agentfsd.cli.commands.cmd_{name}"


def test_wheel_holds_the_packages_and_what_belongs_to_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    compiled = shutil.which(os.environ.get("CC", "gcc")) is not None
    assert ("agentfs_client/libagentfs-interpose.so.1" in names) == compiled
    assert wheel.name.endswith("-any.whl") != compiled
    data = f"agentfsd-{__version__}.data"
    assert {name.split("/")[0] for name in names} == {
        "agentfsd", "agentfs_client", "agentfs_files", "agentfs_host", f"agentfsd-{__version__}.dist-info", data,
    }  # fmt: skip
    beside = {name.removeprefix(f"{data}/data/") for name in names if name.startswith(data)}
    assert {name for name in beside if not name.startswith("share/man/")} == {
        "lib/systemd/system/agentfsd@.service", "lib/systemd/user/agentfsd@.service", "share/doc/agentfsd/README.systemd",
        f"{data}/scripts/agentfsd",
        *(f"share/{place}" for place in shell_completion.SCRIPTS.values()),
    }  # fmt: skip
    assert "share/man/man1/agentfsd-run.1" in beside
    assert {f"{package}/py.typed" for package in ("agentfs_client", "agentfs_files", "agentfs_host")} <= set(names)
    pages = {f"agentfsd/web/{path.relative_to(ROOT / 'agentfsd/web')}" for path in (ROOT / "agentfsd/web").glob("[st]*/*.*")}
    assert len(pages) > 10
    assert pages <= set(names)
