"""The same commands for somebody who is not root: fusermount3 mounts, user namespaces show the branch."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mounted import AGENTFSD, needs_fuse, needs_root

NOBODY = 65534

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def base() -> Iterator[Path]:
    """A place that an ordinary user owns; pytest's own belong to root alone."""
    needs_root()
    needs_fuse()
    path = Path(tempfile.mkdtemp(prefix="agentfsd-test-"))
    for name in ("", "lower", "mnt"):
        (path / name).mkdir(exist_ok=True)
        os.chown(path / name, NOBODY, NOBODY)
    (path / "lower" / "file").write_text("lower\n")
    os.chown(path / "lower" / "file", NOBODY, NOBODY)
    yield path
    subprocess.run(["fusermount3", "-uzq", str(path / "mnt")], check=False)
    shutil.rmtree(path)


# A checkout below a directory that only root may enter (/root, say) is shown at its own path all the same.
OPEN_THE_WAY = """
    if [ -n "$CLOSED" ]; then
        mkdir "$STAGE" && mount --bind "$CHECKOUT" "$STAGE"
        mount -t tmpfs -o mode=755 none "$CLOSED" && mkdir -p "$CHECKOUT" && mount --move "$STAGE" "$CHECKOUT"
    fi
    echo ready; read end
"""


@pytest.fixture
def inside(base: Path) -> Iterator[list[str]]:
    """The words that put a command into a mount namespace where an ordinary user can reach this checkout."""
    checkout = Path(__file__).resolve().parents[2]
    closed = [parent for parent in reversed(checkout.parents) if not parent.stat().st_mode & 0o001]
    env = os.environ | {"CHECKOUT": str(checkout), "CLOSED": str(closed[0]) if closed else "", "STAGE": str(base / "stage")}
    holder = subprocess.Popen(
        ["unshare", "-m", "sh", "-ec", OPEN_THE_WAY], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    yield ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", f"--root=/proc/{holder.pid}/root", "--"]
    holder.communicate("end\n")


@pytest.fixture
def nobody(base: Path, inside: list[str]) -> Command:
    """Runs agentfsd as that user."""
    env = {**os.environ, "HOME": str(base), "AGENTFS_STATE_HOME": str(base / "state"), "AGENTFS_RUNTIME_DIR": str(base / "run")}
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all", "--"]

    def run(*arguments: str, cwd: Path = base) -> subprocess.CompletedProcess[str]:
        # The shell changes directory, as that user: root itself may not enter his mount.
        command = [*inside, *become, "sh", "-c", 'cd "$0" && exec "$@"', str(cwd), *AGENTFSD, *arguments]
        return subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=60, check=False)

    return run


def is_mounted(inside: list[str], path: Path) -> bool:
    """As the mount table says: root may not enter somebody else's mount."""
    return subprocess.run([*inside, "grep", "-q", f" {path} ", "/proc/self/mounts"], check=False).returncode == 0


def test_ordinary_user_mounts_runs_and_unmounts(base: Path, inside: list[str], nobody: Command) -> None:
    lower, point = base / "lower", base / "mnt"
    mounted = nobody("mount", str(lower), str(point))
    assert mounted.returncode == 0, mounted.stderr
    assert is_mounted(inside, point)
    for options in ([], ["--no-namespace"]):
        script = "echo changed > file; id -u; grep CapEff /proc/self/status; cat .agentfs/status > /dev/null"
        done = nobody("run", "-b", f"b{len(options)}", "--new", *options, "--", "sh", "-ec", script, cwd=point)
        assert done.stdout.split() == [str(NOBODY), "CapEff:", "0" * 16], done.stderr
    assert nobody("diff", "b0", cwd=point).stdout == "M\tfile\n"
    assert (lower / "file").read_text() == "lower\n"
    assert nobody("umount", str(point)).returncode == 0
    assert not is_mounted(inside, point)


def test_ordinary_user_runs_in_one_step(base: Path, nobody: Command) -> None:
    lower = base / "lower"
    done = nobody("run", "-b", "b", "--new", "--", "sh", "-c", "echo changed > file; pwd; cat file", cwd=lower)
    assert done.stdout.split() == [str(lower), "changed"], done.stderr
    assert (lower / "file").read_text() == "lower\n"
    assert nobody("umount", str(lower)).returncode == 0


def test_refusal_of_fusermount_is_told(base: Path, nobody: Command) -> None:
    with open("/etc/fuse.conf") as file:
        if "user_allow_other" in file.read().splitlines():
            pytest.skip("user_allow_other is set in /etc/fuse.conf")
    done = nobody("mount", "--allow-other", str(base / "lower"), str(base / "mnt"))
    assert done.returncode == 1
    assert "user_allow_other" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_of_somebody_else_cannot_be_bound(base: Path, nobody: Command) -> None:
    point = base / "mnt"
    assert nobody("mount", str(base / "lower"), str(point)).returncode == 0
    done = nobody("bind", str(os.getpid()), "main", cwd=point)
    assert done.returncode == 1
    assert done.stderr == f"agentfsd: process {os.getpid()} belongs to uid 0, not to you\n"
    assert nobody("umount", str(point)).returncode == 0


def test_doctor_tells_an_ordinary_user_that_mounting_works(nobody: Command) -> None:
    done = nobody("doctor")
    assert done.returncode == 0, done.stdout
    assert "mounting works here" in done.stdout


def test_nothing_of_another_run_is_seen_through_proc(base: Path, nobody: Command) -> None:
    """Not even what the kernel has cached: each run has a user namespace of its own, which strangers may not enter."""
    point = base / "mnt"
    assert nobody("mount", str(base / "lower"), str(point)).returncode == 0
    os.mkfifo(base / "end")
    os.chown(base / "end", NOBODY, NOBODY)
    script = f"echo hidden > secret; cat secret secret; echo $$ > {base}/pid.new; mv {base}/pid.new {base}/pid; cat {base}/end"
    with ThreadPoolExecutor(1) as pool:
        victim = pool.submit(nobody, "run", "-b", "theirs", "--new", "-m", str(point), "--", "sh", "-c", script, cwd=point)
        try:
            while not (base / "pid").exists():
                assert not victim.done(), victim.result().stderr
                time.sleep(0.01)
            proc = f"/proc/{(base / 'pid').read_text().strip()}"
            for path in (f"{proc}/root{point}/secret", f"{proc}/cwd/secret"):
                done = nobody("run", "-b", "mine", "--new", "-m", str(point), "--", "cat", path, cwd=point)
                assert "Permission denied" in done.stderr
                assert "hidden" not in done.stdout
                assert nobody("discard", "-m", str(point), "mine").returncode in (0, 1)
        finally:
            (base / "end").write_text("end")
        assert victim.result().stdout == "hidden\nhidden\nend"
    assert nobody("umount", str(point)).returncode == 0


def share(lower: Path) -> None:
    """Gives it to another user, and the group all rights."""
    for path in (lower, lower / "file"):
        os.chown(path, 0, NOBODY)
        path.chmod(0o664 if path.is_file() else 0o2775)


WRITING = ("sh", "-c", "echo mine >file && echo new >new && cat file new")


def test_project_that_users_share_can_be_written(base: Path, inside: list[str], nobody: Command) -> None:
    """What belongs to another user, or to a group that is not one's first, is out of reach in a user namespace."""
    share(base / "lower")
    assert nobody("mount", "lower", "mnt").returncode == 0
    done = nobody("run", "-b", "fix", "--new", "--", *WRITING, cwd=base / "mnt")
    assert (done.returncode, done.stdout) == (0, "mine\nnew\n"), done.stderr
    assert (base / "lower" / "file").read_text() == "lower\n"
    assert nobody("umount", "mnt").returncode == 0


def test_project_that_users_share_can_be_written_in_one_step(base: Path, inside: list[str], nobody: Command) -> None:
    share(base / "lower")
    done = nobody("run", "-b", "fix", "--new", "--", *WRITING, cwd=base / "lower")
    assert (done.returncode, done.stdout) == (0, "mine\nnew\n"), done.stderr
    assert (base / "lower" / "file").read_text() == "lower\n" and not (base / "lower" / "new").exists()
    again = nobody("run", "-b", "fix", "--", "cat", "file", cwd=base / "lower")
    assert again.stdout == "mine\n", again.stderr
    assert nobody("umount", str(base / "lower")).returncode == 0
