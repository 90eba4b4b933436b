"""What is mounted below the workspace stays there while branches are bound, restored and discarded; so do working directories."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import AGENTFSD, Mounted, needs_namespaces, needs_root

CLI = " ".join(AGENTFSD)


def in_private_mounts(script: str, where: Path) -> str:
    """Runs a script as root in a mount namespace of its own; *script* finds the command line as $cli."""
    needs_root()
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "bash", "-euc", f"cli='{CLI}'\n{script}"],
        cwd=where, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_control_directory_stays_in_a_run_that_is_restored(mounted: Mounted) -> None:
    needs_namespaces()
    said = mounted.run(
        "b", "bash", "-euc", f"echo x > f; {CLI} snapshot create s0; echo y > f; {CLI} restore s0; ls .agentfs/snapshots; cat f",
        new=True,
    ).stdout  # fmt: skip
    assert said.split()[-2:] == ["s0", "x"]


@pytest.mark.parametrize("io", ["zero-message", "cached"])
def test_what_a_run_has_mounted_stays_when_its_branch_is_restored(mounted: Mounted, io: str) -> None:
    needs_root()
    needs_namespaces()
    script = f"""
        mkdir -p sub/deep/mine new; echo x > f; echo old > sub/other
        {CLI} snapshot create s-{io}
        mount -t tmpfs none sub/deep; mount -t tmpfs none new; mount --bind sub link_target
        echo kept > sub/deep/kept; echo kept > new/kept
        cd sub
        echo y > f; rm other; echo more > more
        {CLI} restore s-{io}
        cat deep/kept ../new/kept other; ls ../link_target; pwd; test ! -e more
    """
    (mounted.lower / "link_target").mkdir()
    done = subprocess.run(
        [*AGENTFSD, "run", "-m", str(mounted.path), "-b", "b", "--new", "--io", io, "--", "bash", "-euc", script],
        cwd=mounted.path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.split()[-7:] == ["kept", "kept", "old", "deep", "inner", "other", str(mounted.path / "sub")]


def test_a_restore_of_a_directory_that_was_made_anew_keeps_what_is_mounted_there(mounted: Mounted) -> None:
    needs_root()
    needs_namespaces()
    said = mounted.run(
        "b", "bash", "-euc",
        f"mkdir out; touch out/x; {CLI} snapshot create s; rm -r out; mkdir out; mount -t tmpfs none out; touch out/kept;"
        f" {CLI} restore s; ls out; umount out; ls out", new=True,
    ).stdout  # fmt: skip
    assert said.split()[-2:] == ["kept", "x"]


def test_a_restore_takes_away_what_is_mounted_on_a_directory_that_is_gone(mounted: Mounted) -> None:
    needs_root()
    needs_namespaces()
    said = mounted.run(
        "b", "bash", "-euc",
        f"{CLI} snapshot create s; mkdir out; mount -t tmpfs none out; {CLI} restore s; ls -d out || echo gone", new=True,
    ).stdout  # fmt: skip
    assert said.split()[-1] == "gone"


def test_a_container_on_a_branch_keeps_its_volume_while_another_branch_is_used(mounted: Mounted) -> None:
    """A bind of a branch's directory with a volume nested in it, as container engines make it."""
    for name in ("B", "C"):
        mounted.cli("branch create", name)
    said = in_private_mounts(
        f"""
        mkdir ../workspace; tree=.agentfs/branches
        mkdir -p $tree/B/node_modules $tree/C/other; ls $tree/C $tree/B >&2
        mount --bind $tree/B ../workspace; mount -t tmpfs none ../workspace/node_modules; mount -t tmpfs none sub
        touch ../workspace/node_modules/volume sub/mine
        at="-m {mounted.path}"; cd /
        for turn in 1 2; do
            $cli run $at -b C -- touch f$turn; ls {mounted.path}/.agentfs/branches/C >&2
            $cli snapshot create $at -b C s$turn; echo $turn > {mounted.path}/.agentfs/branches/C/g
            $cli restore $at -b C s$turn
        done
        $cli discard $at C; ls {mounted.path}/.agentfs/branches/B >&2
        ls {mounted.path}/../workspace/node_modules {mounted.path}/sub
        """,
        mounted.path,
    )
    assert [line for line in said.split() if "/" not in line and line in ("volume", "mine", "inner", "deep")] == [
        "volume",
        "mine",
    ]


MAPS = """
import mmap, os, sys
fd = os.open("mapped", os.O_RDWR)
mapping = mmap.mmap(fd, 4096)
for turn in range(3):
    mapping[:5] = b"dirty"
    mapping[4000:4001] = bytes([turn + 65])
    print("dirty", flush=True)
    sys.stdin.readline()
print(open("here/kept").read(), os.listdir(".agentfs/snapshots"))
"""


def test_a_snapshot_of_a_mapped_file_that_another_connection_knows_detaches_nothing(mounted: Mounted) -> None:
    needs_root()
    needs_namespaces()
    (mounted.lower / "mapped").write_bytes(b"x" * 4096)
    (mounted.lower / "here").mkdir()
    mounted.cli("branch create", "b")
    looks = "import time\nwhile True:\n  print(len(open('mapped').read())); time.sleep(0.001)"
    looker = mounted.start("b", sys.executable, "-uc", looks, view="namespace", stdout=subprocess.PIPE)
    assert looker.stdout is not None
    assert looker.stdout.readline() == "4096\n"
    script = 'mount -t tmpfs none here; echo -n kept > here/kept; exec "$@"'
    command, pipe = ["bash", "-euc", script, "bash", sys.executable, "-c", MAPS], subprocess.PIPE
    holder = mounted.start("b", *command, view="namespace", stdin=pipe, stdout=pipe)
    assert holder.stdin is not None
    assert holder.stdout is not None
    for turn in range(3):
        assert holder.stdout.readline() == "dirty\n"
        mounted.cli("snapshot create", f"s{turn}", "-b", "b")
        holder.stdin.write("\n")
        holder.stdin.flush()
    assert holder.communicate(timeout=30)[0] == "kept ['s0', 's1', 's2']\n"
    assert looker.poll() is None
    for turn in range(3):
        found = (mounted.path / ".agentfs" / "snapshots" / f"s{turn}" / "mapped").read_bytes()
        assert (found[:5], found[4000]) == (b"dirty", 65 + turn)


def test_names_that_all_saw_are_looked_up_again_before_a_binding_counts(mounted: Mounted) -> None:
    """And they stay what they are: a working directory, and what is mounted there."""
    mounted.cli("branch create", "b")
    tree = mounted.subtree("b")
    (tree / "sub" / "mine").write_text("b")
    (tree / "file").write_text("b")
    code = (
        "import os, sys\nos.chdir('sub')\n"
        "def look(): return [os.getcwd()[-3:], sorted(os.listdir('.')), os.path.exists('mine'), open('../file').read()]\n"
        "print(look(), flush=True); sys.stdin.readline(); print(look(), flush=True)"
    )
    looker = subprocess.Popen(
        [sys.executable, "-c", code], cwd=mounted.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert looker.stdin is not None and looker.stdout is not None
    try:
        before = looker.stdout.readline()
        mounted.cli("bind", str(looker.pid), "b")
        after, _ = looker.communicate("\n", timeout=30)
    finally:
        looker.kill()
        looker.wait()
    assert before.strip() == str(["sub", ["deep", "inner"], False, "lower\n"])
    assert after.strip() == str(["sub", ["deep", "inner", "mine"], True, "b"])


@pytest.fixture
def many(tmp_path: Path, make_mount: Callable[..., Mounted]) -> Mounted:
    lower = tmp_path / "many"
    for number in range(20):
        (lower / f"d{number}").mkdir(parents=True)
        for name in range(100):
            (lower / f"d{number}" / f"f{name}").touch()
    return make_mount(lower)


def test_a_restore_shows_everywhere_whatever_was_cached(many: Mounted) -> None:
    """Of many names: also such as were changed, made, removed, renamed or linked, and directories that moved."""
    needs_namespaces()
    script = f"""
        find . -type f | wc -l
        echo one > d0/f0; ln d0/f1 d1/linked; chmod 600 d2/f3; {CLI} snapshot create s
        rm -r d3; mv d4 d3; mkdir d4; echo new > d4/f0; mv d5/f1 d5/moved; echo two >> d0/f0; echo x > d1/linked; chmod 640 d2/f3
        mkdir -p d6/in/deep; echo x > d6/in/deep/f; rm d7/f5; echo x > d7/f5; setfattr -n user.x -v y d8/f0 2> /dev/null || true
        find . -type f | wc -l; cat d0/f0 d1/linked d4/f0; ls d3 | wc -l
        {CLI} restore s
        find . -type f | wc -l; cat d0/f0 d1/linked d0/f1 d4/f0 d7/f5; ls d3 | wc -l; stat -c %a d2/f3; test -e d6/in || echo gone
        test -e d5/moved || ls d5 | wc -l
    """
    said = many.run("b", "bash", "-uc", script, new=True).stdout.split("\n")
    numbers = [line for line in said if line and "snapshot" not in line and "again" not in line]
    assert numbers[0] == "2000"
    assert numbers[1:] == ["1903", "one", "two", "x", "new", "100", "2001", "one", "100", "600", "gone", "100"]
