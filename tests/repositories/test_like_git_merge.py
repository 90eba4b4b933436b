"""Random histories, merged by branches of an overlay and by `git merge` beside it: tree, parents and conflicts are git's own."""

import random
import shutil
import subprocess
from pathlib import Path

from tests.repositories.agents import ENVIRONMENT, Agents, commit, git, start
from tests.rounds import rounds, seed

MANY = rounds("random git merges", 3, 300)

NAMES = ["a", "b", "dir/c", "dir/d", "dir/deep/e"]


def edit(place: Path, chance: random.Random, who: str) -> None:
    """One commit: lines changed, a file made, renamed or removed, a mode changed."""
    files = sorted(path for path in place.rglob("*") if path.is_file() and ".git" not in path.parts)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(files)
        what = chance.choice(["lines", "lines", "lines", "make", "rename", "remove", "mode"])
        if what == "make":
            made = place / chance.choice(["new", "dir/new", f"{who}-new"])
            made.parent.mkdir(exist_ok=True)
            made.write_text(f"{who} made {chance.randint(0, 3)}\n")
        elif path.exists() and what == "rename":
            path.rename(path.with_name(f"{path.name}-{chance.choice([who, 'moved'])}"))
        elif path.exists() and what == "remove":
            path.unlink()
        elif path.exists() and what == "mode":
            path.chmod(path.stat().st_mode ^ 0o111)
        elif path.exists():
            lines = path.read_text().splitlines() or [""]
            lines[chance.randrange(len(lines))] = f"{who} {chance.randint(0, 2)}"
            path.write_text("\n".join(lines) + "\n")
    commit(place, {}, who)


def compare(base: Path, number: int) -> None:
    chance = random.Random(number)
    agents = Agents(base)
    try:
        text = {name: "".join(f"{name} {number}\n" for number in range(12)) for name in NAMES}
        start(agents.lower, text)
        agents.branch("one", "two")
        for name in ("one", "two"):
            place = agents.work(name)
            for _ in range(chance.randint(1, 2)):
                edit(place, chance, name)
            agents.keep(name)
        beside = base / "beside"
        shutil.copytree(agents.work("one"), beside, symlinks=True)
        git(beside, "fetch", "-q", str(agents.work("two")), "main:theirs")
        done = subprocess.run(
            ["git", "-C", str(beside), "merge", "-q", "theirs"], env=ENVIRONMENT, capture_output=True, check=False
        )
        merged = agents.merge("two", into="one")
        unmerged = {line.partition("\t")[2] for line in git(beside, "ls-files", "-u").splitlines()}
        assert {conflict.path.decode() for conflict in merged.conflicts} == unmerged, (number, done.stderr)
        place = agents.work("one")
        git(place, "fsck", "--strict", "--no-dangling")
        assert git(place, "status", "--porcelain") == "", number
        if not unmerged:
            assert git(place, "rev-parse", "HEAD^{tree}") == git(beside, "rev-parse", "HEAD^{tree}"), number
            assert git(place, "log", "--format=%P", "-1") == git(beside, "log", "--format=%P", "-1"), number
    finally:
        agents.close()


def test_merges_come_out_as_git_makes_them(tmp_path: Path) -> None:
    for number in range(seed(), seed() + MANY):
        place = tmp_path / str(number)
        place.mkdir()
        compare(place, number)
        shutil.rmtree(place)
