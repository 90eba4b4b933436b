"""Trees of files as dictionaries, on the disk and in an overlay, and what git makes of patches between them."""

import os
import stat
import subprocess
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path

from agentfsd.core import data, directory_entries, inode_attributes
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.tree import Inode, join
from agentfsd.history import compare, patch
from agentfsd.history.compare import PairPatch
from agentfsd.history.paths import parse
from agentfsd.types import PathChange
from tests.overlays import OWNER, Opened

# Path to content: (0o100644, bytes), (0o100755, bytes) or (0o120000, target). Directories are where their files are.
Files = dict[bytes, tuple[int, bytes]]

PLAIN, EXEC, LINK = 0o100644, 0o100755, 0o120000


def put(root: bytes, files: Files) -> None:
    for path, (mode, content) in files.items():
        place = root + b"/" + path
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if mode == LINK:
            os.symlink(content, place)
        else:
            with open(place, "wb") as file:
                file.write(content)
            os.chmod(place, mode & 0o777)


def files_of(root: bytes) -> Files:
    found: Files = {}
    for directory, directories, names in os.walk(root):
        if b".git" in directories:
            directories.remove(b".git")
        for name in names + [name for name in directories if os.path.islink(directory + b"/" + name)]:
            place = directory + b"/" + name
            mode = os.lstat(place).st_mode
            if stat.S_ISLNK(mode):
                content, git_mode = os.readlink(place), LINK
            else:
                content, git_mode = Path(os.fsdecode(place)).read_bytes(), EXEC if mode & 0o100 else PLAIN
            found[os.path.relpath(place, root)] = git_mode, content
    return found


def change(opened: Opened, old: Files, new: Files) -> None:
    """Makes the branch main, which shows *old*, show *new*."""
    tree = opened.tree()
    for path in old:
        if new.get(path, (0,))[0] & 0o170000 != old[path][0] & 0o170000:
            remove(opened, path)
    for path, (mode, content) in new.items():
        if old.get(path) == (mode, content):
            continue
        *parents, name = path.split(b"/")
        directory = tree.root
        for parent in parents:
            directory = tree.find(directory, parent) or directory_entries.make(tree, directory, parent, 0o040755, OWNER)
        if mode == LINK:
            if tree.find(directory, name) is not None:
                directory_entries.unlink(tree, directory, name)
            directory_entries.make(tree, directory, name, LINK | 0o777, OWNER, target=content)
            continue
        inode = tree.find(directory, name) or directory_entries.make(tree, directory, name, mode, OWNER)
        if path not in old or old[path][0] == LINK or old[path][1] != content:
            data.open_(inode, os.O_WRONLY | os.O_TRUNC)
            data.write(inode, content, 0)
            data.release(inode)
        inode_attributes.setattr_(tree, inode, NewAttributes(mode=mode & 0o777))


def remove(opened: Opened, path: bytes) -> None:
    """A file, and the directories above it that it leaves empty."""
    tree = opened.tree()
    parent, _, name = path.rpartition(b"/")
    directory = tree.walk(parent)
    directory_entries.unlink(tree, directory, name)
    while parent and tree.is_empty(directory):
        parent, _, name = parent.rpartition(b"/")
        directory = tree.walk(parent)
        directory_entries.rmdir(tree, directory, name)


def rename(opened: Opened, old: bytes, new: bytes) -> None:
    tree = opened.tree()
    (old_parent, _, old_name), (new_parent, _, new_name) = old.rpartition(b"/"), new.rpartition(b"/")
    directory_entries.rename(tree, tree.walk(old_parent), old_name, tree.walk(new_parent), new_name)


def run(steps: Generator[patch.Progress, None, list[compare.Pair]]) -> list[compare.Pair]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[compare.Pair] = end.value
            return found


def compared(
    opened: Opened,
    changes: list[PathChange] | None = None,
    *paths: bytes,
    stat_only: bool = False,
    context_lines: int = 3,
) -> list[PairPatch]:
    """What leads from the lower to main."""
    old, new = opened.overlay.trees.side(None), opened.overlay.trees.side("main")
    if changes is None:
        changes = opened.overlay.comparison.diff(None, "main")
    with tempfile.TemporaryFile() as spool:
        steps = patch.read(old, new, changes, parse(paths), spool.fileno(), stat_only=stat_only)
        outcome = compare.compare(compare.Job(run(steps), stat_only, context_lines), spool.fileno())
    assert outcome.too_long_at is None
    return outcome.patches


def text_of(found: list[PairPatch]) -> bytes:
    return b"".join(file.patch for file in found)


def git(directory: bytes, *arguments: str, text: bytes = b"") -> bytes:
    environment = {
        "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": "/",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a",
    }  # fmt: skip
    done = subprocess.run(["git", *arguments], cwd=directory, input=text, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "backslashreplace")
    return done.stdout


def count_opens(opened: Opened) -> Counter[bytes]:
    """How often which file of the lower is opened from now on."""
    counted: Counter[bytes] = Counter()
    plain = opened.lower.open

    def counting(path: bytes) -> int:
        counted[path] += 1
        return plain(path)

    opened.lower.open = counting  # type: ignore[method-assign]
    return counted


def shown(opened: Opened) -> Files:
    """What main shows."""
    tree, found = opened.tree(), Files()
    todo = [(b"", tree.root)]
    while todo:
        path, inode = todo.pop()
        if inode.is_dir:
            todo += [(join(path, name), tree.lookup(inode, name)) for name in tree.names(inode)]
        elif inode.is_file:
            found[path] = EXEC if inode.mode & 0o100 else PLAIN, content_of(inode)
        else:
            found[path] = LINK, tree.readlink(inode)
    return found


def content_of(inode: Inode) -> bytes:
    data.open_(inode, os.O_RDONLY)
    try:
        return data.read(inode, 1 << 20, 0)
    finally:
        data.release(inode)
