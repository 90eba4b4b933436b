"""Works on the same names as another process in another branch, and checks every answer against what it did itself.

Started as a program: TAG OPERATIONS. Prints one line of counts; exits with 1 at the first wrong answer.
"""

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

FILES = [f"both/f{number}" for number in range(6)]
UNTOUCHED = "sub/deep/leaf"


class Hammer:
    """``known`` maps each file to the content that this branch must show, None for one that must be missing."""

    def __init__(self, tag: str) -> None:
        self.tag, self.random = tag, random.Random(tag)
        self.root = Path.cwd()
        (self.root / "both").mkdir(exist_ok=True)
        self.known: dict[str, str | None] = dict.fromkeys(FILES)
        os.chdir("both")
        self.count = 0

    def path(self, name: str) -> str:
        """Absolute, or relative to the working directory below the root."""
        return f"../{name}" if self.random.random() < 0.5 else str(self.root / name)

    def wrong(self, what: str) -> None:
        sys.exit(f"{self.tag}: after {self.count} operations: {what}")

    def write(self) -> None:
        name = self.random.choice(FILES)
        text = f"{self.tag} {self.count}\n" * self.random.randrange(1, 300)
        with open(self.path(name), "w") as file:
            file.write(text)
        self.known[name] = text

    def append(self) -> None:
        name = self.random.choice(FILES)
        with open(self.path(name), "a") as file:
            file.write(self.tag)
        self.known[name] = (self.known[name] or "") + self.tag

    def read(self) -> None:
        name = self.random.choice(FILES)
        try:
            found: str | None = Path(self.path(name)).read_text()
        except FileNotFoundError:
            found = None
        if found != self.known[name]:
            self.wrong(f"{name} holds {found!r:.60}, not {self.known[name]!r:.60}")

    def unlink(self) -> None:
        name = self.random.choice(FILES)
        try:
            os.unlink(self.path(name))
            if self.known[name] is None:
                self.wrong(f"{name} could be removed though it was not there")
        except FileNotFoundError:
            if self.known[name] is not None:
                self.wrong(f"{name} was missing")
        self.known[name] = None

    def rename(self) -> None:
        old, new = self.random.sample(FILES, 2)
        if self.known[old] is None:
            return
        os.rename(self.path(old), self.path(new))
        self.known[new], self.known[old] = self.known[old], None

    def directory(self) -> None:
        """Makes, moves and removes directories that the other branch makes, moves and removes too."""
        made, moved = self.path("both/d"), self.path("both/e")
        os.mkdir(made)
        Path(made, "x").write_text(self.tag)
        os.rename(made, moved)
        if Path(moved, "x").read_text() != self.tag or os.path.exists(made):
            self.wrong("a renamed directory is not what it was")
        os.unlink(Path(moved, "x"))
        os.rmdir(moved)

    def lower_directory(self) -> None:
        """Moves a directory of the lower away and back, in which the other branch may be looking."""
        os.rename(self.path("sub"), self.path("sub2"))
        if Path(self.path("sub2/deep/leaf")).read_text() != "leaf\n" or os.path.exists(self.path("sub")):
            self.wrong("a renamed lower directory is not what it was")
        os.rename(self.path("sub2"), self.path("sub"))

    def untouched(self) -> None:
        if Path(self.path(UNTOUCHED)).read_text() != "leaf\n":
            self.wrong("an unmodified file is wrong")

    def listing(self) -> None:
        found = {f"both/{name}" for name in os.listdir(self.path("both")) if name.startswith("f")}
        if found != {name for name, text in self.known.items() if text is not None}:
            self.wrong(f"the listing is {sorted(found)}")

    def where(self) -> None:
        try:
            here = os.getcwd()
        except FileNotFoundError:
            self.wrong("the working directory was lost")
        if here != str(self.root / "both"):
            self.wrong(f"the working directory is {here}")

    def steps(self) -> list[Callable[[], None]]:
        often = [
            self.write,
            self.append,
            self.read,
            self.read,
            self.unlink,
            self.rename,
            self.listing,
            self.where,
            self.untouched,
        ]
        return often * 4 + [self.directory, self.lower_directory]


def main() -> None:
    hammer = Hammer(sys.argv[1])
    steps = hammer.steps()
    for hammer.count in range(int(sys.argv[2])):
        hammer.random.choice(steps)()
    print(f"{hammer.tag}: {hammer.count + 1} operations", flush=True)


if __name__ == "__main__":
    main()
