"""The runner alone, without any mount: exit codes, signals, terminal, descendants, private views."""

import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from agentfsd.cli.sandbox import namespace_trial, runner

PREAMBLE = """
import os, sys
from agentfsd.cli.sandbox import runner
bound = []
def run(argv, view=None, cwd="/", bind=bound.append):
    ended = runner.run(runner.Command(argv, dict(os.environ), cwd, view, bind))
    return ended
"""


def script(body: str) -> list[str]:
    return [sys.executable, "-c", PREAMBLE + textwrap.dedent(body)]


def outcome(body: str, timeout_s: float = 20) -> subprocess.CompletedProcess[str]:
    return subprocess.run(script(body), capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["/no/such/program"], 127),
        (["no-such-program-anywhere"], 127),
        (["/etc/passwd"], 126),
        (["/"], 126),
    ],
)
def test_exit_code_is_what_a_shell_would_give(command: list[str], code: int) -> None:
    assert outcome(f"sys.exit(run({command!r}).exit_code)").returncode == code


def test_a_script_without_an_interpreter_line_is_run_by_sh(tmp_path: Path) -> None:
    path = tmp_path / "plain"
    path.write_text("exit 5\n")
    path.chmod(0o755)
    assert outcome(f"sys.exit(run([{str(path)!r}]).exit_code)").returncode == 5


def test_the_command_is_bound_before_its_first_instruction() -> None:
    done = outcome(
        """
        order = os.pipe(); os.set_inheritable(order[1], True)
        run(["sh", "-c", f"echo command >&{order[1]}"], bind=lambda pid: os.write(order[1], b"bound\\n"))
        print(os.read(order[0], 100).decode())
        """
    )
    assert done.stdout.split() == ["bound", "command"]


def test_a_refused_binding_leaves_the_command_unstarted(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    done = outcome(
        f"""
        def refuse(pid): raise PermissionError("no")
        try:
            run(["touch", {str(mark)!r}], bind=refuse)
        except PermissionError as exc:
            print("refused", exc)
        """
    )
    assert done.stdout == "refused no\n"
    assert not mark.exists()


def test_missing_working_directory_is_one_sentence() -> None:
    done = outcome(
        """
        from agentfsd.domain_errors import Refusal
        try:
            run(["true"], cwd="/no/such/dir")
        except Refusal as exc:
            print(exc.message)
        """
    )
    assert done.stdout == "cannot enter /no/such/dir in that branch: No such file or directory\n"


@pytest.mark.parametrize("profile", ["workspace", "strict"])
def test_a_kernel_without_domains_is_told_of_and_strict_does_not_start(profile: str) -> None:
    done = outcome(
        f"""
        from agentfsd.cli.sandbox import confinement, layout, profiles
        from agentfsd.domain_errors import Refusal
        confinement.has_domains = lambda: False
        plan = layout.RunPlan(profiles.decide(profiles.Asked(profile={profile!r}), {{}}, "b"))
        told = lambda missing: print(*missing, flush=True)
        try:
            runner.run(runner.Command(["echo", "started"], dict(os.environ), "/", None, bound.append, plan, told))
        except Refusal as exc:
            print("refused", exc.code, exc.message)
        """
    )
    missing = "a bar to signals and debuggers: it takes Landlock of Linux 6.12\n"
    refusal = f"refused not-confined the command cannot be confined as asked: {missing}"
    assert done.stdout == (f"{missing}started\n" if profile == "workspace" else refusal)


def test_standard_streams_pass_through() -> None:
    done = subprocess.run(
        script("sys.exit(run(['sh', '-c', 'cat; echo to-err >&2']).exit_code)"),
        input="hello", capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("hello", "to-err\n")


def test_ignored_pipe_signal_is_not_inherited() -> None:
    done = outcome("run(['sh', '-c', 'grep SigIgn /proc/self/status'])")
    ignored = int(done.stdout.split()[1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_sent_to_the_runner_reaches_the_command(number: signal.Signals) -> None:
    trap = f"trap 'echo got; exit 9' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(script(f"sys.exit(run(['sh', '-c', {trap!r}]).exit_code)"), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as stdout:
        assert stdout.readline() == "ready\n"
        process.send_signal(number)
        assert stdout.readline() == "got\n"
    assert process.wait(20) == 9


def test_interrupt_key_reaches_the_command_once() -> None:
    trap = "trap 'echo got' INT; echo ready; i=0; while [ $i -lt 20 ]; do sleep 0.03; i=$((i+1)); done; exit 3"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, script(f"sys.exit(run(['sh', '-c', {trap!r}]).exit_code)"))
    text = read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    text += read_until(terminal, None)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert text.count(b"got") == 1


def test_the_command_owns_the_terminal() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, script("sys.exit(run(['sh', '-c', 'tty && read x < /dev/tty && echo =$x']).exit_code)"))
    text = read_until(terminal, b"/dev/pts/")
    os.write(terminal, b"word\n")
    text += read_until(terminal, None)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"=word" in text


def test_suspend_key_stops_both_and_fg_resumes_both(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(script("sys.exit(run(['sh', '-c', 'echo rea''dy; sleep 0.5; exit 4']).exit_code)")[2])
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    os.write(terminal, f"{sys.executable} {program}\n".encode())
    read_until(terminal, b"ready")
    os.write(terminal, b"\x1a")
    text = read_until(terminal, b"Stopped")
    os.write(terminal, b"fg; echo code=$?; exit 0\n")
    text += read_until(terminal, None)
    os.close(terminal)
    os.waitpid(pid, 0)
    assert b"Stopped" in text
    assert b"code=4" in text


def read_until(fd: int, wanted: bytes | None) -> bytes:
    text = b""
    deadline = time.monotonic() + 20
    while (wanted is None or wanted not in text) and time.monotonic() < deadline:
        try:
            chunk = os.read(fd, 4096)
        except OSError:  # the other side of a terminal is gone
            break
        if not chunk:
            break
        text += chunk
    return text


def test_background_processes_are_bound_and_counted() -> None:
    done = outcome(
        """
        ended = run(["sh", "-c", "setsid sh -c 'sleep 30 & sleep 30' >/dev/null & sleep 0.3"])
        print(len(ended.left_behind), set(ended.left_behind) <= set(bound))
        for pid in ended.left_behind:
            os.kill(pid, 9)
        """
    )
    assert done.stdout == "3 True\n"


def test_private_view_is_seen_by_the_command_alone(tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "inside").touch()
    (tmp_path / "here").mkdir()
    here, shown = str(tmp_path / "here"), str(tmp_path / "shown")
    if namespace_trial.probe_error():
        pytest.skip("no private mount namespaces here")
    done = outcome(f"run(['ls'], view=runner.View([{here!r}], {shown!r}), cwd={here!r}); print(os.listdir({here!r}))")
    assert done.stdout == "inside\n[]\n"


def test_view_that_cannot_be_shown_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    done = outcome(
        f"""
        try:
            run(["touch", {str(mark)!r}], view=runner.View(["/no/such/place"], "/"))
        except runner.NamespaceError as exc:
            print(exc)
        """
    )
    assert done.stdout == "No such file or directory\n"
    assert not mark.exists()


def test_descendants_of_nobody_are_none() -> None:
    assert runner.descendants(1 << 30) == []
