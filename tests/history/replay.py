"""Merges of a git repository, made anew by branches of an overlay and compared with what git makes of them."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from agentfsd.core import directory_entries
from agentfsd.core.whole_contents import content_of
from agentfsd.history.applying import Author
from agentfsd.history.merge_records import Rules
from agentfsd.history.merging import Merged, merge_branches
from tests.overlays import OWNER, Opened

Files = dict[bytes, tuple[bytes, bytes]]  # path to (git mode, object id)


@dataclass
class Verdict:
    commit: str
    paths: int = 0
    git_conflicts: set[bytes] = field(default_factory=set)
    our_conflicts: set[bytes] = field(default_factory=set)
    wrong: list[bytes] = field(default_factory=list)  # clean merges: paths that came out otherwise

    @property
    def agrees(self) -> bool:
        if self.git_conflicts or self.our_conflicts:
            return bool(self.git_conflicts) == bool(self.our_conflicts) and self.git_conflicts == self.our_conflicts
        return not self.wrong


class Repository:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._cat = subprocess.Popen(
            ["git", "-C", str(path), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def close(self) -> None:
        assert self._cat.stdin is not None and self._cat.stdout is not None
        self._cat.stdin.close()
        self._cat.stdout.close()
        self._cat.wait()

    def git(self, *arguments: str, check: bool = True) -> bytes:
        return subprocess.run(["git", "-C", str(self.path), *arguments], check=check, capture_output=True).stdout

    def merges(self, most: int) -> list[tuple[str, str, str, str]]:
        """(commit, base, one, two) of merges of two parents that have one base and changed something on both sides."""
        found = []
        for line in (
            self.git("rev-list", "--all", "--merges", "--parents", "--min-parents=2", "--max-parents=2").decode().splitlines()
        ):
            commit, one, two = line.split()
            bases = self.git("merge-base", "--all", one, two, check=False).decode().split()
            if len(bases) == 1 and bases[0] not in (one, two):
                found.append((commit, bases[0], one, two))
            if len(found) >= most:
                break
        return found

    def blob(self, oid: bytes) -> bytes:
        assert self._cat.stdin is not None and self._cat.stdout is not None
        self._cat.stdin.write(oid + b"\n")
        self._cat.stdin.flush()
        size = int(self._cat.stdout.readline().split()[2])
        data = self._cat.stdout.read(size)
        self._cat.stdout.read(1)
        return data

    def changes(self, one: str, two: str) -> dict[bytes, tuple[tuple[bytes, bytes] | None, tuple[bytes, bytes] | None]]:
        """Path to what each side has: (mode, object id) or None. Without submodules."""
        parts = self.git("diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", one, two).split(b"\0")
        found = {}
        for fields, path in zip(parts[::2], parts[1::2], strict=False):
            old_mode, new_mode, old, new, _ = fields[1:].split(b" ")
            if b"160000" not in (old_mode, new_mode):
                found[path] = (None if set(old) == {48} else (old_mode, old), None if set(new) == {48} else (new_mode, new))
        return found


def put(repository: Repository, opened: Opened, branch: str, path: bytes, entry: tuple[bytes, bytes] | None) -> None:
    """Has a branch's path be what git has there."""
    tree = opened.tree(branch)
    node = tree.root
    *parents, name = path.split(b"/")
    for parent in parents:
        found = tree.find(node, parent)
        if found is not None and not found.is_dir:
            directory_entries.unlink(tree, node, parent)
            found = None
        if found is None and entry is None:
            return
        node = found or directory_entries.make(tree, node, parent, 0o040755, OWNER)
    found = tree.find(node, name)
    if found is not None and found.is_dir:
        return
    if found is not None:
        directory_entries.unlink(tree, node, name)
    if entry is None:
        while node.parent is not None and tree.is_empty(node):
            parent_node, name = node.parent, node.name
            directory_entries.rmdir(tree, parent_node, name)
            node = parent_node
        return
    mode, oid = entry
    data = repository.blob(oid)
    if mode == b"120000":
        directory_entries.make(tree, node, name, 0o120777, OWNER, target=data)
        return
    number = tree.store.next_id("object")
    file = opened.backstore.create(number)
    file.pwrite(data, 0)
    made = directory_entries.make(tree, node, name, int(mode, 8), OWNER, content=(number, file))
    made.release_files()


def replay(repository: Repository, place: Path, merge: tuple[str, str, str, str]) -> Verdict:
    commit, base, one, two = merge
    verdict = Verdict(commit)
    ours, theirs = repository.changes(base, one), repository.changes(base, two)
    verdict.paths = len(ours.keys() | theirs.keys())
    shutil.rmtree(place, ignore_errors=True)
    (place / "lower").mkdir(parents=True)
    for changes in (ours, theirs):
        for path, (old, _) in changes.items():
            if old is not None:
                _lay(place / "lower", path, old, repository)
    opened = Opened(place)
    try:
        for branch, changes in (("ours", ours), ("theirs", theirs)):
            opened.overlay.branches.create(branch)
            for path in sorted(changes, key=lambda path: (changes[path][1] is not None, path)):
                put(repository, opened, branch, path, changes[path][1])
        result = run(opened, ["theirs"], "ours")
        verdict.our_conflicts = {conflict.path for conflict in result.conflicts}
        _compare(repository, opened, verdict, one, two, ours.keys() | theirs.keys())
    finally:
        opened.close()
    return verdict


def run(opened: Opened, sources: list[str], target: str, rules: Rules | None = None, *, dry_run: bool = False) -> Merged:
    steps = merge_branches(opened.overlay, sources, target, rules or Rules(), Author(), dry_run=dry_run)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Merged = end.value
        return result


def _lay(lower: Path, path: bytes, entry: tuple[bytes, bytes], repository: Repository) -> None:
    mode, oid = entry
    at = Path(os.fsdecode(os.path.join(os.fsencode(lower), path)))
    if at.exists() or at.is_symlink():
        return
    at.parent.mkdir(parents=True, exist_ok=True)
    if mode == b"120000":
        at.symlink_to(os.fsdecode(repository.blob(oid)))
    else:
        at.write_bytes(repository.blob(oid))
        at.chmod(int(mode[-3:], 8))


def _compare(repository: Repository, opened: Opened, verdict: Verdict, one: str, two: str, paths: set[bytes]) -> None:
    done = subprocess.run(
        ["git", "-C", str(repository.path), "merge-tree", "--write-tree", "-z", one, two], capture_output=True, check=False
    )
    fields = done.stdout.split(b"\0")
    if done.returncode == 1:
        for line in fields[1 : fields.index(b"")]:
            verdict.git_conflicts.add(line.split(b"\t", 1)[1])
        return
    if verdict.our_conflicts:
        return
    tree = opened.tree("ours")
    wanted = {path: new for path, (_, new) in repository.changes(one, fields[0].decode()).items()}
    for path in sorted(paths | wanted.keys()):
        entry = wanted[path] if path in wanted else _at(repository, one, path)
        if _shown(opened, tree.root, path) != _wanted(repository, entry):
            verdict.wrong.append(path)


def _at(repository: Repository, commit: str, path: bytes) -> tuple[bytes, bytes] | None:
    line = subprocess.run(
        [b"git", b"-C", os.fsencode(repository.path), b"ls-tree", b"-z", commit.encode(), b"--", path],
        capture_output=True,
        check=True,
    ).stdout
    if not line:
        return None
    mode, kind, oid = line.split(b"\t", 1)[0].split(b" ")
    return (mode, oid) if kind == b"blob" else None


def _wanted(repository: Repository, entry: tuple[bytes, bytes] | None) -> tuple[bytes, bytes] | None:
    return None if entry is None else (entry[0], repository.blob(entry[1]))


def _shown(opened: Opened, root: object, path: bytes) -> tuple[bytes, bytes] | None:
    tree = opened.tree("ours")
    try:
        inode = tree.walk(path)
    except OSError:
        return None
    if inode.is_dir:
        return None
    if not inode.is_file:
        return b"120000", tree.readlink(inode)
    return (b"100755" if inode.mode & 0o100 else b"100644"), content_of(inode)
