"""SIGKILL at every step between content and metadata: after a restart each operation is wholly there or wholly absent.

A scenario runs in a process of its own, which counts the system calls that touch content and the commits, and kills itself
at the N-th; for every N there is. The states it may leave are those of an undisturbed run.
"""

import fcntl
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentfsd.control.conversation_files import StagedFile
from agentfsd.core import data, directory_entries, inode_attributes, inode_stat
from agentfsd.core.directory_entries import RENAME_EXCHANGE
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.permissions import Credentials
from agentfsd.core.tree import Tree
from agentfsd.history.merge_records import Rules
from agentfsd.metadata.transaction import Transaction
from tests.history.replay import run
from tests.overlays import OWNER, Opened
from tests.rounds import rounds

Operation = Callable[[Opened], object]
CONTENT_CALLS = ("open", "link", "unlink", "mkdir", "pwrite", "ftruncate", "utime", "copy_file_range")


def make_lower(where: Path) -> None:
    (where / "dir" / "deep").mkdir(parents=True)
    for name in ("append", "cut", "empty", "gone", "mode", "moved", "over", "swap", "dir/inner", "dir/deep/leaf"):
        (where / name).write_text(f"lower {name}\n" * 50)
    (where / "two").hardlink_to(where / "mode")


def handle(path: str, flags: int, work: Callable[[Any], object], ref: str = "main") -> Operation:
    def run(opened: Opened) -> None:
        inode = opened.tree(ref).walk(path.encode())
        data.open_(inode, flags)
        work(inode)
        data.release(inode)

    return run


def write(path: str, content: bytes, offset: int = 0, ref: str = "main") -> Operation:
    return handle(path, os.O_WRONLY, lambda inode: data.write(inode, content, offset), ref)


def truncate(path: str, size: int) -> Operation:
    return lambda opened: inode_attributes.truncate(opened.tree().walk(path.encode()), size)


def make(path: str, mode: int, **more: Any) -> Operation:
    def run(opened: Opened) -> None:
        tree = opened.tree()
        parent, _, name = path.encode().rpartition(b"/")
        made = directory_entries.make(tree, tree.walk(parent), name, mode, OWNER, **more)
        made.release_files()

    return run


def rename(old: str, new: str, flags: int = 0) -> Operation:
    def run(opened: Opened) -> None:
        tree = opened.tree()
        (old_dir, _, old_name), (new_dir, _, new_name) = (path.encode().rpartition(b"/") for path in (old, new))
        directory_entries.rename(tree, tree.walk(old_dir), old_name, tree.walk(new_dir), new_name, flags)

    return run


def setattr_(path: str, **new: int) -> Operation:
    def run(opened: Opened) -> None:
        tree = opened.tree()
        inode_attributes.setattr_(tree, tree.walk(path.encode()), NewAttributes(**new))

    return run


def link(old: str, new: str) -> Operation:
    return lambda opened: directory_entries.link(
        opened.tree(), opened.tree().walk(old.encode()), opened.tree().root, new.encode()
    )


def replace(path: str, content: bytes) -> Operation:
    """As a client over the socket overwrites a file."""

    def run(opened: Opened) -> None:
        tree = opened.tree()
        staged = StagedFile(tree, path.encode(), "overwrite", 0o644)
        staged.write(content)
        staged.replace(tree.walk(path.encode()), Credentials(OWNER.uid, OWNER.gid, frozenset({OWNER.gid})))

    return run


def rmdir(name: str) -> Operation:
    return lambda opened: directory_entries.rmdir(opened.tree(), opened.tree().root, name.encode())


def xattr(path: str) -> Operation:
    def run(opened: Opened) -> None:
        inode_attributes.setxattr(opened.tree(), opened.tree().walk(path.encode()), b"user.x", b"value")

    return run


SCENARIO: list[Operation] = [
    make("new", stat.S_IFREG | 0o644),
    write("new", b"content of new\n"),
    write("append", b"MORE", 5),
    truncate("cut", 10),
    handle("empty", os.O_WRONLY | os.O_TRUNC, lambda inode: None),
    setattr_("mode", mode=0o600),
    write("two", b"through the other name"),
    setattr_("new", mtime_ns=10**18),
    xattr("dir/inner"),
    make("made", stat.S_IFDIR | 0o755),
    make("made/inside", stat.S_IFREG | 0o600),
    write("made/inside", b"inside"),
    make("symlink", stat.S_IFLNK | 0o777, target=b"somewhere"),
    link("new", "second"),
    rename("moved", "made/moved"),
    rename("new", "over"),
    rename("swap", "dir", RENAME_EXCHANGE),
    lambda opened: opened.unlink("gone"),
    replace("append", b"another content altogether"),
    lambda opened: opened.overlay.snapshots.create("main", "one"),
    write("over", b"after the snapshot"),
    write("made/moved", b"after the snapshot, too"),
    lambda opened: opened.unlink("second"),
    lambda opened: opened.overlay.branches.create("branch", "main"),
    write("over", b"in the branch", ref="branch"),
    write("over", b"in main"),
    lambda opened: run(opened, ["branch"], "main", Rules(favor="theirs")),
    lambda opened: opened.overlay.undo_log.undo(),
    lambda opened: opened.unlink("made/moved"),
    lambda opened: opened.unlink("made/inside"),
    rmdir("made"),
    lambda opened: opened.overlay.snapshots.create("branch", "two"),
    lambda opened: opened.overlay.snapshots.delete("two"),
    lambda opened: opened.reap(),
    lambda opened: opened.overlay.branches.restore("main", "one"),
    write("over", b"after the restore"),
    lambda opened: opened.overlay.branches.discard("branch", keep=False),
    lambda opened: opened.overlay.snapshots.delete("one"),
    lambda opened: opened.reap(),
    lambda opened: opened.overlay.branches.discard("main", keep=False),
    lambda opened: opened.reap(),
]


def describe(tree: Tree, directory: Any, prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name in sorted(tree.names(directory)):
        inode, path = tree.lookup(directory, name), prefix + os.fsdecode(name)
        shown = inode_stat.attributes(inode)
        content: object = None
        if inode.is_dir:
            found |= describe(tree, inode, path + "/")
        elif inode.is_file:
            data.open_(inode, os.O_RDONLY)
            content = data.read(inode, 1 << 20, 0)
            data.release(inode)
        else:
            content = tree.readlink(inode)
        nlink = 0 if inode.is_dir else shown.nlink
        mtime = shown.mtime_ns == 10**18
        found[path] = (shown.mode, nlink, content, mtime, sorted(inode_attributes.all_xattrs(tree, inode).items()))
    return found


def state_of(opened: Opened) -> dict[str, object]:
    return {label: describe(tree, tree.root) for label, tree in opened.overlay.trees.named()}


def count_down(steps: int) -> Callable[[], None]:
    left = steps

    def step() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return step


def arm(step: Callable[[], None]) -> None:
    """From now on *step* is called before every change of content, and before and after every commit."""

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            step()
            return real(*args, **options)

        return call

    for name in CONTENT_CALLS:
        setattr(os, name, counted(getattr(os, name)))
    fcntl.ioctl = counted(fcntl.ioctl)  # type: ignore[assignment]
    commit = Transaction.__exit__

    def counted_commit(self: Transaction, *args: Any) -> None:
        step()
        commit(self, *args)
        step()

    Transaction.__exit__ = counted_commit  # type: ignore[method-assign]


def run_until(base: Path, steps: int) -> tuple[int, bool]:
    """The scenario in a process that dies after so many steps: (operations acknowledged, whether it died)."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            opened = Opened(base)
            tell = os.write
            arm(count_down(steps))
            for operation in SCENARIO:
                operation(opened)
                tell(write_end, b".")
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        acknowledged = len(pipe.read())
    _, status = os.waitpid(child, 0)
    return acknowledged, os.WIFSIGNALED(status)


def test_killed_at_any_step_an_operation_is_whole_or_absent(tmp_path: Path) -> None:
    make_lower(tmp_path / "lower")
    (tmp_path / "calm").mkdir()
    (tmp_path / "calm" / "lower").symlink_to(tmp_path / "lower")
    calm = Opened(tmp_path / "calm")
    states = [state_of(calm)]
    for operation in SCENARIO:
        operation(calm)
        states.append(state_of(calm))
    calm.close()

    for steps in range(0, 100_000, rounds("distance of killed steps", 11, 1)):
        base = tmp_path / f"killed{steps}"
        base.mkdir()
        (base / "lower").symlink_to(tmp_path / "lower")
        acknowledged, died = run_until(base, steps)
        if not died:
            assert acknowledged == len(SCENARIO)
            break
        after = Opened(base)
        assert state_of(after) in states[acknowledged : acknowledged + 2], f"killed at step {steps}, in operation {acknowledged}"
        assert after.overlay.fsck() == [], f"killed at step {steps}, in operation {acknowledged}"
        after.reap()
        assert after.overlay.fsck() == []
        entered = {row[0] for row in after.store.db.execute("SELECT id FROM object")}
        assert set(after.backstore.ids()) == entered
        assert state_of(after) in states[acknowledged : acknowledged + 2]
        after.close()
    assert steps > len(SCENARIO) * 2
