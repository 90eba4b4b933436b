"""A branch as a file system beside processes in it: mappings, open files, threads, forks, and processes that are bound."""

import os
import sys
import threading
import time

import pytest

from agentfs_client.control import ControlClient
from agentfs_client.errors import DaemonGoneError
from agentfs_files.backends.branch import BranchFilesystem
from tests.mounted import Mounted, needs_namespaces, needs_root, started


def test_processes_in_the_branch_see_changes_at_once(fs: BranchFilesystem, place: Mounted) -> None:
    """They look before, so that the kernel has cached what was there, and what was not."""
    needs_namespaces()
    script = "while read path; do if [ -d $path ]; then ls $path | wc -l; else cat $path 2>/dev/null || echo none; fi; done"
    for view in ("namespace", "pid"):
        name = f"seen-{view}"
        process = place.start(fs.branch, "sh", "-c", script, view=view, stdin=-1, stdout=-1, bufsize=1)
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(path: str, process: object = process) -> str:
            process.stdin.write(path + "\n")  # type: ignore[attr-defined]
            return str(process.stdout.readline().strip())  # type: ignore[attr-defined]

        assert [ask(name), ask("sub/inner"), ask("sub")] == ["none", "inner", "2"]
        fs.write(name, "there\n")
        fs.write("sub/inner", "new\n")
        fs.write("sub/third", "x")
        assert [ask(name), ask("sub/inner"), ask("sub")] == ["there", "new", "3"]
        fs.delete(name)
        fs.delete("sub/third")
        fs.write("sub/inner", "inner\n")
        assert [ask(name), ask("sub/inner"), ask("sub")] == ["none", "inner", "2"]
        process.stdin.close()
        assert process.wait(10) == 0


PAST_US = """
import os
fd = os.open("file", os.O_RDWR)
for line in iter(input, "end"):
    print(os.pread(fd, 100, 0).decode().strip(), flush=True)
    os.pwrite(fd, line.encode(), 0)
    print(os.pread(fd, 100, 0).decode().strip(), flush=True)
"""


@pytest.mark.parametrize("io", ["passthrough", "cached", "zero-message"])
def test_who_has_a_file_open_stays_with_it(place: Mounted, io: str) -> None:
    needs_root()
    needs_namespaces()
    branch = f"open-{io}"
    with BranchFilesystem(branch, socket=place.record().socket, create=True) as fs:
        fs.write("file", "first\n")
        command = ["run", "-m", str(place.path), "-b", branch, "--io", io, "--", sys.executable, "-c", PAST_US]
        process = started(*command, cwd=place.path, bufsize=1, stdin=-1, stdout=-1)
        place.started.append(process)
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(line: str) -> list[str]:
            process.stdin.write(line + "\n")  # type: ignore[union-attr]
            return [process.stdout.readline().strip() for _ in range(2)]  # type: ignore[union-attr]

        assert ask("FIR") == ["first", "FIRst"]
        fs.write("file", "over the socket")
        fs.write("file", ", and more", mode="append")
        assert ask("OVER") == ["over the socket, and more", "OVER the socket, and more"]
        assert fs.read("file").content == "OVER the socket, and more"
        process.stdin.write("end\n")
        assert process.wait(10) == 0


MAPPED = """
import mmap, os
fd = os.open("file", os.O_RDWR)
pages = mmap.mmap(fd, os.fstat(fd).st_size)
pages[8192:] = b"p" * (len(pages) - 8192)
for line in iter(input, "end"):
    pages[4096:4100] = line.encode()
    print(flush=True)
"""


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_what_was_written_through_a_mapping_does_not_come_after_what_replaced_it(place: Mounted, view: str) -> None:
    branch = f"mapped-{view}"
    with BranchFilesystem(branch, socket=place.record().socket, create=True) as fs:
        with fs.open_write("file") as writer:
            for _ in range(48 if view == "pid" else 1):  # more than the kernel writes back in an instant
                writer.write(bytes(1 << 20))
        process = place.start(branch, sys.executable, "-c", MAPPED, view=view, stdin=-1, stdout=-1, bufsize=1)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("page\n")
        process.stdout.readline()
        fs.write("file", "n" * 20_000_000)
        assert fs.read_bytes("file").content.count(b"n") == 20_000_000
        process.stdin.write("page\nend\n")
        assert process.wait(10) == 0
        assert fs.read("file").content[:8192] == "n" * 4096 + "page" + "n" * 4092


def test_threads_may_share_it(fs: BranchFilesystem) -> None:
    def read(name: str) -> None:
        found.extend(fs.read(name).content == name * 50_000 for _ in range(20))

    found: list[bool] = []
    for name in "abc":
        fs.write(name, name * 50_000)
    threads = [threading.Thread(target=read, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [True] * 60


def test_a_forked_child_has_a_conversation_of_its_own(fs: BranchFilesystem, place: Mounted) -> None:
    fs.write("a", "a" * 500_000)
    with ControlClient.connect(place.record().socket) as daemon, fs.open_read("a") as reader:
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                failed = fs.read("a").content != "a" * 500_000
                daemon.status()
                failed = 2
            except DaemonGoneError:
                pass
            finally:
                os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0
        assert reader.read() == b"a" * 500_000
        assert daemon.status().pid == place.record().pid


REBOUND = """
import sys
from agentfs_files.backends.branch import BranchFilesystem
with BranchFilesystem(mount=sys.argv[1]) as fs:
    print(fs.branch, flush=True)
    input()
    try:
        fs.write("lost", "x")
    except PermissionError as exc:
        print(exc.code)
"""


def test_a_process_that_is_bound_anew_writes_to_no_other_branch(place: Mounted) -> None:
    with ControlClient.connect(place.record().socket) as daemon:
        for name in ("first", "second"):
            daemon.create_branch(name)
    process = place.start("first", sys.executable, "-c", REBOUND, str(place.path), stdin=-1, stdout=-1, bufsize=1)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    with ControlClient.connect(place.record().socket) as daemon:
        for found in daemon.bindings():
            if found.branch == "first":
                daemon.bind(found.pid, "second")
    process.stdin.write("\n")
    assert process.stdout.readline() == "outside-branch\n"
    assert not (place.subtree("second") / "lost").exists()


STANDING = """
import os
os.chdir("dir")
print(flush=True)
for line in iter(input, "end"):
    try:
        print(os.getcwd(), flush=True)
    except OSError as exc:
        print(exc, flush=True)
"""


def test_a_directory_that_is_renamed_is_where_it_was_in_another_branch(place: Mounted) -> None:
    """Also for who stands in it, after somebody has looked up what took its place."""
    socket = place.record().socket
    with (
        BranchFilesystem("here", socket=socket, create=True) as here,
        BranchFilesystem("there", socket=socket, create=True) as there,
    ):
        here.mkdir("dir")
        there.mkdir("dir")
        process = place.start("there", sys.executable, "-c", STANDING, stdin=-1, stdout=-1, bufsize=1)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        place.run("here", "stat", "dir", view="pid")
        here.move("dir", "moved")
        here.mkdir("dir")
        place.run("here", "stat", "dir", view="pid")
        said, ends = "", time.monotonic() + 20
        while said != f"{place.path}/dir\n" and time.monotonic() < ends:
            process.stdin.write("\n")
            said = process.stdout.readline()
        assert said == f"{place.path}/dir\n"
        process.stdin.write("end\n")
        assert process.wait(10) == 0


BOUND = """
import os, sys
from agentfs_files.backends.branch import BranchFilesystem
where = {"mount": {}, "socket": {"socket": sys.argv[3]}}[sys.argv[1]]
with BranchFilesystem(**where) as fs:
    print(fs.branch, fs.is_mounted, fs.root == os.getcwd())
    fs.write("by-bound", "yes")
    first = fs.snapshot(tag="t")
    fs.delete("by-bound")
    fs.restore(first)
    print(fs.read("by-bound").content)
try:
    BranchFilesystem("main", **where)
except PermissionError as exc:
    print(exc.code)
try:
    BranchFilesystem(sys.argv[2] + "x", create=True, **where)
except OSError as exc:
    print(exc.code)
"""


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_a_bound_process_has_its_own_branch(fs: BranchFilesystem, place: Mounted, way: str, view: str) -> None:
    if view == "namespace":
        needs_namespaces()
    command = (sys.executable, "-c", BOUND, way, fs.branch, place.record().socket)
    said = place.run(fs.branch, *command, view=view).stdout.split("\n")
    through_mount = way == "mount" and view == "namespace"
    assert said[0] == f"{fs.branch} {through_mount} {through_mount}"
    assert said[1:4] == ["yes", "outside-branch", "outside-branch"]
    assert fs.read("by-bound").content == "yes"
