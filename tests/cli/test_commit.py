"""commit: from a branch to the real files, as a user meets it."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compare import describe, differences
from tests.mounted import Mounted
from tests.rounds import rounds

KILLS = rounds("kills of a daemon in `agentfsd commit`", 4, 16)

CHANGES = """
    sed -i s/^3$/three/ one; rm two; mkdir -p new/deep; echo new > new/deep/file; chmod 640 one
    mv dir/moved dir/elsewhere; ln one link; ln -s one sym; mkfifo pipe; rm -r gone; chmod 700 dir
    setfattr -n user.a -v 1 dir/plain; touch -d 2001-02-03 dir/plain; echo file > turned; rm -r becomes; echo now a file > becomes
    head -c 200000 /dev/urandom > big; truncate -s 1M sparse; ln -f hard-a hard-c
"""


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    lower = tmp_path / "lower"
    for name in ("dir", "gone/below", "becomes"):
        (lower / name).mkdir(parents=True)
    for name in ("one", "two", "dir/moved", "dir/plain", "gone/below/file", "becomes/file", "hard-a", "keep"):
        (lower / name).write_text("".join(f"{number}\n" for number in range(20)))
    os.link(lower / "hard-a", lower / "hard-b")
    return make_mount(lower)


def as_seen(project: Mounted, branch: str) -> dict[str, tuple[object, ...]]:
    return describe(project.subtree(branch), times=True)


def assert_committed(project: Mounted, wanted: dict[str, tuple[object, ...]]) -> None:
    assert differences(describe(project.lower, times=True), wanted) == []
    assert not (project.lower / ".agentfs").exists()
    assert project.fsck() == []


def test_the_real_directory_becomes_what_the_branch_was(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", CHANGES, new=True)
    wanted, before = as_seen(project, "fix"), describe(project.lower, times=True)
    told = project.cli("commit", "fix", "--dry-run").stdout
    assert "new/deep/file\n" in told
    assert differences(describe(project.lower, times=True), before) == []
    assert project.cli("commit", "fix").stdout.startswith("committed fix into ")
    assert_committed(project, wanted)
    assert project.json("diff", "fix")["changes"] == []
    assert project.json("branch show", "fix")["changed"] == 0
    assert project.cli("commit", "fix").stdout.startswith("nothing to do")
    assert differences(as_seen(project, "main"), wanted) == []


def test_other_names_of_a_file_follow_it_though_nobody_has_looked_at_them(project: Mounted) -> None:
    project.run("fix", "sh", "-c", "echo more >> hard-a", new=True)
    project.cli("commit", "fix")
    assert (project.lower / "hard-b").read_text().endswith("more\n")
    assert (project.lower / "hard-a").stat().st_ino == (project.lower / "hard-b").stat().st_ino
    assert (project.lower / "hard-a").stat().st_nlink == 2


def test_a_real_directory_that_is_elsewhere_is_not_written_under_a_name_that_is_not_its_own(project: Mounted) -> None:
    project.run("fix", "sh", "-c", "echo mine >new", new=True)
    moved = project.lower.with_name("moved")
    project.lower.rename(moved)
    project.lower.mkdir()
    refused = project.cli("commit", "fix", check=False)
    assert (refused.returncode, f"it is {moved} now" in refused.stderr) == (1, True)
    project.lower.rmdir()
    moved.rename(project.lower)
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "none", project.lower], check=True)
        try:
            refused = project.cli("commit", "fix", check=False)
            assert (refused.returncode, "tmpfs is mounted over it" in refused.stderr) == (1, True)
        finally:
            subprocess.run(["umount", project.lower], check=True)
    assert not (project.lower / "new").exists()
    project.cli("commit", "fix")
    assert (project.lower / "new").read_text() == "mine\n"
    project.run("other", "sh", "-c", "echo mine >newer", new=True)
    shutil.rmtree(project.lower)
    refused = project.cli("commit", "other", check=False)
    assert (refused.returncode, f"{project.lower} was removed" in refused.stderr) == (1, True)


def test_only_some_paths(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", CHANGES, new=True)
    project.cli("commit", "fix", "--", "new/deep/file", "two")
    assert (project.lower / "new" / "deep" / "file").read_text() == "new\n"
    assert not (project.lower / "two").exists()
    assert (project.lower / "gone" / "below" / "file").exists()
    left = {found["path"] for found in project.json("diff", "fix")["changes"]}
    assert "one" in left
    assert not left & {"two", "new/deep/file"}
    wanted = as_seen(project, "fix")
    project.cli("commit", "fix")
    assert_committed(project, wanted)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("mine", "theirs", "path"),
    [
        ("echo mine >> one", lambda lower: (lower / "one").write_text("theirs\n"), "one"),
        ("rm two", lambda lower: (lower / "two").write_text("theirs\n"), "two"),
        ("echo mine > added", lambda lower: (lower / "added").write_text("theirs\n"), "added"),
        ("echo mine >> one", lambda lower: (lower / "one").unlink(), "one"),
        ("chmod 600 one", lambda lower: (lower / "one").write_text("theirs\n"), "one"),
        ("cp one t; mv t one; echo x >> one", lambda lower: (lower / "one").write_text("theirs\n"), "one"),
        ("mkdir d; echo mine > d/x", lambda lower: ((lower / "d").mkdir(), (lower / "d" / "x").write_text("t")), "d/x"),
    ],
)  # fmt: skip
def test_what_moved_in_the_real_directory_is_not_overwritten(
    project: Mounted, mine: str, theirs: Callable[[Path], object], path: str
) -> None:  # fmt: skip
    project.run("fix", "sh", "-ec", f"{mine}; echo other > other", new=True)
    time.sleep(0.02)
    theirs(project.lower)
    before = describe(project.lower, times=True)
    refused = project.cli("commit", "fix", "--json", check=False)
    assert refused.returncode == 1
    assert f'"path": "{path}"' in refused.stdout
    assert differences(describe(project.lower, times=True), before) == []
    wanted = {name: found[:-1] for name, found in as_seen(project, "fix").items()}
    project.cli("commit", "fix", "--force")
    assert differences({name: found[:-1] for name, found in describe(project.lower, times=True).items()}, wanted) == []


def test_what_came_into_a_removed_directory_stays_even_with_force(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", "rm -r gone; echo other > other", new=True)
    time.sleep(0.02)
    (project.lower / "gone" / "below" / "late").write_text("theirs\n")
    before = describe(project.lower, times=True)
    refused = project.cli("commit", "fix", "--json", check=False)
    assert refused.returncode == 1
    assert '"path": "gone"' in refused.stdout
    assert differences(describe(project.lower, times=True), before) == []
    project.cli("commit", "fix", "--force")
    assert [path.name for path in sorted((project.lower / "gone").rglob("*"))] == ["below", "late"]
    assert (project.lower / "other").exists()


@pytest.mark.parametrize("way", ["in place", "truncated", "renamed over", "removed first"])
def test_lines_that_both_changed_come_together_however_they_were_written(project: Mounted, way: str) -> None:
    edit = "sed s/^3$/three/ one > /tmp/agentfsd-edit-$$; "
    edit += {
        "in place": "printf thr | dd of=one bs=1 seek=4 conv=notrunc 2>/dev/null; sed s/^3$/three/ /dev/null",
        "truncated": "cat /tmp/agentfsd-edit-$$ > one",
        "renamed over": "cp /tmp/agentfsd-edit-$$ one.new; mv one.new one",
        "removed first": "rm one; cp /tmp/agentfsd-edit-$$ one",
    }[way]
    project.run("fix", "sh", "-ec", f"{edit}; rm /tmp/agentfsd-edit-$$", new=True)
    mine = project.run("fix", "cat", "one").stdout
    real = project.lower / "one"
    real.write_text(real.read_text().replace("15\n", "fifteen\n"))
    assert project.cli("commit", "fix", check=False).returncode == 1
    project.cli("commit", "fix", "--merge")
    assert real.read_text() == mine.replace("15\n", "fifteen\n")


def test_a_clash_of_lines_is_listed_and_nothing_is_written(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", "sed -i s/^3$/three/ one; rm two", new=True)
    real = project.lower / "one"
    real.write_text(real.read_text().replace("3\n", "drei\n"))
    refused = project.cli("commit", "fix", "--merge", check=False)
    assert refused.returncode == 1
    assert "content   one" in refused.stdout
    assert "--force overwrites them; or edit" in refused.stderr
    assert "--merge" not in refused.stderr
    assert (project.lower / "two").exists()


def test_a_branch_of_main_goes_to_main_and_main_to_the_real_directory(project: Mounted) -> None:
    (project.path / "in-main").write_text("main\n")
    project.run("fix", "sh", "-ec", "sed -i s/^3$/three/ one", new=True)
    assert project.cli("commit", "fix").stdout.startswith("committed fix into main: ")
    assert "three\n" in (project.path / "one").read_text()
    assert "three\n" not in (project.lower / "one").read_text()
    (project.path / "one").write_text("main's own\n")
    project.run("fix", "sh", "-ec", "sed -i s/^5$/five/ one")
    assert project.cli("commit", "fix", check=False).returncode == 1
    project.cli("undo")
    project.cli("commit", "main")
    assert (project.lower / "in-main").read_text() == "main\n"


def test_a_file_that_is_open_for_writing_stays_the_branch_s_own(project: Mounted) -> None:
    with (project.path / "log").open("w") as log:
        log.write("one\n")
        log.flush()
        project.cli("commit", "main")
        assert (project.lower / "log").read_text() == "one\n"
        log.write("two\n")
        log.flush()
        assert (project.path / "log").read_text() == "one\ntwo\n"
    project.cli("commit", "main")
    assert (project.lower / "log").read_text() == "one\ntwo\n"
    assert project.fsck() == []


def test_processes_of_the_branch_go_on_in_it(project: Mounted) -> None:
    import subprocess

    script = "echo before > file; echo ready; read go; echo after >> file; cat file one"
    working = project.start("main", "sh", "-ec", script, view="namespace", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert working.stdout is not None
    assert working.stdout.readline() == "ready\n"
    project.cli("commit", "main")
    assert (project.lower / "file").read_text() == "before\n"
    out, _ = working.communicate("\n", timeout=20)
    assert out.startswith("before\nafter\n0\n")
    project.cli("commit", "main")
    assert (project.lower / "file").read_text() == "before\nafter\n"


def test_a_daemon_that_is_killed_in_a_commit_finishes_it_or_takes_it_back(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", CHANGES + "\n i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i > n$i; done", new=True)
    wanted = as_seen(project, "fix")
    copy = project.lower.with_name("copy")
    subprocess.run(["cp", "-a", str(project.lower), str(copy)], check=True)
    before = describe(copy, times=True)
    for number in range(KILLS):
        committing = threading.Thread(target=project.cli, args=("commit", "fix"), kwargs={"check": False})
        committing.start()
        deadline = time.monotonic() + 10
        while not (project.state / "commit.journal").exists() and not list(project.lower.glob(".agentfs/*")):
            if not committing.is_alive() or time.monotonic() > deadline:
                break
            time.sleep(0.001)
        time.sleep(0.032 * number / KILLS)
        project.kill()
        committing.join()
        project.mount()
        done = project.cli("commit", "--resume" if number % 2 else "--abort", check=False)
        state = describe(project.lower, times=True)
        if differences(state, wanted) == []:
            break
        assert differences(state, before) == [], done.stderr
    project.cli("commit", "fix", check=False)
    assert_committed(project, wanted)
    shutil.rmtree(copy)
