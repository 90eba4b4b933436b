"""Random changes of a branch and of the lower, and what both look like: for the property tests of commit, merge and diff."""

import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st

from agentfsd.core import data, directory_entries, inode_attributes, inode_stat
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.history import commit, other_lower, settling
from agentfsd.history.commit import Plan, Rule
from agentfsd.history.kept_files import keep_for_others
from agentfsd.lower import commit_writer
from tests.compare import describe
from tests.overlays import OWNER, Opened

PATHS = (b"a", b"b", b"dir", b"dir/a", b"dir/link", b"dir/sub", b"dir/sub/b", b"dir/sub/deep", b"sub", b"sub/a", b"new\xff\n")
Op = tuple[str, bytes, bytes, int]
Look = dict[bytes, tuple[object, ...]]


def build(root: Path) -> None:
    """Files, directories two deep, a symlink, a file with two names."""
    for directory in ("dir", "dir/sub", "dir/sub/deep", "sub"):
        (root / directory).mkdir(mode=0o755)
    for name, content in (("a", LINES), ("b", b"b\n"), ("dir/a", b"in dir\n"), ("dir/sub/b", b"deep\n" * 10), ("sub/a", b"")):
        (root / name).write_bytes(content)
        (root / name).chmod(0o644)
    os.link(root / "a", root / "dir/link")
    os.symlink("a", root / "dir/sub/deep/link")
    for path in [root, *root.rglob("*")]:
        os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)


LINES = b"".join(b"line %d\n" % number for number in range(20))
CONTENTS = (b"", b"short\n", LINES, LINES.replace(b"line 3", b"third"), LINES.replace(b"line 15", b"late"), b"\0\1\2" * 100)


def ops(*names: str, most: int = 12) -> st.SearchStrategy[list[Op]]:
    path = st.sampled_from(PATHS)
    return st.lists(st.tuples(st.sampled_from(names or tuple(IN_BRANCH)), path, path, st.integers(0, 7)), max_size=most)


# -- in a branch


def _place(tree: Tree, path: bytes) -> tuple[Tree, Inode, bytes]:
    parent, _, name = path.rpartition(b"/")
    return tree, tree.walk(parent), name


def _make(mode: int) -> Callable[[Tree, bytes, bytes, int], object]:
    def make(tree: Tree, path: bytes, other: bytes, number: int) -> None:
        made = directory_entries.make(*_place(tree, path), mode, OWNER, target=other if stat.S_ISLNK(mode) else b"")
        if made.is_file and number:
            data.write(made, CONTENTS[number % len(CONTENTS)], 0)
        made.release_files()

    return make


def _write(tree: Tree, path: bytes, other: bytes, number: int) -> None:
    inode = tree.walk(path)
    if inode.is_file:
        data.open_(inode, os.O_WRONLY | os.O_TRUNC if number % 2 else os.O_WRONLY)
        data.write(inode, CONTENTS[number % len(CONTENTS)], 0)
        data.release(inode)


def _rename(tree: Tree, path: bytes, other: bytes, number: int) -> None:
    one, two = _place(tree, path), _place(tree, other)
    directory_entries.rename(tree, one[1], one[2], two[1], two[2], 2 if number == 7 else 0)


def _set(tree: Tree, path: bytes, **fields: int) -> None:
    inode_attributes.setattr_(tree, tree.walk(path), NewAttributes(**fields), privileged=True)


def _setxattr(tree: Tree, path: bytes, other: bytes, number: int) -> None:
    inode = tree.walk(path)
    if inode.is_dir or inode.is_file:
        inode_attributes.setxattr(tree, inode, b"user.x", b"%d" % number)


def _chmod(tree: Tree, path: bytes, other: bytes, number: int) -> None:
    if not stat.S_ISLNK(tree.walk(path).mode):
        _set(tree, path if number else b"", mode=0o700 | number)


IN_BRANCH: dict[str, Callable[[Tree, bytes, bytes, int], object]] = {
    "create": _make(stat.S_IFREG | 0o640),
    "write": _write,
    "mkdir": _make(stat.S_IFDIR | 0o750),
    "symlink": _make(stat.S_IFLNK | 0o777),
    "fifo": _make(stat.S_IFIFO | 0o600),
    "rename": _rename,
    "move": lambda tree, path, other, number: _rename(tree, path, other, 0),
    "link": lambda tree, path, other, number: directory_entries.link(tree, tree.walk(path), *_place(tree, other)[1:]),
    "unlink": lambda tree, path, other, number: directory_entries.unlink(*_place(tree, path)),
    "rmdir": lambda tree, path, other, number: directory_entries.rmdir(*_place(tree, path)),
    "truncate": lambda tree, path, other, number: _set(tree, path, size=number * 10),
    "chmod": _chmod,
    "utimens": lambda tree, path, other, number: _set(tree, path, mtime_ns=10**18 + number * 10**9),
    "setxattr": _setxattr,
    "remove": lambda tree, path, other, number: remove(tree, path),
}  # fmt: skip


def remove(tree: Tree, path: bytes) -> None:
    """With all that is below."""
    inode = tree.walk(path)
    if inode.is_dir:
        for name in tree.names(inode):
            remove(tree, join(path, name))
        directory_entries.rmdir(*_place(tree, path))
    else:
        directory_entries.unlink(*_place(tree, path))


def change(opened: Opened, steps: list[Op], ref: str = "main") -> None:
    """Does what can be done of it."""
    for name, path, other, number in steps:
        try:
            if name == "snapshot":
                opened.overlay.snapshots.create(ref)
            elif name == "restore":
                found = opened.overlay.snapshots.all(ref)
                if found:
                    opened.overlay.branches.restore(ref, found[number % len(found)].name)
            elif name == "drop snapshot":
                found = opened.overlay.snapshots.all(ref)
                if found:
                    opened.overlay.snapshots.delete(found[number % len(found)].id)
            elif name == "reopen":
                opened.reopen()
            else:
                IN_BRANCH[name](opened.tree(ref), path, other, number)
        except OSError:
            pass


# -- in the lower


def change_lower(root: Path, steps: list[Op]) -> None:
    """What somebody does there, past the overlay."""
    for name, path, other, number in steps:
        one, two = (os.path.join(os.fsencode(root), part) for part in (path, other))
        try:
            IN_LOWER[name](one, two, number)
        except OSError:
            pass


def _write_there(path: bytes, other: bytes, number: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)
    os.write(fd, b"somebody %d\n" % number)
    os.close(fd)


def _replace_there(path: bytes, other: bytes, number: int) -> None:
    _write_there(path + b"~", other, number)
    try:
        os.rename(path + b"~", path)
    except OSError:
        os.unlink(path + b"~")
        raise


IN_LOWER: dict[str, Callable[[bytes, bytes, int], object]] = {
    "write": _write_there,
    "replace": _replace_there,
    "delete": lambda path, other, number: os.unlink(path),
    "rmdir": lambda path, other, number: os.rmdir(path),
    "mkdir": lambda path, other, number: os.mkdir(path, 0o711),
    "chmod": lambda path, other, number: os.chmod(path, 0o700 | number),
    "rename": lambda path, other, number: os.rename(path, other),
}


# -- what they look like


def of_lower(root: Path) -> Look:
    found = describe(root, times=True)
    names: dict[object, list[str]] = {}
    for path, what in found.items():
        names.setdefault(what[5] or path, []).append(path)
    return {
        os.fsencode(path.encode("utf-8").decode("unicode_escape").encode("latin-1")) if "\\x" in path else path.encode(): (
            *what[:5], sorted(names[what[5] or path]), *what[6:]
        )
        for path, what in found.items()
    }  # fmt: skip


def of_tree(tree: Tree) -> Look:
    """As of_lower() has it."""
    found: dict[bytes, tuple[Inode, tuple[object, ...]]] = {}
    names: dict[Inode, list[str]] = {}
    _collect(tree, b"", tree.root, found, names)
    return {path: (*what[:5], sorted(names[inode]), *what[5:]) for path, (inode, what) in found.items()}


def _collect(tree: Tree, path: bytes, node: Inode, found: dict, names: dict) -> None:  # type: ignore[type-arg]
    for name in tree.names(node):
        below = join(path, name)
        inode = tree.lookup(node, name)
        shown = inode_stat.attributes(inode)
        names.setdefault(inode, []).append(below.decode("utf-8", "backslashreplace"))
        xattrs = {key.decode(): value for key, value in inode_attributes.all_xattrs(tree, inode).items()}
        what = (
            oct(shown.mode), shown.uid, shown.gid, shown.rdev, shown.nlink, sorted(xattrs.items()), _content(tree, inode),
            shown.mtime_ns,
        )  # fmt: skip
        found[below] = inode, what
        if inode.is_dir:
            _collect(tree, below, inode, found, names)


def _content(tree: Tree, inode: Inode) -> str:
    if stat.S_ISLNK(inode.mode):
        return os.fsdecode(tree.readlink(inode))
    if not inode.is_file:
        return ""
    content = data.read(inode, 1 << 20, 0)
    if not inode.opens:
        inode.release_files()
    return f"{len(content)}:{hashlib.sha256(content).hexdigest()}"


def unlike(one: Look, two: Look) -> list[str]:
    differing = sorted(path for path in one.keys() | two.keys() if one.get(path) != two.get(path))
    return [f"{path!r}: {one.get(path)} / {two.get(path)}" for path in differing]


# -- a commit, as control/committing.py drives it


def plan(
    opened: Opened, tree: Tree, wanted: tuple[bytes, ...] = (), rule: Rule = "refuse", *, name: str = "main",
    as_branches: bool = False,
) -> Plan:  # fmt: skip
    steps = commit.plan(opened.overlay, tree, wanted, rule, name=name, as_branches=as_branches)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: Plan = end.value
        return found


def commit_lower(
    opened: Opened, wanted: tuple[bytes, ...] = (), rule: Rule = "refuse", *, whole: bool = True, ref: str = "main",
    as_branches: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> Plan:  # fmt: skip
    """Drifted when the lower changes *meanwhile*."""
    branch_id = opened.overlay.refs.branch(ref).id
    list(other_lower.prepare(opened.overlay, [branch_id], opened.overlay.lowers.live))
    with opened.overlay.trees.frozen(branch_id, over=opened.overlay.lowers.live) as tree:
        found = plan(opened, tree, wanted, rule, name=ref, as_branches=as_branches)
        if found.conflicts or not found.steps:
            return found
        list(keep_for_others(opened.overlay, branch_id, tree, found))
        journal = opened.base / "commit"
        journal.mkdir(exist_ok=True)
        made = commit_writer.stage(opened.lower, str(journal), found.steps, note={})
        meanwhile()
        made.apply(conditions=found.conditions)
        once = str(time.time_ns())
        list(
            settling.settle(
                opened.overlay,
                branch_id,
                tree.head,
                found.same,
                once=once,
                whole=whole and not (wanted or as_branches or found.ignored),
            )
        )
        settling.settle_root(opened.overlay, branch_id)
    return found
