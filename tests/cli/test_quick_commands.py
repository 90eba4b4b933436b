"""What the quick commands print is what the full command line prints, and they load none of its libraries."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs_client.message import PROTOCOL_VERSION
from agentfs_client.transport import connection_closed
from agentfs_host.mount_table import FSTYPE, OVERLAY_SOURCE
from agentfsd.cli import quick_commands, quick_daemon, quick_json
from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_fuse

# Runs the program's entry point, and then says on a descriptor of its own which libraries were loaded.
_ENTRY = """
import os, sys
from agentfsd.cli import entry
try:
    entry.main()
finally:
    os.write(int(os.environ["TELL"]), " ".join(n for n in ("click", "msgspec", "rich", "trio") if n in sys.modules).encode())
"""


def _quick(*arguments: str, cwd: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a command line as the installed program does; return what it did, and the libraries that it loaded."""
    read, write = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ENTRY, *arguments], cwd=cwd, capture_output=True, text=True, check=False, pass_fds=[write],
            env={**os.environ, **environment, "TELL": str(write)}, timeout=60,
        )  # fmt: skip
        os.close(write)
        write = -1
        return done, os.read(read, 1000).decode()
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)


def _full(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*AGENTFSD, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def _said(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    return done.returncode, done.stdout, done.stderr


def _change(mounted: Mounted) -> Mounted:
    mounted.cli("branch create", "b")
    place = mounted.subtree("b")
    (place / "file").write_text("changed\n")
    (place / "new file").write_text("new\n")
    os.rename(place / "sub/inner", place / "sub/moved")
    Path(os.fsdecode(os.fsencode(place) + b"/no\xff\nutf8")).write_text("x")
    (place / ".git/hooks").mkdir(parents=True)
    (place / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (place / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    return mounted


@pytest.fixture
def changed(mounted: Mounted) -> Mounted:
    return _change(mounted)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """One mount for all commands that change nothing."""
    needs_fuse()
    base = tmp_path_factory.mktemp("quick")
    made = Mounted(base)
    (made.lower / "sub" / "deep").mkdir(parents=True)
    (made.lower / "file").write_text("lower\n")
    (made.lower / "sub" / "inner").write_text("inner\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        yield _change(made.mount())
    made.end()


@pytest.fixture
def same(kept: Mounted, monkeypatch: pytest.MonkeyPatch) -> Mounted:
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(kept.path.parent / "run"))
    return kept


@pytest.mark.parametrize(
    "arguments",
    [
        "diff b", "diff b --json", "diff --all b", "diff --own b", "branch list", "branch list --json", "diff", "diff none",
        "snapshot create -b none", "restore none", "bind 4711 none", "unbind 1", "--version",
    ],
)  # fmt: skip
def test_the_output_is_that_of_the_full_command_line(same: Mounted, arguments: str) -> None:
    done, loaded = _quick(*arguments.split(), cwd=same.path)
    assert loaded == ""
    assert _said(done) == _said(_full(*arguments.split(), cwd=same.path))
    assert done.stdout or done.stderr or arguments == "diff"


def test_status_is_that_of_the_full_command_line(same: Mounted) -> None:
    done, loaded = _quick("status", cwd=same.path)
    full = _full("status", cwd=same.path)
    moving = ("load", "memory", "daemon", "contents")  # lines with a time, or a number that goes up
    assert loaded == "" and (done.returncode, done.stderr) == (0, "")
    still = [
        [re.sub(r"\d+ s ago", "ago", line) for line in each.stdout.splitlines() if not line.strip().startswith(moving)]
        for each in (done, full)
    ]
    assert still[0] == still[1]
    as_json, _ = _quick("status", "--json", cwd=same.path)
    assert json.loads(as_json.stdout).keys() == json.loads(_full("status", "--json", cwd=same.path).stdout).keys()


def test_what_changes_something_does_it_once(changed: Mounted) -> None:
    for arguments, said in [
        ("snapshot create -b b --tag t --keep one", "snapshot one of b\n"),
        ("branch create other --from b", "branch other made from b\n"),
        ("restore one -b b", "b is as one\n"),
    ]:
        done, loaded = _quick(*arguments.split(), cwd=changed.path)
        assert (loaded, done.returncode, done.stderr) == ("", 0, "")
        if not arguments.startswith("restore"):
            assert done.stdout == said
    (found,) = [each for each in changed.json("snapshot list") if each["name"] == "one"]
    assert found["tag"] == "t"
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        assert _quick("bind", str(sleeper.pid), "b", cwd=changed.path)[0].stdout == f"process {sleeper.pid} sees b from now on\n"
        assert [each["pid"] for each in changed.json("bindings")] == [sleeper.pid]
        assert _quick("unbind", str(sleeper.pid), cwd=changed.path)[0].stdout == f"process {sleeper.pid} is no longer bound\n"
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_command_in_a_run_means_its_own_branch(changed: Mounted) -> None:
    script = f"{sys.executable} -c 'from agentfsd.cli import entry; entry.main()' snapshot create inside"
    assert changed.sh("b", script).splitlines()[-1] == "snapshot inside of b"
    assert changed.sh("b", script.replace("inside", "by-pid"), view="pid").splitlines()[-1] == "snapshot by-pid of b"


def test_the_workspace_and_the_options_name_the_mount(same: Mounted, tmp_path: Path) -> None:
    wanted = _full("diff", "b", cwd=same.path).stdout
    for arguments, cwd, environment in [
        (("diff", "b"), same.lower, {}),
        (("diff", "b"), same.path / "sub", {}),
        (("diff", "b", "-m", str(same.path)), tmp_path, {}),
        (("diff", "b", f"--mount={same.lower}"), tmp_path, {}),
        (("diff", "b"), tmp_path, {"AGENTFS_MOUNT": str(same.path)}),
    ]:
        done, loaded = _quick(*arguments, cwd=cwd, **environment)
        assert (loaded, done.stdout) == ("", wanted)


def test_where_another_daemon_may_be_meant_the_full_one_decides(changed: Mounted, tmp_path: Path) -> None:
    below = changed.lower / "sub"
    agentfsd("run", "--", "true", cwd=below)  # leaves a one-step overlay of that directory
    for arguments, cwd, environment in [
        (("branch", "list"), below, {}),
        (("branch", "list"), below / "deep", {}),
        (("branch", "list", "-m", ""), changed.path, {"AGENTFS_MOUNT": str(changed.path)}),
    ]:
        done, loaded = _quick(*arguments, cwd=cwd, **environment)
        full = subprocess.run([*AGENTFSD, *arguments], cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment})
        assert "click" in loaded and _said(done) == _said(full)


def test_a_mount_whose_daemon_hangs_is_told_of(changed: Mounted, tmp_path: Path) -> None:
    pid = changed.record().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        done, _ = _quick("status", "-m", str(changed.path), cwd=tmp_path)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1 and "does not answer" in done.stderr


@pytest.mark.parametrize("broken", [">&-", "> /dev/full"])
def test_an_output_that_takes_nothing_ends_with_a_sentence(changed: Mounted, broken: str) -> None:
    script = f"{sys.executable} -c 'from agentfsd.cli import entry; entry.main()' snapshot create -b b {broken}"
    done = subprocess.run(["sh", "-c", script], cwd=changed.path, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert len(changed.json("snapshot list")) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "diff b --stat",
        "diff -m -- b",
        f"bind {'1' * 5000} b",
        "diff b -- file",
        "restore a b c",
        "snapshot create --help",
        "bind x b",
        "diff -x",
        "branch",
    ],
)
def test_other_command_lines_are_left_to_the_full_one(same: Mounted, arguments: str) -> None:
    done, loaded = _quick(*arguments.split(), cwd=same.path)
    assert "click" in loaded
    full = _full(*arguments.split(), cwd=same.path)
    own_name = "python -m agentfsd.cli.main "  # in a usage line
    assert (done.returncode, done.stdout.replace("-c ", "")) == (full.returncode, full.stdout.replace(own_name, ""))


def test_without_a_daemon_the_full_one_says_what_is_wrong(changed: Mounted, tmp_path: Path) -> None:
    done, loaded = _quick("status", "-m", str(tmp_path), cwd=tmp_path)
    assert "click" in loaded and done.returncode == 1 and "is not in an agentfsd mount" in done.stderr
    changed.kill()
    done, loaded = _quick("branch", "list", "-m", str(changed.path), cwd=tmp_path)
    assert "click" in loaded and done.returncode == 1 and "has died" in done.stderr


def test_they_speak_the_protocol_of_the_client() -> None:
    assert quick_daemon.VERSION == PROTOCOL_VERSION
    assert (FSTYPE.encode(), OVERLAY_SOURCE.encode()) == (quick_daemon._FSTYPE, quick_daemon._OVERLAY_SOURCE)


def test_a_daemon_that_ends_meanwhile_is_told_of_as_by_the_client(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lose(*arguments: object) -> None:
        raise quick_daemon.Lost

    monkeypatch.setattr(quick_daemon, "socket_of", lambda named: "/socket")
    monkeypatch.setattr(quick_daemon, "ask", lose)
    assert (quick_commands.run(["snapshot", "create"]), quick_commands.run(["status"])) == (1, None)
    expected = connection_closed()
    assert capfd.readouterr().err == f"agentfsd: {expected.message}\n  hint: {expected.hint}\n"


def test_a_reply_of_another_version_is_left_to_the_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = quick_daemon.JsonReply(op="branches", branches=[quick_daemon.JsonReply(name="b")])
    monkeypatch.setattr(quick_daemon, "socket_of", lambda named: "/socket")
    monkeypatch.setattr(quick_daemon, "ask", lambda *arguments: reply)
    assert quick_commands.run(["branch", "list"]) is None


def test_a_reader_that_has_ended_is_no_error(changed: Mounted) -> None:
    command = f"{sys.executable} -c 'from agentfsd.cli import entry; entry.main()' diff b | true"
    done = subprocess.run(["sh", "-c", command], cwd=changed.path, capture_output=True, text=True, check=True)
    assert done.stderr == ""


_TEXTS = [
    b"{}", b" [1, 2.5, -3e9, true, null, NaN, -Infinity] ", b'"\\ud800 \\u00e9"', '"é😀"'.encode(), b'{"a": {"b": []}}\n',
    b"", b"{", b"[1,]", b"1 2", b'"\t"', b"\xff", b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b'"\xed\xa0\x80"', b"nul",
]  # fmt: skip


@pytest.mark.parametrize("text", _TEXTS)
def test_json_is_read_as_python_reads_it(text: bytes) -> None:
    def outcome(read: Callable[..., Any]) -> str:
        try:
            return repr(read(text, object_hook=lambda value: sorted(value)))
        except ValueError as exc:
            return repr(exc)

    assert outcome(quick_json.loads) == outcome(json.loads)
    program = "import sys; from agentfsd.cli import quick_json; print(ascii(quick_json.loads(sys.stdin.buffer.read())))"
    done = subprocess.run([sys.executable, "-c", program], input=text, capture_output=True, check=False)  # without json
    assert done.stdout.decode().strip() == (ascii(json.loads(text)) if not done.returncode else "")
    assert b"JSONDecodeError" in done.stderr or b"UnicodeDecodeError" in done.stderr or not done.returncode


def test_json_is_written_as_python_writes_it() -> None:
    for value in ({"b": [1, 2.5, None, True], "a": 'é\ud800\n"'}, [], {}, "x", 3, float("inf"), {1: {"x": ()}}):
        for is_sorted in (True, False):
            assert quick_json.dumps(value, sort_keys=is_sorted) == json.dumps(value, sort_keys=is_sorted)
    with pytest.raises(TypeError):
        quick_json.dumps({"a": object()})
