"""Ways out of a branch, each tried by a real process that is bound to one (the table in ARCHITECTURE.md names them).

The attacker runs as the same user as everybody else; where that is root, root's other powers are not what is tested.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentfsd.cli.sandbox import namespace_trial
from tests.binding.test_table import needs_fork_watch
from tests.mounted import Mounted, agentfsd, needs_root

Make = Callable[..., Mounted]
SECRET = "theirs alone\n"


HEAD = """
import ctypes, json, os, sys, time
def denied(work, *args):
    try: work(*args)
    except OSError as exc: return exc.errno
    return 0
def read(path):
    with open(path) as file: return file.read()
"""


@pytest.fixture
def two(mounted: Mounted) -> Mounted:
    """The branches mine and theirs; theirs and main hold secrets."""
    for branch in ("mine", "theirs"):
        mounted.cli("branch create", branch)
    (mounted.subtree("theirs") / "secret").write_text(SECRET)
    (mounted.subtree("theirs") / "dir").mkdir()
    (mounted.subtree("theirs") / "dir" / "secret").write_text(SECRET)
    (mounted.path / "of-main").write_text(SECRET)
    (mounted.subtree("mine") / "own").write_text("mine\n")
    mounted.cli("snapshot create", "-b", "theirs", "their-point")
    return mounted


def python(mounted: Mounted, script: str, *arguments: object, view: str = "pid", **options: Any) -> Any:
    """Runs a script in the branch mine; what it prints, as JSON. ``denied(f)`` there gives the errno of a failure."""
    words = [str(argument) for argument in arguments]
    done = mounted.run("mine", sys.executable, "-c", HEAD + script, *words, view=view, **options)
    return json.loads(done.stdout)


def start_victim(mounted: Mounted, view: str) -> subprocess.Popen[str]:
    """A process of the branch theirs, with its working directory and two descriptors there."""
    program = (
        "import os, sys\n"
        "os.chdir('dir'); file = open('../secret', 'r+'); directory = os.open('.', os.O_RDONLY)\n"
        "print(os.getpid(), file.fileno(), directory, flush=True); sys.stdin.readline()\n"
        "print(open('secret').read(), end='', flush=True)\n"
    )
    victim = mounted.start("theirs", sys.executable, "-c", program, view=view, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return victim


def numbers_of(victim: subprocess.Popen[str]) -> tuple[int, int, int]:
    assert victim.stdout is not None
    pid, file, directory = map(int, victim.stdout.readline().split())
    return pid, file, directory


REFUSED = (errno.EACCES, errno.ENOENT, errno.EPERM, errno.ESTALE)


@pytest.mark.parametrize("view", ["pid", "namespace"])
def test_dots_and_control_directory_lead_nowhere(two: Mounted, view: str) -> None:
    script = """
paths = ['../theirs/secret', '.agentfs/branches/theirs/secret', '.agentfs/branches/mine/../theirs/secret',
         'sub/../.agentfs/branches/theirs', '.agentfs/snapshots/their-point/secret', '.agentfs/../.agentfs/branches/main/of-main',
         './/.agentfs//branches/./theirs/dir/secret', sys.argv[1] + '/.agentfs/branches/theirs/secret', 'of-main']
print(json.dumps([denied(os.listdir, '.agentfs/branches'), *(denied(os.stat, path) for path in paths)]))
"""
    found = python(two, script, two.path, view=view)
    assert all(number in REFUSED for number in found), found


@pytest.mark.parametrize("place", ["lower", "upper"])
def test_symlinks_lead_to_what_their_reader_may_see(two: Mounted, place: str) -> None:
    root = two.lower if place == "lower" else two.subtree("mine")
    targets = {
        "relative": "../../../secret", "branches": ".agentfs/branches/theirs/secret", "absolute": f"{two.path}/secret",
        "dots": "sub/../../theirs/secret", "control": f"{two.path}/.agentfs/branches/theirs/dir", "ok": "file",
    }  # fmt: skip
    for name, target in targets.items():
        (root / f"s-{name}").symlink_to(target)
    script = "print(json.dumps({name: denied(os.stat, 's-' + name) for name in sys.argv[1:]}))"
    found = python(two, script, *targets)
    assert found.pop("ok") == 0
    assert all(number in REFUSED for number in found.values()), found


def test_symlink_in_the_lower_is_never_followed_by_the_daemon(two: Mounted, tmp_path: Path) -> None:
    """A directory of the lower is swapped for a symlink and back while it is looked up: what shows is the lower's alone."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "inner").write_text("outside the workspace\n")
    swap = (
        "import os, sys, time\n"
        "end = time.monotonic() + 3\n"
        "while time.monotonic() < end:\n"
        "    os.rename('sub', 'kept'); os.symlink(sys.argv[1], 'sub'); os.unlink('sub'); os.rename('kept', 'sub')\n"
    )
    swapper = subprocess.Popen([sys.executable, "-c", swap, str(outside)], cwd=two.lower)
    reader = os.open(two.subtree("mine"), os.O_RDONLY)
    seen = set()
    while swapper.poll() is None:
        try:
            fd = os.open("sub/inner", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=reader)
        except OSError:
            continue
        found = os.fstat(fd)
        if found.st_dev == two.path.stat().st_dev:  # else the kernel followed the link, as it would on any file system
            seen.add(os.pread(fd, 100, 0))
        os.close(fd)
    os.close(reader)
    assert seen <= {b"inner\n"}
    assert swapper.returncode == 0


def test_hard_links_do_not_carry_changes_out(two: Mounted, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("not the workspace's alone\n")
    os.link(outside, two.lower / "shared")
    script = """
open('shared', 'w').write('changed'); os.chmod('file', 0o600); os.link('shared', 'again'); open('again', 'a').write('!')
print(json.dumps([read('shared'), denied(os.link, sys.argv[1], 'stolen'), denied(os.link, '.agentfs/status', 'stolen')]))
"""
    content, across, virtual = python(two, script, two.subtree("theirs") / "secret")
    assert content == "changed!"
    assert across in (*REFUSED, errno.EXDEV)
    assert virtual in (*REFUSED, errno.EXDEV)
    assert outside.read_text() == (two.lower / "shared").read_text() == "not the workspace's alone\n"


@pytest.mark.parametrize("victim_view", ["pid", "namespace"])
@pytest.mark.parametrize("view", ["pid", "namespace"])
def test_what_proc_shows_of_another_branchs_process_is_refused(two: Mounted, view: str, victim_view: str) -> None:
    victim = start_victim(two, victim_view)
    pid, file, directory = numbers_of(victim)
    script = """
pid, file, directory = sys.argv[1:4]
proc = f'/proc/{pid}/'
found = {
    'read': denied(read, f'{proc}fd/{file}'),
    'write': denied(lambda: os.write(os.open(f'{proc}fd/{file}', os.O_RDWR), b'x')),
    'truncate': denied(os.truncate, f'{proc}fd/{file}', 0),
    'chmod': denied(os.chmod, f'{proc}fd/{file}', 0o777),
    'cwd': denied(read, f'{proc}cwd/secret'),
    'cwd-make': denied(os.mkdir, f'{proc}cwd/new'),
    'directory': denied(read, f'{proc}fd/{directory}/secret'),
    'parent': denied(read, f'{proc}cwd/../secret'),
    'xattr': denied(os.setxattr, f'{proc}fd/{file}', 'user.x', b''),
}
print(json.dumps(found))
"""
    found = python(two, script, pid, file, directory, view=view)
    assert all(number in (*REFUSED, errno.EXDEV, errno.ENODATA) for number in found.values()), found
    assert victim.communicate("go\n")[0] == SECRET
    assert (two.subtree("theirs") / "secret").read_text() == SECRET
    assert sorted(path.name for path in (two.subtree("theirs") / "dir").iterdir()) == ["secret"]


PASS = """
import array, os, socket, sys
sock = socket.socket(socket.AF_UNIX); sock.connect(sys.argv[1])
fd = os.open(sys.argv[2], int(sys.argv[3]))
sock.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])
sock.recv(1)
"""

TAKE = """
import array, socket
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen()
open(sys.argv[2], 'w').close()
conn, _ = server.accept()
_, ancillary, _, _ = conn.recvmsg(1, 100)
fd = array.array('i', ancillary[0][2])[0]
found = {
    'file': denied(lambda: os.close(os.open('secret', os.O_RDONLY, dir_fd=fd))),
    'make': denied(lambda: os.mkdir('new', dir_fd=fd)),
    'up': denied(lambda: os.close(os.open('../secret', os.O_RDONLY, dir_fd=fd))),
}
os.fchdir(fd)
found['here'] = denied(os.listdir, '.')
found['own'] = os.path.exists('own')
print(json.dumps(found))
"""


@pytest.mark.parametrize("place", ["caller-view", "subtree"])
def test_directory_descriptor_passed_between_branches_shows_the_receivers_own(two: Mounted, tmp_path: Path, place: str) -> None:
    address, ready = Path("/tmp") / f"agentfsd-{os.getpid()}-{place}", tmp_path / "ready"
    taker = two.start("mine", sys.executable, "-c", HEAD + TAKE, str(address), str(ready), view="pid", stdout=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while not ready.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if place == "subtree":  # an unbound process has it from .agentfs/branches
        passer = [sys.executable, "-c", PASS, str(address), str(two.subtree("theirs") / "dir"), str(os.O_RDONLY)]
        giver = subprocess.Popen(passer)
    else:
        giver = two.start("theirs", sys.executable, "-c", PASS, str(address), str(two.path), str(os.O_RDONLY))
    found = json.loads(taker.communicate(timeout=30)[0])
    giver.kill()
    giver.wait()
    address.unlink()
    if place == "subtree":
        assert all(found[name] in REFUSED for name in ("file", "make", "up", "here")), found
    else:  # the same path, in the receiver's own branch
        assert found["file"] == errno.ENOENT
        assert found["make"] == 0
        assert found["own"] is True
        assert (two.subtree("mine") / "new").is_dir()
        assert not (two.subtree("theirs") / "new").exists()
    assert sorted(path.name for path in (two.subtree("theirs") / "dir").iterdir()) == ["secret"]


ESCAPES = {
    "double-fork": "if os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(0.2)\n",
    "setsid": "if os.fork(): os._exit(0)\nos.setsid()\ntime.sleep(0.2)\n",
    # CLONE_PARENT: the child's parent is our own, which is not bound
    "sibling": "if ctypes.CDLL(None).syscall(56, 0x8000 | 17, 0, 0, 0, 0): time.sleep(3); os._exit(0)\ntime.sleep(0.2)\n",
    "new-group": "os.setpgid(0, 0) if os.getpid() != os.getpgid(0) else None\nif os.fork(): os._exit(0)\ntime.sleep(0.2)\n",
}

REPORT = """
found = {'own': os.path.exists(os.path.join(sys.argv[2], 'own')), 'main': denied(os.stat, os.path.join(sys.argv[2], 'of-main')),
         'branches': denied(os.stat, os.path.join(sys.argv[2], '.agentfs/branches/theirs'))}
with open(sys.argv[1] + '.part', 'w') as file: file.write(json.dumps(found))
os.rename(sys.argv[1] + '.part', sys.argv[1])
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", ESCAPES)
@pytest.mark.parametrize("how", ["run", "bind"])
def test_leaving_ones_parents_does_not_leave_the_branch(two: Mounted, tmp_path: Path, way: str, how: str) -> None:
    if how == "bind" and way == "sibling":
        pytest.skip("a known limit of bind on a running process: see ARCHITECTURE.md")
    needs_fork_watch()
    if way == "sibling" and os.uname().machine != "x86_64":
        pytest.skip("the number of clone(2) is x86_64's")
    report = tmp_path / "report"
    command = [sys.executable, "-c", HEAD + "sys.stdin.readline()\n" + ESCAPES[way] + REPORT, str(report), str(two.path)]
    if how == "run":
        started = two.start("mine", *command, view="pid", stdin=subprocess.PIPE)
    else:
        started = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        two.cli("bind", str(started.pid), "mine")
    started.communicate("go\n")
    deadline = time.monotonic() + 10
    while not report.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    found = json.loads(report.read_text())
    assert found["own"] is True
    assert found["main"] == errno.ENOENT
    assert found["branches"] in REFUSED


def test_tracing_another_branchs_process_gives_the_tracer_nothing_of_its_own(two: Mounted) -> None:
    """Whether it may trace (before Linux 6.12) or not, the tracer's own requests stay its branch's."""
    victim = start_victim(two, "pid")
    pid, *_ = numbers_of(victim)
    script = """
libc = ctypes.CDLL(None, use_errno=True)
attached = libc.ptrace(0x4206, int(sys.argv[1]), 0, 0)
found = {'attached': attached, 'secret': denied(os.stat, 'secret'), 'fd': denied(os.listdir, f'/proc/{sys.argv[1]}/cwd')}
print(json.dumps(found))
"""
    found = python(two, script, pid)
    assert found["secret"] == errno.ENOENT
    assert found["fd"] in REFUSED
    assert victim.communicate("go\n")[0] == SECRET


def test_a_user_namespace_of_ones_own_opens_nothing(two: Mounted) -> None:
    if namespace_trial.probe_error() or shutil.which("unshare") is None:
        pytest.skip("no user namespaces here")
    script = f"""
        cd "{two.path}"
        test -e own && ! test -e of-main && ! test -e .agentfs/branches/theirs
        mkdir -p "$0" && mount --bind .agentfs/branches/theirs "$0" 2>/dev/null && exit 9
        mount --rbind . "$0" && test -e "$0/own" && ! test -e "$0/of-main" && ! test -e "$0/.agentfs/branches/theirs"
    """
    for view in ("pid", "namespace"):
        where = two.path.parent / f"bound-{view}"
        done = two.run("mine", "unshare", "-Urm", "sh", "-ec", script, str(where), view=view, check=False)
        assert done.returncode == 0, done.stderr


FORGED = [
    {"op": "branch.bind", "pid": 1, "branch": "theirs"}, {"op": "branch.unbind", "pid": 1},
    {"op": "branch.delete", "ref": "theirs"}, {"op": "discard", "ref": "theirs"},
    {"op": "snapshot.create", "branch": "theirs"}, {"op": "snapshot.delete", "ref": "their-point"},
    {"op": "restore", "ref": "their-point"}, {"op": "diff", "b": "theirs"}, {"op": "log", "ref": "theirs"},
    {"op": "branch.create", "name": "stolen", "source": "theirs"}, {"op": "branch.rename", "ref": "theirs", "new_name": "x"},
    {"op": "shutdown", "force": True}, {"op": "branch.bindings"}, {"op": "fsck"},
    {"op": "snapshot.create", "branch": "theirs", "pid": 1}, {"op": "status", "uid": 0},
]  # fmt: skip


@pytest.mark.parametrize("way", ["file", "socket"])
@pytest.mark.parametrize("view", ["pid", "namespace"])
def test_forged_requests_are_refused(two: Mounted, way: str, view: str) -> None:
    before = two.json("branch list"), two.json("snapshot list")
    script = """
import socket, struct
found = []
for request in json.loads(sys.argv[1]):
    body = json.dumps(request).encode()
    if sys.argv[2] == 'file':
        fd = os.open('.agentfs/control', os.O_RDWR); os.write(fd, body); reply = os.read(fd, 1 << 20); os.close(fd)
    else:
        sock = socket.socket(socket.AF_UNIX); sock.connect(sys.argv[3])
        sock.sendall(len(body).to_bytes(4, 'little') + body)
        size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), 'little')
        reply = sock.recv(size, socket.MSG_WAITALL); sock.close()
    found.append(json.loads(reply))
print(json.dumps(found))
"""
    replies = python(two, script, json.dumps(FORGED), way, two.record().socket, view=view)
    for request, reply in zip(FORGED, replies, strict=True):
        assert reply["op"] == "error", (request, reply)
        assert reply["code"] in ("outside-branch", "bad-request"), (request, reply)
    assert (two.json("branch list"), two.json("snapshot list")) == before


def test_a_control_descriptor_outlives_nobody(two: Mounted) -> None:
    """Opened by an unbound process that then ends: whoever has it now is not taken for that process."""
    script = f"""
        exec 7<>"{two.path}/.agentfs/control"
        (sleep 0.3; printf '{{"op":"branch.create","name":"stolen"}}' >&7; head -c 1000 <&7 > "$0") &
    """
    report = two.path.parent / "report"
    subprocess.run(["bash", "-c", script, report], check=True)
    deadline = time.monotonic() + 10
    while not report.exists() or not report.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "has ended" in report.read_text()
    assert "stolen" not in [branch["name"] for branch in two.json("branch list")]


def test_names_that_look_like_the_control_directory(tmp_path: Path, make_mount: Make) -> None:
    lower = tmp_path / "lower"
    (lower / ".agentfs" / "branches" / "theirs").mkdir(parents=True)
    (lower / ".agentfs" / "control").write_text("a trap")
    (lower / "sub" / ".agentfs").mkdir(parents=True)
    (lower / "sub" / ".agentfs" / "control").write_text("an ordinary file")
    mounted = make_mount(lower)
    assert ".agentfs" not in os.listdir(mounted.path)
    assert (mounted.path / ".agentfs" / "status").read_text()
    assert [path.name for path in (mounted.path / ".agentfs" / "branches").iterdir()] == ["main"]
    assert (mounted.path / "sub" / ".agentfs" / "control").read_text() == "an ordinary file"
    for name in (".agentfs ", ".AGENTFS", ".agentfs\n", "agentfs", ".agentfs.", ".agentf\u017f"):
        (mounted.path / name).mkdir()
        assert list((mounted.path / name).iterdir()) == []
    attempts: list[Callable[[], object]] = [
        lambda: (mounted.path / ".agentfs").mkdir(),
        lambda: (mounted.path / ".agentfs").rmdir(),
        lambda: (mounted.path / ".agentfs").rename(mounted.path / "x"),
        lambda: (mounted.path / "sub").rename(mounted.path / ".agentfs"),
        lambda: (mounted.path / ".agentfs").symlink_to("sub"),
        lambda: (mounted.path / ".agentfs" / "branches" / "new").mkdir(),
        lambda: (mounted.path / ".agentfs" / "control").unlink(),
        lambda: (mounted.path / ".agentfs" / "new").touch(),
        lambda: (
            (mounted.path / ".agentfs" / "control").chmod(0o777) or (mounted.path / ".agentfs" / "control").stat().st_mode & 1
        ),
    ]
    for attempt in attempts[:-1]:
        with pytest.raises(OSError):
            attempt()
    attempts[-1]()
    assert (mounted.path / ".agentfs" / "control").stat().st_mode & 0o077 == 0
    assert (lower / ".agentfs" / "control").read_text() == "a trap"
    assert mounted.fsck() == []


def test_setuid_files_and_devices_are_only_files_there(two: Mounted) -> None:
    needs_root()
    shutil.copy("/usr/bin/id", two.subtree("mine") / "id")
    (two.subtree("mine") / "id").chmod(0o6755)
    os.mknod(two.subtree("mine") / "disk", 0o666 | 0o020000, os.makedev(1, 1))
    script = """
fd = os.open('id', os.O_RDONLY); child = os.fork()
if child == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534); os.dup2(2, 1)
    os.execve(fd, ['id', '-u'], {})
status = os.waitpid(child, 0)[1]
print(json.dumps([denied(lambda: open('disk')), status]))
"""
    found, _ = python(two, script)
    assert found == errno.EACCES


def test_another_user_without_allow_other_sees_nothing(two: Mounted) -> None:
    needs_root()
    script = "import os, sys\ntry: os.listdir(sys.argv[1])\nexcept PermissionError: sys.exit(0)\nsys.exit(1)"
    subprocess.run(["/usr/bin/python3", "-I", "-c", script, "mnt"], cwd=two.path.parent, user=65534, extra_groups=[], check=True)


def test_another_user_with_allow_other_sees_no_control_directory(make_mount: Make) -> None:
    needs_root()
    mounted = make_mount(None, "--allow-other")
    mounted.path.chmod(0o755)
    script = (
        "import os, sys\nassert os.listdir('.') == []\n"
        "for name in ('.agentfs', '.agentfs/control', '.agentfs/branches/main'):\n    assert not os.path.exists(name)\n"
    )
    subprocess.run(["/usr/bin/python3", "-I", "-c", script], cwd=mounted.path, user=65534, extra_groups=[], check=True)
    done = agentfsd("status", "-m", str(mounted.path), "--json")
    assert json.loads(done.stdout)


def test_the_backstore_is_closed_to_other_users(two: Mounted) -> None:
    for path in (two.state, two.state / "objects", two.state / "meta.db"):
        assert path.stat().st_mode & 0o077 == 0, path
