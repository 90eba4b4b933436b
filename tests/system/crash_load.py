"""A mixed load whose every acknowledged step is known, until the daemon is killed under it.

Started as a program in the mount: TAG REPORT SEED. It ends when the mount stops answering and leaves in REPORT (JSON) what
must be there, and the one step that was under way, which may have happened or not.
"""

import json
import os
import random
import sys
from pathlib import Path


class Load:
    """``files``: content of each file as acknowledged; ``links``: target of each symlink; ``dirs``: directories."""

    def __init__(self, tag: str, seed: int) -> None:
        self.home = Path(tag)
        self.random = random.Random(seed)
        self.files: dict[str, str] = {}
        self.modes: dict[str, int] = {}
        self.dirs: set[str] = set()
        self.under_way: list[str] = []
        self.steps = 0

    def prepare(self) -> None:
        """Takes over what an earlier load left."""
        self.home.mkdir(exist_ok=True)
        for path in self.home.iterdir():
            if path.is_dir():
                self.dirs.add(str(path))
            else:
                self.files[str(path)] = path.read_text()
                self.modes[str(path)] = path.stat().st_mode & 0o777

    def name(self) -> str:
        return str(self.home / f"f{self.random.randrange(12)}")

    def write(self) -> None:
        name, text = self.name(), f"{self.steps} " * self.random.randrange(1, 3000)
        self.under_way = [name]
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self.files[name] = ""
        self.modes.setdefault(name, 0o644)
        os.write(fd, text.encode())
        self.files[name] = text
        os.close(fd)

    def append(self) -> None:
        name = self.name()
        if name in self.files:
            self.under_way = [name]
            with open(name, "ab", buffering=0) as file:
                file.write(b"more")
                self.files[name] += "more"

    def rename(self) -> None:
        old, new = self.name(), self.name()
        if old in self.files and old != new:
            self.under_way = [old, new]
            os.rename(old, new)
            self.files[new], self.modes[new] = self.files.pop(old), self.modes.pop(old)

    def unlink(self) -> None:
        name = self.name()
        if name in self.files:
            self.under_way = [name]
            os.unlink(name)
            del self.files[name], self.modes[name]

    def chmod(self) -> None:
        name, mode = self.name(), self.random.choice([0o600, 0o640, 0o755])
        if name in self.files:
            self.under_way = [name]
            os.chmod(name, mode)
            self.modes[name] = mode

    def directory(self) -> None:
        name = str(self.home / f"d{self.random.randrange(4)}")
        self.under_way = [name]
        if name in self.dirs:
            os.rmdir(name)
            self.dirs.discard(name)
        else:
            os.mkdir(name)
            self.dirs.add(name)

    def run(self) -> None:
        choices = [self.write, self.write, self.append, self.rename, self.unlink, self.chmod, self.directory]
        while True:
            self.random.choice(choices)()
            self.under_way = []
            self.steps += 1

    def report(self) -> dict[str, object]:
        return {
            "files": self.files, "modes": self.modes, "dirs": sorted(self.dirs), "under_way": self.under_way, "steps": self.steps,
        }  # fmt: skip


def main() -> None:
    tag, report, seed = sys.argv[1:]
    load = Load(tag, int(seed))
    load.prepare()
    Path(report + ".started").touch()
    try:
        load.run()
    except OSError:
        Path(report).write_text(json.dumps(load.report()))


if __name__ == "__main__":
    main()
