"""What the views of a mount show of each other, of the lower and of the past, and who may enter them."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.mounted import Mounted, needs_fuse, needs_namespaces, needs_root


def test_subtree_and_caller_view_of_a_branch_agree_at_once(mounted: Mounted) -> None:
    subtree = mounted.subtree("main")
    for number in range(200):
        name = f"n{number}"
        assert not (subtree / name).exists()  # the kernel remembers this
        (mounted.path / name).write_text(str(number))
        assert (subtree / name).read_text() == str(number)
        (mounted.path / name).write_text("again")
        assert (subtree / name).read_text() == "again"
        os.rename(subtree / name, subtree / "other")
        assert not (mounted.path / name).exists()
        os.unlink(mounted.path / "other")
        assert not (subtree / "other").exists()


def test_directory_attributes_agree_between_views(mounted: Mounted) -> None:
    subtree = mounted.subtree("main")
    for mode in (0o700, 0o750, 0o711):
        assert stat.S_IMODE((subtree / "sub").stat().st_mode) != mode
        os.chmod(mounted.path / "sub", mode)
        assert stat.S_IMODE((subtree / "sub").stat().st_mode) == mode
        before = (subtree / "sub").stat()
        (mounted.path / "sub" / f"{mode}").mkdir()
        after = (subtree / "sub").stat()
        assert after.st_nlink == before.st_nlink + 1


def test_snapshot_view_is_read_only_and_stays(mounted: Mounted) -> None:
    (mounted.path / "new").write_text("one")
    mounted.cli("snapshot create", "s")
    (mounted.path / "new").write_text("two")
    os.unlink(mounted.path / "file")
    view = mounted.path / ".agentfs" / "snapshots" / "s"
    assert (view / "new").read_text() == "one"
    assert (view / "file").read_text() == "lower\n"
    for act in (lambda: (view / "x").touch(), lambda: os.unlink(view / "new"), lambda: os.chmod(view / "new", 0o600),
                lambda: (view / "new").open("a").close()):  # fmt: skip
        with pytest.raises(OSError) as caught:
            act()
        assert caught.value.errno == errno.EROFS


def test_moving_between_views_is_another_device(mounted: Mounted) -> None:
    mounted.cli("branch create", "one")
    with pytest.raises(OSError) as caught:
        os.rename(mounted.path / "file", mounted.subtree("one") / "file2")
    assert caught.value.errno == errno.EXDEV
    with pytest.raises(OSError) as caught:
        os.link(mounted.path / "file", mounted.subtree("one") / "file2")
    assert caught.value.errno == errno.EXDEV


def test_lower_change_shows_within_a_second_until_copied_up(mounted: Mounted) -> None:
    subtree = mounted.subtree("main")
    assert (subtree / "file").read_text() == "lower\n"
    (mounted.lower / "file").write_text("moved on\n")
    (mounted.lower / "fresh").touch()
    time.sleep(1.2)
    assert (subtree / "file").read_text() == (mounted.path / "file").read_text() == "moved on\n"
    assert (subtree / "fresh").exists()
    (mounted.path / "file").write_text("mine")
    (mounted.lower / "file").write_text("theirs")
    time.sleep(1.2)
    assert (subtree / "file").read_text() == "mine"
    assert [change["lower_moved"] for change in mounted.json("diff")["changes"]] == [True]


def test_lower_file_that_vanishes_gives_an_error_and_no_hang(mounted: Mounted) -> None:
    os.chmod(mounted.path / "file", 0o600)
    os.unlink(mounted.lower / "file")
    with pytest.raises(OSError) as caught:
        (mounted.path / "file").read_text()
    assert caught.value.errno == errno.ESTALE
    assert (mounted.path / "sub" / "inner").read_text() == "inner\n"


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_restore_reaches_processes_inside(mounted: Mounted, view: str) -> None:
    if view == "namespace":
        needs_namespaces()
    mounted.sh("one", "mkdir work; echo one > work/a; echo keep > work/b; chmod 600 work/b; ln -s x work/l", new=True)
    mounted.cli("snapshot create", "-b", "one", "s")
    script = """
        cd work; cat a b >/dev/null; ls -l >/dev/null; test ! -e extra
        echo two > a; rm b l; touch extra; mkdir d; cd d; cd ..
        echo ready; read go
        pwd; cat a b; stat -c %a b; readlink l; ls; test ! -e extra; echo ok >> a; cat "$PWD/a"
    """
    process = mounted.start("one", "sh", "-ec", script, view=view, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    mounted.cli("restore", "-b", "one", "s")
    said, _ = process.communicate("go\n", timeout=20)
    assert said.splitlines() == [f"{mounted.path}/work", "one", "keep", "600", "x", "a", "b", "l", "one", "ok"]
    assert process.returncode == 0
    assert mounted.fsck() == []


def test_file_that_is_open_across_a_restore_keeps_its_content(mounted: Mounted) -> None:
    mounted.cli("snapshot create", "s")
    with open(mounted.path / "file", "r+") as file:
        file.write("open!")
        file.flush()
        mounted.cli("restore", "s")
        file.seek(0)
        assert file.read() == "open!\n"
        file.write("more")
        file.flush()
    assert (mounted.path / "file").read_text() == "lower\n"
    assert mounted.json("diff")["changes"] == []


def test_other_users_enter_only_when_allowed() -> None:
    needs_root()
    needs_fuse()
    base = Path(tempfile.mkdtemp(prefix="agentfsd-other-"))  # pytest's own directories are closed to others
    base.chmod(0o755)
    made = []
    try:
        for name, options in (("closed", []), ("allowed", ["--allow-other"])):
            (base / name).mkdir(mode=0o755)
            made.append(Mounted(base / name, None, *options).mount())
        closed, allowed = made
        assert as_nobody(f"ls {closed.path}").returncode != 0
        (allowed.path / "secret").touch(mode=0o600)
        (allowed.path / "open").mkdir()
        (allowed.path / "open").chmod(0o777)
        done = as_nobody(f"cd {allowed.path}; cat secret; ls .agentfs; touch no; touch open/yes && stat -c %u open/yes")
        assert done.stdout == "65534\n"
        assert done.stderr.count("denied") == 2
        assert "No such file" in done.stderr
    finally:
        for mounted in made:
            mounted.end()
        shutil.rmtree(base)


def as_nobody(script: str) -> subprocess.CompletedProcess[str]:
    command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


def standing(mounted: Mounted, branch: str, directory: str) -> subprocess.Popen[str]:
    """A process of a branch that stands in a directory and prints where it is each time it is asked."""
    code = (
        "import os, sys\nos.chdir(sys.argv[1])\nprint('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    try:\n        print(os.getcwd(), flush=True)\n"
        "    except OSError as exc:\n        print(exc, flush=True)\n"
    )
    command = [sys.executable, "-c", code, directory]
    process = mounted.start(branch, *command, view="pid", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def asked(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().rstrip("\n")


@pytest.mark.sample(2)
@pytest.mark.parametrize("act", ["stat", "rmdir", "rename", "file"])
def test_working_directory_outlives_what_another_branch_does_at_its_name(mounted: Mounted, act: str) -> None:
    mounted.cli("branch create", "one")
    mounted.cli("branch create", "two")
    mounted.sh("one", "mkdir here", view="pid")
    if act in ("rmdir", "rename"):
        mounted.sh("two", "mkdir here", view="pid")
    process = standing(mounted, "one", "here")
    script = {
        "stat": "test ! -e here", "rmdir": "rmdir here; test ! -e here", "rename": "mv here there; ls there",
        "file": "echo x > here; cat here",
    }[act]  # fmt: skip
    for _ in range(2):
        mounted.sh("two", script, view="pid", check=False)
        time.sleep(0.1)
        assert asked(process) == f"{mounted.path}/here"
    process.communicate(timeout=20)


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_bound_process_reaches_its_own_branch_and_history_only(mounted: Mounted, view: str) -> None:
    if view == "namespace":
        needs_namespaces()
    mounted.sh("one", "echo secret > mine", new=True)
    mounted.sh("two", "echo other > theirs", new=True)
    mounted.cli("snapshot create", "-b", "one", "s-one")
    mounted.cli("snapshot create", "-b", "two", "s-two")
    script = """
        cd .agentfs; cat snapshots/s-two/theirs; ls snapshots/s-one; cat branches/one/mine; ls branches; cat snapshots/s-one/mine
        echo x > ../.agentfs/snapshots/s-two/theirs; exec 3<> control; echo '{"op":"branch.list"}' >&3; cat <&3
    """
    done = mounted.run("two", "sh", "-c", script, view=view, check=False)
    assert "other" in done.stdout
    assert "secret" not in done.stdout
    assert '"code":"outside-branch"' in done.stdout
    assert '"name":"one"' not in done.stdout
    assert (mounted.subtree("one") / "mine").read_text() == "secret\n"
    assert mounted.run("two", "ls", "-A", ".agentfs/snapshots", view=view).stdout == "s-two\n"
    assert set(os.listdir(mounted.path / ".agentfs/snapshots")) >= {"s-one", "s-two"}
    assert mounted.run("one", "cat", "mine", view=view).stdout == "secret\n"


def test_working_directory_in_a_run_survives_another_who_is_turned_away(mounted: Mounted) -> None:
    needs_namespaces()
    mounted.cli("branch create", "two")
    script = "echo ready; read go; pwd; cat file; readlink /proc/self/cwd"
    mounted.cli("branch create", "one")
    process = mounted.start("one", "sh", "-c", script, view="namespace", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    mounted.run("two", "ls", ".agentfs/branches/one", view="pid", check=False)
    said, _ = process.communicate("go\n", timeout=20)
    assert said.splitlines() == [str(mounted.path), "lower", str(mounted.path)]
