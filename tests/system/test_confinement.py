"""What a command of `run` may not do to what is outside of it: enter, trace, signal, uncover, type; and what goes on working."""

import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfsd.cli.sandbox import confinement, seccomp_filter
from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_namespaces, needs_root

VIEWS = ["pid", "namespace"]
SECRET = b"theirs alone\n"
HEAD = """
import ctypes, errno, fcntl, json, mmap, os, signal, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def denied(work, *args):
    try: work(*args)
    except OSError as exc: return exc.errno
    return 0
def call(function, *args):
    result = function(*args)
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
"""


def needs_domains() -> None:
    if not confinement.has_domains():
        pytest.skip("this kernel's Landlock has no scopes (6.12)")


@pytest.fixture
def two(mounted: Mounted) -> Mounted:
    for branch in ("mine", "theirs"):
        mounted.cli("branch create", branch)
    (mounted.subtree("theirs") / "secret").write_bytes(SECRET)
    return mounted


def python(mounted: Mounted, script: str, *arguments: object, view: str) -> object:
    """Runs a script in the branch mine; what it prints, as JSON."""
    words = [sys.executable, "-c", HEAD + script, *map(str, arguments)]
    return json.loads(mounted.run("mine", *words, view=view).stdout)


# -- the namespaces of another run ------------------------------------------------------------------------------------


ENTER = """
def by_process(pid, number, identity):
    return os.open(f'/proc/{pid}/ns/mnt', os.O_RDONLY)

def by_walking(pid, number, identity):
    at = os.open('/proc/self/ns/mnt', os.O_RDONLY)
    for direction in (0x8010b70b, 0x8010b70c):  # NS_MNT_GET_NEXT, NS_MNT_GET_PREV
        while os.fstat(at).st_ino != int(number):
            try: at = fcntl.ioctl(at, direction, bytearray(struct.pack('=IIQ', 16, 0, 0)))
            except FileNotFoundError: break
    if os.fstat(at).st_ino != int(number): raise ProcessLookupError(errno.ESRCH, 'not found')
    return at

def by_handle(pid, number, identity):
    handle = struct.pack('=IiQII', 16, 0xf1, int(identity), 0x20000, int(number))
    return call(libc.open_by_handle_at, os.open('/proc/self/ns/mnt', os.O_RDONLY), handle, os.O_RDONLY)

def store(find):
    namespace = find(*sys.argv[2:5])
    owner = fcntl.ioctl(namespace, 0xb701)  # NS_GET_USERNS
    if os.geteuid(): call(libc.setns, owner, 0x10000000)
    call(libc.setns, namespace, 0x20000)
    fd = os.open(sys.argv[5], os.O_RDWR)
    page = mmap.mmap(fd, 5, mmap.MAP_SHARED)
    page[:] = b'taken'
    page.flush()

print(json.dumps(denied(store, globals()[sys.argv[1]])))
"""
VICTIM = "import os, sys; print(open('secret').read(), os.getpid(), flush=True); sys.stdin.readline()"
IDENTITY = """
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
print(os.fstat(fd).st_ino, struct.unpack('=Q', fcntl.ioctl(fd, 0x8008b705, bytes(8)))[0])  # NS_GET_MNTNS_ID
"""


def test_the_namespaces_of_another_run_cannot_be_entered(two: Mounted) -> None:
    """There a file that the kernel has cached is opened without asking us, and its pages come back without a caller."""
    needs_domains()
    needs_namespaces()
    victim = two.start(
        "theirs", sys.executable, "-c", VICTIM, view="namespace", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )  # fmt: skip
    assert victim.stdout is not None
    assert victim.stdout.readline().encode() == SECRET
    pid = victim.stdout.readline().strip()
    asked = [sys.executable, "-c", IDENTITY, f"/proc/{pid}/ns/mnt"]
    number, identity = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    ways = ["by_process", "by_walking", "by_handle"]
    found = {way: python(two, ENTER, way, pid, number, identity, two.path / "secret", view="pid") for way in ways}
    victim.communicate("go\n")
    assert set(found.values()) <= {errno.EACCES, errno.EPERM}, found
    assert (two.subtree("theirs") / "secret").read_bytes() == SECRET


# -- processes outside ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_a_command_neither_signals_nor_traces_who_is_outside(two: Mounted, view: str) -> None:
    needs_domains()
    outside = subprocess.Popen(["sleep", "1000"])
    script = """
found = {}
for pid in map(int, sys.argv[1:]):
    found[pid] = [denied(os.kill, pid, number) for number in (0, signal.SIGSTOP, signal.SIGKILL)] + [
        denied(call, libc.ptrace, 0x4206, pid, 0, 0), denied(os.open, f'/proc/{pid}/mem', os.O_RDWR),
        denied(os.listdir, f'/proc/{pid}/root'), denied(os.readlink, f'/proc/{pid}/exe'),
    ]
print(json.dumps(found))
"""
    daemon = two.record().pid
    try:
        found = python(two, script, outside.pid, daemon, view=view)
        assert outside.poll() is None
    finally:
        outside.kill()
        outside.wait()
    assert isinstance(found, dict)
    assert found == {str(pid): [errno.EPERM] * 4 + [errno.EACCES] * 3 for pid in (outside.pid, daemon)}
    assert two.json("status")


@pytest.mark.parametrize("view", VIEWS)
def test_a_command_signals_and_traces_what_it_has_started(two: Mounted, view: str) -> None:
    script = """
child = subprocess.Popen(['sleep', '1000'])
found = [
    denied(call, libc.ptrace, 0x4206, child.pid, 0, 0), denied(os.listdir, f'/proc/{child.pid}/root'),
    denied(os.kill, child.pid, signal.SIGKILL),
]
group = subprocess.run(['sh', '-c', 'sleep 1000 & kill -TERM 0'], start_new_session=True, timeout=20)
print(json.dumps([*found, child.wait(), group.returncode]))
"""
    assert python(two, script, view=view) == [0, 0, 0, -signal.SIGKILL, -signal.SIGTERM]


@pytest.mark.parametrize("view", VIEWS)
def test_a_shell_in_a_run_controls_its_jobs(two: Mounted, view: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(two.path)
        options = ["--no-namespace"] * (view == "pid")
        os.environ["PS1"] = "ready> "
        os.execv(sys.executable, [*AGENTFSD, "run", "-b", "mine", *options, "--", "bash", "--norc", "--noprofile", "-i"])
    text = _read_until(terminal, "ready> ")
    text += _say(terminal, "sleep 1000 & kill %1; wait %1; echo killed=$?", r"killed=\d+")
    text += _say(terminal, "timeout 0.1 sleep 1000; echo timed=$?", r"timed=\d+")
    text += _say(terminal, "sleep 1000", "sleep 1000\r\n")
    time.sleep(0.2)  # until the shell has given the terminal away
    text += _say(terminal, "\x1a", "Stopped", end="")
    text += _say(terminal, "fg", "sleep 1000\r\n")
    time.sleep(0.2)
    text += _say(terminal, "\x03", "ready> ", end="")
    text += _say(terminal, "echo ended=$?", r"ended=\d+")
    os.write(terminal, b"exit 7\n")
    _read_until(terminal, None)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert re.findall(r"(?:killed|timed|ended)=\d+", text) == ["killed=143", "timed=124", "ended=130"]


def _say(terminal: int, line: str, wanted: str, end: str = "\n") -> str:
    os.write(terminal, (line + end).encode())
    return _read_until(terminal, wanted)


def _read_until(terminal: int, wanted: str | None) -> str:
    text = ""
    deadline = time.monotonic() + 20
    while wanted is None or not re.search(wanted, text):
        assert time.monotonic() < deadline, text
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the other side has ended
            break
        text += chunk.decode(errors="replace")
    return text


@pytest.mark.parametrize("view", VIEWS)
def test_setuid_programs_work_where_they_can(two: Mounted, view: str) -> None:
    """An ordinary user's command can be confined at the mount point itself only if it gains no privileges any more."""
    found = python(two, "print(json.dumps(call(libc.prctl, 39, 0, 0, 0, 0)))", view=view)
    assert found == int(os.geteuid() != 0 and view == "pid")


@pytest.mark.parametrize("view", VIEWS)
def test_a_command_may_use_its_branch_and_run_others(two: Mounted, view: str, make_mount: Callable[..., Mounted]) -> None:
    program = " ".join(AGENTFSD)
    other = make_mount()
    script = f"""
        {program} snapshot create before >&2
        echo changed > file
        {program} diff --stat >&2
        {program} restore before >&2
        {program} status --json > /dev/null
        cat file
        {program} run -m {other.path} -b b --new -- sh -c 'cd {other.path}; echo within > new; sleep 1000 & kill $!; cat new'
    """
    confined = ["--confine", "off"]  # by default no other mount is seen in a run: tests/confinement
    words = [
        "run",
        "-m",
        str(two.path),
        "-b",
        "mine",
        *confined,
        *["--no-namespace"] * (view == "pid"),
        "--",
        "sh",
        "-ec",
        script,
    ]
    assert agentfsd(*words, cwd=two.path).stdout == "lower\nwithin\n"
    assert (other.subtree("b") / "new").read_text() == "within\n"


def test_whoever_is_outside_binds_a_process_of_a_run_anew(two: Mounted) -> None:
    script = "import os, sys; print(os.getpid(), flush=True); sys.stdin.readline(); print(open('secret').read(), end='')"
    inside = two.start("mine", sys.executable, "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert inside.stdout is not None
    two.cli("bind", inside.stdout.readline().strip(), "theirs")
    assert inside.communicate("go\n")[0].encode() == SECRET


# -- what a mount covers ----------------------------------------------------------------------------------------------


UNCOVER = {
    "lazily": "umount -l {at}",
    "control": "umount -l {at}/.agentfs",
    "move": "mount --move {at} {empty}",
    "bind of a parent": "mount --bind {parent} {empty}",
    "bind of the workspace": "mount --bind {at} {empty}",
    "in a namespace of its own": "unshare -m umount -l {at}",
    "in two": "unshare -m unshare -m umount -l {at}",
    "in a user namespace": "unshare -Urm umount -l {at}",
    "in a recursive bind": "mount --rbind {parent} {empty} && umount -l {empty}/mnt",
    "in an unshared recursive bind": "unshare -m sh -c 'mount --rbind {parent} {empty} && umount -l {empty}/mnt'",
    "root": "umount -l /",
}


def test_nothing_uncovers_what_the_workspace_covers(two: Mounted) -> None:
    needs_namespaces()
    empty = two.path.parent / "empty"
    empty.mkdir()
    ways = [
        f"({command.format(at=two.path, parent=two.path.parent, empty=empty)}) 2>/dev/null && echo {way}"
        for way, command in UNCOVER.items()
    ]
    then = f"echo mine > {two.path}/file; cat {two.path}/.agentfs/status > /dev/null"
    assert two.run("mine", "sh", "-c", "\n".join([*ways, then])).stdout == ""
    assert (two.subtree("mine") / "file").read_text() == "mine\n"


def test_the_one_step_overlay_cannot_be_uncovered(tmp_path: Path) -> None:
    needs_namespaces()
    project = tmp_path / "project"
    project.mkdir()
    command = [*AGENTFSD, "run", "-b", "b", "--new", "--", "sh", "-c", f"umount -l {project}; cd {project}; echo x > new"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    try:
        assert list(project.iterdir()) == []
        assert "1 change in branch b" in done.stderr
    finally:
        subprocess.run([*AGENTFSD, "umount", str(project)], capture_output=True, check=True)


def test_root_mounts_in_a_run_what_it_likes(two: Mounted, tmp_path: Path) -> None:
    """And unmounts it, also beneath the workspace, in further namespaces, and with another root."""
    needs_root()
    root = tmp_path / "root"
    root.mkdir()
    script = f"""
        mkdir sub/on
        mount -t tmpfs none sub/on; touch sub/on/x; umount sub/on
        mount --bind sub sub/on; test -e sub/on/inner; umount sub/on
        mount --rbind . {root}; test -e {root}/.agentfs/status; umount -l {root}
        mount --bind .agentfs {root}; test -e {root}/status; umount {root}
        mount -t proc none {root}; test -e {root}/self; umount {root}
        mount -t tmpfs none {root}; unshare -m umount {root}; mount --make-rprivate /; umount {root}
        unshare -m sh -ec 'mount -t tmpfs none {root}; mkdir {root}/old; cd {root}; pivot_root . old; test -e /old{two.path}/file'
        unshare -fpm --mount-proc true
        chroot / test -e {two.path}/file
    """
    two.sh("mine", script)
    assert (two.subtree("mine") / "sub" / "on").is_dir()


# -- the terminal -----------------------------------------------------------------------------------------------------


PUSH = """
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]
found = []
for command in (0x5412, 0x541c):  # TIOCSTI, TIOCLINUX
    for high in (0, 1 << 32):
        found += [denied(call, libc.ioctl, 0, high | command, bytes([character])) for character in b'pushed\\n']
print('answers', set(found))
"""


def needs_filter() -> None:
    if not seccomp_filter.is_known_here():
        pytest.skip("no filter of system calls for this machine")


@pytest.mark.parametrize("view", VIEWS)
def test_a_command_does_not_type_for_who_has_started_it(two: Mounted, view: str, tmp_path: Path) -> None:
    needs_filter()
    options = "--no-namespace" if view == "pid" else ""
    program = tmp_path / "push.py"
    program.write_text(HEAD + PUSH)
    shell = f"""
        cd {two.path}; {" ".join(AGENTFSD)} run -b mine {options} -- {sys.executable} {program}
        read -r -t 0.5 line; echo "read=<$line>"
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "-c", shell])
    text = _read_until(terminal, None)
    os.close(terminal)
    os.waitpid(pid, 0)
    assert f"answers {{{errno.EPERM}}}" in text
    assert "read=<>" in text
