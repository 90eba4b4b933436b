"""Two processes in one branch that came to it by different ways: locks exclude each other, mappings are one memory."""

import itertools
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mounted import AGENTFSD, Mounted, needs_fuse, needs_namespaces

LOAD = str(Path(__file__).with_name("shared_load.py"))
WAYS = [("run", "run"), ("run", "pid"), ("run", "subtree"), ("subtree", "run"), ("pid", "subtree")]
ROUNDS = 150 if not os.environ.get("AGENTFSD_LONG") else 2000
TURNS = 60 if not os.environ.get("AGENTFSD_LONG") else 2000
_WAIT_S = 300


class Shared(NamedTuple):
    """A branch of one mount that all tests here share."""

    mounted: Mounted
    name: str

    @property
    def tree(self) -> Path:
        return self.mounted.subtree(self.name)


@pytest.fixture(scope="module")
def one_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    needs_namespaces()
    with pytest.MonkeyPatch.context() as environment:
        base = tmp_path_factory.mktemp("shared")
        for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
            environment.setenv(name, str(base / name))
        mounted = Mounted(base)
        (mounted.lower / "counter").write_bytes(b"")
        (mounted.lower / "page").write_bytes(bytes(4096))
        mounted.mount()
        yield mounted
        try:
            assert mounted.fsck() == []
        finally:
            mounted.end()


_numbers = itertools.count(1)


@pytest.fixture
def branch(one_mount: Mounted, monkeypatch: pytest.MonkeyPatch) -> Shared:
    for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(one_mount.path.parent / name))
    shared = Shared(one_mount, f"b{next(_numbers)}")
    one_mount.cli("branch create", shared.name)
    return shared


def begin(branch: Shared, way: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, LOAD, *map(str, arguments)]
    if way == "subtree":
        return subprocess.Popen(command, cwd=branch.tree, stdout=subprocess.PIPE, text=True)
    options = ["--no-namespace"] if way == "pid" else []
    command = [*AGENTFSD, "run", "-m", str(branch.mounted.path), "-b", branch.name, *options, "--", *command]
    return subprocess.Popen(command, cwd=branch.mounted.path, stdout=subprocess.PIPE, text=True)


def finished(*processes: subprocess.Popen[str]) -> list[int]:
    """What each says that it has done."""
    said = [process.communicate(timeout=_WAIT_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return [int(text) for text in said]


@pytest.mark.parametrize(("one", "two"), WAYS)
@pytest.mark.parametrize("kind", ["flock", "record"])
def test_counter_behind_a_lock_loses_nothing(branch: Shared, kind: str, one: str, two: str) -> None:
    done = finished(*(begin(branch, way, kind, "counter", ROUNDS) for way in (one, two)))
    assert int((branch.tree / "counter").read_text()) == sum(done) == 2 * ROUNDS


@pytest.mark.parametrize(("one", "two"), WAYS)
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_has_every_acknowledged_transaction(branch: Shared, journal: str, one: str, two: str) -> None:
    path = branch.tree / "data.db"
    done = finished(*(begin(branch, way, journal, "data.db", ROUNDS // 3) for way in (one, two)))
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT count(*) FROM done").fetchone()[0] == sum(done)


@pytest.mark.parametrize(("one", "two"), WAYS)
def test_shared_mapping_is_one_memory(branch: Shared, one: str, two: str) -> None:
    assert finished(begin(branch, one, "turns", "page", TURNS, 0), begin(branch, two, "turns", "page", TURNS, 1)) == [
        TURNS,
        TURNS,
    ]
