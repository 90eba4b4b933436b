"""Processes that change one branch through several connections at once: nothing is lost, nobody waits in a circle."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounted import Mounted, needs_fuse, needs_namespaces, started
from tests.rounds import is_long

BIG_BYTES = 32 << 20
LONG = is_long()
ROUNDS = 300 if LONG else 60
VIEWS = ("zero-message", "zero-message", "pid")
PAIRS = [("zero-message", "pid"), ("zero-message", "subtree"), ("pid", "subtree"), ("zero-message", "cached"), ("cached", "pid")]
PAIRS = PAIRS if LONG else PAIRS[:4]


@pytest.fixture(scope="module")
def one_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    needs_namespaces()
    base = tmp_path_factory.mktemp("writers")
    mounted = Mounted(base)
    (mounted.lower / "d").mkdir()
    for name in ("big", "big2"):
        (mounted.lower / name).write_bytes(b"x" * BIG_BYTES)
    with pytest.MonkeyPatch.context() as patch:
        _at_home(mounted, patch)
        yield mounted.mount()
        mounted.end()


def _at_home(mounted: Mounted, patch: pytest.MonkeyPatch) -> None:
    for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
        patch.setenv(name, str(mounted.path.parent / name))


@pytest.fixture
def shared(one_mount: Mounted, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mounted]:
    """The branch *b*, new for each test."""
    _at_home(one_mount, monkeypatch)
    one_mount.cli("branch create", "b")
    yield one_mount
    try:
        assert one_mount.fsck() == []
        log = Path(one_mount.state, "daemon.log").read_text()
        assert "Error" not in log and "before another connection was told" not in log
    finally:
        one_mount.cli("discard", "b")


def start(mounted: Mounted, view: str, code: str, *arguments: str) -> subprocess.Popen[str]:
    """*view*: a mode of --io, "pid", or "subtree" for an unbound process below .agentfs. It says "ready" and waits for a line."""
    command = [sys.executable, "-uc", f"import os, sys\nprint('ready')\nsys.stdin.readline()\n{code}", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    if view == "subtree":
        process = subprocess.Popen(command, cwd=mounted.subtree("b"), text=True, **pipes)  # type: ignore[call-overload]
    else:
        options = ["--no-namespace"] if view == "pid" else ["--io", view]
        process = started("run", "-m", str(mounted.path), "-b", "b", *options, "--", *command, cwd=mounted.path, **pipes)
    mounted.started.append(process)
    return mounted.started[-1]


def together(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What each says after all have begun at once."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return said


APPEND = """
fd = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
for number in range(200): os.write(fd, f"{sys.argv[1]} {number}\\n".encode())
"""


@pytest.mark.parametrize("name", ["big", "big2"])
def test_appends_through_three_connections_to_an_unmodified_file_are_all_there(shared: Mounted, name: str) -> None:
    together([start(shared, view, APPEND, f"w{number}", name) for number, view in enumerate(VIEWS)])
    with (shared.subtree("b") / name).open("rb") as file:
        file.seek(BIG_BYTES)
        lines = file.read().decode().splitlines()
    wanted = {f"w{number}": [f"w{number} {line}" for line in range(200)] for number in range(len(VIEWS))}
    assert {tag: [line for line in lines if line.startswith(tag)] for tag in wanted} == wanted


CREATE = """
for number in range(int(sys.argv[2])):
    name = f"d/{sys.argv[1]}{number % 3}"
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR)); os.listdir("d"); os.unlink(name)
    try: os.close(os.open("d/shared", os.O_CREAT | os.O_RDWR))
    except FileExistsError: pass
    try: os.rename("d/shared", "d/renamed"); os.unlink("d/renamed")
    except FileNotFoundError: pass
"""


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_two_that_make_and_remove_names_in_one_directory_do_not_wait_for_each_other(shared: Mounted, one: str, two: str) -> None:
    together([start(shared, view, CREATE, tag, str(ROUNDS // 2)) for tag, view in (("x", one), ("y", two))])
    assert set((shared.subtree("b") / "d").iterdir()) <= {shared.subtree("b") / "d" / name for name in ("shared", "renamed")}


WRITE = """
fd = os.open("d/one", os.O_RDWR)
for number in range(int(sys.argv[2])): os.pwrite(fd, sys.argv[1].encode() * 10, number % 7 * 100); os.pread(fd, 5000, 0)
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_two_that_write_one_page_do_not_wait_for_each_other(shared: Mounted, one: str, two: str) -> None:
    (shared.subtree("b") / "d" / "one").write_bytes(b"." * 700)
    together([start(shared, view, WRITE, tag, str(ROUNDS)) for tag, view in (("x", one), ("y", two))])
    found = [start(shared, view, "print(open('d/one').read())") for view in (one, two)]
    first, second = together(found)
    assert first == second == (shared.subtree("b") / "d" / "one").read_text() + "\n"
    assert set(first) <= {"x", "y", ".", "\n"}


REOPEN = """
for number in range(int(sys.argv[1])):
    fd = os.open("d/one", os.O_RDWR); os.pwrite(fd, b"x", number % 7 * 100); os.close(fd)
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_those_that_open_and_write_one_page_again_and_again_do_not_wait_for_each_other(
    shared: Mounted, one: str, two: str
) -> None:
    (shared.subtree("b") / "d" / "one").write_bytes(b"." * 700)
    together([start(shared, view, REOPEN, str(5 * ROUNDS)) for view in (one, two, one, two)])


MAP = """
import mmap
fd = os.open("d/one", os.O_RDWR)
mapping = mmap.mmap(fd, 4096)
for number in range(60):
    mapping[number] = 65 + number % 26; mapping.flush()
    os.pwrite(fd, b"!", 3000 + number)
"""


@pytest.mark.parametrize(("one", "two"), PAIRS[:2])
def test_what_a_mapping_writes_back_waits_for_nobody(shared: Mounted, one: str, two: str) -> None:
    (shared.subtree("b") / "d" / "one").write_bytes(b"." * 4096)
    together([start(shared, one, MAP), start(shared, two, WRITE, "y", str(ROUNDS)), start(shared, one, "open('d/one').read()")])
    found = (shared.subtree("b") / "d" / "one").read_bytes()
    assert len(found) == 4096
    assert set(found) <= set(b".y!" + bytes(range(65, 91)))


OPEN = """
import errno
said = set()
for number in range(int(sys.argv[1])):
    try:
        fd = os.open("d/lock", os.O_RDWR | os.O_CREAT, 0o600); os.write(fd, b"x"); os.close(fd)
        if number % 3 == 0: os.unlink("d/lock")
    except OSError as exc: said.add(errno.errorcode[exc.errno])
print(sorted(said - {"ENOENT"}))
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_open_that_may_create_never_finds_a_file_in_the_way(shared: Mounted, one: str, two: str) -> None:
    assert together([start(shared, view, OPEN, str(ROUNDS)) for view in (one, two, one, two)]) == ["[]\n"] * 4


EXCLUSIVE = """
import errno
said, made = set(), 0
for number in range(int(sys.argv[1])):
    for make in (lambda: os.close(os.open("d/lock", os.O_RDWR | os.O_CREAT | os.O_EXCL)), lambda: os.mknod("d/lock"),
                 lambda: os.symlink("x", "d/lock"), lambda: os.link("d/linked", "d/lock"), lambda: os.mkfifo("d/lock")):
        try: make()
        except OSError as exc: said.add(errno.errorcode[exc.errno])
        else:
            made += 1
            os.unlink("d/lock")
print(sorted(said - {"EEXIST"}))
"""


@pytest.mark.parametrize(("one", "two"), PAIRS[:2])
def test_a_name_is_made_by_one_alone(shared: Mounted, one: str, two: str) -> None:
    """Whoever has made it finds it, and may remove it; all others get EEXIST."""
    (shared.subtree("b") / "d" / "linked").touch()
    assert together([start(shared, view, EXCLUSIVE, str(ROUNDS // 2)) for view in (one, two)]) == ["[]\n"] * 2


REMOVE = """
import errno
said = set()
for number in range(int(sys.argv[1])):
    for act in (lambda: os.close(os.open("d/f", os.O_CREAT | os.O_WRONLY)), lambda: os.unlink("d/f"),
                lambda: os.rename("d/f", "d/g"), lambda: os.mkdir("d/m"), lambda: os.rmdir("d/m"), lambda: os.unlink("d/g")):
        try: act()
        except OSError as exc: said.add(errno.errorcode[exc.errno])
print(sorted(said - {"ENOENT", "EEXIST"}))
"""


@pytest.mark.parametrize(("one", "two"), PAIRS[:2])
def test_removing_what_another_has_removed_is_enoent(shared: Mounted, one: str, two: str) -> None:
    assert together([start(shared, view, REMOVE, str(ROUNDS)) for view in (one, two)]) == ["[]\n"] * 2


MOVE = """
for number in range(int(sys.argv[1])):
    try: os.rename("d/n", "d/m")
    except FileNotFoundError: pass
    else: os.stat("d/m")
"""

REPLACE = """
for number in range(int(sys.argv[1])):
    with open(f"d/{number}", "w") as file: file.write(str(number))
    os.rename(f"d/{number}", "d/n")
"""


@pytest.mark.parametrize("view", ["pid", "subtree"])
def test_a_name_that_moved_while_another_replaced_it_leads_to_one_file(shared: Mounted, view: str) -> None:
    (shared.subtree("b") / "d" / "m").write_text("0")
    for _ in range(5 if LONG else 1):
        together([start(shared, "zero-message", MOVE, str(10 * ROUNDS)), start(shared, view, REPLACE, str(ROUNDS))])
        looks = "d = {name: open('d/' + name).read() for name in os.listdir('d')}; print(sorted(d.items()))"
        assert len(set(together([start(shared, one, looks) for one in ("zero-message", view)]))) == 1
