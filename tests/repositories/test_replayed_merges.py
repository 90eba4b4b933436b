"""A generated history whose merges are replayed as those of a public repository are: see replaying.py."""

import random
from pathlib import Path

from tests.repositories.agents import git
from tests.repositories.replaying import Figures, Replay
from tests.rounds import rounds, seed

MERGES = rounds("merges of a generated history", 8, 400)

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon"]


def edited(chance: random.Random, files: dict[str, str], who: str) -> dict[str, str]:
    """Files after one commit: lines changed, a file made, moved or removed."""
    made = dict(files)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(sorted(made))
        what = chance.choice(["lines", "lines", "lines", "make", "move", "remove"])
        if what == "make":
            made[chance.choice([f"{who}/new", "dir/new", f"{who}-{chance.randint(0, 9)}"])] = f"{who} {chance.randint(0, 3)}\n"
        elif what == "move" and len(made) > 2:
            made[f"{path}-{chance.randint(0, 3)}"] = made.pop(path)
        elif what == "remove" and len(made) > 4:
            del made[path]
        else:
            lines = made[path].splitlines() or [""]
            lines[chance.randrange(len(lines))] = f"{who} {chance.randint(0, 2)}"
            made[path] = "\n".join(lines) + "\n"
    return {path: text for path, text in made.items() if not any(other.startswith(path + "/") for other in made)}


def history(chance: random.Random, merges: int) -> bytes:
    """A stream for fast-import: from the main line two lines part and come together, again and again."""
    lines: list[bytes] = []
    mark = 0

    def add(files: dict[str, str], *parents: int) -> int:
        nonlocal mark
        mark += 1
        lines.append(b"commit refs/heads/main\nmark :%d\ncommitter A <a@x> %d +0000\ndata 1\nx\n" % (mark, 1_700_000_000 + mark))
        lines.extend(b"%s :%d\n" % (b"merge" if number else b"from", parent) for number, parent in enumerate(parents))
        lines.append(b"deleteall\n")
        for path, text in sorted(files.items()):
            lines.append(b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(text), text.encode()))
        return mark

    files = {name: "".join(f"{name} {number}\n" for number in range(12)) for name in WORDS}
    tip = add(files)
    for _ in range(merges):
        sides = []
        for who in ("one", "two"):
            side, at = files, tip
            for _ in range(chance.randint(1, 2)):
                side = edited(chance, side, who)
                at = add(side, at)
            sides.append((side, at))
        files = chance.choice(sides)[0]
        tip = add(files, sides[0][1], sides[1][1])
    return b"".join(lines)


def test_merges_are_gits_own(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    git(made, "init", "-q", "--bare", "-b", "main")
    git(made, "fast-import", "--quiet", data=history(random.Random(seed()), MERGES))
    (tmp_path / "replay").mkdir()
    replay, figures = Replay(made, tmp_path / "replay"), Figures()
    try:
        for merge in replay.merges(MERGES):
            replay.replay(merge, figures)
    finally:
        replay.close()
    assert figures.differing == []
    assert figures.identical == figures.merges == MERGES
