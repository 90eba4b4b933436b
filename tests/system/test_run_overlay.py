"""`agentfsd run --io overlay`: the kernel shows the branch, and what the run writes comes into it, whatever is killed."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_namespaces, started

WRITER = "for n in $(seq 200); do echo $n >> log; sleep 0.02; done; echo done > end"


@pytest.fixture(autouse=True)
def _needs() -> None:
    needs_namespaces()


def overlay(mounted: Mounted, branch: str, script: str, *, new: bool = False, check: bool = True) -> str:
    """What a command printed that runs in a branch as an overlay."""
    command = ["run", "--io", "overlay", "-b", branch, *["--new"] * new, "--", "sh", "-ec", script]
    done = agentfsd(*command, check=False, cwd=mounted.path)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if check else done.stderr


def begin(mounted: Mounted, branch: str, script: str) -> subprocess.Popen[str]:
    mounted.cli("branch create", branch)
    command = ["run", "--io", "overlay", "-b", branch, "--", "sh", "-ec", script]
    mounted.started.append(started(*command, cwd=mounted.path, stdout=subprocess.PIPE))
    return mounted.started[-1]


def end_run(mounted: Mounted, run: subprocess.Popen[str]) -> None:
    """Kill what runs in any branch; then the run itself ends."""
    while run.poll() is None:
        for found in mounted.json("bindings"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(found["pid"], signal.SIGKILL)


def wait_for(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def lines(mounted: Mounted, branch: str) -> int:
    mounted.cli("diff", branch)  # asking brings what is there
    log = mounted.subtree(branch) / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def changes(mounted: Mounted, branch: str) -> list[str]:
    found = json.loads(mounted.cli("diff", branch, "--json").stdout)["changes"]
    return sorted(f"{change['status']} {change['path']}" for change in found)


def test_the_kernel_shows_the_branch_and_nobody_sees_the_control_directory(mounted: Mounted) -> None:
    said = overlay(mounted, "one", "ls -A; ls .agentfs | head -1; stat -f -c %T .; cat sub/inner", new=True)
    assert said.split() == ["file", "link", "sub", "branches", "overlayfs", "inner"]


def test_what_it_writes_is_in_the_branch_and_not_elsewhere(mounted: Mounted) -> None:
    overlay(mounted, "one", "echo new > new; echo more >> file; rm -r sub; ln new hard; chmod 600 new", new=True)
    assert changes(mounted, "one") == ["A hard", "A new", "D sub", "D sub/deep", "D sub/deep/leaf", "D sub/inner", "M file"]
    assert (mounted.lower / "file").read_text() == "lower\n"
    assert sorted(os.listdir(mounted.lower)) == ["file", "link", "sub"]
    found = (mounted.subtree("one") / "hard").stat()
    assert (found.st_nlink, found.st_mode & 0o777) == (2, 0o600)
    assert mounted.fsck() == []


def test_the_next_run_goes_on_whichever_way_it_sees_the_branch(mounted: Mounted) -> None:
    overlay(mounted, "one", "echo 1 > log; mv sub moved; rm file", new=True)
    mounted.sh("one", "echo 2 >> log; echo 3 > moved/deep/new; mv link other")
    assert overlay(mounted, "one", "cat log moved/deep/new; ls; readlink other; echo 4 >> log").split() == [
        "1", "2", "3", "log", "moved", "other", "file",
    ]  # fmt: skip
    assert mounted.sh("one", "cat log").split() == ["1", "2", "4"]
    assert mounted.fsck() == []


def test_whoever_asks_sees_what_a_run_has_written_until_now(mounted: Mounted) -> None:
    run = begin(mounted, "one", WRITER)
    wait_for(lambda: lines(mounted, "one") > 5, "lines")
    assert changes(mounted, "one") == ["A log"]
    status = mounted.json("status")
    assert {"branch": "one", "session": "kernel", "io": "overlay"}.items() <= next(
        each for each in status["connections"] if each["branch"] == "one"
    ).items()
    assert run.poll() is None
    end_run(mounted, run)


def test_only_the_run_changes_its_branch(mounted: Mounted) -> None:
    run = begin(mounted, "one", "echo 1 > log; exec sleep 60")
    wait_for(lambda: lines(mounted, "one"), "the first line")
    with pytest.raises(OSError, match="Read-only"):
        (mounted.subtree("one") / "other").write_text("x")
    with pytest.raises(OSError, match="Read-only"):
        (mounted.subtree("one") / "log").write_text("x")
    end_run(mounted, run)
    wait_for(lambda: not mounted.json("status")["connections"][1:], "the end")
    (mounted.subtree("one") / "other").write_text("x\n")
    assert overlay(mounted, "one", "cat other log").split() == ["x", "1"]


def test_a_snapshot_stays_as_it_is_while_the_run_writes_on(mounted: Mounted) -> None:
    run = begin(mounted, "one", WRITER)
    wait_for(lambda: lines(mounted, "one") > 3, "lines")
    mounted.cli("snapshot create", "s", "-b", "one")
    taken = (mounted.path / ".agentfs/snapshots/s/log").read_text()
    wait_for(lambda: lines(mounted, "one") > len(taken.splitlines()) + 5, "the run goes on")
    assert (mounted.path / ".agentfs/snapshots/s/log").read_text() == taken
    assert taken.splitlines() == [str(n + 1) for n in range(len(taken.splitlines()))]
    end_run(mounted, run)
    assert mounted.fsck() == []


def test_a_snapshot_is_one_moment_of_all_files(mounted: Mounted) -> None:
    run = begin(mounted, "one", "for n in $(seq 100000); do echo $n > a; echo $n > b; done")
    wait_for(lambda: (mounted.cli("diff", "one"), (mounted.subtree("one") / "b").exists())[1], "it began")
    for number in range(12):
        mounted.cli("snapshot create", f"s{number}", "-b", "one")
        a, b = ((mounted.path / f".agentfs/snapshots/s{number}" / name).read_text().strip() or "0" for name in "ab")
        assert 0 <= int(a or 0) - int(b or 0) <= 1 or "0" in (a, b)
    end_run(mounted, run)


def test_a_restore_shows_at_once_in_the_run(mounted: Mounted) -> None:
    script = """
    echo 1 > new; mkdir d; echo 2 > d/in; agentfsd snapshot create s >&2
    rm -r d sub; echo x > file; mv new newer; agentfsd restore s >&2
    cat new d/in file sub/inner; ls
    echo 3 >> new; agentfsd restore s >&2; cat new
    """
    said = overlay(mounted, "one", script.replace("agentfsd", " ".join(AGENTFSD)), new=True)
    assert said.split() == ["1", "2", "lower", "inner", "d", "file", "link", "new", "sub", "1"]
    assert changes(mounted, "one") == ["A d", "A d/in", "A new"]
    mounted.cli("undo")
    assert (mounted.subtree("one") / "new").read_text() == "1\n3\n"
    assert mounted.fsck() == []


def test_a_merge_shows_at_once_in_the_run(mounted: Mounted) -> None:
    mounted.cli("branch create", "two")
    mounted.sh("two", "echo theirs > theirs; echo more >> file")
    run = begin(mounted, "one", "echo ours > ours; while ! [ -e theirs ]; do sleep 0.02; done; cat file")
    wait_for(lambda: "A ours" in changes(mounted, "one"), "ours")
    mounted.cli("merge", "two", "--into", "one")
    assert run.communicate(timeout=60)[0] == "lower\nmore\n"
    assert changes(mounted, "one") == ["A ours", "A theirs", "M file"]


def test_a_second_run_joins(mounted: Mounted) -> None:
    first = begin(mounted, "one", "echo 1 > log; while ! [ -e two ]; do sleep 0.02; done; echo 3 >> log; sleep 60")
    wait_for(lambda: lines(mounted, "one"), "the first")
    assert overlay(mounted, "one", "cat log; echo 2 >> log; touch two; while [ $(wc -l < log) -lt 3 ]; do sleep 0.02; done")
    assert lines(mounted, "one") == 3
    end_run(mounted, first)


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["daemon", "daemon and keeper"])
def test_a_killed_daemon_does_not_end_the_run(mounted: Mounted, how: str) -> None:
    run = begin(mounted, "one", WRITER)
    wait_for(lambda: lines(mounted, "one") > 3, "lines")
    if how == "daemon":
        old = mounted.record().pid
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: mounted.record().pid != old and mounted.record().serves(), "the next daemon")
    else:
        mounted.kill()
        time.sleep(0.3)
        mounted.mount()
    seen = lines(mounted, "one")
    wait_for(lambda: lines(mounted, "one") > seen + 3, "the run goes on")
    run.wait()
    assert run.returncode == 0
    assert lines(mounted, "one") == 200
    assert changes(mounted, "one") == ["A end", "A log"]
    assert mounted.fsck() == []


def test_what_was_written_before_everything_was_killed_is_there_at_the_next_mount(mounted: Mounted) -> None:
    run = begin(mounted, "one", "for n in $(seq 2000); do echo $n > f$n; done; echo 1 >> file; rm -r sub; sleep 60")
    wait_for(lambda: "M file" in changes(mounted, "one"), "it wrote")
    mounted.cli("run", "-b", "other", "--new", "--", "true")
    pids = [found["pid"] for found in mounted.json("bindings") if found["branch"] == "one"]
    mounted.kill()
    for pid in (*pids, run.pid):
        os.kill(pid, signal.SIGKILL)
    run.wait()
    mounted.mount()
    found = changes(mounted, "one")
    assert len([change for change in found if change.startswith("A f")]) == 2000
    assert {"M file", "D sub", "D sub/inner"} <= set(found)
    assert mounted.fsck() == []
    assert overlay(mounted, "one", "ls | wc -l").strip() == "2002"


def test_two_branches_are_apart(mounted: Mounted) -> None:
    one = begin(mounted, "one", "echo 1 > log; sleep 60")
    two = begin(mounted, "two", "echo 2 > log; sleep 60")
    wait_for(lambda: lines(mounted, "one") and lines(mounted, "two"), "both")
    assert overlay(mounted, "one", "cat log") == "1\n"
    assert overlay(mounted, "two", "cat log") == "2\n"
    assert not (mounted.path / "log").exists()
    assert one.poll() is two.poll() is None
    end_run(mounted, one)


def test_what_cannot_be_an_overlay_is_refused_with_the_reason(mounted: Mounted) -> None:
    mounted.cli("branch create", "one")
    mounted.cli("rules add", "deny sub/**")
    assert "rules by path" in overlay(mounted, "one", "true", check=False)
    mounted.cli("policy set", "run.io", "overlay")
    done = mounted.run("one", "sh", "-c", "cat file; cat sub/inner", check=False)
    assert done.stdout == "lower\n"
    assert "rules by path" in done.stderr


def test_no_rule_is_added_where_a_run_would_not_heed_it(mounted: Mounted) -> None:
    run = begin(mounted, "one", "echo 1 > log; exec sleep 60")
    wait_for(lambda: lines(mounted, "one"), "the first line")
    mounted.cli("branch create", "two")
    for scope in ([], ["--everybody"], ["-b", "one"]):
        done = mounted.cli("rules add", *scope, "deny sub/**", check=False)
        assert done.returncode != 0
        assert "runs see one as overlays of the kernel" in done.stderr
    mounted.cli("rules add", "-b", "two", "deny sub/**")
    mounted.cli("rules add", "hide ~/.nothing")
    end_run(mounted, run)
    mounted.cli("rules add", "-b", "one", "deny sub/**")
    assert "rules by path" in overlay(mounted, "one", "true", check=False)


def test_the_setting_takes_overlays_for_all_runs(mounted: Mounted) -> None:
    mounted.cli("policy set", "run.io", "overlay")
    mounted.cli("branch create", "one")
    assert mounted.sh("one", "stat -f -c %T .") == "overlayfs\n"


def test_a_mount_over_the_directory_itself(make_mount: Callable[..., Mounted], tmp_path: Path) -> None:
    (tmp_path / "lower").mkdir()
    (tmp_path / "lower" / "file").write_text("lower\n")
    mounted = Mounted(tmp_path, tmp_path / "lower")
    mounted.path = mounted.lower
    mounted.mount()
    try:
        assert overlay(mounted, "one", "cat file; echo x > new; pwd", new=True) == f"lower\n{mounted.lower}\n"
        assert changes(mounted, "one") == ["A new"]
        assert os.listdir(mounted.path) == ["file"]
    finally:
        mounted.end()


def test_a_commit_reaches_a_run_of_another_branch(mounted: Mounted) -> None:
    run = begin(mounted, "one", "cat file; echo 1 > log; while ! grep -q more file; do sleep 0.02; done; cat file")
    wait_for(lambda: lines(mounted, "one"), "it began")
    mounted.cli("branch create", "two")
    mounted.sh("two", "echo more >> file")
    mounted.cli("commit", "two")
    assert run.communicate(timeout=60)[0] == "lower\nlower\nmore\n"


def test_what_the_real_directory_got_meanwhile_is_never_overwritten(mounted: Mounted) -> None:
    run = begin(mounted, "one", "cat file; echo 1 > log; read line || true; echo mine > file; rm -r sub; sleep 1")
    wait_for(lambda: lines(mounted, "one"), "it began")
    (mounted.lower / "file").write_text("the person's\n")
    (mounted.lower / "sub" / "inner").write_text("the person's\n")
    run.wait()
    done = mounted.cli("commit", "one", check=False)
    assert done.returncode == 1
    assert "file" in done.stderr + done.stdout
    assert (mounted.lower / "file").read_text() == "the person's\n"
    assert (mounted.lower / "sub" / "inner").read_text() == "the person's\n"


def test_layers_go_with_their_branches(mounted: Mounted) -> None:
    for branch in ("one", "two"):
        for number in range(3):
            overlay(mounted, branch, f"echo {number} > f{number}", new=number == 0)
    place = mounted.state / "overlays"
    wait_for(lambda: len([name for name in os.listdir(place) if name.startswith("layer-") and "." not in name]) == 6, "layers")
    mounted.cli("discard", "one")
    wait_for(lambda: len([name for name in os.listdir(place) if name.startswith("layer-") and "." not in name]) == 3, "one's go")
    assert overlay(mounted, "two", "cat f0 f1 f2").split() == ["0", "1", "2"]
    mounted.cli("undo")
    assert overlay(mounted, "one", "cat f0 f1 f2").split() == ["0", "1", "2"]


def test_a_run_that_is_refused_leaves_no_branch(mounted: Mounted) -> None:
    mounted.cli("rules add", "deny sub/**")
    assert "rules by path" in overlay(mounted, "one", "true", new=True, check=False)
    assert [branch["name"] for branch in mounted.json("branch list")] == ["main"]


def test_a_holder_that_was_killed_keeps_nobody_out(mounted: Mounted) -> None:
    run = begin(mounted, "one", "echo 1 > log; sleep 3; echo 2 >> log")
    wait_for(lambda: lines(mounted, "one"), "it began")
    keeper = mounted.record().keeper
    holders = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    for pid in holders:
        if "agentfsd-mounts" in Path(f"/proc/{pid}/comm").read_text():
            os.kill(int(pid), signal.SIGKILL)
    done = mounted.cli("restore", "main", "-b", "one", check=False)
    assert done.returncode == 1
    assert "nobody can change" in done.stderr
    run.wait()
    assert lines(mounted, "one") == 2
    assert overlay(mounted, "one", "cat log").split() == ["1", "2"]


def test_a_workspace_that_may_not_be_written(mounted: Mounted) -> None:
    overlay(mounted, "one", "echo 1 > log; chmod 555 .", new=True)
    assert overlay(mounted, "one", "cat log; stat -c %a .").split() == ["1", "555"]


def test_what_the_real_directory_got_beside_a_new_directory_is_not_removed(mounted: Mounted) -> None:
    run = begin(mounted, "one", "mkdir new; echo 1 > new/x; sleep 2")
    wait_for(lambda: list(mounted.state.glob("overlays/run-*/upper/new/x")), "it began")
    (mounted.lower / "new").mkdir()
    (mounted.lower / "new" / "y").write_text("2\n")
    assert changes(mounted, "one") == ["A new/x"] or changes(mounted, "one") == ["A new", "A new/x"]
    run.wait()
    mounted.cli("commit", "one", "--force", check=False)
    assert (mounted.lower / "new" / "y").read_text() == "2\n"
