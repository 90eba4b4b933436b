"""A state directory that was damaged after a crash: nothing is lost without a word, and what is still there stays.

Writers are killed with their daemon. Each round takes a copy of what is left, damages one file of it, and mounts it: either
all that was acknowledged is there, or somebody says what is not: the mount, status or fsck.
``--rounds 'damaged states=N'`` are rounds
without a mount, as the daemon opens and reads its state; ``'damaged mounts=N'`` with one.
"""

import errno
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.cli.checkup.offline_fsck import Wanted, check_state
from agentfsd.cli.command_base import Failure
from agentfsd.core import content_checksums, data
from agentfsd.core.overlay import Overlay
from agentfsd.domain_errors import Refusal
from agentfsd.lower.host_lower import HostLower
from agentfsd.metadata import checksum_rows
from agentfsd.metadata.row_store import Store
from agentfsd.state.state_directory import StateDirectory
from tests.mounted import Mounted, agentfsd, needs_fuse
from tests.rounds import rounds, seed

ROUNDS = rounds("damaged states", 10, 300)
MOUNTS = rounds("damaged mounts", 3, 30)
SEED = seed()
BRANCHES = ("main", "one")
KINDS = ("flip", "flip", "flip", "truncate", "delete", "zero")

# Makes files, replaces some, removes some; tells before and after each step what is acknowledged.
WRITER = r"""
import json, os, random, sys
branch, report, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance, known, number = random.Random(seed), {}, 0
def tell(under_way):
    with open(report + ".new", "w") as f: json.dump({"files": known, "under_way": under_way}, f)
    os.rename(report + ".new", report)
while not os.path.exists(report + ".stop"):
    number += 1
    name = f"{branch}-{seed}-{chance.randrange(60)}"
    tell(name)
    if name in known and chance.random() < 0.2:
        os.unlink(name); del known[name]
    else:
        text = f"{number} {name} " * chance.randrange(1, 600)
        with open(name + ".new", "w") as f: f.write(text)
        os.rename(name + ".new", name)
        known[name] = text
    tell("")
"""


@dataclass
class Crashed:
    """What a kill has left. ``sealed``: objects with checksums; ``kept``: those that a row refers to."""

    base: Path
    lower: Path
    state: Path
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    under_way: set[str] = field(default_factory=set)
    sealed: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)


def write_for(mounted: Mounted, seed: int, seconds: float, crashed: Crashed, *, kill: bool) -> None:
    reports = {branch: crashed.base / f"report-{seed}-{branch}" for branch in BRANCHES}
    started = [
        mounted.start(branch, sys.executable, "-c", WRITER, branch, str(reports[branch]), str(seed), stderr=subprocess.DEVNULL)
        for branch in BRANCHES
    ]
    deadline = time.monotonic() + 30
    while not all(path.exists() for path in reports.values()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(seconds)
    if kill:
        mounted.kill()
    for path in reports.values():
        Path(f"{path}.stop").touch()
    for process in started:
        process.wait(30)
    for branch, path in reports.items():
        told = json.loads(path.read_text())
        crashed.files.setdefault(branch, {}).update(told["files"])
        crashed.under_way.add(told["under_way"])


def seal_all(crashed: Crashed) -> None:
    """What the daemon does in quiet moments."""
    lower, backstore = HostLower(str(crashed.lower)), HostBackstore(str(crashed.state / "objects"))
    store = Store.open(str(crashed.state / "meta.db"), str(crashed.lower))
    wanted = checksum_rows.missing(store, 0, 1 << 40)
    content_checksums.keep(store, content_checksums.make(backstore, wanted, lambda size: None))
    crashed.sealed = {number for number, _ in wanted}
    for opened in (store, backstore, lower):
        opened.close()


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    needs_fuse()
    base = tmp_path_factory.mktemp("crashed")
    places = pytest.MonkeyPatch()
    places.setenv("AGENTFS_STATE_HOME", str(base / "states"))
    places.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
    mounted = Mounted(base)
    try:
        found = Crashed(base, mounted.lower, mounted.state)
        mounted.mount()
        mounted.cli("branch create", "one")
        write_for(mounted, 1, 1.0, found, kill=False)
        with ControlClient.connect(mounted.record().socket) as daemon:
            for branch in BRANCHES:
                daemon.create_snapshot(branch)
        agentfsd("umount", str(mounted.path))
        seal_all(found)
        (mounted.state / "meta.db-clean").unlink(missing_ok=True)
        mounted.mount()
        await_copy(mounted)
        write_for(mounted, 2, 1.5, found, kill=True)
        find_kept(found)
    finally:
        mounted.end()
        places.undo()
    return found


def await_copy(mounted: Mounted) -> None:
    deadline = time.monotonic() + 30
    while not (mounted.state / "meta.db-clean").exists():
        assert time.monotonic() < deadline, "there is no copy of the metadata"
        time.sleep(0.05)


def find_kept(crashed: Crashed) -> None:
    """Which objects hold what was acknowledged: those that a sound copy refers to."""
    copy = crashed.base / "sound"
    shutil.copytree(crashed.state, copy, ignore=shutil.ignore_patterns("*.sock"))
    store = Store.open(str(copy / "meta.db"), str(crashed.lower))
    backstore = HostBackstore(str(copy / "objects"))
    rows = [row[0] for row in store.db.execute("SELECT id FROM object WHERE layer != 0")]
    crashed.kept = {number for number in rows if backstore.stat(number).st_size}
    backstore.close()
    store.close()
    shutil.rmtree(copy)


def harm(state: Path, chance: random.Random) -> tuple[Path, str]:
    """Damages one file: each kind of file is as likely as another."""
    files = sorted(path for path in state.rglob("*") if path.is_file() and not path.is_symlink())
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault("objects" if "objects" in path.parts else path.name, []).append(path)
    often = ["meta.db", "meta.db-wal", "meta.db-acknowledged", "objects"]
    path = chance.choice(groups[chance.choice([*groups, *often, *often])])
    kind, size = chance.choice(KINDS), path.stat().st_size
    if kind == "delete":
        path.unlink()
    elif kind == "truncate":
        os.truncate(path, chance.randrange(size) if size else 0)
    elif kind == "zero":
        path.write_bytes(bytes(size))
    elif size:
        content = bytearray(path.read_bytes())
        content[chance.randrange(size)] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
    return path, kind


def look(mounted: Mounted, crashed: Crashed) -> tuple[list[str], list[str]]:
    """(files that give an error, files that are missing or hold something else)."""
    failed, wrong = [], []
    for branch, files in crashed.files.items():
        root = mounted.subtree(branch)
        for name, text in files.items():
            if name in crashed.under_way:
                continue
            try:
                if (root / name).read_bytes() != text.encode():
                    wrong.append(name)
            except FileNotFoundError:
                wrong.append(name)
            except OSError:
                failed.append(name)
    return failed, wrong


def check_kept(crashed: Crashed, state: Path, harmed: Path) -> None:
    """Whatever held something that was acknowledged is still there, in its place or set aside."""
    backstore = HostBackstore(str(state / "objects"))
    there = set(backstore.ids()) | {one.object_id for one in backstore.aside()}
    backstore.close()
    missing = {number for number in crashed.kept - there if harmed.name != f"{number:x}"}
    assert not missing


def metadata_of(state: Path) -> dict[str, bytes]:
    names = ("meta.db", "meta.db-wal", "meta.db-acknowledged")
    return {name: hashlib.sha256((state / name).read_bytes()).digest() for name in names if (state / name).exists()}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("rounds", "is_mounted"), [(ROUNDS, False), (MOUNTS, True)])
def test_no_damage_is_silent_and_none_grows(crashed: Crashed, tmp_path: Path, rounds: int, is_mounted: bool) -> None:
    chance, outcomes = random.Random(SEED), Counter[str]()
    for number in range(rounds):
        base = tmp_path / str(number)
        base.mkdir()
        mounted = Mounted(base, crashed.lower)
        shutil.copytree(crashed.state, mounted.state, ignore=shutil.ignore_patterns("*.sock"))
        harmed, kind = harm(mounted.state, chance)
        where = f"round {number}: {kind} of {harmed.relative_to(mounted.state)}"
        outcome = (try_round if is_mounted else try_opening)(crashed, mounted, harmed, where)
        outcomes[outcome] += 1
        print(f"{where}: {outcome}")
        shutil.rmtree(base)
    print(dict(outcomes))
    assert sum(outcomes.values()) == rounds


def try_opening(crashed: Crashed, mounted: Mounted, harmed: Path, where: str) -> str:
    """What the daemon does, without a mount."""
    before = metadata_of(mounted.state)
    try:
        with opened(crashed, mounted.state) as overlay:
            failed, wrong = read_all(overlay, crashed)
            told = [*overlay.damage_notes(), *overlay.fsck(scrub=True)]
    except Refusal as exc:
        assert exc.code == "state-corrupt", where
        assert metadata_of(mounted.state) == before, where
        check_kept(crashed, mounted.state, harmed)
        assert repair(mounted.state), where
        return f"refused, then {repair_by(crashed, mounted, harmed, where)}"
    check_kept(crashed, mounted.state, harmed)
    return judge(crashed, harmed, where, failed, wrong, told)


@contextmanager
def opened(crashed: Crashed, state: Path) -> Iterator[Overlay]:
    with ExitStack() as closing:
        lower = HostLower(str(crashed.lower))
        closing.callback(lower.close)
        backstore = HostBackstore(str(state / "objects"))
        closing.callback(backstore.close)
        store = Store.open(str(state / "meta.db"), str(crashed.lower))
        closing.callback(store.close)
        overlay = Overlay(store, lower, backstore)
        while overlay.layers.reap():
            pass
        yield overlay


def read_all(overlay: Overlay, crashed: Crashed) -> tuple[list[str], list[str]]:
    """As look() does."""
    failed, wrong = [], []
    for branch, files in crashed.files.items():
        for name, text in files.items():
            if name in crashed.under_way:
                continue
            try:
                inode = overlay.trees.of(branch).walk(name.encode())
                data.open_(inode, os.O_RDONLY)
                if data.read(inode, 1 << 20, 0) != text.encode():
                    wrong.append(name)
                data.release(inode)
            except (FileNotFoundError, Refusal):
                wrong.append(name)
            except OSError as exc:
                assert exc.errno == errno.EIO
                failed.append(name)
    return failed, wrong


def repair(state: Path, *, repairs: bool = False, from_copy: bool = False) -> list[str]:
    wanted = Wanted(repair=repairs, from_copy=from_copy, scrub=False, discard=False)
    return check_state(StateDirectory(str(state)), wanted, lambda *told: None, lambda said: None)


def repair_by(crashed: Crashed, mounted: Mounted, harmed: Path, where: str) -> str:
    """The option after which it opens again."""
    for option in ("--repair", "--from-copy"):
        with suppress(Failure):
            repair(mounted.state, repairs=True, from_copy=option == "--from-copy")
        check_kept(crashed, mounted.state, harmed)
        with suppress(Refusal), opened(crashed, mounted.state) as overlay:
            read_all(overlay, crashed)
            return option
    raise AssertionError(f"{where}: neither --repair nor --from-copy")


def judge(crashed: Crashed, harmed: Path, where: str, failed: list[str], wrong: list[str], told: list[str]) -> str:
    if not failed and not wrong:
        return "told, all there" if told else "all there"
    if told:
        return "told" if failed else "told, and read before it was"
    assert is_live(crashed, harmed), f"{where}: {failed} {wrong}"
    return "a live content changed: nobody can know"


def try_round(crashed: Crashed, mounted: Mounted, harmed: Path, where: str) -> str:
    before = metadata_of(mounted.state)
    try:
        done = agentfsd("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state), check=False)
        assert "Traceback" not in done.stderr, where
        if done.returncode != 0:
            assert metadata_of(mounted.state) == before, f"{where}: {done.stderr}"
            check_kept(crashed, mounted.state, harmed)
            checked = agentfsd("fsck", "--state", str(mounted.state), check=False)
            assert checked.returncode == 1, f"{where}: {checked.stdout}"
            return try_repair(crashed, mounted, harmed, where)
        failed, wrong = look(mounted, crashed)
        told = [*mounted.json("status")["damage"], *json.loads(mounted.cli("fsck", "--scrub", "--json", check=False).stdout)]
        check_kept(crashed, mounted.state, harmed)
        return judge(crashed, harmed, where, failed, wrong, told)
    finally:
        mounted.end()


def try_repair(crashed: Crashed, mounted: Mounted, harmed: Path, where: str) -> str:
    """What refused to mount goes on after a repair, or after going back to the copy."""
    for option in ("--repair", "--from-copy"):
        agentfsd("fsck", "--state", str(mounted.state), option, check=False)
        check_kept(crashed, mounted.state, harmed)
        done = agentfsd("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state), check=False)
        if done.returncode == 0:
            look(mounted, crashed)
            return f"refused, then {option}"
    raise AssertionError(f"{where}: neither --repair nor --from-copy: {done.stderr}")


def is_live(crashed: Crashed, harmed: Path) -> bool:
    """Whether it is a content that may be written at any time, so that no checksum of it can be kept."""
    try:
        number = int(harmed.name, 16)
    except ValueError:
        return False
    return "objects" in harmed.parts and harmed.exists() and number not in crashed.sealed
