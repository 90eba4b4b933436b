"""Programs that end as they would without kills, or say what was wrong. ``NAME SECONDS``, in an empty directory of the mount."""

import mmap
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SIZE = 200_000  # at most, of the file that is read and written at random
TREE = 300  # files
PACKAGES = 20


def exerciser(until: Callable[[], bool]) -> None:
    """Read, write, cut, map and open again at random, and compare with what a plain array has."""
    chosen = random.Random(os.getpid())
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    model = bytearray()
    while not until():
        deed, offset, length = chosen.randrange(7), chosen.randrange(SIZE), chosen.randrange(1, 20_000)
        fresh = chosen.randbytes(length)
        if deed == 0:
            assert os.pread(fd, length, offset) == model[offset : offset + length]
        elif deed == 1:
            model.extend(bytes(max(0, offset - len(model))))
            model[offset : offset + length] = fresh
            assert os.pwrite(fd, fresh, offset) == length
        elif deed == 2:
            del model[offset:]
            model.extend(bytes(offset - len(model)))
            os.ftruncate(fd, offset)
        elif deed == 3 and len(model) > length:
            offset = chosen.randrange(len(model) - length)
            with mmap.mmap(fd, len(model)) as mapped:
                assert mapped[offset : offset + length] == model[offset : offset + length]
                mapped[offset : offset + length] = fresh
            model[offset : offset + length] = fresh
        elif deed == 4:
            os.close(fd)
            fd = os.open("file", os.O_RDWR)
        elif deed == 5:
            os.fsync(fd)
        else:
            assert os.fstat(fd).st_size == len(model)
    assert Path("file").read_bytes() == model


def git(until: Callable[[], bool]) -> None:
    """Clone, commit, go back, check."""
    run = "git -c user.name=a -c user.email=a@b"
    script = f"""
    git init -q source; cd source
    for n in $(seq {TREE}); do echo $n >file$n; done
    {run} add -A; {run} commit -qm 1; cd ..
    """
    subprocess.run(["sh", "-ec", script], check=True)
    again = f"""
    git clone -q source copy; cd copy
    git rm -q 'file1*'; {run} commit -qm 2; git checkout -q HEAD~1
    test -z "$(git status --porcelain)"; git fsck --strict --no-progress; test "$(ls | wc -l)" = {TREE}
    {run} merge -q --no-ff -m 3 master 2>/dev/null || {run} merge -q --no-ff -m 3 main
    cd ..; rm -rf copy
    """
    while not until():
        subprocess.run(["sh", "-ec", again], check=True)


def npm(until: Callable[[], bool]) -> None:
    """Install packages, of the registry where NPM_PACKAGES names some."""
    named = os.environ.get("NPM_PACKAGES", "").split()
    for number in range(0 if named else PACKAGES):
        os.makedirs(f"packages/p{number}/lib")
        Path(f"packages/p{number}/package.json").write_text(f'{{"name": "p{number}", "version": "1.0.0"}}')
        for each in range(20):
            Path(f"packages/p{number}/lib/{each}.js").write_text(f"module.exports = {each}\n" * 50)
    wanted = named or [f"./packages/p{number}" for number in range(PACKAGES)]
    os.mkdir("project")
    while not until():
        install = ["npm", "install", "--no-audit", "--no-fund", "--install-links", "--prefix", "project", *wanted]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        if not named:
            assert len(list(Path("project/node_modules").glob("p*/lib/*.js"))) == PACKAGES * 20
        shutil.rmtree("project/node_modules")
        Path("project/package-lock.json").unlink()


def sqlite(until: Callable[[], bool]) -> None:
    """Write to a database that others write to, in the directory above."""
    db = sqlite3.connect("../database", timeout=120, isolation_level=None)
    db.execute("create table if not exists t(who, number)")
    number = 0
    while not until():
        db.execute("begin immediate")
        db.execute("insert into t values(?, ?)", (os.getpid(), number))
        db.execute("commit")
        number += 1
        time.sleep(0.02)
    assert db.execute("select count(*), sum(number) from t where who = ?", (os.getpid(),)).fetchone() == (
        number, number * (number - 1) // 2
    )  # fmt: skip
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)


def tail(until: Callable[[], bool]) -> None:
    """Follow a log that grows."""
    Path("log").touch()
    with (
        subprocess.Popen(["tail", "-n", "+1", "-f", "log"], text=True, stdout=subprocess.PIPE) as following,
        open("log", "a") as log,
    ):
        number = 0
        while not until():
            log.write(f"{number}\n")
            log.flush()
            number += 1
            time.sleep(0.01)
        assert following.stdout is not None
        for wanted in range(number):
            assert following.stdout.readline() == f"{wanted}\n"
        following.kill()


def remove(until: Callable[[], bool]) -> None:
    """Make a tree and remove it."""
    while not until():
        for number in range(TREE):
            os.makedirs(f"tree/{number % 10}/{number % 7}", exist_ok=True)
            Path(f"tree/{number % 10}/{number % 7}/{number}").write_text("text")
        subprocess.run(["rm", "-rf", "tree"], check=True)
        assert not os.path.lexists("tree")


PROGRAMS = {each.__name__: each for each in (exerciser, git, npm, sqlite, tail, remove)}

if __name__ == "__main__":
    end = time.monotonic() + float(sys.argv[2])
    here = f"{sys.argv[1]}-{os.getpid()}"
    os.mkdir(here)
    os.chdir(here)
    PROGRAMS[sys.argv[1]](lambda: time.monotonic() > end)
