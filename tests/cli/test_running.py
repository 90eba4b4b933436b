"""run and shell on real mounts, in both kinds of view; and the one-step overlay of a directory that is not mounted."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_client import registry
from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_fuse, needs_namespaces, started

VIEWS = ["namespace", "pid"]


@pytest.fixture(params=VIEWS)
def view(request: pytest.FixtureRequest) -> str:
    if request.param == "namespace":
        needs_namespaces()
    return str(request.param)


@pytest.fixture
def branched(mounted: Mounted) -> Mounted:
    mounted.cli("branch create", "b")
    return mounted


# -- in a mount


def test_command_runs_where_only_the_control_file_leads_to_the_daemon(
    branched: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(tmp_path / "nobody"))
    assert branched.sh("b", "echo mine > file; cat file") == "mine\n"
    assert (branched.subtree("b") / "file").read_text() == "mine\n"


def test_command_sees_its_branch_at_the_mount_point(branched: Mounted, view: str) -> None:
    done = branched.run("b", "sh", "-c", "echo mine > file; rm -r sub; touch new; pwd; ls", view=view)
    assert done.stdout.split() == [str(branched.path), "file", "link", "new"]
    assert (branched.path / "file").read_text() == "lower\n"
    assert sorted(os.listdir(branched.subtree("b"))) == ["file", "link", "new"]


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -KILL $$", 137), ("no-such-program", 127)])
def test_exit_code_passes_through(branched: Mounted, view: str, script: str, code: int) -> None:
    assert branched.run("b", "sh", "-c", script, view=view, check=False).returncode == code


def test_program_that_is_not_there_is_127(branched: Mounted, view: str) -> None:
    done = branched.run("b", "no-such-program", view=view, check=False)
    assert (done.returncode, done.stderr) == (127, "agentfsd: cannot run no-such-program: No such file or directory\n")


def test_signal_reaches_the_command(branched: Mounted, view: str) -> None:
    runner = branched.start("b", "sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done", view=view, stdout=-1)
    assert runner.stdout is not None
    with runner.stdout as stdout:
        assert stdout.readline() == "up\n"
        runner.terminate()
        assert runner.wait(20) == 9


def test_terminal_passes_through(branched: Mounted, view: str) -> None:
    options = ["--no-namespace"] * (view == "pid")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(branched.path)
        os.execv(
            sys.executable,
            [*AGENTFSD, "run", "-b", "b", *options, "--", "sh", "-c", "tty; read x; echo =$x= > file; touch .envrc"],
        )
    seen = b""
    while b"/dev/pts/" not in seen:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"typed\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with contextlib.suppress(OSError):  # at its end
        while more := os.read(terminal, 4096):
            seen += more
    os.close(terminal)
    assert (branched.subtree("b") / "file").read_text() == "=typed=\n"
    assert seen.decode().split("\r\n")[-4:-1] == [
        "agentfsd: 2 changes in branch b; the real files are as they were",
        "  .envrc: run by git, an editor, a shell or an agent's harness; commit and merge refuse it without --hooks",
        "  next: agentfsd diff b, agentfsd commit b, agentfsd discard b",
    ]


def test_command_starts_in_the_same_directory_of_its_branch(branched: Mounted, view: str) -> None:
    (branched.subtree("b") / "sub" / "only-here").touch()
    options = ["--no-namespace"] * (view == "pid")
    done = agentfsd("run", "-b", "b", *options, "--", "sh", "-c", "pwd; ls", cwd=branched.path / "sub")
    assert done.stdout.split() == [str(branched.path / "sub"), "deep", "inner", "only-here"]


def test_command_from_outside_the_workspace_starts_in_its_root(branched: Mounted, view: str, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    options = ["-m", str(branched.path), "-b", "b", *["--no-namespace"] * (view == "pid")]
    done = agentfsd("run", *options, "--", "sh", "-c", "pwd; printenv PWD; touch new", cwd=outside)
    assert done.stdout.split() == [str(branched.path)] * 2
    assert done.stderr == f"agentfsd: started in {branched.path}: {outside} is outside the workspace\n"
    assert os.listdir(outside) == []
    assert (branched.subtree("b") / "new").exists()


def test_directory_that_the_branch_does_not_have_is_refused(branched: Mounted, view: str) -> None:
    (branched.path / "of-main").mkdir()
    options = ["--no-namespace"] * (view == "pid")
    done = agentfsd("run", "-b", "b", *options, "--", "touch", "mark", cwd=branched.path / "of-main", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"agentfsd: cannot enter {branched.path}/of-main in that branch")


def test_environment_names_mount_and_branch(branched: Mounted, view: str) -> None:
    done = branched.run("b", "sh", "-c", "echo $AGENTFS_MOUNT $AGENTFS_BRANCH", view=view)
    assert done.stdout.split() == [str(branched.path), "b"]


def test_command_may_use_its_own_branch_and_no_other(branched: Mounted, view: str) -> None:
    cli = " ".join(AGENTFSD)
    script = f"touch new; {cli} diff; {cli} snapshot create s; {cli} branch show --json; cd /; {cli} discard b; {cli} run true"
    done = branched.run("b", "sh", "-c", script, view=view, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("A\tnew\nsnapshot s of b\n")
    assert json.loads(done.stdout.partition("of b\n")[2])["name"] == "b"
    refusals = [line for line in done.stderr.splitlines() if line.startswith("agentfsd: ")]
    assert refusals == ["agentfsd: that request is not for a process that is bound to a branch"] * 2


def test_background_process_stays_in_the_branch(branched: Mounted, view: str) -> None:
    script = "(cd /; setsid sh -c 'sleep 0.4; echo late > file; exec sleep 30' <&- >&- 2>&- &) ; sleep 0.1"
    branched.run("b", "sh", "-c", script.replace("> file", f"> {branched.path}/file"), view=view)
    bound = branched.json("bindings")
    try:
        assert {found["branch"] for found in bound} == {"b"}
        assert any(found["explicit"] for found in bound)
        deadline = time.monotonic() + 10
        while (branched.subtree("b") / "file").read_text() != "late\n":
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        for found in branched.json("bindings"):
            os.kill(found["pid"], signal.SIGKILL)
    assert (branched.path / "file").read_text() == "lower\n"


def test_new_branch_starts_from_what_was_said(branched: Mounted) -> None:
    (branched.subtree("b") / "of-b").touch()
    done = branched.run("c", "ls", new=True)
    assert "of-b" not in done.stdout
    done = agentfsd("run", "-m", str(branched.path), "-b", "d", "--new", "--from", "b", "--", "ls", cwd=branched.path)
    assert "of-b" in done.stdout.split()


def test_fresh_branch_without_a_change_goes_again(mounted: Mounted) -> None:
    done = agentfsd("run", "--", "true", cwd=mounted.path)
    assert "nothing changed; branch" in done.stderr
    assert [branch["name"] for branch in mounted.json("branch list")] == ["main"]


def test_what_main_had_changed_already_is_no_change_of_a_fresh_branch(mounted: Mounted) -> None:
    (mounted.path / "file").write_text("changed in main\n")
    done = agentfsd("run", "--", "true", cwd=mounted.path)
    assert "nothing changed; branch" in done.stderr
    assert [branch["name"] for branch in mounted.json("branch list")] == ["main"]
    done = agentfsd("run", "--", "sh", "-c", "cat file; rm sub/inner", cwd=mounted.path)
    name = next(branch["name"] for branch in mounted.json("branch list") if branch["name"] != "main")
    (mounted.path / "later").touch()
    assert done.stdout == "changed in main\n"
    assert done.stderr.splitlines()[:3] == [
        f"agentfsd: 1 change in branch {name}; the real files are as they were", "  D sub/inner",
        f"  show it:    agentfsd diff --own {name}",
    ]  # fmt: skip


def test_fresh_branch_in_which_all_was_taken_back_goes_again(mounted: Mounted) -> None:
    (mounted.path / "file").write_text("changed in main\n")
    done = agentfsd("run", "--", "sh", "-c", "touch new; rm new; cat file > x; cat x > file; rm x", cwd=mounted.path)
    assert "nothing changed; branch" in done.stderr
    assert [branch["name"] for branch in mounted.json("branch list")] == ["main"]


def test_fresh_branch_with_changes_is_told(mounted: Mounted) -> None:
    done = agentfsd("run", "--", "sh", "-c", "echo x > file; rm sub/inner; mkdir d; exit 3", cwd=mounted.path, check=False)
    assert done.returncode == 3
    name = next(branch["name"] for branch in mounted.json("branch list") if branch["name"] != "main")
    assert done.stderr.splitlines()[:4] == [
        f"agentfsd: 3 changes in branch {name}; the real files are as they were", "  A d", "  M file", "  D sub/inner",
    ]  # fmt: skip
    assert f"agentfsd diff {name}" in done.stderr


def test_daemon_that_dies_meanwhile_does_not_change_the_exit_code(branched: Mounted) -> None:
    done = branched.run("b", "sh", "-c", f"kill -KILL {branched.record().pid}; exit 5", check=False)
    assert done.returncode == 5
    assert "Traceback" not in done.stderr


def test_run_from_the_workspace_never_touches_the_real_files(branched: Mounted) -> None:
    needs_namespaces()
    script = f"pwd; echo branch > file; cat {branched.path}/file; cat .agentfs/status > /dev/null; echo $AGENTFS_MOUNT"
    done = agentfsd("run", "-b", "b", "--", "sh", "-ec", script, cwd=branched.lower)
    assert done.stdout.split() == [str(branched.lower), "branch", str(branched.lower)]
    assert (branched.lower / "file").read_text() == "lower\n"
    refused = agentfsd("run", "-b", "b", "--no-namespace", "--", "touch", "mark", cwd=branched.lower, check=False)
    assert refused.returncode == 1
    assert "would see the real files" in refused.stderr
    assert not (branched.lower / "mark").exists()


def test_shell_is_the_users_own(branched: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    done = agentfsd(
        "shell",
        "b",
        "-m",
        str(branched.path),
        cwd=branched.path,
        input="echo $AGENTFS_BRANCH; touch by-shell; exit 4",
        check=False,
    )
    assert (done.returncode, done.stdout) == (4, "b\n")
    assert (branched.subtree("b") / "by-shell").exists()


@pytest.mark.parametrize("program", ["/bin/bash", "/bin/sh"])
def test_the_prompt_of_a_shell_begins_with_its_branch(branched: Mounted, tmp_path: Path, program: str) -> None:
    (tmp_path / ".bashrc").write_text("PS1='own> '\n")
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "SHELL": program, "HOME": str(tmp_path), "TERM": "dumb"} | {"PS1": "own> "}
        os.chdir(branched.path)
        os.execve(AGENTFSD[0], [*AGENTFSD, "shell", "b"], environment)
    text = b""
    while b"(b) own> " not in text:
        assert select.select([terminal], [], [], 60)[0], text
        text += os.read(terminal, 1 << 16)
    os.write(terminal, b"exit 3\n")
    with contextlib.suppress(OSError):  # the other side is gone
        while os.read(terminal, 1 << 16):
            pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert f"agentfsd: this shell is in branch b, shown at {branched.path}; `exit` leaves it".encode() in text


# -- which mount


def test_mount_is_found_by_variable_directory_and_workspace(
    branched: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    other = Mounted(tmp_path / "other").mount()
    try:
        outside = agentfsd("branch", "show", "b", cwd="/", check=False)
        assert outside.returncode == 1
        assert outside.stderr.startswith("agentfsd: the current directory is in no workspace, and 2 are mounted")
        assert f"{branched.path} (of {branched.lower})" in outside.stderr
        for directory in (branched.path, branched.path / "sub", branched.lower / "sub"):
            assert agentfsd("branch", "show", "b", cwd=directory).returncode == 0
        monkeypatch.setenv("AGENTFS_MOUNT", str(branched.path))
        assert agentfsd("branch", "show", "b", cwd=other.path).returncode == 0
        assert agentfsd("branch", "show", "b", "-m", str(other.path), check=False).returncode == 1
    finally:
        other.end()
    monkeypatch.delenv("AGENTFS_MOUNT")
    assert agentfsd("branch", "show", "b", cwd="/").returncode == 0


# -- one step


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    needs_fuse()
    needs_namespaces()
    monkeypatch.setenv("AGENTFS_IDLE_EXIT_S", "60")
    path = tmp_path / "project"
    (path / "sub").mkdir(parents=True)
    (path / "file").write_text("real")
    yield path
    for record in registry.live_daemons():
        os.kill(record.pid, signal.SIGTERM)
        wait_until(lambda record=record: not record.alive())  # type: ignore[misc]


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_step_changes_nothing_real_and_says_what_to_do(project: Path) -> None:
    done = agentfsd(
        "run", "-b", "b", "--new", "--", "sh", "-c", "echo new > file; touch more; pwd; exit 6", cwd=project, check=False
    )
    assert (done.returncode, done.stdout) == (6, f"{project}\n")
    assert done.stderr.splitlines() == [
        "agentfsd: 2 changes in branch b; the real files are as they were",
        "  M file",
        "  A more",
        "  show it:    agentfsd diff b",
        "  go on:      agentfsd run -b b -- COMMAND      (it is kept until you discard it)",
        "  keep it:    agentfsd commit b",
        "  discard it: agentfsd discard b",
    ]
    assert (project / "file").read_text() == "real"
    assert sorted(os.listdir(project)) == ["file", "sub"]


def test_second_run_joins_in_another_branch_also_from_a_subdirectory(project: Path) -> None:
    command = ["run", "-b", "a", "--new", "--", "sh", "-c", "echo a > file; echo up; read x"]
    first = started(*command, cwd=project, stdin=-1, stdout=-1, stderr=-1)
    assert first.stdout is not None
    assert first.stdout.readline() == "up\n"
    second = agentfsd("run", "-b", "b", "--new", "--", "sh", "-c", "pwd; cat ../file; ls -A ..", cwd=project / "sub")
    assert second.stdout.split() == [str(project / "sub"), "realfile", "sub"]
    assert len(registry.live_daemons()) == 1
    listed = json.loads(agentfsd("branch", "list", "--json", cwd=project).stdout)
    assert [(b["name"], b["processes"] > 0) for b in listed] == [("main", False), ("a", True), ("b", False)]
    first.communicate("\n", timeout=20)
    assert first.returncode == 0


def test_idle_daemon_ends_and_commands_bring_it_back(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFS_IDLE_EXIT_S", "1")
    agentfsd("run", "-b", "b", "--new", "--", "touch", "new", cwd=project)
    (daemon,) = registry.live_daemons()
    wait_until(lambda: not daemon.alive())
    assert registry.live_daemons() == []
    monkeypatch.setenv("AGENTFS_IDLE_EXIT_S", "60")
    assert agentfsd("diff", "b", cwd=project).stdout == "A\tnew\n"
    assert agentfsd("run", "-b", "b", "--", "ls", cwd=project / "sub", check=False).returncode == 0
    assert agentfsd("diff", "b", "-m", str(project), cwd="/").stdout == "A\tnew\n"
    agentfsd("discard", "b", cwd=project)
    assert [b["name"] for b in json.loads(agentfsd("branch", "list", "--json", cwd=project).stdout)] == ["main"]


def test_busy_daemon_does_not_count_as_idle(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFS_IDLE_EXIT_S", "1")
    done = agentfsd("run", "-b", "b", "--new", "--", "sh", "-c", "cd /; sleep 2.5; cd -; cat file", cwd=project)
    assert done.stdout.endswith("real")


def test_ten_runs_at_once_share_one_daemon(project: Path) -> None:
    running = [
        subprocess.Popen(
            [*AGENTFSD, "run", "--", "sh", "-c", f"echo {n} > file; cat file"], cwd=project, stdout=-1, stderr=-1, text=True
        )
        for n in range(10)
    ]
    for number, process in enumerate(running):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, f"{number}\n"), err
    assert len(registry.live_daemons()) <= 1
    assert len(json.loads(agentfsd("branch", "list", "--json", cwd=project).stdout)) == 11


def test_mounting_takes_an_idle_one_step_overlay_over(project: Path) -> None:
    agentfsd("run", "-b", "b", "--new", "--", "touch", "new", cwd=project)
    agentfsd("mount", str(project), str(project))
    try:
        assert (project / ".agentfs" / "branches" / "b" / "new").exists()
    finally:
        agentfsd("umount", str(project))


def test_overlay_that_would_hold_its_own_state_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFS_STATE_HOME", str(project / "state"))
    done = agentfsd("run", "--", "touch", "mark", cwd=project, check=False)
    assert done.returncode == 1
    assert "lies inside the workspace" in done.stderr
    assert not (project / "mark").exists()


def test_deleted_current_directory_is_one_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$0"; exec "$@"', str(gone), *AGENTFSD, "run", "--", "true"],
        cwd=gone, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("agentfsd: the current directory is gone")
