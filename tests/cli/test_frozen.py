"""Branches with a frozen base, as a user has them: made by branch create, run and mount, brought up to date by rebase."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import Mounted, agentfsd

LINES = "".join(f"{number}\n" for number in range(1, 21))


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    return make_mount(build(tmp_path / "lower"))


def build(lower: Path) -> Path:
    (lower / "dir").mkdir(parents=True)
    for name in ("text", "other", "dir/inner"):
        (lower / name).write_text(LINES)
    return lower


def change_lower(lower: Path) -> None:
    """What a person does: in place, by another file, by removing, by renaming, by adding."""
    with open(lower / "text", "r+") as file:
        file.write("one")
    (lower / "fresh").write_text("fresh\n")
    os.replace(lower / "fresh", lower / "other")
    (lower / "dir").rename(lower / "moved")
    (lower / "added").write_text("added\n")


def look(project: Mounted, branch: str, view: str = "namespace") -> str:
    return project.sh(branch, "find . -path ./.agentfs -prune -o -type f -print | sort; cat text other dir/inner", view=view)


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_a_frozen_branch_does_not_follow_the_real_directory(project: Mounted, view: str) -> None:
    said = project.cli("branch create", "fix", "--frozen").stdout
    assert said.startswith("branch fix made from the lower as it was at ")
    before = look(project, "fix", view)
    change_lower(project.lower)
    assert look(project, "fix", view) == before
    assert (project.subtree("fix") / "text").read_text() == LINES
    assert project.json("diff", "fix")["changes"] == []
    listed = {branch["name"]: branch for branch in project.json("branch list")}
    assert listed["fix"]["frozen_ns"] > 0 == listed["main"]["frozen_ns"]
    project.kill()
    project.mount()
    assert look(project, "fix", view) == before, "a killed daemon's successor knows the base"
    assert project.fsck() == []


def test_each_way_of_carrying_data_shows_the_base(project: Mounted) -> None:
    project.cli("branch create", "fix", "--frozen")
    project.sh("fix", "echo mine >> text")
    change_lower(project.lower)
    for io in ("overlay", "zero-message", "passthrough", "cached"):
        script = "cat other; tail -n 1 text; echo >> dir/inner"
        ran = project.cli("run", "-b", "fix", "--io", io, "--", "sh", "-ec", script, check=False)
        if io == "overlay" and os.geteuid() != 0:
            assert "frozen base" in ran.stderr
        else:
            assert ran.stdout == f"{LINES}mine\n", (io, ran.stderr)


def test_run_makes_a_frozen_branch(project: Mounted) -> None:
    project.cli("run", "-b", "fix", "--new", "--frozen", "--", "sh", "-c", "echo 1 > one")
    change_lower(project.lower)
    assert project.sh("fix", "cat one other") == f"1\n{LINES}"
    refused = project.cli("run", "-b", "fix", "--frozen", "--", "true", check=False)
    assert (refused.returncode, "--frozen is for a new branch" in refused.stderr) == (1, True)


def test_a_branch_of_a_frozen_one_has_its_base(project: Mounted) -> None:
    project.cli("branch create", "one", "--frozen")
    change_lower(project.lower)
    project.cli("branch create", "two", "--from", "one")
    project.cli("branch create", "three", "--from", "one", "--frozen")
    project.cli("snapshot create", "-b", "one", "kept")
    project.cli("branch create", "four", "--from", "kept")
    assert {look(project, name) for name in ("two", "three", "four")} == {look(project, "one")}
    assert len(os.listdir(project.state / "bases")) == 1


def test_commit_goes_on_and_on(project: Mounted) -> None:
    """The base stays; what the branch has committed is known, and no drift."""
    project.cli("branch create", "fix", "--frozen")
    project.sh("fix", "sed -i s/^20$/twenty/ text; mkdir new; echo 1 > new/file; rm other; mv dir/inner dir/renamed")
    (project.lower / "added").write_text("added\n")
    shown = project.sh("fix", "ls -R; cat text new/file dir/renamed")
    project.cli("commit", "fix")
    assert sorted(os.listdir(project.lower)) == ["added", "dir", "new", "text"]
    assert project.sh("fix", "ls -R; cat text new/file dir/renamed") == shown
    project.sh("fix", "sed -i s/^10$/ten/ text; echo 2 >> new/file; rm dir/renamed; echo 3 > new/more")
    assert project.cli("commit", "fix", "--dry-run").stdout.splitlines()[-1].startswith("4 changes")
    project.cli("commit", "fix")
    assert (project.lower / "text").read_text() == LINES.replace("20\n", "twenty\n").replace("10\n", "ten\n", 1)
    assert (project.lower / "new/file").read_text() == "1\n2\n"
    assert sorted(os.listdir(project.lower / "dir")) == []
    assert project.json("diff", "fix")["changes"] == []


def test_a_commit_takes_back_nothing_that_others_did(project: Mounted) -> None:
    project.cli("branch create", "fix", "--frozen")
    project.cli("branch create", "other")
    project.sh("fix", "sed -i s/^20$/twenty/ text")
    project.sh("other", "sed -i s/^1$/one/ text; echo more >> other")
    project.cli("commit", "other")
    refused = project.cli("commit", "fix", check=False)
    assert (refused.returncode, "changed in the real directory" in refused.stdout) == (1, True)
    project.cli("commit", "fix", "--merge")
    assert (project.lower / "text").read_text() == LINES.replace("20\n", "twenty\n").replace("1\n", "one\n", 1)
    assert (project.lower / "other").read_text() == f"{LINES}more\n"
    assert project.sh("fix", "cat other") == LINES


def test_merge_into_main_and_from_main(project: Mounted) -> None:
    project.cli("branch create", "fix", "--frozen")
    project.sh("fix", "sed -i s/^20$/twenty/ text; echo 1 > one")
    (project.lower / "other").write_text("somebody\n")
    project.cli("merge", "fix", "main")
    assert project.sh("main", "cat one other; tail -n 1 text") == "1\nsomebody\ntwenty\n"
    project.sh("main", "echo 2 > two; sed -i s/^1$/one/ text")
    project.cli("merge", "main", "fix")
    assert project.sh("fix", "cat one two other; head -n 1 text; tail -n 1 text") == f"1\n2\n{LINES}one\ntwenty\n"
    project.cli("commit", "main")
    assert (project.lower / "other").read_text() == "somebody\n"


def test_rebase_merges_and_undo_takes_it_back(project: Mounted) -> None:
    project.cli("branch create", "fix", "--frozen")
    project.sh("fix", "sed -i s/^20$/twenty/ text; echo 1 > one")
    before = look(project, "fix")
    change_lower(project.lower)
    said = project.cli("rebase", "fix").stdout
    assert said == "fix is based on the real directory as it is now, and changes 2 paths of it\n"
    shown = project.sh("fix", "cat other added one; head -n 1 text; tail -n 1 text; ls moved")
    assert shown == "fresh\nadded\n1\none\ntwenty\ninner\n"
    project.cli("commit", "fix")
    project.cli("undo")
    assert look(project, "fix") == before


def test_a_rebase_counts_from_the_branch_it_was_made_from(project: Mounted) -> None:
    project.cli("branch create", "fix", "--frozen")
    project.sh("fix", "echo 1 > one; echo 2 > two")
    project.cli("branch create", "try", "--frozen", "--from", "fix")
    project.sh("try", "echo 3 > three")
    change_lower(project.lower)
    said = project.cli("rebase", "try").stdout
    assert said == "try is based on the real directory as it is now, and changes 1 path of fix\n"
    assert project.sh("try", "cat other one two three") == "fresh\n1\n2\n3\n"


def test_a_rebase_with_conflicts_changes_nothing(project: Mounted) -> None:
    project.cli("branch create", "fix", "--frozen")
    project.sh("fix", "sed -i s/^20$/branch/ text; rm other; echo mine > added")
    before = project.sh("fix", "ls; cat text added")
    (project.lower / "text").write_text(LINES.replace("20\n", "person\n"))
    (project.lower / "other").write_text("changed\n")
    (project.lower / "added").write_text("theirs\n")
    refused = project.cli("rebase", "fix", check=False)
    kinds = [line.split()[0] for line in refused.stdout.splitlines()[1:4]]
    assert (refused.returncode, sorted(kinds)) == (1, ["add/add", "content", "modify/delete"])
    assert project.sh("fix", "ls; cat text added") == before
    project.cli("rebase", "fix", "--markers", check=False)
    assert project.sh("fix", "ls; cat text added") == before, "markers decide no removal"
    project.cli("rebase", "fix", "--theirs")
    assert project.sh("fix", "cat text other added") == LINES.replace("20\n", "person\n") + "changed\ntheirs\n"
    project.cli("undo")
    project.cli("rebase", "fix", "--ours")
    assert project.sh("fix", "ls; cat text added") == before


def test_what_cannot_be_rebased_is_told(project: Mounted) -> None:
    project.cli("branch create", "live")
    refused = project.cli("rebase", "live", check=False)
    assert refused.returncode == 1
    assert "follows the real directory: it has no base to renew" in refused.stderr
    assert "branch create NAME --frozen --from live" in refused.stderr


def test_bases_go_with_the_last_branch_that_needs_them(project: Mounted) -> None:
    project.cli("branch create", "one", "--frozen")
    project.cli("branch create", "two", "--frozen")
    assert len(os.listdir(project.state / "bases")) == 2
    project.cli("discard", "one")
    project.cli("gc")
    assert len(os.listdir(project.state / "bases")) == 2, "nobody else has that base, so undo may bring it back"
    project.cli("gc", "--forget-undo")
    assert len(os.listdir(project.state / "bases")) == 1
    project.sh("two", "echo 1 > one")
    project.cli("discard", "two")
    project.cli("gc")
    assert len(os.listdir(project.state / "bases")) == 1
    project.cli("undo")
    change_lower(project.lower)
    assert project.sh("two", "cat one other") == f"1\n{LINES}"
    project.cli("discard", "two")
    project.cli("gc", "--forget-undo")
    assert os.listdir(project.state / "bases") == []


def test_a_mount_with_a_frozen_base(make_mount: Callable[..., Mounted], tmp_path: Path) -> None:
    project = make_mount(build(tmp_path / "lower"), "--base", "frozen")
    change_lower(project.lower)
    assert (project.path / "other").read_text() == LINES
    project.cli("branch create", "fix")
    assert project.sh("fix", "cat other") == LINES
    project.kill()
    project.mount()
    assert (project.path / "other").read_text() == LINES, "a second start keeps the base"
    agentfsd("umount", str(project.path))
    said = agentfsd("mount", str(project.lower), str(project.path), "--state", str(project.state)).stderr
    assert "main shows the real directory as it was at 20" in said, said
    project.sh("main", "echo 1 > one")
    project.cli("discard", "main")
    assert not (project.path / "one").exists()
    assert (project.path / "other").read_text() == LINES
    project.cli("rebase", "main")
    assert (project.path / "other").read_text() == "fresh\n"


def test_git_in_a_frozen_branch(project: Mounted) -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(project.lower), *arguments], check=True, capture_output=True, text=True).stdout

    git("init", "-q", "-b", "trunk")
    git("config", "user.name", "n")
    git("config", "user.email", "n@example.org")
    git("add", "-A")
    git("commit", "-qm", "first")
    project.cli("branch create", "fix", "--frozen")
    change_lower(project.lower)
    git("add", "-A")
    git("commit", "-qm", "second")
    assert project.sh("fix", "git status --porcelain; git log --format=%s") == "first\n"
    project.sh("fix", "sed -i s/^20$/twenty/ text; git add -A; git commit -qm agent")
    project.cli("rebase", "fix")
    assert set(project.sh("fix", "git status --porcelain; git log --format=%s").splitlines()[1:]) == {"first", "second", "agent"}
    project.cli("commit", "fix")
    assert git("status", "--porcelain") == ""
    git("fsck", "--strict")
    assert "twenty" in (project.lower / "text").read_text()
