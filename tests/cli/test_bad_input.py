"""Every command with wrong input: one sentence, the right exit code, no traceback, and the daemon goes on."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_host import mount_table
from agentfsd.cli.commands import cmd_status, cmd_umount
from agentfsd.cli.main import main
from tests.mounted import AGENTFSD, Mounted, needs_fuse

Invoke = Callable[..., tuple[int, str, str]]

REFUSED, USAGE = 1, 2


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str]) -> Invoke:
    """Runs a command in this process: (exit code, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return run


def dead_pid() -> str:
    process = subprocess.Popen(["true"])
    process.wait()
    return str(process.pid)


CASES = [
    # arguments ("@" is the mount point), exit code, part of the sentence
    ("branch create -m @ main", REFUSED, "there is a branch named 'main' already"),
    ("branch create -m @ a/b", REFUSED, "'a/b'"),
    ("branch create -m @ .hidden", REFUSED, "'.hidden'"),
    ("branch create -m @ x --from nowhere", REFUSED, "named 'nowhere'"),
    ("branch create -m @", USAGE, "Missing argument 'NAME'"),
    ("branch show -m @ nowhere", REFUSED, "there is no branch named 'nowhere'"),
    ("branch rename -m @ nowhere other", REFUSED, "there is no branch named 'nowhere'"),
    ("branch rename -m @ main other", REFUSED, "cannot be renamed"),
    ("branch rename -m @ kept main", REFUSED, "there is a branch named 'main' already"),
    ("branch rename -m @ kept bad/name", REFUSED, "'bad/name'"),
    ("branch delete -m @ main", REFUSED, "cannot be deleted"),
    ("branch delete -m @ nowhere", REFUSED, "there is no branch named 'nowhere'"),
    ("branch delete -m @ kept", REFUSED, "holds changes"),
    ("branch frobnicate", USAGE, "No such command 'frobnicate'"),
    ("snapshot create -m @ point", REFUSED, "there is a snapshot named 'point' already"),
    ("snapshot create -m @ bad/name", REFUSED, "'bad/name'"),
    ("snapshot create -m @ stray-\udcff", REFUSED, "stray-\\xff is not valid UTF-8"),
    ("snapshot create -m @ s --tag stray-\udcff", REFUSED, "stray-\\xff is not valid UTF-8"),
    ("diff -m @ stray-\udcff", REFUSED, "stray-\\xff is not valid UTF-8"),
    ("snapshot create -m @ -b nowhere s", REFUSED, "there is no branch named 'nowhere'"),
    ("snapshot list -m @ -b nowhere", REFUSED, "there is no branch named 'nowhere'"),
    ("snapshot show -m @ nowhere", REFUSED, "there is no snapshot named 'nowhere'"),
    ("snapshot delete -m @ nowhere", REFUSED, "there is no snapshot named 'nowhere'"),
    ("bind -m @ DEAD kept", REFUSED, "there is no process DEAD"),
    ("bind -m @ -- -4 kept", REFUSED, "-4 is not a process number"),
    ("bind -m @ abc kept", USAGE, "'abc' is not a valid integer"),
    ("bind -m @ SELF nowhere", REFUSED, "there is no branch named 'nowhere'"),
    ("unbind -m @ SELF", REFUSED, "has no binding of its own"),
    ("unbind -m @ DEAD", REFUSED, "process DEAD"),
    ("diff -m @ nowhere", REFUSED, "named 'nowhere'"),
    ("diff -m @ kept nowhere", REFUSED, "named 'nowhere'"),
    ("diff -m @ a b c", USAGE, "unexpected extra argument (c)"),
    ("log -m @ nowhere", REFUSED, "named 'nowhere'"),
    ("restore -m @ nowhere", REFUSED, "named 'nowhere'"),
    ("restore -m @ -b nowhere point", REFUSED, "there is no branch named 'nowhere'"),
    ("restore -m @ main", REFUSED, "is that state already"),
    ("discard -m @ nowhere", REFUSED, "there is no branch named 'nowhere'"),
    ("run -m @ -b nowhere -- true", REFUSED, "there is no branch named 'nowhere'"),
    ("run -m @ -b kept --new -- true", REFUSED, "there is a branch named 'kept' already"),
    ("run -m @ -b kept --from point -- true", REFUSED, "--from is for a new branch"),
    ("run -m @ -b bad/name --new -- true", REFUSED, "'bad/name'"),
    ("run -m @ -b kept", USAGE, "Missing argument"),
    ("shell -m @ nowhere", REFUSED, "there is no branch named 'nowhere'"),
    ("status -m /no/such/place", REFUSED, "/no/such/place"),
    ("branch list -m /", REFUSED, "is not in an agentfsd mount"),
    ("mount -o nonsense / @", REFUSED, "there is no mount option 'nonsense'"),
    ("umount /", REFUSED, "is not an agentfsd mount"),
    ("umount", USAGE, "Missing argument 'MOUNTPOINT'"),
    ("fsck --state /no/such/state", REFUSED, "is not an agentfsd state directory"),
    ("frobnicate", USAGE, "No such command 'frobnicate'"),
    ("status --frobnicate", USAGE, "No such option '--frobnicate'"),
]


def test_wrong_input_is_answered_by_one_sentence(mounted: Mounted, invoke: Invoke) -> None:
    mounted.cli("branch create", "kept")
    (mounted.subtree("kept") / "new").touch()
    mounted.cli("snapshot create", "point")
    dead = dead_pid()
    before = mounted.json("status")
    for line, code, sentence in CASES:
        words = {"@": str(mounted.path), "DEAD": dead, "SELF": str(os.getpid())}
        got, out, err = invoke(*(words.get(word, word) for word in line.split()))
        assert got == code, (line, out, err)
        assert err.startswith("agentfsd: "), (line, err)
        assert sentence.replace("DEAD", dead) in err.splitlines()[0], (line, err)
        assert "Traceback" not in err, line
        assert len(err.splitlines()) <= 2, (line, err)
        assert out == "", (line, out)
    _, _, err = invoke("run", "-m", str(mounted.path), "-b", "kept", "--new", "--", "true")
    assert err.splitlines()[1:] == ["  hint: choose another name, or leave out --new to go on in it"]
    after = mounted.json("status")
    assert after["pid"] == before["pid"]
    assert [b["name"] for b in after["branches"]] == [b["name"] for b in before["branches"]]


def test_no_mount_anywhere_says_how_to_make_one(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    code, out, err = invoke("branch", "list")
    assert (code, out) == (REFUSED, "")
    assert err == (
        "agentfsd: there is no agentfsd mount here\n"
        "  hint: 'agentfsd mount DIR MOUNTPOINT' makes one; 'agentfsd run -- COMMAND' overlays the current directory\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        *("mount", "umount", "status", "doctor", "run", "shell", "bind", "unbind", "bindings"),
        *("diff", "log", "restore", "discard", "fsck"),
        *("branch create", "branch list", "branch show", "branch rename", "branch delete"),
        *("snapshot create", "snapshot list", "snapshot show", "snapshot delete"),
        *("interpose get", "interpose set"),
    ],
)
def test_help_of_every_command_has_an_example(command: str, invoke: Invoke) -> None:
    code, out, _ = invoke(*command.split(), "--help")
    assert code == 0
    assert "Example:" in out


def test_log_level_is_one_that_there_is(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_fuse()
    mounted = Mounted(tmp_path)
    monkeypatch.setenv("AGENTFS_LOG", "loud")
    code, _, err = invoke("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state))
    assert code == REFUSED
    assert err == "agentfsd: AGENTFS_LOG=loud is not a log level\n  hint: give one of debug, info, warning, error\n"
    monkeypatch.setenv("AGENTFS_LOG", "debug")
    mounted.mount().end()


@pytest.mark.parametrize("address", [f"unix:/tmp/{'x' * 150}", "unix:/no/such/place"])
def test_socket_for_metrics_that_cannot_be_made_says_why(address: str, invoke: Invoke, tmp_path: Path) -> None:
    needs_fuse()
    pytest.importorskip("prometheus_client")
    mounted = Mounted(tmp_path)
    code, _, err = invoke("mount", "--metrics", address, str(mounted.lower), str(mounted.path), "--state", str(mounted.state))
    assert code == REFUSED
    assert re.search(r"(too long|No such file or directory)\n  hint: give a path of at most 107 bytes", err)


def has_socket(pid: int) -> bool:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                return True
    return False


@pytest.mark.parametrize("words", [("top", "--json"), ("watch",), ("audit", "--follow")])
def test_daemon_that_dies_in_the_middle_says_what_to_look_at(words: tuple[str, ...], tmp_path: Path) -> None:
    needs_fuse()
    mounted = Mounted(tmp_path).mount()
    try:
        asking = subprocess.Popen(
            [*AGENTFSD, *words, "-m", str(mounted.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        mounted.started.append(asking)
        while not has_socket(asking.pid):
            assert asking.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)  # until it has asked
        mounted.kill()
        _, said = asking.communicate(timeout=20)
        assert asking.returncode == REFUSED
        assert "agentfsd: the daemon " in said and "hint: `agentfsd status` shows whether it is back" in said
        assert "Errno" not in said
    finally:
        mounted.end()


def test_daemon_that_was_stopped_is_no_riddle(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_fuse()
    (tmp_path / "other").mkdir()
    mounted, other = Mounted(tmp_path).mount(), Mounted(tmp_path / "other", tmp_path / "lower").mount()
    for module in (cmd_status, cmd_umount):
        monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    monkeypatch.setattr(mount_table, "_ANSWER_S", 0.3)
    pid = mounted.record().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(1.1)  # what the kernel knows of the root is old then
        for line in ("status -m @", "umount @", "umount --lazy @"):
            code, _, err = invoke(*(line.replace("@", str(mounted.path)).split()))
            assert code == REFUSED
            assert err.startswith(
                f"agentfsd: the daemon of {mounted.path}, process {pid}, does not answer\n  hint: 'kill -CONT {pid}'"
            )
        code, _, err = invoke("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state))
        assert (code, "is an agentfsd mount already" in err) == (REFUSED, True)
        code, said, err = invoke("status")  # of all that are mounted here
        assert (code, f"is mounted on {other.path}" in said, f"process {pid}, does not answer" in err) == (REFUSED, True, True)
    finally:
        os.kill(pid, signal.SIGCONT)
        mounted.end()
        other.end()
