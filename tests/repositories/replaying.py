"""Replays the merges of a repository through two branches of an overlay, with `git merge` beside it, and counts what differs.

``python -m tests.repositories.replaying GITDIR [MOST]`` replays the newest MOST merges (all by default) and prints the figures.
"""

import os
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from agentfsd.core import directory_entries
from agentfsd.core.tree import Tree
from agentfsd.repositories import checkouts, reading
from agentfsd.repositories.commits import Entry
from tests.overlays import OWNER, Opened
from tests.repositories.agents import Agents, git, put, remove

_RENEW_EVERY = 100  # merges after which an overlay is thrown away


@dataclass
class Figures:
    """``differing``: (merge, why)."""

    merges: int = 0
    identical: int = 0
    conflicts: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    differing: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        skipped = ", ".join(f"{count} {why}" for why, count in sorted(self.skipped.items())) or "none"
        lines = [
            f"{self.merges} merges: {self.identical} identical ({self.conflicts} of them conflicts), {len(self.differing)} differ"
        ]
        return "\n".join([*lines, f"skipped: {skipped}", *(f"{merge}: {why}" for merge, why in self.differing)])


class Replay:
    """Copies of one repository below *base*: the lower, places where files of each side come from, and git's own merges."""

    def __init__(self, repository: Path, base: Path) -> None:
        self._base = base
        self._lower, self._side, self._beside = base / "lower", base / "side", base / "beside"
        git(base, "clone", "-q", "--no-checkout", str(repository), str(self._lower))
        for place in (self._side, self._beside):
            git(base, "clone", "-q", "--no-checkout", "--shared", str(self._lower), str(place))
        self._agents = Agents(base)
        self._number = 0

    def close(self) -> None:
        self._agents.close()

    def merges(self, most: int) -> list[list[str]]:
        """[merge, parent, parent, ...] of the newest ones."""
        said = git(self._lower, "log", "--all", "--merges", f"--max-count={most}", "--format=%H %P")
        return [line.split() for line in said.splitlines()]

    def replay(self, merge: list[str], figures: Figures) -> None:
        """One merge of a history."""
        commit, *parents = merge
        bases = git(self._lower, "merge-base", *parents, check=False).split()
        if len(parents) != 2 or not bases:
            figures.skipped["without a common ancestor" if len(parents) == 2 else "of more than two"] += 1
            return
        figures.merges += 1
        _check_out(self._lower, bases[0])
        self._number += 1
        if self._number % _RENEW_EVERY == 0:
            self._renew()
        opened = self._agents.opened
        opened.lower.forget()
        names = [f"{side}-{self._number}" for side in ("one", "two")]
        self._agents.branch(*names)
        for name, parent in zip(names, parents, strict=True):
            self._work(opened, name, bases[0], parent)
        expected = self._expect(*parents)
        found = self._agents.merge(names[1], into=names[0])
        if expected or found.conflicts:
            paths = {conflict.path.decode("utf-8", "surrogateescape") for conflict in found.conflicts}
            if paths == expected:
                figures.conflicts += 1
                figures.identical += 1
            else:
                figures.differing.append((commit, f"conflicts in {sorted(paths)} here, in {sorted(expected)} with git"))
        elif why := self._difference(opened, names[0], parents):
            figures.differing.append((commit, why))
        else:
            figures.identical += 1
        for name in names:
            opened.overlay.branches.discard(name, keep=False)

    def _renew(self) -> None:
        self._agents.close()
        for place in {*self._base.iterdir()} - {self._lower, self._side, self._beside}:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        self._agents = Agents(self._base)

    def _work(self, opened: Opened, name: str, base: str, tip: str) -> None:
        """Has a branch be where somebody has *tip* checked out."""
        _check_out(self._side, tip)
        tree = opened.tree(name)
        fields = git(self._side, "diff-tree", "-r", "-z", "--name-status", "--no-renames", base, tip).split("\0")
        changed = dict(zip(fields[1::2], fields[::2], strict=False))
        for path in sorted(changed, reverse=True):
            if changed[path] != "A":
                _drop(tree, path.encode("utf-8", "surrogateescape"))
        for path in sorted(changed):
            if changed[path] != "D":
                _bring(opened, tree, path.encode("utf-8", "surrogateescape"), self._side)
        _bring(opened, tree, b".git/index", self._side)
        opened.write(".git/refs/heads/main", f"{tip}\n".encode(), name)

    def _expect(self, ours: str, theirs: str) -> set[str]:
        """Has git merge beside it; the paths that are unmerged then."""
        _check_out(self._beside, ours)
        git(self._beside, "merge", "-q", "--no-edit", theirs, check=False)
        unmerged = {line.partition("\t")[2] for line in git(self._beside, "ls-files", "-u", "-z").split("\0") if line}
        if unmerged:
            git(self._beside, "reset", "-q", "--hard")
            git(self._beside, "clean", "-q", "-f", "-d", "-x")
        return unmerged

    def _difference(self, opened: Opened, name: str, parents: list[str]) -> str:
        """What is not as git has it; "" for nothing."""
        head = opened.read(".git/refs/heads/main", name).strip().decode()
        tree = git(self._beside, "rev-parse", "HEAD^{tree}")
        if head in parents:
            if head != git(self._beside, "rev-parse", "HEAD"):
                return f"main is {head}"
        else:
            data = zlib.decompress(opened.read(f".git/objects/{head[:2]}/{head[2:]}", name))
            lines = data.partition(b"\0")[2].decode("utf-8", "replace").splitlines()
            if [line[7:] for line in lines if line.startswith("parent ")] != parents:
                return "other parents"
            if lines[0] != f"tree {tree}":
                return f"{lines[0]}, and {tree} with git"
        staged = git(self._beside, "ls-tree", "-r", "-z", tree).split("\0")
        entries = {line.partition("\t")[2]: line.split() for line in staged if line}
        (self._beside / ".git" / "index").write_bytes(reading.text(opened.tree(name), b".git/index", reading.REFS_BYTES) or b"")
        found = git(self._beside, "ls-files", "-s", "-z")
        indexed = {line.partition("\t")[2]: line.split() for line in found.split("\0") if line}
        if {path: line[1] for path, line in indexed.items()} != {path: line[2] for path, line in entries.items()}:
            return "the index differs"
        shown = opened.tree(name)
        for path, (mode, _, oid, *_) in entries.items():
            if mode != "160000" and not checkouts.is_as(
                reading.at(shown, path.encode("utf-8", "surrogateescape")), Entry(mode.encode(), oid.encode())
            ):
                return f"the working file {path} differs"
        return ""


def _check_out(place: Path, commit: str) -> None:
    git(place, "checkout", "-q", "-f", "-B", "main", commit)


def _drop(tree: Tree, path: bytes) -> None:
    """Removes a file, and the directories that are empty then, as git does."""
    remove(tree, path)
    while (path := path.rpartition(b"/")[0]) and tree.is_empty(tree.walk(path)):
        remove(tree, path)


def _bring(opened: Opened, tree: Tree, path: bytes, place: Path) -> None:
    """Has a path be what it is in another place."""
    parts = path.split(b"/")
    for depth in range(1, len(parts)):
        above = b"/".join(parts[:depth])
        if reading.at(tree, above) is None:
            directory_entries.make(tree, tree.walk(above.rpartition(b"/")[0]), parts[depth - 1], 0o40755, OWNER)
    source = os.path.join(os.fsencode(place), path)
    if os.path.lexists(source):
        put(opened, tree, path, source)


def main() -> None:
    """Replay the merges of the repository at argv[1]."""
    repository, most = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 30
    figures, begun = Figures(), time.monotonic()
    with tempfile.TemporaryDirectory() as base:
        replay = Replay(repository, Path(base))
        try:
            for number, merge in enumerate(replay.merges(most)):
                replay.replay(merge, figures)
                if number % 100 == 99:
                    print(f"{number + 1} after {time.monotonic() - begun:.0f} s: {figures}", file=sys.stderr, flush=True)
        finally:
            replay.close()
    print(f"{repository}: {figures}")


if __name__ == "__main__":
    main()
