"""The same operations on every backend give the same results and the same refusals: memory is the model of the host."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.file_results import FileEntry, FileStat
from agentfs_files.filesystem.file_streams import BinaryWriter
from agentfs_files.filesystem.filesystem_errors import PathEscapeError
from agentfs_files.filesystem.records import FilesystemSnapshot
from tests.rounds import rounds

NAMES = st.sampled_from(["a", "b", "c.py", "ü", ".h", "A", "a b", "[x]", "*", "\n"])
HARD = st.sampled_from(["..", ".", "", "\0", "\ud800", "\udcff", "n" * 81, "ü" * 80, "😀" * 79, "n" * 300, "d/" * 17, "-", "\\"])
RELATIVE = st.lists(st.one_of(*[NAMES] * 6, HARD), max_size=3).map(lambda names: "/".join(names).lstrip("/"))
PATHS = RELATIVE | RELATIVE.filter(lambda path: ".." not in path).map("/w/".__add__)  # above /w they differ: memory's root is /
CONTENTS = st.sampled_from([b"", b"x", b"one\ntwo\n", b"needle\r\nlast", "ü漢😀".encode(), b"\xff\0", bytes(range(256)) * 300])
MODES = st.sampled_from(["create", "overwrite", "append"])
PATTERNS = st.sampled_from(
    [
        "*",
        "**",
        "**/*",
        "a/**",
        "**/a",
        "*.py",
        "?",
        "[ab]",
        "[!a]*",
        "{a,b}/*",
        "./a",
        "a/",
        "[",
        "**/[[]x]",
        "\\*",
    ]
)
EXPRESSIONS = st.sampled_from(["needle", "^$", "x|o", "(?i)ONE", "t$", ".", "[", r"\w+", "ü."])


def outcome(act: Callable[[BaseFilesystem], object], fs: BaseFilesystem) -> object:
    """What it returned, without what may differ; or the kind of refusal."""
    try:
        found = act(fs)
    except PathEscapeError:
        return PathEscapeError
    except UnicodeError as exc:
        return type(exc)
    except (OSError, ValueError) as exc:
        return type(exc), getattr(exc, "filename", None)
    return plain(found)


def directories(fs: BaseFilesystem) -> object:
    """All of them, empty ones too."""
    found: list[str] = []
    pending = ["."]
    while pending:
        below = [entry.path for entry in fs.list(pending.pop()) if entry.is_directory]
        found += below
        pending += below
    return sorted(found)


def plain(found: object) -> object:
    if isinstance(found, FileStat):
        return found.path, found.is_file, found.is_directory, found.size_bytes
    if isinstance(found, list | tuple):
        return [plain(one) for one in found]
    if isinstance(found, FileEntry):
        return found.path, found.kind, found.size_bytes
    return found


class SameEverywhere(RuleBasedStateMachine):
    memory: InMemoryFilesystem
    host: HostFilesystem

    @initialize()
    def begin(self) -> None:
        self.place = Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.memory, self.host = InMemoryFilesystem(mount_point="/w"), HostFilesystem(self.place, mount_point="/w")
        self.snapshots: list[tuple[FilesystemSnapshot, FilesystemSnapshot]] = []
        self.writers: list[tuple[BinaryWriter, BinaryWriter]] = []

    def teardown(self) -> None:
        self.forget_writers()
        self.host.cleanup()
        self.host.close()
        shutil.rmtree(self.place)

    def same(self, act: Callable[[BaseFilesystem], object]) -> None:
        assert outcome(act, self.host) == outcome(act, self.memory)

    @rule(path=PATHS, content=CONTENTS, mode=MODES, parents=st.booleans())
    def write(self, path: str, content: bytes, mode: str, parents: bool) -> None:
        self.same(lambda fs: fs.write_bytes(path, content, mode=mode, create_parents=parents))  # type: ignore[arg-type]

    @rule(path=PATHS, mode=MODES)
    def begin_writing(self, path: str, mode: str) -> None:
        opened: list[BinaryWriter] = []

        def act(fs: BaseFilesystem) -> object:
            opened.append(fs.open_write(path, mode=mode))  # type: ignore[arg-type]
            return opened[-1].write(b"slowly\n")

        self.same(act)
        if opened:
            self.writers.append((opened[0], opened[1]))

    @rule(finish=st.booleans(), content=CONTENTS)
    def end_writing(self, finish: bool, content: bytes) -> None:
        if not self.writers:
            return
        writers = dict(zip((self.host, self.memory), self.writers.pop(), strict=True))

        def act(fs: BaseFilesystem) -> object:
            writers[fs].write(content)
            return writers[fs].close() if finish else writers[fs].discard()

        self.same(act)

    def forget_writers(self) -> None:
        """Before a directory goes or moves: a host's writer stays with it, memory's with its path."""
        for writers in self.writers:
            for writer in writers:
                writer.discard()
        self.writers.clear()

    @rule(path=PATHS, recursive=st.booleans())
    def delete(self, path: str, recursive: bool) -> None:
        if recursive:
            self.forget_writers()
        self.same(lambda fs: fs.delete(path, recursive=recursive))

    @rule(path=PATHS, parents=st.booleans(), exist_ok=st.booleans())
    def mkdir(self, path: str, parents: bool, exist_ok: bool) -> None:
        self.same(lambda fs: fs.mkdir(path, parents=parents, exist_ok=exist_ok))

    @rule(source=PATHS, destination=PATHS, parents=st.booleans())
    def move(self, source: str, destination: str, parents: bool) -> None:
        self.forget_writers()
        self.same(lambda fs: fs.move(source, destination, create_parents=parents))

    @rule(path=PATHS, offset=st.integers(-1, 3), limit=st.none() | st.integers(-2, 3))
    def read(self, path: str, offset: int, limit: int | None) -> None:
        self.same(lambda fs: fs.read(path, offset=offset, limit=limit))
        self.same(lambda fs: fs.read_bytes(path, offset=offset, limit=limit))

    @rule(path=PATHS)
    def look(self, path: str) -> None:
        for act in (BaseFilesystem.stat, BaseFilesystem.exists, BaseFilesystem.list):
            self.same(lambda fs, act=act: act(fs, path))  # type: ignore[misc]

    @rule(path=PATHS, pattern=PATTERNS, prefix=st.sampled_from(["", "", "/w/"]))
    def glob(self, path: str, pattern: str, prefix: str) -> None:
        self.same(lambda fs: fs.glob(prefix + pattern, path=path))

    @rule(path=PATHS, expression=EXPRESSIONS, glob=st.none() | PATTERNS, most=st.none() | st.integers(-1, 2))
    def grep(self, path: str, expression: str, glob: str | None, most: int | None) -> None:
        self.same(lambda fs: fs.grep(expression, path=path, glob=glob, max_matches=most))

    @rule()
    def snapshot(self) -> None:
        taken = self.host.snapshot(), self.memory.snapshot()
        assert (taken[0].file_count, taken[0].total_bytes) == (taken[1].file_count, taken[1].total_bytes)
        self.snapshots.append(taken)

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        self.forget_writers()
        for_host, for_memory = data.draw(st.sampled_from(self.snapshots))
        self.host.restore(for_host)
        self.memory.restore(for_memory)

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def diff(self, data: st.DataObject) -> None:
        base = data.draw(st.sampled_from(self.snapshots))
        target = data.draw(st.sampled_from([(None, None), *self.snapshots]))
        assert self.host.diff(base[0], target[0]) == self.memory.diff(base[1], target[1])

    @invariant()
    def everything_is_the_same(self) -> None:
        if hasattr(self, "host"):
            self.same(lambda fs: [(found.path, fs.read_bytes(found.path).content) for found in fs.glob("**")])
            self.same(directories)


SameEverywhere.TestCase.settings = settings(
    max_examples=rounds("random trees of the library", 40, 400),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
TestSameEverywhere = SameEverywhere.TestCase
