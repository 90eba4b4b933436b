"""`run --home overlay`: what a command changes in the home directory belongs to its branch."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.confinement.world import World

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
    assert diff(world, "home-1", "--", str(world.home / "a")) == ["A\ta", "A\ta/b", "A\ta/b/c"]
    patch = diff(world, "home-1", "-p")
    assert "+more" in patch
    assert "-as it was" in patch
    assert "victim" in diff(world, "home-1", "--stat", "--", str(world.home / "victim"))[0]
    assert {change["path"] for change in json.loads("".join(diff(world, "home-1", "--json")))} >= {"new", ".ssh/id"}
    assert world.cli("diff", "home-1", "-m", str(world.point)).stdout == "A\tin-the-branch\n"
    again = world.run("home-1", "cd; cat new links a/b/c .ssh/*; ls -A", "--home", "overlay").stdout
    assert again.startswith("n\nf\nc\nk\n")
    assert ".bashrc" not in again
    assert "new" not in world.run("home-2", "ls ~", "--home", "overlay").stdout
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


def test_going_with_the_branch(world: World) -> None:
    for branch in ("home-4", "main"):
        world.run(branch, "echo x > ~/new", "--home", "overlay") if branch != "main" else world.cli(
            "run", "-m", str(world.point), "-b", "main", "--home", "overlay", "--", "sh", "-c", "echo x > ~/new"
        )
        assert diff(world, branch) == ["A\tnew"]
        world.cli("discard", branch, "-m", str(world.point))
    assert diff(world, "main") == []
    world.cli("branch", "create", "home-4", "-m", str(world.point))
    assert diff(world, "home-4") == []


def test_a_home_that_is_removed_is_there_afterwards(world: World) -> None:
    before = names(world.home)
    said = world.run("home-5", "rm -rf ~ 2>&1; ls -A ~", "--home", "overlay")
    assert set(said.stdout.split()[-3:]) == {".local", "proj", "work"}
    assert names(world.home) == before
    assert names(world.lower) == ["part", "victims"]


def test_places_to_write_are_the_real_ones(world: World) -> None:
    world.run("home-6", "echo x > ~/dir/real; echo x > ~/unreal", "--home", "overlay", "--write", str(world.home / "dir"))
    assert (world.home / "dir" / "real").exists()
    (world.home / "dir" / "real").unlink()
    assert diff(world, "home-6") == ["A\tunreal"]


def test_a_run_does_not_see_the_layer_itself(world: World) -> None:
    said = world.run("home-7", f"ls {world.state().state}/homes; true", "--home", "overlay")
    assert said.stdout == ""


def test_what_the_home_has_become_is_seen_by_the_next_run(world: World) -> None:
    world.run("home-8", "echo x > ~/new; cat ~/later; true", "--home", "overlay")
    (world.home / "later").write_text("later\n")
    try:
        until = "until cat ~/later; do sleep 0.1; done 2> /dev/null"
        assert world.run("home-8", until, "--home", "overlay").stdout == "later\n"
    finally:
        (world.home / "later").unlink()


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
        assert "the home directory is read-only in this run: something is mounted" in done.stderr
        strict = foreign_home.run("home-9", "echo started", "--confine", "strict", check=False)
        assert (strict.returncode, strict.stdout) == (1, "")
        assert "--home ro" in strict.stderr
    assert not (foreign_home.outside / "new").exists()
