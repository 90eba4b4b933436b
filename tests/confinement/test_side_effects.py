"""Routine commands that do something else on the side, as an agent meets them: none does it to the real files, and all is told.

After the eleven tasks of "Don't Let AI Agents YOLO Your Files" (arXiv 2604.13536), rebuilt from its description: a lint, build or
deploy command that silently destroys something. Some of ours reach beyond the workspace, as the reports that the paper counts do.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.confinement.world import World

PROJECT = {
    "README.md": "read me\n",
    ".env": "TOKEN=1\n",
    "src/main.py": "print(1)\n",
    "src/lib.py": "x = 1\n",
    "notes.txt": "mine\n",
}
HOME = {".gitconfig": "[user]\n", "venv/bin/python": "#!/bin/sh\n", ".local/share/containers/volume": "data\n"}


class Task(NamedTuple):
    """A command that runs in the workspace, where a person finds what it did (changes, home, a directory), and what is there."""

    command: str
    place: str
    told: str


TASKS = {
    "lint": Task("rm README.md", "changes", "D README.md"),
    "build": Task("rm -rf src build; mkdir build", "changes", "D src/lib.py"),
    "deploy": Task("echo TOKEN=2 > .env", "changes", "M .env"),
    "optimize": Task(": > notes.txt", "changes", "M notes.txt"),
    "tidy": Task("rm -rf .git", "changes", "D .git/config"),
    "setup": Task("git config --global core.hooksPath /tmp/hooks", "home", "M .gitconfig"),
    "shell": Task("rm ~/.bashrc", "home", "D .bashrc"),
    "login": Task("echo key >> ~/.ssh/authorized_keys", "home", "A .ssh/authorized_keys"),
    "service": Task("mkdir -p ~/.config/systemd/user; echo x > ~/.config/systemd/user/x.service", "home",
                    "A .config/systemd/user/x.service"),
    "upgrade": Task("rm -rf ~/venv ~/.local/share/containers; mv part ~/moved", "home", "D venv/bin/python"),
    "clean": Task("rm -rf /var/tmp/*; touch /var/tmp/cache", "/var/tmp", "cache"),
}  # fmt: skip


class Outcome(NamedTuple):
    report: dict[str, Any]
    before: dict[str, bytes]
    after: dict[str, bytes]
    text: str


_KEPT = Path(f"/var/tmp/agentfsd-kept-{os.getpid()}")  # other programs' files there come and go


def contents(world: World) -> dict[str, bytes]:
    """The bytes of all real files, without the daemon's own."""
    found = {}
    for place in (world.lower, world.home, world.outside, world.other_lower):
        for directory, names, files in os.walk(place):
            names[:] = [name for name in names if Path(directory, name) not in (world.point, world.home / ".local" / "state")]
            found.update({os.path.join(directory, name): Path(directory, name).read_bytes() for name in files})
    for path in (_KEPT, Path("/var/tmp/cache")):
        found[str(path)] = path.read_bytes() if path.exists() else b"is not there"
    return found


@pytest.fixture(scope="module")
def outcome(world: World) -> Iterator[Outcome]:
    """All tasks in one run."""
    made = {
        **{world.lower / name: text for name, text in PROJECT.items()},
        **{world.home / name: text for name, text in HOME.items()},
        _KEPT: "as it was",
    }
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q", world.lower], check=True)
    owned = [world.lower, world.home / ".gitconfig", world.home / "venv", world.home / ".local" / "share"]
    subprocess.run(["chown", "-R", f"{world.user}:{world.user}", *owned], check=True)
    before = contents(world)
    script = "; ".join(task.command for task in TASKS.values()) + "; echo x > .envrc"
    done = world.run("side-effects", script, "--home", "overlay", "--tmp", "private", "--json", check=False)
    again = world.run("side-effects", "true", "--home", "overlay", "--tmp", "private", "--report")
    yield Outcome(json.loads(done.stderr.splitlines()[-1]), before, contents(world), again.stderr)
    subprocess.run(["rm", "-rf", *map(str, made), str(world.lower / ".git"), str(world.home / "venv")], check=True)


@pytest.mark.parametrize("name", TASKS)
def test_a_side_effect_is_told(outcome: Outcome, name: str) -> None:
    _, place, told = TASKS[name]
    if place.startswith("/"):
        assert told in outcome.report["outside"][place]
    else:
        changes = outcome.report["changes" if place == "changes" else "home_changes"]
        assert told in {f"{change['status']} {change['path']}" for change in changes}


def test_no_side_effect_reached_a_real_file(outcome: Outcome) -> None:
    assert outcome.before
    assert outcome.after == outcome.before


def test_the_report_names_what_runs_on_the_persons_side(outcome: Outcome) -> None:
    executed = {change["path"]: change["executed"] for change in outcome.report["changes"] if change["executed"]}
    assert list(executed) == [".envrc"]
    assert ".envrc: run by git, an editor" in outcome.text


def test_the_report_for_people_names_places(outcome: Outcome) -> None:
    assert "which belong to the branch" in outcome.text
    assert "agentfsd diff --home side-effects" in outcome.text
    assert "0 requests refused" in outcome.text
