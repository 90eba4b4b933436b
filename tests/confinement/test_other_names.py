"""Other names of the home directory and of what is in it: bind mounts of it, and of directories above and below."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.confinement.world import SECRET, World

pytestmark = pytest.mark.sample(1)


class Names(NamedTuple):
    world: World
    home: Path
    above: Path  # of a directory above the home directory
    keys: Path  # of ~/.ssh


@pytest.fixture
def names(world: World) -> Iterator[Names]:
    places = [world.base / name for name in ("names-home", "names-above", "names-keys")]
    sources = (world.home, world.home.parent, world.home / ".ssh")
    for place, source in zip(places, sources, strict=True):
        place.mkdir()
        subprocess.run(["mount", "--bind", source, place], check=True)
    yield Names(world, places[0], places[1] / "home", places[2])
    for place in places:
        subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()


WRITES = "for d in {0} {1} {2}; do echo x 2>/dev/null >$d/new && echo wrote || echo refused; done"


def test_a_read_only_home_is_so_by_all_its_names(names: Names) -> None:
    said = names.world.run("names-1", WRITES.format(names.home, names.above, names.keys), "--home", "ro").stdout
    assert said.split() == ["refused"] * 3


def test_a_hidden_home_is_hidden_by_all_its_names(names: Names) -> None:
    script = f"cat {names.home}/.ssh/id {names.above}/.ssh/id {names.keys}/id"
    said = names.world.run("names-2", script, "--home", "hide", check=False)
    assert SECRET not in said.stdout
    assert said.stderr.count("No such file") == 3


def test_the_layer_is_seen_by_all_names_of_the_home(names: Names) -> None:
    world = names.world
    script = WRITES.format(names.home, names.above, names.keys)
    script += f"; rm {names.home}/victim; ls ~/.ssh; ls ~/victim {names.above}/victim"
    done = world.run("names-3", script, "--home", "overlay", check=False)
    assert done.stdout.split() == ["wrote"] * 3 + ["id", "new"]
    assert done.stderr.count("No such file") == 2
    assert (world.home / "victim").exists()
    assert not (world.home / "new").exists()
    assert not (world.home / ".ssh" / "new").exists()
    changes = world.cli("diff", "--home", "names-3", "-m", str(world.point)).stdout
    assert changes.splitlines() == ["A\t.ssh/new", "A\tnew", "D\tvictim"]


def test_rules_hold_by_all_names(names: Names) -> None:
    world = names.world
    world.run("names-4", "true")
    world.cli("rules", "add", "-m", str(world.point), "-b", "names-4", "deny ~/.ssh/**", "ro ~/.bashrc", f"hide /{world.outside}")
    script = f"cat {names.home}/.ssh/id {names.above}/.ssh/id {names.keys}/id; ls {names.above.parent}/outside"
    script += f"; for d in {names.home} {names.above}; do echo x >>$d/.bashrc; done; touch {names.home}/free"
    done = world.run("names-4", script)
    assert done.stdout == ""
    assert done.stderr.count("No such file") == 3
    assert done.stderr.count("Read-only file system") == 2
    assert (world.home / ".bashrc").read_text() == "as it was\n"
    (world.home / "free").unlink()


def test_options_hold_by_all_names(names: Names) -> None:
    script = f"cat {names.home}/.ssh/id {names.keys}/id; echo x >>{names.above}/.bashrc"
    options = ("--hide", str(names.world.home / ".ssh"), "--read", str(names.world.home / ".bashrc"))
    done = names.world.run("names-5", script, *options, check=False)
    assert done.stdout == ""
    assert done.stderr.count("No such file") == 2
    assert "Read-only file system" in done.stderr


def test_the_workspace_shows_the_branch_by_all_names(names: Names) -> None:
    """Also in the other names of the home directory, whatever is shown there."""
    for number, home in enumerate(("rw", "ro", "overlay")):
        script = f"echo x > {names.home}/proj/new{number}; cat {names.above}/proj/new{number}"
        assert names.world.run(f"names-6-{number}", script, "--home", home).stdout == "x\n"
        assert not (names.world.lower / f"new{number}").exists()
