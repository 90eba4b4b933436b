"""mount, and what stands in its way: every refusal reaches the terminal, and nothing stays behind."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from agentfsd.state import state_directory
from tests.cli.mount_checks import is_mounted, refusal
from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_root

Make = Callable[..., Mounted]


def test_mount_answers_when_the_command_returns(mounted: Mounted) -> None:
    assert (mounted.path / "file").read_text() == "lower\n"


def test_two_mounts_do_not_disturb_each_other(mounted: Mounted, make_mount: Make) -> None:
    other = make_mount(mounted.lower)
    (mounted.path / "file").write_text("first")
    (other.path / "file").write_text("second")
    assert (mounted.path / "file").read_text() == "first"
    assert (mounted.lower / "file").read_text() == "lower\n"
    agentfsd("umount", str(other.path))
    assert (mounted.path / "file").read_text() == "first"


def test_mount_over_the_workspace_itself(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, tmp_path / "mnt")
    (mounted.lower / "file").write_text("real")
    mounted.mount()
    try:
        (mounted.path / "file").write_text("overlay")
        (mounted.path / "new").write_text("overlay")
        assert sorted(os.listdir(mounted.path)) == ["file", "new"]
    finally:
        mounted.end()
    assert (mounted.lower / "file").read_text() == "real"
    assert os.listdir(mounted.lower) == ["file"]


def test_code_beneath_the_mount_is_not_needed_once_it_is_there(tmp_path: Path) -> None:
    """A project that keeps agentfsd in its own virtual environment may be mounted over itself."""
    base = tmp_path / "own"
    lower = base / "mnt"
    source = Path(state_directory.__file__).parents[2]
    lower.mkdir(parents=True)
    for package in ("agentfsd", "client/agentfs_client"):
        subprocess.run(["cp", "-r", str(source / package), str(lower)], check=True)
    (lower / "trio.py").write_text("raise SystemExit('the current directory is no place to import from')")
    (base / "path").mkdir()
    for package in ("agentfsd", "agentfs_client"):
        (base / "path" / package).symlink_to(lower / package)
    env = {**os.environ, "PYTHONPATH": str(base / "path"), "AGENTFS_LOG": "DEBUG"}
    mounted = Mounted(base, lower)
    agentfsd("mount", str(lower), str(lower), "--state", str(mounted.state), cwd=lower.parent, env=env)
    try:
        done = subprocess.run(
            ["sh", "-ec", "touch a; mkdir d; mv a d; cat d/a; echo '{}' > .agentfs/control || true; ls -R | wc -l"],
            cwd=lower, capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        agentfsd("umount", str(lower))
    finally:
        mounted.end()


def test_mount_point_inside_the_workspace_shows_what_it_covers_and_not_itself(tmp_path: Path) -> None:
    base = tmp_path / "in"
    lower = base / "lower"
    (lower / "view").mkdir(parents=True)
    (lower / "view" / "covered").touch()
    (lower / "file").touch()
    mounted = Mounted(base, lower)
    mounted.path = lower / "view"
    mounted.mount()
    try:
        names = subprocess.run(["find", "."], cwd=mounted.path, capture_output=True, text=True, timeout=20, check=True)
        assert sorted(names.stdout.split()) == [".", "./file", "./view", "./view/covered"]
    finally:
        mounted.end()


# -- refusals


def test_layouts_that_cannot_work_are_refused(tmp_path: Path) -> None:
    lower, point = tmp_path / "lower", tmp_path / "point"
    lower.mkdir()
    point.mkdir()
    (tmp_path / "plain").touch()
    (lower / "state").mkdir()
    (tmp_path / "state" / "point").mkdir(parents=True)
    for arguments, sentence in [
        ((tmp_path / "none", point), "No such file or directory"),
        ((lower, tmp_path / "none"), "No such file or directory"),
        ((tmp_path / "plain", point), "is not a directory"),
        ((lower, tmp_path / "plain"), "is not a directory"),
        ((lower, point, "--state", lower / "state"), "lies inside the workspace"),
        ((lower, point, "--state", tmp_path), "lies inside the state directory"),
        ((lower, tmp_path / "state" / "point", "--state", tmp_path / "state"), "lies inside the state directory"),
        ((lower, point, "--state", point / "state"), "lies inside the mount point"),
        ((lower, point, "--state", "/proc/state"), "cannot make the state directory"),
    ]:
        assert sentence in refusal("mount", *map(str, arguments)).splitlines()[0]
    assert f"hint: mkdir -p {tmp_path}/none" in refusal("mount", str(lower), str(tmp_path / "none"))
    assert not is_mounted(point)


def test_state_directory_in_which_others_can_write_is_refused(tmp_path: Path) -> None:
    lower, point, state = tmp_path / "lower", tmp_path / "point", tmp_path / "open"
    for directory in (lower, point, state):
        directory.mkdir()
    for mode in (0o777, 0o1777, 0o702):
        state.chmod(mode)
        said = refusal("mount", str(lower), str(point), "--state", str(state))
        assert f"others can write in the state directory {state} (mode {mode:04o})" in said
        assert f"hint: chmod go-w {state}" in said
    assert not is_mounted(point)
    assert list(state.iterdir()) == []


def test_mount_point_in_use_by_agentfsd_is_refused(mounted: Mounted, tmp_path: Path) -> None:
    said = refusal("mount", str(mounted.lower), str(mounted.path), "--state", str(tmp_path / "other"))
    assert f"{mounted.path} is an agentfsd mount already" in said


def test_state_in_use_names_its_holder(mounted: Mounted, tmp_path: Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    said = refusal("mount", str(mounted.lower), str(point), "--state", str(mounted.state))
    assert f"in use by process {mounted.record().pid}, mounted at {mounted.path}" in said


def test_state_of_another_workspace_is_refused(mounted: Mounted, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    agentfsd("umount", str(mounted.path))
    said = refusal("mount", str(other), str(mounted.path), "--state", str(mounted.state))
    assert f"belongs to {mounted.lower}, not to {other}" in said
    assert not is_mounted(mounted.path)


def test_damaged_state_is_refused_and_left_alone(mounted: Mounted) -> None:
    agentfsd("umount", str(mounted.path))
    (mounted.state / "meta.db").write_bytes(b"this is no database, and it is long enough to look at" * 100)
    before = (mounted.state / "meta.db").read_bytes()
    said = refusal("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state))
    assert "cannot be read" in said
    assert (mounted.state / "meta.db").read_bytes() == before


def test_failure_in_the_foreground_is_told_too(mounted: Mounted, tmp_path: Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    said = refusal("mount", "--foreground", str(mounted.lower), str(point), "--state", str(mounted.state))
    assert "in use by process" in said


# -- kinds of mounts


def test_setuid_programs_and_devices_work_only_when_asked_for(make_mount: Make) -> None:
    needs_root()
    for options, euid, opens in (((), 65534, False), (("-o", "suid,dev"), 0, True)):
        mounted = make_mount(None, "--allow-other", *options)
        shutil.copy("/usr/bin/id", mounted.path / "id")
        (mounted.path / "id").chmod(0o4755)
        os.mknod(mounted.path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        as_nobody = {"user": 65534, "extra_groups": [], "cwd": mounted.path}
        assert int(subprocess.check_output(["./id", "-u"], **as_nobody)) == euid
        if opens:
            assert (mounted.path / "null").read_bytes() == b""
        else:
            with pytest.raises(PermissionError):
                (mounted.path / "null").read_bytes()


def test_a_read_only_mount_refuses_writes(make_mount: Make) -> None:
    mounted = make_mount(None, "-o", "ro")
    with pytest.raises(OSError, match="Read-only"):
        (mounted.path / "new").touch()


def test_a_mount_with_noatime_leaves_access_times_alone(make_mount: Make) -> None:
    for options, moves in (((), True), (("-o", "noatime"), False)):
        file = make_mount(None, *options).path / "file"
        file.write_bytes(b"new")
        os.utime(file, ns=(1, 2))
        file.read_bytes()
        assert (file.stat().st_atime_ns != 1) is moves


def test_memory_backstore_says_that_nothing_is_kept(tmp_path: Path) -> None:
    lower, point = tmp_path / "lower", tmp_path / "point"
    lower.mkdir()
    point.mkdir()
    arguments = ("mount", str(lower), str(point), "--state", str(tmp_path / "state"), "--backstore", "memory")
    assert "keeps nothing" in agentfsd(*arguments).stderr
    (point / "new").write_text("volatile")
    agentfsd("umount", str(point))
    agentfsd(*arguments)
    assert os.listdir(point) == []
    agentfsd("umount", str(point))


def test_foreground_stays_until_told(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)
        daemon = subprocess.Popen(
            [*AGENTFSD, "mount", "--foreground", str(mounted.lower), str(mounted.path), "--state", str(mounted.state)],
            env={**os.environ, "NOTIFY_SOCKET": address}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert _told(manager).startswith(b"READY=1\n")
        (mounted.path / "new").touch()
        daemon.send_signal(signal.SIGINT)
        assert _told(manager).startswith(b"STOPPING=1\n")
        _, said = daemon.communicate(timeout=20)
    assert daemon.returncode == 0, said
    assert not is_mounted(mounted.path)


def _told(manager: socket.socket) -> bytes:
    """What a service manager is told next, apart from the descriptors that it is to keep."""
    while (message := manager.recv(1000)).startswith((b"FDSTORE=1\n", b"FDSTOREREMOVE=1\n")):
        pass
    return message


def test_waiting_for_the_output_of_mount_does_not_wait_for_the_daemon(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    read_end, write_end = os.pipe()
    agentfsd("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state), pass_fds=[write_end])
    os.close(write_end)
    try:
        assert os.read(read_end, 1) == b""
    finally:
        os.close(read_end)
        mounted.end()


def test_long_state_path_still_has_a_socket(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    mounted.state = tmp_path / ("long-" * 20) / ("name-" * 20)
    mounted.mount()
    try:
        assert json.loads(agentfsd("branch", "list", "--json", "-m", str(mounted.path)).stdout)[0]["name"] == "main"
    finally:
        mounted.end()


def test_names_with_blanks_and_control_characters(tmp_path: Path) -> None:
    base = tmp_path / "with blank\nand newline"
    base.mkdir()
    mounted = Mounted(base).mount()
    try:
        assert is_mounted(mounted.path)
        agentfsd("umount", str(mounted.path))
        assert not is_mounted(mounted.path)
    finally:
        mounted.end()


def test_fsck_of_a_state_that_is_not_mounted(mounted: Mounted) -> None:
    (mounted.path / "new").write_text("x")
    assert "is in use by process" in refusal("fsck", "--state", str(mounted.state))
    assert agentfsd("fsck", "-m", str(mounted.path)).stdout == "sound\n"
    agentfsd("umount", str(mounted.path))
    assert agentfsd("fsck", "--state", str(mounted.state)).stdout == "sound\n"
    for directory, _, files in os.walk(mounted.state / "objects"):
        for name in files:
            os.unlink(os.path.join(directory, name))
    done = agentfsd("fsck", "--state", str(mounted.state), check=False)
    assert done.returncode == 1
    assert "1 problem" in done.stdout


def test_an_ordinary_user_cannot_ask_a_mount_that_is_not_his(mounted: Mounted) -> None:
    needs_root()
    address = mounted.record().socket
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setuid(65534)
            socket.socket(socket.AF_UNIX).connect(address)
        except PermissionError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_state_may_lie_deeper_than_a_socket_address_is_long(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    state = tmp_path / ("a" * 100) / ("b" * 100)
    made = make_mount(None, "--state", str(state))
    with ControlClient.connect(str(state / "control.sock")) as client:
        assert client.hello.branch == "main"
    assert made.path.is_mount()
