"""A branch is merged into main and main committed, again and again: what the commits before have done is no drift."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import Mounted

LINES = [str(number) for number in range(1, 21)]
STEPS = {
    "lines": ["sed -i s/^20$/twenty/ text", "sed -i s/^10$/ten/ text", "sed -i s/^11$/eleven/ text"],
    "appended": ["echo more >> text"] * 3,
    "written anew": ["echo 1 > new; rm text", "mv new text; echo 2 > new", "rm new; echo 3 >> text"],
    "modes": ["chmod 600 text", "chmod 640 text", "echo more >> text; chmod 700 text"],
    "symlinks": ["ln -sfn one link", "ln -sfn two link", "rm link; echo file > link"],
    "gone and back": ["rm text", "echo new > text", "rm text; mkdir text; echo in > text/file"],
    "renamed": ["echo more >> text; mv text old", "echo more >> old", "mv old text"],
    "large": ["head -c 3M /dev/zero > large", "printf x | dd of=large bs=1 seek=1M conv=notrunc status=none", "rm large"],
}


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    lower = tmp_path / "lower"
    lower.mkdir()
    write(lower / "text", LINES)
    (lower / "link").symlink_to("base")
    (lower / "large").write_bytes(bytes(2 << 20))
    found = make_mount(lower)
    found.cli("branch create", "fix")
    return found


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def changed(**lines: str) -> list[str]:
    return [lines.get(f"l{line}", line) for line in LINES]


def merge(project: Mounted, branch: str = "fix") -> None:
    project.cli("merge", branch, "main")


def commit(project: Mounted, *options: str) -> subprocess.CompletedProcess[str]:
    return project.cli("commit", "main", *options, check=False)


@pytest.mark.sample(9)  # each of the steps, some with a process and some without
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("in_use", [False, True])  # a branch in which a process works keeps its rows after a commit
def test_each_merge_is_committed_without_asking(project: Mounted, tmp_path: Path, steps: list[str], in_use: bool) -> None:
    working = project.start("main", "sleep", "60") if in_use else None
    plain = tmp_path / "plain"
    subprocess.run(["cp", "-a", str(project.lower), str(plain)], check=True)
    for step in steps:
        project.run("fix", "sh", "-ec", step, view="pid")
        subprocess.run(["sh", "-ec", step], cwd=plain, check=True)
        merge(project)
        done = commit(project)
        if in_use and done.returncode:  # where main has replaced or removed a file, it cannot tell that it knows the lower's
            assert "drift" in done.stdout
            done = commit(project, "--force")
        assert done.returncode == 0, (step, done.stderr)
        assert subprocess.run(["diff", "-r", "--no-dereference", str(plain), str(project.lower)], check=False).returncode == 0
    assert (project.lower / "large").exists() is (plain / "large").exists()
    assert project.fsck() == []
    if working is not None:
        working.kill()


def test_two_branches_take_turns(project: Mounted) -> None:
    project.cli("branch create", "other")
    for number in (2, 7, 12):
        project.run("fix", "sed", "-i", f"s/^{number}$/fix/", "text", view="pid")
        project.run("other", "sed", "-i", f"s/^{number + 3}$/other/", "text", view="pid")
        merge(project)
        assert commit(project).returncode == 0
        merge(project, "other")
        assert commit(project, *["--merge"] * (number == 2)).returncode == 0  # other is from before the first commit
    wanted = changed(l2="fix", l5="other", l7="fix", l10="other", l12="fix", l15="other")
    assert (project.lower / "text").read_text().split() == wanted


def test_what_a_person_wrote_before_the_merge_is_merged(project: Mounted) -> None:
    project.run("fix", "sed", "-i", "s/^5$/five/", "text", view="pid")
    merge(project)
    assert commit(project).returncode == 0
    project.run("fix", "sed", "-i", "s/^9$/nine/", "text", view="pid")
    write(project.lower / "text", changed(l5="five", l15="person"))
    time.sleep(1.2)  # until main shows it
    merge(project)
    assert commit(project).returncode == 0
    assert (project.lower / "text").read_text().split() == changed(l5="five", l9="nine", l15="person")


def test_what_a_person_wrote_after_the_merge_is_not_overwritten(project: Mounted) -> None:
    for number, word in ((5, "five"), (9, "nine")):
        project.run("fix", "sed", "-i", f"s/^{number}$/{word}/", "text", view="pid")
        merge(project)
        if number == 5:
            assert commit(project).returncode == 0
    write(project.lower / "text", changed(l5="five", l15="person"))
    refused = commit(project)
    assert (refused.returncode, "drift" in refused.stdout) == (1, True)
    assert (project.lower / "text").read_text().split() == changed(l5="five", l15="person")
    assert commit(project, "--merge").returncode == 0
    assert (project.lower / "text").read_text().split() == changed(l5="five", l9="nine", l15="person")


@pytest.mark.parametrize("main_too", [False, True])
def test_what_a_person_wrote_after_a_branch_was_made_is_merged_with_it(project: Mounted, main_too: bool) -> None:
    project.run("fix", "sed", "-i", "s/^5$/five/", "text", view="pid")
    write(project.lower / "text", changed(l15="person"))
    time.sleep(1.2)
    if main_too:
        project.run("main", "sed", "-i", "s/^9$/nine/", "text", view="pid")
    merge(project)
    more = {"l9": "nine"} if main_too else {}
    wanted = changed(l5="five", l15="person", **more)
    assert (project.subtree("main") / "text").read_text().split() == wanted
    assert commit(project, "--merge").returncode == 0
    assert (project.lower / "text").read_text().split() == wanted
    assert project.fsck() == []


@pytest.mark.parametrize("favor", ["ours", "theirs"])
def test_lines_that_a_person_and_a_branch_changed_are_a_conflict_of_the_merge(project: Mounted, favor: str) -> None:
    project.run("fix", "sed", "-i", "s/^5$/five/", "text", view="pid")
    write(project.lower / "text", changed(l5="person", l15="person"))
    time.sleep(1.2)
    refused = project.cli("merge", "fix", "main", check=False)
    assert (refused.returncode, "content" in refused.stdout) == (1, True)
    project.cli("merge", "fix", "main", f"--{favor}")
    commit(project, "--force")
    wanted = changed(l5="person" if favor == "ours" else "five", l15="person")
    assert (project.lower / "text").read_text().split() == wanted


def test_ten_agents_of_one_moment_are_merged_and_committed_one_by_one(project: Mounted) -> None:
    for number in range(1, 20, 2):
        project.run(f"agent-{number}", "sed", "-i", f"s/^{number}$/agent/", "text", new=True, view="pid")
    for number in range(1, 20, 2):
        merge(project, f"agent-{number}")
        shown = (project.subtree("main") / "text").read_text().split()
        assert shown == ["agent" if int(line) % 2 and int(line) <= number else line for line in LINES]
        assert commit(project, "--merge").returncode == 0
    assert (project.lower / "text").read_text().split() == ["agent" if int(line) % 2 else line for line in LINES]


def own_lines(project: Mounted, branch: str) -> list[str]:
    shown = project.cli("diff", branch, "--own", "-p").stdout.splitlines()
    return [line for line in shown if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def test_what_others_did_meanwhile_is_no_change_of_a_branch(project: Mounted) -> None:
    """Three agents of one moment; two are merged and committed: the third one's changes are what it did, in diff and in hunks."""
    for name, number in (("a", 3), ("b", 9), ("c", 15)):
        project.run(name, "sed", "-i", f"s/^{number}$/{name}/", "text", new=True, view="pid")
    for name in ("a", "b"):
        merge(project, name)
        assert commit(project, "--merge").returncode == 0
    (project.lower / "other").write_text("a person's\n")
    time.sleep(1.2)
    assert own_lines(project, "c") == ["-15", "+c"]
    (row,) = [row for row in project.json("compare") if row["branch"] == "c"]
    assert (row["added"], row["removed"], row["conflicts"]) == (1, 1, 0)
    done = project.answered("y", "merge", "-p", "c", "main")
    assert (done.returncode, done.stdout.count("Merge this hunk")) == (0, 1), done.stdout + done.stderr
    assert (project.subtree("main") / "text").read_text().split() == changed(l3="a", l9="b", l15="c")
    assert commit(project, "--merge").returncode == 0
    assert (project.lower / "text").read_text().split() == changed(l3="a", l9="b", l15="c")
    assert project.fsck() == []


def test_a_hunk_is_taken_back_or_committed_beside_what_others_did(project: Mounted) -> None:
    project.run("fix", "sed", "-i", "-e", "s/^3$/three/", "-e", "s/^15$/fifteen/", "text", view="pid")
    write(project.lower / "text", changed(l9="person"))
    time.sleep(1.2)
    assert own_lines(project, "fix") == ["-3", "+three", "-15", "+fifteen"]
    for verb, answers in (("discard", "y n"), ("commit", "y")):
        done = project.answered(answers, verb, "fix", "-p", *["--merge"] * (verb == "commit"))
        assert done.returncode == 0, done.stdout + done.stderr
    assert (project.lower / "text").read_text().split() == changed(l9="person", l15="fifteen")
    assert project.fsck() == []


def test_a_branch_is_not_merged_into_itself(project: Mounted) -> None:
    refused = project.cli("merge", "main", "--into", "main", check=False)
    assert (refused.returncode, "'main' cannot be merged into itself" in refused.stderr) == (1, True)
