"""The overlay against a plain model, over a full lower, with snapshots, branches, restores and restarts at random."""

import errno
import os
import shutil
import stat
import tempfile
from pathlib import Path as FilePath

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.core import data, directory_entries, inode_attributes, inode_stat
from agentfsd.core.directory_entries import Owner
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.lower.host_lower import HostLower
from agentfsd.metadata.row_store import Store
from tests.core.model import Model, Node, Path
from tests.rounds import rounds

OWNER = Owner(os.geteuid(), os.getegid())
# Few paths, most of them in the lower, so that operations meet each other.
PATHS = st.sampled_from(
    [tuple(path.split(b"/")) for path in (
        b"a", b"dir", b"dir/a", b"dir/link", b"dir/sub", b"dir/sub/b", b"sub", b"sub/a", b"link", b"new\xff\n", b"sub/sub/b",
    )]
)  # fmt: skip
CONTENTS = st.binary(max_size=40)
BRANCHES = st.sampled_from(["main", "main", "main", "one", "two"])
PICKS = st.integers(0, 30)  # which of the paths that exist


def build_lower(root: FilePath) -> Model:
    """Files, directories two deep, a symlink and a file with two names; the same in the model."""
    model = Model()
    for directory in ((b"dir",), (b"dir", b"sub"), (b"sub",)):
        FilePath(os.fsdecode(os.path.join(os.fsencode(root), *directory))).mkdir(mode=0o755)
        model.make(directory, Node(stat.S_IFDIR, 0o755))
    for path, content in (((b"a",), b"lower a"), ((b"dir", b"a"), b"in dir"), ((b"dir", b"sub", b"b"), b"deep" * 10)):
        FilePath(os.fsdecode(os.path.join(os.fsencode(root), *path))).write_bytes(content)
        os.chmod(os.path.join(os.fsencode(root), *path), 0o644)
        model.make(path, Node(stat.S_IFREG, 0o644, content))
    os.link(root / "a", root / "dir" / "link")
    model.link((b"a",), (b"dir", b"link"))
    os.symlink("a", root / "link")
    model.make((b"link",), Node(stat.S_IFLNK, 0o777, target=b"a"))
    return model


class OverlayMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.base = FilePath(tempfile.mkdtemp(prefix="agentfsd-model-"))
        (self.base / "lower").mkdir()
        (self.base / "objects").mkdir()
        self.bare = build_lower(self.base / "lower")
        self.models = {"main": self.bare.copy()}
        self.snapshots: dict[str, Model] = {}
        self.open_files: list[tuple[Inode, Node]] = []
        self.overlay = self.open_overlay()

    def open_overlay(self) -> Overlay:
        self.lower = HostLower(str(self.base / "lower"))
        self.backstore = HostBackstore(str(self.base / "objects"))
        return Overlay(Store.open(str(self.base / "meta.db"), "lower"), self.lower, self.backstore)

    def close_overlay(self) -> None:
        self.open_files.clear()
        self.overlay.store.close()
        self.backstore.close()
        self.lower.close()

    def teardown(self) -> None:
        while self.overlay.layers.reap():
            pass
        assert self.overlay.fsck() == []
        self.close_overlay()
        shutil.rmtree(self.base)

    @initialize()
    def branch_out(self) -> None:
        for name in ("one", "two"):
            self.overlay.branches.create(name)
            self.models[name] = self.bare.copy()

    # -- helpers

    def tree(self, branch: str) -> Tree:
        return self.overlay.trees.of(branch)

    def parent(self, branch: str, path: Path) -> tuple[Tree, Inode]:
        tree = self.tree(branch)
        return tree, tree.walk(b"/".join(path[:-1]))

    def expect(self, expected: int, operation, *args, **kwargs) -> None:  # type: ignore[no-untyped-def]
        try:
            operation(*args, **kwargs)
            found = 0
        except OSError as exc:
            found = exc.errno or -1
        if expected in (errno.ENOTDIR, errno.ENOENT) and found in (errno.ENOTDIR, errno.ENOENT):
            return  # which of the two depends on where along the path it is noticed
        assert found == expected, f"expected {errno.errorcode.get(expected)}, got {errno.errorcode.get(found)}"

    # -- rules

    @rule(branch=BRANCHES, path=PATHS, content=CONTENTS)
    def create(self, branch: str, path: Path, content: bytes) -> None:
        def run() -> None:
            tree, parent = self.parent(branch, path)
            made = directory_entries.make(tree, parent, path[-1], stat.S_IFREG | 0o644, OWNER)
            data.open_(made, os.O_RDWR)
            data.write(made, content, 0)
            data.release(made)

        self.expect(self.models[branch].make(path, Node(stat.S_IFREG, 0o644, content)), run)

    @rule(branch=BRANCHES, path=PATHS)
    def mkdir(self, branch: str, path: Path) -> None:
        def run() -> None:
            tree, parent = self.parent(branch, path)
            directory_entries.make(tree, parent, path[-1], stat.S_IFDIR | 0o755, OWNER)

        self.expect(self.models[branch].make(path, Node(stat.S_IFDIR, 0o755)), run)

    @rule(branch=BRANCHES, path=PATHS, leads_to=CONTENTS.filter(lambda b: b"\0" not in b and b))
    def symlink(self, branch: str, path: Path, leads_to: bytes) -> None:
        def run() -> None:
            tree, parent = self.parent(branch, path)
            directory_entries.make(tree, parent, path[-1], stat.S_IFLNK | 0o777, OWNER, target=leads_to)

        self.expect(self.models[branch].make(path, Node(stat.S_IFLNK, 0o777, target=leads_to)), run)

    @rule(branch=BRANCHES, path=PATHS)
    def mkfifo(self, branch: str, path: Path) -> None:
        def run() -> None:
            tree, parent = self.parent(branch, path)
            directory_entries.make(tree, parent, path[-1], stat.S_IFIFO | 0o600, OWNER)

        self.expect(self.models[branch].make(path, Node(stat.S_IFIFO, 0o600)), run)

    def pick(self, branch: str, number: int, kinds: tuple[int, ...]) -> tuple[Path, Node] | None:
        """One of the paths that exist and are of these kinds."""
        found = [pair for pair in self._walk(branch) if pair[1].kind in kinds]
        return found[number % len(found)] if found else None

    def _walk(self, branch: str) -> list[tuple[Path, Node]]:
        pairs: list[tuple[Path, Node]] = [((), self.models[branch].root)]
        for path, node in pairs:
            pairs.extend(((*path, name), child) for name, child in sorted(node.children.items()))
        return pairs[1:]

    @rule(branch=BRANCHES, number=PICKS, content=CONTENTS, offset=st.integers(0, 60))
    def write(self, branch: str, number: int, content: bytes, offset: int) -> None:
        picked = self.pick(branch, number, (stat.S_IFREG,))
        if picked is None or not content:
            return
        path, node = picked
        inode = self.tree(branch).walk(b"/".join(path))
        data.open_(inode, os.O_WRONLY)
        assert data.write(inode, content, offset) == len(content)
        data.release(inode)
        filled = node.data.ljust(offset, b"\0")
        node.data = filled[:offset] + content + filled[offset + len(content) :]

    @rule(branch=BRANCHES, number=PICKS, size=st.integers(0, 60), on_open=st.booleans())
    def truncate(self, branch: str, number: int, size: int, on_open: bool) -> None:
        picked = self.pick(branch, number, (stat.S_IFREG,))
        if picked is None:
            return
        path, node = picked
        tree = self.tree(branch)
        inode = tree.walk(b"/".join(path))
        if on_open:
            data.open_(inode, os.O_WRONLY | os.O_TRUNC)
            data.release(inode)
            node.data = b""
        else:
            inode_attributes.setattr_(tree, inode, NewAttributes(size=size), privileged=True)
            node.data = node.data[:size].ljust(size, b"\0")

    @rule(branch=BRANCHES, number=PICKS)
    def hold_open(self, branch: str, number: int) -> None:
        """A reader that stays: it must see every later write, also after the name has gone."""
        picked = self.pick(branch, number, (stat.S_IFREG,))
        if picked is None or len(self.open_files) > 5:
            return
        path, node = picked
        inode = self.tree(branch).walk(b"/".join(path))
        data.open_(inode, os.O_RDONLY)
        self.open_files.append((inode, node))

    @rule(branch=BRANCHES, old=PATHS, new=PATHS)
    def link(self, branch: str, old: Path, new: Path) -> None:
        def run() -> None:
            tree, parent = self.parent(branch, new)
            directory_entries.link(tree, tree.walk(b"/".join(old)), parent, new[-1])

        self.expect(self.models[branch].link(old, new), run)

    @rule(branch=BRANCHES, path=PATHS)
    def unlink(self, branch: str, path: Path) -> None:
        def run() -> None:
            tree, parent = self.parent(branch, path)
            directory_entries.unlink(tree, parent, path[-1])

        self.expect(self.models[branch].unlink(path), run)

    @rule(branch=BRANCHES, path=PATHS)
    def rmdir(self, branch: str, path: Path) -> None:
        def run() -> None:
            tree, parent = self.parent(branch, path)
            directory_entries.rmdir(tree, parent, path[-1])

        self.expect(self.models[branch].rmdir(path), run)

    @rule(branch=BRANCHES, old=PATHS, new=PATHS, flags=st.sampled_from([0, 0, 0, 1, 2]))
    def rename(self, branch: str, old: Path, new: Path, flags: int) -> None:
        def run() -> None:
            tree, old_parent = self.parent(branch, old)
            _, new_parent = self.parent(branch, new)
            directory_entries.rename(tree, old_parent, old[-1], new_parent, new[-1], flags)

        model = self.models[branch]
        if new == old[: len(new)] and len(new) < len(old) and flags != 2:
            return  # onto an ancestor: EISDIR, ENOTEMPTY or ENOTDIR, as the order of checks has it
        self.expect(model.rename(old, new, flags), run)

    @rule(branch=BRANCHES, number=PICKS, mode=st.sampled_from([0o600, 0o755, 0o4711]), mtime=st.integers(0, 2**40))
    def chmod_and_touch(self, branch: str, number: int, mode: int, mtime: int) -> None:
        picked = self.pick(branch, number, (stat.S_IFREG, stat.S_IFDIR, stat.S_IFIFO))
        if picked is None:
            return
        path, node = picked
        tree = self.tree(branch)
        inode = tree.walk(b"/".join(path))
        found = inode_attributes.setattr_(tree, inode, NewAttributes(mode=mode, mtime_ns=mtime * 1000), privileged=True)
        assert found.mtime_ns == mtime * 1000
        node.mode = mode

    @rule(branch=BRANCHES, number=PICKS, name=st.sampled_from([b"user.x", b"user.y"]), value=CONTENTS)
    def setxattr(self, branch: str, number: int, name: bytes, value: bytes) -> None:
        picked = self.pick(branch, number, (stat.S_IFREG, stat.S_IFDIR))
        if picked is None:
            return
        path, node = picked
        tree = self.tree(branch)
        inode_attributes.setxattr(tree, tree.walk(b"/".join(path)), name, value)
        node.xattrs[name] = value

    @rule(branch=BRANCHES, number=PICKS, name=st.sampled_from([b"user.x", b"user.y"]))
    def removexattr(self, branch: str, number: int, name: bytes) -> None:
        picked = self.pick(branch, number, (stat.S_IFREG, stat.S_IFDIR))
        if picked is None:
            return
        path, node = picked
        tree = self.tree(branch)
        expected = 0 if node.xattrs.pop(name, None) is not None else errno.ENODATA
        self.expect(expected, inode_attributes.removexattr, tree, tree.walk(b"/".join(path)), name)

    @rule(branch=BRANCHES)
    def snapshot(self, branch: str) -> None:
        if len(self.snapshots) < 4:
            made = self.overlay.snapshots.create(branch)
            self.snapshots[made.name] = self.models[branch].copy()

    @rule(number=st.integers(0, 3))
    def delete_snapshot(self, number: int) -> None:
        if number < len(self.snapshots):
            name = sorted(self.snapshots)[number]
            self.overlay.snapshots.delete(name)
            del self.snapshots[name]

    @rule(branch=BRANCHES, number=st.integers(0, 3))
    def restore(self, branch: str, number: int) -> None:
        if number < len(self.snapshots):
            name = sorted(self.snapshots)[number]
            self.drop_open_files()
            self.overlay.branches.restore(branch, name)
            self.models[branch] = self.snapshots[name].copy()

    @rule(branch=st.sampled_from(["one", "two"]), source=BRANCHES)
    def rebranch(self, branch: str, source: str) -> None:
        if source == branch:
            return
        self.drop_open_files()
        self.overlay.branches.discard(branch)
        self.overlay.branches.create(branch, source)
        self.models[branch] = self.models[source].copy()

    @rule()
    def restart(self) -> None:
        self.drop_open_files()
        self.close_overlay()
        self.overlay = self.open_overlay()

    @rule()
    def reap(self) -> None:
        self.overlay.layers.reap(3)

    def drop_open_files(self) -> None:
        for inode, _ in self.open_files:
            data.release(inode)
        self.open_files.clear()

    # -- what must always hold

    @invariant()
    def trees_equal_models(self) -> None:
        for ref, model in [*self.models.items(), *self.snapshots.items()]:
            tree = self.tree(ref)
            self.compare(tree, tree.root, model.root, model.links())

    def compare(self, tree: Tree, inode: Inode, node: Node, links: dict[int, int]) -> None:
        assert sorted(tree.names(inode)) == sorted(node.children)
        for name, child in node.children.items():
            found = tree.lookup(inode, name)
            shown = inode_stat.attributes(found)
            assert stat.S_IFMT(shown.mode) == child.kind
            assert stat.S_IMODE(shown.mode) == child.mode, name
            assert (
                dict((key, inode_attributes.getxattr(tree, found, key)) for key in inode_attributes.listxattr(tree, found))
                == child.xattrs
            )
            if child.is_dir:
                self.compare(tree, found, child, links)
                continue
            assert shown.nlink == links[id(child)], name
            if child.kind == stat.S_IFREG:
                assert shown.size == len(child.data)
                assert data.read(found, 100, 0) == child.data
                if not found.opens:
                    found.release_files()
            elif child.kind == stat.S_IFLNK:
                assert tree.readlink(found) == child.target

    @invariant()
    def open_files_follow(self) -> None:
        for inode, node in self.open_files:
            assert data.read(inode, 100, 0) == node.data


TestOverlay = OverlayMachine.TestCase
TestOverlay.settings = settings(
    max_examples=rounds("random overlays", 40, 1500),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
