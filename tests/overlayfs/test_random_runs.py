"""Random operations in runs, taken over at random moments, leave in the branch what they leave in a plain copy."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfsd.core import data, directory_entries, inode_attributes
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.tree import Inode, Tree
from tests import rounds
from tests.overlayfs import listings, operations, workspaces
from tests.overlayfs.listings import Listing
from tests.overlayfs.operations import Chooser, Operation, Pair
from tests.overlayfs.workspaces import Workspace
from tests.overlays import OWNER

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount an overlay")

_ROUNDS = rounds.rounds("random runs", 12, 1500)
_SYNTHETIC_NS = 10**18  # modification times below were set by an operation


class Rounds:
    """What happens in one workspace, step by step: the same steps do the same again."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.pair = Pair(os.fsencode(workspace.merged), os.fsencode(workspace.plain))
        self.sealed: dict[int, Listing] = {}

    def do(self, step: Operation) -> None:
        own = {
            "begin": self.begin, "look": self.look, "seal": self.seal, "look and seal": self.look_and_seal, "lose": self.lose,
            "lose quietly": lambda: self.workspace.lose_state(look=False), "reap": self.workspace.opened.reap, "end": self.end,
            "in the branch": self.in_branch,
        }.get(step[0])  # fmt: skip
        if own is not None:
            own(*step[1])  # type: ignore[operator]
        else:
            self.pair.do(step)

    def begin(self) -> None:
        self.workspace.begin()
        self.compare()

    def seal(self) -> None:
        try:
            layer = self.workspace.seal()
        except OSError as exc:
            assert exc.errno == errno.EBUSY  # nobody has looked since the state was lost
            return
        self.sealed[layer] = self.workspace.sealed(layer)

    def look_and_seal(self) -> None:
        self.look()
        self.seal()

    def lose(self) -> None:
        self.workspace.lose_state()
        self.compare()

    def end(self) -> None:
        self.pair.do(("break links", operations.linked(os.fsencode(self.workspace.plain))))
        self.pair.close()
        self.look()
        self.workspace.finish()
        self.compare_plain()

    def look(self) -> None:
        self.workspace.look()
        self.compare()
        writes = self.workspace.opened.store.writes.copy()
        self.workspace.look()
        assert self.workspace.opened.store.writes == writes, "a second look changes something"

    def compare(self) -> None:
        """Compare the branch with what the run sees, and with the plain copy."""
        workspace = self.workspace
        branch = workspace.in_branch(times=True)
        listings.check_same(listings.without_links(branch), listings.without_links(workspace.in_run(times=True)))
        self.compare_plain()
        for layer, before in self.sealed.items():
            listings.check_same(before, workspace.sealed(layer))

    def compare_plain(self) -> None:
        branch, plain = self.workspace.in_branch(), self.workspace.in_plain()
        for path, now in plain.items():
            if now.mtime_ns >= _SYNTHETIC_NS:
                plain[path] = now._replace(mtime_ns=0)
                if path in branch:
                    branch[path] = branch[path]._replace(mtime_ns=0)
        listings.check_same(branch, plain)
        problems = self.workspace.opened.overlay.fsck()
        assert problems == []

    def in_branch(self, name: str, path: bytes, *to: bytes) -> None:
        """Change the branch as the daemon does, and the plain copy."""
        tree, plain = self.workspace.tree, os.fsencode(self.workspace.plain) + b"/"
        in_tree, in_plain = _IN_BRANCH[name]
        parent, _, last = path.rpartition(b"/")
        if os.path.islink(plain + path):
            return
        try:
            in_tree(tree, tree.walk(parent), last, *to)
        except OSError:
            return
        in_plain(plain, path, *to)

    def close(self) -> None:
        self.pair.close()


def _rename(tree: Tree, directory: Inode, name: bytes, to: bytes) -> None:
    parent, _, last = to.rpartition(b"/")
    directory_entries.rename(tree, directory, name, tree.walk(parent), last)


def _write(tree: Tree, directory: Inode, name: bytes, content: bytes) -> None:
    inode = tree.find(directory, name) or directory_entries.make(tree, directory, name, 0o100644, OWNER)
    data.open_(inode, os.O_WRONLY | os.O_TRUNC)
    data.write(inode, content, 0)
    data.release(inode)


def _mkdir(tree: Tree, directory: Inode, name: bytes) -> None:
    directory_entries.make(tree, directory, name, 0o040755, OWNER)


def _chmod(tree: Tree, directory: Inode, name: bytes) -> None:
    inode_attributes.setattr_(tree, tree.lookup(directory, name), NewAttributes(mode=0o604))


_IN_BRANCH: dict[str, tuple[Callable[..., object], Callable[..., object]]] = {
    "write": (_write, lambda root, path, content: Path(os.fsdecode(root + path)).write_bytes(content)),
    "rename": (_rename, lambda root, path, to: os.rename(root + path, root + to)),
    "mkdir": (
        _mkdir,
        lambda root, path: os.mkdir(root + path),
    ),
    "unlink": (directory_entries.unlink, lambda root, path: os.unlink(root + path)),
    "chmod": (_chmod, lambda root, path: os.chmod(root + path, 0o604)),
}


def steps(rng: random.Random, rounds_: Rounds) -> None:
    """Do random steps. What fails has them in a note."""
    done: list[Operation] = []
    chooser = Chooser(rng, os.fsencode(rounds_.workspace.plain))

    def do(name: str, *arguments: object) -> None:
        done.append((name, arguments))
        rounds_.do(done[-1])

    try:
        for _ in range(rng.choice([1, 1, 2, 4])):
            for _ in range(rng.choice([0, 0, 3])):
                name, arguments = chooser.choose(list(_IN_BRANCH))
                do("in the branch", name, *(arguments[:1] if name == "chmod" else arguments))
            do("begin")
            for _ in range(rng.choice([5, 20, 40])):
                name, arguments = chooser.choose()
                do(name, *arguments)
                if rng.random() < 0.25:
                    do(rng.choice(["look", "look", "look", "seal", "look and seal", "lose", "lose quietly", "reap"]))
            do("look")
            do("end")
    except BaseException as exc:
        exc.add_note("\n".join(map(repr, done)))
        raise


@pytest.mark.parametrize("number", range(_ROUNDS))
def test_random_operations_leave_in_the_branch_what_they_leave_in_a_plain_copy(tmp_path: Path, number: int) -> None:
    with workspaces.opened(tmp_path, operations.LOWER) as workspace:
        rounds_ = Rounds(workspace)
        try:
            steps(random.Random(rounds.seed() * 100_000 + number), rounds_)
        finally:
            rounds_.close()
