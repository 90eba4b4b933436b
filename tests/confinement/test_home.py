"""`run --home overlay`: what a command changes in the home directory belongs to its branch."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.confinement.world import World

pytestmark = pytest.mark.sample(1)

MANY_CHANGES = """
    cd; rm .bashrc; echo more >> victim; echo n > new; chmod 700 dir
    rm -r .ssh; mkdir .ssh; echo k > .ssh/other
    rm -r links; echo f > links; mkdir -p a/b; echo c > a/b/c
    echo x > proj/in-the-branch
"""


def diff(world: World, branch: str, *words: str) -> list[str]:
    return world.cli("diff", "--home", branch, "-m", str(world.point), *words).stdout.splitlines()


def names(place: Path) -> list[str]:
    return sorted(os.listdir(place))


def test_changes_belong_to_the_branch(world: World) -> None:
    before = names(world.home), names(world.home / ".ssh"), (world.home / "victim").read_text()
    world.run("home-1", MANY_CHANGES, "--home", "overlay")
    assert (names(world.home), names(world.home / ".ssh"), (world.home / "victim").read_text()) == before
    assert diff(world, "home-1") == [
        "D\t.bashrc", "D\t.ssh/id", "A\t.ssh/other", "A\ta", "A\ta/b", "A\ta/b/c", "m\tdir", "T\tlinks", "D\tlinks/proj",
        "A\tnew", "M\tvictim",
    ]  # fmt: skip
    (patch,) = json.loads("".join(diff(world, "home-1", "--patch", "--json", "--", str(world.home / "victim"))))
    assert (patch["added"], patch["removed"]) == (1, 0)
    again = world.run("home-1", "cd; cat new links a/b/c .ssh/*; ls -A", "--home", "overlay").stdout
    assert again.startswith("n\nf\nc\nk\n")
    assert ".bashrc" not in again
    world.cli("commit", "home-1", "-m", str(world.point))
    assert names(world.home) == before[0]
    assert (world.lower / "in-the-branch").exists()
    (world.lower / "in-the-branch").unlink()


def test_runs_at_the_same_time_share_the_layer(world: World) -> None:
    world.run("home-3", "true")
    first = threading.Thread(
        target=world.run,
        args=("home-3", "echo a > ~/a; until [ -e ~/b ]; do sleep 0.02; done; echo c > ~/c", "--home", "overlay"),
    )
    first.start()
    world.run(
        "home-3",
        "until [ -e ~/a ]; do sleep 0.02; done; echo b > ~/b; until [ -e ~/c ]; do sleep 0.02; done",
        "--home",
        "overlay",
    )
    first.join()
    assert diff(world, "home-3") == ["A\ta", "A\tb", "A\tc"]


def test_a_layer_goes_with_the_branch(world: World) -> None:
    world.run("home-4", "echo x > ~/new", "--home", "overlay")
    world.cli("discard", "home-4", "-m", str(world.point))
    world.cli("branch", "create", "home-4", "-m", str(world.point))
    assert diff(world, "home-4") == []


def test_a_home_that_is_removed_is_there_afterwards(world: World) -> None:
    before = names(world.home)
    said = world.run("home-5", f"rm -rf ~ 2> /dev/null; ls -A ~ {world.state().state}/homes", "--home", "overlay", check=False)
    assert said.stdout.split() == [f"{world.home}:", ".local", "proj", "work"]
    assert "No such file" in said.stderr
    assert names(world.home) == before
    assert names(world.lower) == ["part", "victims"]


def test_places_to_write_are_the_real_ones(world: World) -> None:
    world.run("home-6", "echo x > ~/dir/real; echo x > ~/unreal", "--home", "overlay", "--write", str(world.home / "dir"))
    assert (world.home / "dir" / "real").exists()
    (world.home / "dir" / "real").unlink()
    assert diff(world, "home-6") == ["A\tunreal"]


def test_what_the_branch_has_removed_can_be_hidden_and_kept(world: World) -> None:
    world.run("home-11", "rm -rf ~/.ssh ~/dir", "--home", "overlay")
    options = ("--home", "overlay", "--hide", str(world.home / ".ssh"), "--write", str(world.home / "dir"))
    assert world.run("home-11", "ls ~/.ssh; cd ~/dir && pwd", *options).stdout == f"{world.home}/dir\n"


@pytest.fixture
def foreign_home(world: World) -> Iterator[World]:
    """The same world for somebody whose home directory has another file system in it."""
    inside = world.outside / "empty"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"uid={world.user},gid={world.user}", "tmpfs", inside], check=True)
    environment = world.environment
    world.environment = lambda: {**environment(), "HOME": str(world.outside)}  # type: ignore[method-assign]
    yield world
    world.environment = environment  # type: ignore[method-assign]
    subprocess.run(["umount", inside], check=True)


def test_a_mount_in_the_home_is_read_only(foreign_home: World) -> None:
    """To an ordinary user the kernel then permits no layer: the home directory is read-only, and `strict` does not start."""
    done = foreign_home.run("home-9", "echo x > ~/empty/new || echo refused; echo x > ~/new || echo refused", "--home", "overlay")
    if foreign_home.user == 0:
        assert done.stdout == "refused\n"
        assert diff(foreign_home, "home-9") == ["A\tnew"]
    else:
        assert done.stdout == "refused\nrefused\n"
        assert f"a directory in which something is mounted ({foreign_home.outside}/empty); unmount that" in done.stderr
        strict = foreign_home.run("home-9", "echo started", "--confine", "strict", check=False)
        assert (strict.returncode, strict.stdout) == (1, "")
        assert "--home ro" in strict.stderr
    assert not (foreign_home.outside / "new").exists()


def test_a_second_workspace_in_the_home_has_layers_too(world: World) -> None:
    """Its daemon finds the first one's mount in the home directory, over which the kernel gives an ordinary user no layer."""
    lower, point = world.home / "proj2", world.home / "work2"
    for place in (lower, point):
        place.mkdir()
        os.chown(place, world.user, world.user)
    world.cli("mount", str(lower), str(point))
    try:
        run = ("run", "-m", str(point), "-b", "second", "--home", "overlay")
        done = world.cli(*run, "--new", "--", "sh", "-c", "echo x > ~/second; ls ~/work", cwd=point)
        assert (done.stdout, "read-only" in done.stderr) == ("", False)
        assert world.cli("diff", "--home", "second", "-m", str(point)).stdout == "A\tsecond\n"
        world.cli("restart", "-m", str(point))
        assert world.cli(*run, "--", "sh", "-c", "cat ~/second", cwd=point).stdout == "x\n"
    finally:
        world.cli("umount", str(point))
    assert not (world.home / "second").exists()
    lower.rmdir()
    point.rmdir()


def test_undo_brings_back_what_discarding_main_took_from_the_home(world: World) -> None:
    point = ("-m", str(world.point))
    for script in ("echo x > ~/kept", f"echo x > ~/kept; echo x > {world.point}/in-main"):
        world.run("main", script, "--home", "overlay")
        world.cli("discard", "main", *point)
        assert diff(world, "main") == []
        world.run("main", "echo x > ~/newer", "--home", "overlay")
        refused = world.cli("undo", *point, check=False)
        assert refused.returncode == 1
        assert "newer changes to the home directory" in refused.stderr
        world.cli("discard", "main", "--forget", *point)
        world.cli("undo", *point)
        assert diff(world, "main") == ["A\tkept"]
    assert world.run("main", "cat in-main").stdout == "x\n"
    world.cli("discard", "main", "--forget", *point)
    assert diff(world, "main") == []


def test_undo_brings_back_a_branch_that_changed_only_the_home(world: World) -> None:
    world.run("home-10", "echo x > ~/kept", "--home", "overlay")
    world.cli("discard", "home-10", "-m", str(world.point))
    world.cli("undo", "-m", str(world.point))
    assert diff(world, "home-10") == ["A\tkept"]
