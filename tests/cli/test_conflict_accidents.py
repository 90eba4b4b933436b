"""Conflicts in a target whose files, editors and tools are not as one would have them."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from tests.mounted import AGENTFSD, Mounted, agentfsd

GIB = 1 << 30


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    """A branch main with conflicts about a text, a text with a long name, and a binary file."""
    lower = tmp_path / "lower"
    lower.mkdir()
    for name in ("text", long_name()):
        (lower / name).write_text("one\ntwo\nthree\n")
    (lower / "binary").write_bytes(b"b\0ase")
    found = make_mount(lower)
    change = "sed -i s/two/{0}/ text n*; printf '{0}\\0' > binary"
    found.run("fix", "sh", "-ec", change.format("FIX"), new=True, view="pid")
    found.run("main", "sh", "-ec", change.format("MAIN"), view="pid")
    found.cli("merge", "fix", "--into", "main", "--conflicts", check=False)
    return found


def test_branches_can_be_compared_while_a_merge_is_unfinished(project: Mounted) -> None:
    assert [line.split()[-1] for line in project.cli("compare").stdout.splitlines() if line.startswith("fix ")] == ["?"]
    assert {row["branch"]: row["conflicts"] for row in project.json("compare")} == {"fix": -2, "main": -1}
    project.cli("merge", "--abort", "main")
    assert {row["branch"]: row["conflicts"] for row in project.json("compare")} == {"fix": 3, "main": -1}


def long_name() -> str:
    return "n" * 251 + ".txt"


def undecided(mounted: Mounted) -> set[str]:
    return {one["path"] for one in mounted.json("conflicts", "main")["conflicts"] if not one["decided"]}


def resolve(mounted: Mounted, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return agentfsd("resolve", "-m", str(mounted.path), "-b", "main", *arguments, env=os.environ | more, check=False)


def git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def program(tmp_path: Path, script: str) -> str:
    place = tmp_path / "editor"
    place.write_text(f"#!/bin/sh\n{script}\n")
    place.chmod(0o755)
    return str(place)


def test_markers_count_in_a_file_that_is_no_text_any_more(project: Mounted) -> None:
    with (project.path / "text").open("r+b") as file:
        kept = file.read()
        file.seek(0)
        file.write(b"\0" + b"\n" + kept)
    assert "text" in undecided(project)
    refused = resolve(project, "text", "--edit", VISUAL="true")
    assert "still has conflict markers" in refused.stderr


def test_markers_count_in_a_text_of_which_both_sides_rewrote_all(make_mount: Callable[..., Mounted], tmp_path: Path) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "text").write_text("short\n")
    found = make_mount(lower)
    change = "yes {} | head -c 3000000 > text"
    found.run("fix", "sh", "-ec", change.format("FIX"), new=True, view="pid")
    found.run("main", "sh", "-ec", change.format("MAIN"), view="pid")
    found.cli("merge", "fix", "--into", "main", "--conflicts", check=False)
    assert undecided(found) == {"text"}
    assert found.cli("merge", "--continue", "main", check=False).returncode == 1


def test_a_huge_file_is_neither_decided_nor_read(project: Mounted) -> None:
    os.truncate(project.path / "text", 200 * GIB)  # more than any memory
    os.truncate(project.path / "binary", 200 * GIB)
    assert undecided(project) == {"text", "binary", long_name()}
    refused = resolve(project, "text", "--edit", VISUAL="touch /nonexistent/is-not-run")
    assert "is larger than" in refused.stderr
    assert "touch" not in refused.stderr
    assert resolve(project, "text", "binary", "--theirs").returncode == 0
    assert (project.path / "text").read_text() == "one\nFIX\nthree\n"
    assert (project.path / "binary").read_bytes() == b"FIX\0"


def test_a_huge_file_in_a_repository_is_left_to_git_add(make_mount: Callable[..., Mounted], tmp_path: Path) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    git(lower, "init", "-q")
    (lower / "binary").write_bytes(b"b\0ase")
    git(lower, "add", ".")
    git(lower, "commit", "-qm", "base")
    found = make_mount(lower)
    change = "printf '{0}\\0' > binary; git -c user.name=a -c user.email=a@b commit -qam {0}"
    found.run("fix", "sh", "-ec", change.format("FIX"), new=True, view="pid")
    found.run("main", "sh", "-ec", change.format("MAIN"), view="pid")
    found.cli("merge", "fix", "--into", "main", "--conflicts", check=False)
    assert undecided(found) >= {"binary"}
    os.truncate(found.path / "binary", 200 * GIB)
    assert resolve(found, "binary", "--mark").returncode == 0
    assert git(found.path, "diff", "--name-only", "--diff-filter=U").strip() == "binary"


def test_an_edit_that_is_refused_is_kept_in_a_file(project: Mounted, tmp_path: Path) -> None:
    editor = program(tmp_path, f'echo meanwhile > {project.path}/text; echo an hour of work > "$1"')
    refused = resolve(project, "text", "--edit", VISUAL=editor, TMPDIR=str(tmp_path))
    assert "was changed since it was read" in refused.stderr
    (kept,) = tmp_path.glob("agentfsd-edited-*/text")
    assert kept.read_text() == "an hour of work\n"
    assert str(kept) in refused.stderr
    larger = resolve(
        project, long_name(), "--edit", VISUAL=program(tmp_path, 'yes | head -c 600000 > "$1"'), TMPDIR=str(tmp_path)
    )
    assert "is larger than" in larger.stderr
    assert len(list(tmp_path.glob("agentfsd-edited-*/n*"))) == 1


def test_an_editor_that_deletes_the_file_decides_nothing(project: Mounted, tmp_path: Path) -> None:
    for script in ('rm "$1"', 'rm "$1"; mkdir "$1"'):
        refused = resolve(project, "text", "--edit", VISUAL=program(tmp_path, script))
        assert "the edited file cannot be read" in refused.stderr
        assert "--mark" in refused.stderr
    assert "text" in undecided(project)


def test_a_tool_gets_files_with_long_names_and_may_fail(project: Mounted, tmp_path: Path) -> None:
    settings = tmp_path / "gitconfig"
    tool = program(tmp_path, 'cat "$REMOTE" > "$MERGED"; case $BASE in *_BASE.txt) ;; *) exit 1 ;; esac')
    settings.write_text(f'[merge]\n\ttool = x\n[mergetool "x"]\n\tcmd = {tool}\n')
    more = {"GIT_CONFIG_GLOBAL": str(settings), "GIT_CONFIG_NOSYSTEM": "1"}
    assert "2 conflicts undecided" in resolve(project, long_name(), "--tool", **more).stderr
    assert (project.path / long_name()).read_text() == "one\nFIX\nthree\n"
    failed = resolve(project, "text", "--tool", **more)
    assert "ended with 1: nothing was decided" in failed.stderr
    assert "text" in undecided(project)


def test_paths_that_leave_the_workspace_are_refused(project: Mounted) -> None:
    for path in ("../text", "/etc/passwd", "binary/../../x", "text/"):
        said = resolve(project, path, "--ours")
        assert "Traceback" not in said.stderr
        assert path == "text/" or said.returncode != 0
    assert "binary" in undecided(project)


def test_a_rule_about_the_former_name_of_a_file_keeps_its_versions_back(
    make_mount: Callable[..., Mounted], tmp_path: Path
) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "secret").write_text("".join(f"{number}\n" for number in range(20)))
    found = make_mount(lower)
    found.run("fix", "sh", "-ec", "mv secret plain; sed -i s/^9$/FIX/ plain", new=True, view="pid")
    found.run("main", "sh", "-ec", "sed -i s/^9$/MAIN/ secret", view="pid")
    found.cli("merge", "fix", "--into", "main", "--conflicts", check=False)
    found.cli("rules add", "hide secret")
    shown = ["conflicts", "-m", str(found.path), "main", "--show", "base", "--path", "plain"]
    assert found.run("main", *AGENTFSD, *shown, check=False, view="pid").returncode == 1
    assert "19" in agentfsd(*shown).stdout


OF_FIX = "echo x > gone; rm kept; ln -sfn fix link; chmod 600 mode; head -c 18M /dev/zero | tr '\\0' x > large; rm dir; mkdir dir"
OF_MAIN = "rm gone; echo x > kept; ln -sfn main link; chmod 640 mode; head -c 18M /dev/zero > large; echo main > dir"
CHANGES = {  # of what is no file, or none that is read as a whole
    "gone": "echo again > gone", "kept": "rm kept", "link": "ln -sfn other link", "mode": "chmod 604 mode",
    "large": "printf x | dd of=large bs=1 seek=17M conv=notrunc", "dir": "rm dir; mkdir dir",
}  # fmt: skip


def test_nothing_is_decided_about_another_version_than_was_seen(make_mount: Callable[..., Mounted], tmp_path: Path) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    for name in ("gone", "kept", "mode", "large", "dir"):
        (lower / name).write_text(name)
    (lower / "link").symlink_to("base")
    project = make_mount(lower)
    project.run("fix", "sh", "-ec", OF_FIX, new=True, view="pid")
    project.run("main", "sh", "-ec", OF_MAIN, view="pid")
    project.cli("merge", "fix", "--into", "main", "--conflicts", check=False)
    with ControlClient.connect(project.record().socket) as client:
        for path, change in CHANGES.items():
            seen = client.conflict_version(path, "now", "main").seen
            assert (seen != "", client.conflict_version(path, "now", "main").seen) == (True, seen)
            project.run("main", "sh", "-ec", change, view="pid")
            for how in ("ours", "theirs", "marked"):
                with pytest.raises(AgentFSError) as refused:
                    client.resolve([path], how, "main", seen=seen)
                assert refused.value.code == "conflict-changed", path
            assert path in undecided(project)
            client.resolve([path], "marked", "main", seen=client.conflict_version(path, "now", "main").seen)
            assert path not in undecided(project)
        now = client.conflict_version("link", "now", "main").seen
        with pytest.raises(AgentFSError, match="was changed since"):  # the beginning of a name is none
            client.resolve(["link"], "ours", "main", seen=now.partition(" ")[0])
        with pytest.raises(AgentFSError, match="only one path"):
            client.resolve(["link", "mode"], "ours", "main", seen=now)
        with pytest.raises(AgentFSError, match="no file"):
            client.resolve(["link"], "edited", "main", seen=now, content=b"x")
