"""Branches of an overlay in which real git works: each on a plain directory that is then brought into its branch."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentfsd.core import copyup, directory_entries, inode_stat
from agentfsd.core.tree import Tree, join
from agentfsd.core.whole_contents import content_of
from agentfsd.history.applying import Author
from agentfsd.history.merge_records import Rules
from agentfsd.history.merging import Merged, merge_branches
from tests.overlays import OWNER, Opened

ENVIRONMENT = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@x", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@x",
    "GIT_EDITOR": "true", "GIT_ALLOW_PROTOCOL": "file", "LC_ALL": "C",
}  # fmt: skip


def git(place: Path, *arguments: str, check: bool = True, data: bytes | None = None) -> str:
    """What git says there."""
    done = subprocess.run(
        ["git", "-C", str(place), *arguments], env=ENVIRONMENT, capture_output=True, check=False, input=data
    )  # fmt: skip
    assert not check or done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def start(place: Path, files: dict[str, str], *options: str) -> None:
    """A repository with one commit."""
    place.mkdir(exist_ok=True)
    git(place, "init", "-q", "-b", "main", *options)
    commit(place, files, "start")


def commit(place: Path, files: dict[str, str | None], message: str) -> str:
    """Writes files (None: removes one), and commits all; the commit."""
    for name, text in files.items():
        path = place / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-q", "--allow-empty", "-m", message)
    return git(place, "rev-parse", "HEAD")


class Agents:
    """An overlay over ``lower``. ``work(NAME)`` is a copy of what a branch shows; ``keep(NAME)`` brings it back."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.opened = Opened(base)
        self.lower = base / "lower"
        self._seen: dict[str, dict[bytes, tuple[int, int, int]]] = {}

    def close(self) -> None:
        self.opened.close()

    def branch(self, *names: str) -> None:
        for name in names:
            self.opened.overlay.branches.create(name)

    def work(self, name: str) -> Path:
        place = self.base / "work" / name
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        lay_out(self.opened.tree(name), b"", os.fsencode(place))
        self._seen[name] = _look(place)
        return place

    def keep(self, name: str) -> None:
        place = self.base / "work" / name
        now, before = _look(place), self._seen[name]
        tree = self.opened.tree(name)
        for path in sorted(before.keys() - now.keys(), reverse=True):
            remove(tree, path)
        for path in sorted(now):
            if before.get(path) != now[path]:
                put(self.opened, tree, path, os.path.join(os.fsencode(place), path))
        self._seen[name] = now

    def commit(self, name: str, files: dict[str, str | None], message: str) -> str:
        """An agent edits and commits."""
        place = self.work(name)
        made = commit(place, files, message)
        self.keep(name)
        return made

    def merge(self, *sources: str, into: str, rules: Rules | None = None, leave_conflicting: bool = False) -> Merged:
        steps = merge_branches(
            self.opened.overlay, sources, into, rules or Rules(), Author(), leave_conflicting=leave_conflicting
        )  # fmt: skip
        try:
            while True:
                next(steps)
        except StopIteration as end:
            result: Merged = end.value
            return result


@contextmanager
def two_agents(base: Path, *branches: str) -> Iterator[Agents]:
    """Two branches, one and two, over a repository with two files and *branches* of git beside main."""
    made = Agents(base)
    start(made.lower, {"a": "a\n", "b": "b\n"})
    for name in branches:
        git(made.lower, "branch", name)
    made.branch("one", "two")
    yield made
    made.close()


def lay_out(tree: Tree, path: bytes, place: bytes) -> None:
    """Writes what a tree shows into a directory."""
    node = tree.walk(path)
    for name in tree.names(node):
        below, there = tree.lookup(node, name), os.path.join(place, name)
        if below.is_dir:
            os.mkdir(there)
            lay_out(tree, join(path, name), there)
        elif below.is_file:
            Path(os.fsdecode(there)).write_bytes(content_of(below))
            os.chmod(there, stat.S_IMODE(below.mode))
            os.utime(there, ns=(inode_stat.attributes(below).mtime_ns,) * 2)
        else:
            os.symlink(tree.readlink(below), there)


def _look(place: Path) -> dict[bytes, tuple[int, int, int]]:
    found = {}
    for directory, names, files in os.walk(os.fsencode(place)):
        for name in names + files:
            info = os.lstat(os.path.join(directory, name))
            path = os.path.relpath(os.path.join(directory, name), os.fsencode(place))
            moved = (0, 0) if stat.S_ISDIR(info.st_mode) else (info.st_mtime_ns, info.st_ino)
            found[path] = (info.st_mode, *moved)
    return found


def remove(tree: Tree, path: bytes) -> None:
    parent, _, name = path.rpartition(b"/")
    directory = tree.walk(parent)
    if tree.lookup(directory, name).is_dir:
        directory_entries.rmdir(tree, directory, name)
    else:
        directory_entries.unlink(tree, directory, name)


def put(opened: Opened, tree: Tree, path: bytes, source: bytes) -> None:
    parent, _, name = path.rpartition(b"/")
    directory, info = tree.walk(parent), os.lstat(source)
    found = tree.find(directory, name)
    if found is not None and (not found.is_dir or not stat.S_ISDIR(info.st_mode)):
        if found.is_dir:
            directory_entries.rmdir(tree, directory, name)
        elif not (found.is_file and stat.S_ISREG(info.st_mode)):
            directory_entries.unlink(tree, directory, name)
        found = tree.find(directory, name)
    if stat.S_ISDIR(info.st_mode):
        if found is None:
            directory_entries.make(tree, directory, name, info.st_mode, OWNER)
        return
    if stat.S_ISLNK(info.st_mode):
        directory_entries.make(tree, directory, name, info.st_mode, OWNER, target=os.readlink(source))
        return
    number = tree.store.next_id("object")
    file = opened.backstore.create(number)
    file.pwrite(Path(os.fsdecode(source)).read_bytes(), 0)
    if found is not None and stat.S_IMODE(found.mode) == stat.S_IMODE(info.st_mode):
        copyup.replace_content(found, number, file)
        made = found
    else:
        if found is not None:
            directory_entries.unlink(tree, directory, name)
        made = directory_entries.make(tree, directory, name, info.st_mode, OWNER, content=(number, file))
    made.release_files()
