"""Descriptors asked for by the file that a program has open: which programs, from which branch, as which user."""

import contextlib
import errno
import mmap
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.handoff.asking import Shim, ask, drop, keep, object_of
from tests.handoff.forwarding.granting import MIB, done, open_fd, open_on, switch_on
from tests.mounted import Mounted, needs_open_checkout, needs_root


def test_by_a_descriptor_of_the_mount(mounted: Mounted) -> None:
    fd = open_on(mounted, "file26", os.O_RDWR | os.O_APPEND)
    reply, fds = ask(mounted.state / "control.sock", {"op": "fd.dup"}, fd)
    assert reply["file"]["path"] == "file26"
    os.write(fds[0], b"appended")
    assert os.pread(fd, 20, 0) == b"lower\nappended"
    again = ask(mounted.state / "control.sock", {"op": "fd.dup"}, fds[0])[1][0]
    assert os.read(again, 20) == b"lower\nappended"
    assert ask(mounted.state / "control.sock", {"op": "fd.sync"}, fds[0])[0]["op"] == "done"
    for foreign in (keep(os.open(__file__, os.O_RDONLY)), open_on(mounted, ".", os.O_RDONLY), *map(keep, os.pipe())):
        assert ask(mounted.state / "control.sock", {"op": "fd.dup"}, foreign)[0]["code"] == "not-ours"
    reader = open_on(mounted, "file26", os.O_RDONLY)
    given = ask(mounted.state / "control.sock", {"op": "fd.dup"}, reader)[1][0]
    with pytest.raises(OSError):
        os.write(given, b"x")


def test_a_program_asks_by_the_file_that_it_has_open(mounted: Mounted) -> None:
    shim = Shim(mounted.state / "handoff.sock")
    fd = open_on(mounted, "file27", os.O_RDWR)
    real = shim.forward(fd)
    os.write(real, b"REAL")
    assert os.pread(fd, 10, 0) == b"REALr\n"
    assert object_of(fd) == (os.fstat(real).st_dev, os.fstat(real).st_ino)
    new = open_on(mounted, "made-here", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o444)
    os.write(shim.forward(new), b"content")
    assert (mounted.path / "made-here").read_text() == "content"
    reading = open_on(mounted, "file28", os.O_RDONLY)
    with pytest.raises(OSError) as refused:
        shim.forward(reading, os.O_RDWR)
    assert refused.value.errno == errno.EBADF
    lower = (mounted.lower / "file28").stat()
    assert object_of(reading) == (lower.st_dev, lower.st_ino)
    with pytest.raises(OSError) as refused:
        shim.forward(open_on(mounted, ".", os.O_RDONLY))
    assert refused.value.errno == errno.ENOTTY


def test_only_programs_on_the_list_are_let_in(mounted: Mounted) -> None:
    fd = open_on(mounted, "file29", os.O_RDWR)
    for allow, let_in in [("cp git*", False), (os.path.basename(os.path.realpath(sys.executable)), True), ("/nowhere/*", False)]:
        switch_on(mounted, allow=allow)
        with contextlib.nullcontext() if let_in else pytest.raises(PermissionError):
            Shim(mounted.state / "handoff.sock").forward(fd)


def test_another_version_and_anothers_conversation_are_refused(mounted: Mounted) -> None:
    fd = open_on(mounted, "file30", os.O_RDWR)
    with pytest.raises(OSError) as refused:
        Shim(mounted.state / "handoff.sock", version=2).forward(fd)
    assert refused.value.errno == errno.EPROTO
    shim = Shim(mounted.state / "handoff.sock")
    shim.forward(fd)
    pid = os.fork()
    if pid == 0:
        try:
            shim.forward(fd)
        except OSError as exc:
            os._exit(exc.errno != errno.ENOTCONN)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rude:
        rude.connect(str(mounted.state / "handoff.sock"))
        rude.send(b"nonsense")
        shim.forward(fd)
        assert rude.recv(1) == b""


ASK_IN_BRANCH = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tests.handoff.asking import Shim, ask
state = sys.argv[2]
found = {}
mine = os.open("file31", os.O_RDWR)
os.write(Shim(state + "/handoff.sock").forward(mine), b"MINE!")
for path, branch in (("file31", "main"), ("file31", "agent"), ("file32", None)):
    reply, fds = ask(state + "/control.sock", {"op": "fd.open", "path": path, "branch": branch, "flags": os.O_RDWR})
    found[f"{path} {branch}"] = reply.get("code") or os.write(fds[0], b"agent")
handed = int(sys.argv[3])
found["handed"] = ask(state + "/control.sock", {"op": "fd.dup"}, handed)[0].get("code", "given")
found["set"] = ask(state + "/control.sock", {"op": "interpose.set", "name": "enabled", "value": "off"})[0].get("code")
print(found)
"""


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_a_bound_process_reaches_its_own_branch_only(mounted: Mounted, view: str) -> None:
    if view == "namespace" and os.geteuid() != 0:
        pytest.skip("needs root")
    mains = open_on(mounted, "file31", os.O_RDWR)
    os.set_inheritable(mains, True)
    root = Path(__file__).parents[3]
    ran = mounted.run(
        "agent", sys.executable, "-c", ASK_IN_BRANCH, str(root), str(mounted.state), str(mains), new=True, view=view,
        pass_fds=[mains],
    )  # fmt: skip
    assert eval(ran.stdout) == {
        "file31 main": "outside-branch", "file31 agent": 5, "file32 None": 5, "handed": "outside-branch", "set": "outside-branch",
    }  # fmt: skip
    assert (mounted.path / "file31").read_text() == (mounted.path / "file32").read_text() == "lower\n"
    assert (mounted.path / ".agentfs/branches/agent/file31").read_text() == "agent\n"
    done(mounted, op="discard", ref="agent")


ASK_FOR_MORE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tests.handoff.asking import Shim
for flags in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY):
    try:
        print(os.pread(Shim(sys.argv[2] + "/handoff.sock").forward(int(sys.argv[3]), flags), 20, 0))
    except OSError as exc:
        print(exc.strerror)
"""


def test_a_descriptor_handed_to_a_bound_process_grows_no_rights(mounted: Mounted) -> None:
    (mounted.path / "file33").write_text("of main alone")
    mains = open_on(mounted, "file33", os.O_WRONLY)
    os.set_inheritable(mains, True)
    root = str(Path(__file__).parents[3])
    ran = mounted.run(
        "agent", sys.executable, "-c", ASK_FOR_MORE, root, str(mounted.state), str(mains), new=True, view="pid", pass_fds=[mains]
    )
    assert ran.stdout.splitlines() == ["Permission denied", "Permission denied", "Bad file descriptor"]
    done(mounted, op="discard", ref="agent")


ASK_WITH = """
import sys
from tests.handoff.asking import ask
ask(sys.argv[1], {"op": "status"}, int(sys.argv[2]))
"""


def test_a_descriptor_that_no_request_takes_is_closed_without_stopping_the_mount(mounted: Mounted) -> None:
    fd = open_on(mounted, "file34", os.O_RDWR)
    with mmap.mmap(fd, 6) as mapped:
        mapped[:3] = b"map"  # to be written back at each close, by the mount
        command = [sys.executable, "-c", ASK_WITH, str(mounted.state / "control.sock"), str(fd)]
        asking = subprocess.Popen(command, pass_fds=[fd], cwd=Path(__file__).parents[3])
        try:
            assert asking.wait(10) == 0
        except subprocess.TimeoutExpired:
            mounted.kill()
            raise
    assert (mounted.path / "file34").read_bytes() == b"maper\n"


def test_a_descriptor_of_a_file_system_that_does_not_answer(mounted: Mounted, tmp_path: Path) -> None:
    silent = Mounted(tmp_path)
    (silent.lower / "file").touch()
    silent.mount()
    fd = open_on(silent, "file", os.O_RDONLY)
    pid = silent.record().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(45) as many:
            asked = [many.submit(ask, mounted.state / "control.sock", {"op": "fd.dup"}, fd) for _ in range(45)]
            assert {one.result()[0]["code"] for one in asked} <= {"not-ours", "not-forwarded"}
        (mounted.lower / "large").write_bytes(b"x" * (5 * MIB))  # is copied up in a thread, of which there must be one
        assert open_fd(mounted, "large", os.O_RDWR)[1] == "own"
    finally:
        os.kill(pid, signal.SIGCONT)
        drop(fd)
        silent.end()


AS_A_USER = """
import os, sys
sys.path.insert(0, sys.argv[1])
os.environ["AGENTFS_RUNTIME_DIR"] = sys.argv[2] + "/state/run"
from pathlib import Path
from tests.handoff.asking import Shim, ask, drop
from tests.mounted import Mounted, agentfsd
mounted = Mounted(Path(sys.argv[2])).mount()
try:
    where = mounted.state / "control.sock"
    reply, _ = ask(where, {"op": "interpose.set", "name": "enabled", "value": "on"})
    print(reply["possible"], reply["why"])
    for path, flags in (("secret", 0), ("readable", 0), ("readable", 2), ("open", 2)):
        print(path, flags, ask(where, {"op": "fd.open", "path": path, "flags": flags})[0].get("code", "given"))
    fd = os.open(mounted.path / "open", os.O_RDWR)
    os.write(Shim(mounted.state / "handoff.sock").forward(fd), b"OPEN")
    print((mounted.path / "open").read_text())
finally:
    agentfsd("umount", "--lazy", str(mounted.path))
"""


def test_permissions_are_those_of_the_mount(tmp_path: Path) -> None:
    needs_root()
    needs_open_checkout()
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    mounted = Mounted(tmp_path)
    for path in (mounted.lower, mounted.path):
        os.chown(path, 65534, 65534)
    for name, mode in (("secret", 0o000), ("readable", 0o444), ("open", 0o644)):
        (mounted.lower / name).write_text(name)
        (mounted.lower / name).chmod(mode)
        os.chown(mounted.lower / name, 65534, 65534)
    mounted.state.mkdir()
    os.chown(mounted.state, 65534, 65534)
    done = subprocess.run(
        [sys.executable, "-c", AS_A_USER, str(Path(__file__).parents[3]), str(tmp_path)],
        capture_output=True, text=True, check=False, user=65534, group=65534, extra_groups=[], cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    if not first.startswith("True"):
        pytest.skip(f"an ordinary user cannot give out descriptors here: {first}")
    assert rest == ["secret 0 EACCES", "readable 0 given", "readable 2 EACCES", "open 2 given", "OPEN"]
