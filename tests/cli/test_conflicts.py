"""Conflicts that a merge leaves in its target and that are settled there: merge --conflicts, --continue, conflicts, resolve."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentfs_client.errors import AgentFSError
from agentfs_client.locate import Mount
from tests.mounted import Mounted, agentfsd

FIX = """
printf 'one\\nFIX\\nthree\\n' > text; printf 'f\\0ix' > binary; echo changed > gone; rm kept; chmod 600 mode; ln -sfn fix link
mkdir both; echo fix > both/file; sed -i s/^20$/zwanzig/ moved; echo clean > clean; rm -r kind; mkdir kind; echo in > kind/file
"""
MAIN = """
printf 'one\\nMAIN\\nthree\\n' > text; printf 'm\\0ain' > binary; rm gone; echo changed > kept; chmod 640 mode; ln -sfn main link
mkdir both; echo main > both/file; mv moved renamed; sed -i s/^20$/TWENTY/ renamed; echo main > kind
"""
LEFT = {
    "binary": "binary", "both/file": "add/add", "gone": "modify/delete", "kept": "modify/delete", "kind": "type",
    "link": "symlink", "kind/file": "type", "mode": "attributes", "renamed": "content", "text": "content",
}  # fmt: skip


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    """Branches main and fix, which have changed the same paths in every way that conflicts."""
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "text").write_text("one\ntwo\nthree\n")
    (lower / "binary").write_bytes(b"b\0ase")
    (lower / "moved").write_text("".join(f"{number}\n" for number in range(1, 21)))
    for name in ("gone", "kept", "mode", "kind"):
        (lower / name).write_text(f"{name}\n")
    (lower / "mode").chmod(0o644)
    (lower / "link").symlink_to("base")
    found = make_mount(lower)
    found.run("fix", "sh", "-ec", FIX, new=True, view="pid")
    found.run("main", "sh", "-ec", MAIN, view="pid")
    return found


def state(mounted: Mounted, branch: str = "main") -> dict[str, str]:
    """What is decided of each conflict."""
    return {conflict["path"]: conflict["decided"] for conflict in mounted.json("conflicts", branch)["conflicts"]}


def undecided(mounted: Mounted) -> set[str]:
    return {path for path, how in state(mounted).items() if not how}


def leave(mounted: Mounted, *sources: str) -> subprocess.CompletedProcess[str]:
    left = mounted.cli("merge", *(sources or ("fix",)), "--into", "main", "--conflicts", check=False)
    assert left.returncode == 1, left.stderr
    return left


def version(mounted: Mounted, path: str, side: str) -> bytes:
    return agentfsd(
        "conflicts", "-m", str(mounted.path), "main", "--show", side, "--path", str(mounted.path / path)
    ).stdout.encode()


def looks(mounted: Mounted) -> dict[str, Any]:
    """All files of main, with their modes."""
    found: dict[str, Any] = {}
    for path in sorted(mounted.path.rglob("*")):
        name, info = str(path.relative_to(mounted.path)), path.lstat()
        if not name.startswith(".agentfs"):
            held = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[name] = (oct(info.st_mode), held)
    return found


def test_every_kind_of_conflict_is_left_and_nothing_of_either_side_is_lost(project: Mounted) -> None:
    said = leave(project).stderr
    assert "10 conflicts left in main" in said
    assert "agentfsd resolve" in said
    listed = project.json("conflicts", "main")
    assert {one["path"]: one["kind"] for one in listed["conflicts"]} == LEFT
    assert (listed["state"], listed["sources"], listed["branch"]) == ("unfinished", ["fix"], "main")
    assert (project.path / "text").read_text() == "one\n<<<<<<< main\nMAIN\n||||||| base\ntwo\n=======\nFIX\n>>>>>>> fix\nthree\n"
    assert (project.path / "renamed").read_text().endswith("main\nTWENTY\n||||||| base\n20\n=======\nzwanzig\n>>>>>>> fix\n")
    assert (project.path / "binary").read_bytes() == b"m\0ain"
    assert not (project.path / "gone").exists()
    assert (project.path / "kept").read_text() == "changed\n"
    assert (project.path / "mode").stat().st_mode & 0o777 == 0o640
    assert os.readlink(project.path / "link") == "main"
    assert (project.path / "clean").read_text() == "clean\n"
    for side, text in (("base", b"two"), ("ours", b"MAIN"), ("theirs", b"FIX")):
        assert version(project, "text", side) == b"one\n" + text + b"\nthree\n"
    assert version(project, "binary", "base") == b"b\0ase"
    assert version(project, "gone", "theirs") == b"changed\n"
    assert version(project, "renamed", "base").endswith(b"\n20\n")
    assert version(project, "link", "theirs") == b"fix"
    missing = agentfsd("conflicts", "-m", str(project.path), "main", "--show", "ours", "--path", "gone", check=False)
    assert "does not exist in that version" in missing.stderr
    assert project.fsck() == []


def test_versions_stay_as_they_were_when_the_real_directory_changes(project: Mounted) -> None:
    leave(project)
    (project.lower / "text").write_text("other\n")
    (project.lower / "binary").write_bytes(b"other")
    assert version(project, "text", "base") == b"one\ntwo\nthree\n"
    assert version(project, "binary", "base") == b"b\0ase"


def test_each_conflict_is_settled_in_its_own_way_and_the_merge_is_finished(project: Mounted, tmp_path: Path) -> None:
    leave(project)
    refused = project.cli("merge", "--continue", "main", check=False)
    assert refused.returncode == 1
    assert "10 things left to do" in refused.stderr
    project.cli("resolve", "-b", "main", "binary", "link", "gone", "mode", "--theirs")
    assert (project.path / "binary").read_bytes() == b"f\0ix"
    assert os.readlink(project.path / "link") == "fix"
    assert (project.path / "gone").read_text() == "changed\n"
    assert (project.path / "mode").stat().st_mode & 0o777 == 0o600
    project.cli("resolve", "-b", "main", "text", "--theirs")
    assert (project.path / "text").read_text() == "one\nFIX\nthree\n"
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i '/^[<|=>]/d' \"$1\"\n")
    editor.chmod(0o755)
    agentfsd("resolve", "-m", str(project.path), "-b", "main", "renamed", "--edit", env=os.environ | {"VISUAL": str(editor)})
    assert (project.path / "renamed").read_text().splitlines()[-3:] == ["TWENTY", "20", "zwanzig"]
    (project.path / "both/file").write_text("main and fix\n")  # whoever edits the file has decided
    project.cli("resolve", "-b", "main", "kind", "--theirs")
    assert (project.path / "kind/file").read_text() == "in\n"
    project.cli("resolve", "-b", "main", "kept", "--mark")
    assert undecided(project) == set()
    assert state(project)["both/file"] == "edited"
    assert project.cli("merge", "--continue", "main").stdout == "finished the merge of fix into main\n"
    assert project.json("conflicts", "main")["state"] == "none"
    assert project.cli("merge", "fix", "main").stdout == "nothing to do: main has all of these changes\n"
    project.run("fix", "sh", "-ec", "echo more >> clean; sed -i s/three/drei/ text", view="pid")
    assert project.cli("merge", "fix", "main").stdout == "merged fix into main: 2 changes\n"
    assert (project.path / "text").read_text() == "one\nFIX\ndrei\n"
    project.cli("commit", "main")
    assert (project.lower / "binary").read_bytes() == b"f\0ix"
    assert project.fsck() == []


def test_a_branch_with_an_unfinished_merge_is_neither_committed_nor_merged(project: Mounted) -> None:
    leave(project)
    lower = (project.lower / "text").read_text()
    for command in (["commit", "main"], ["merge", "main", "fix"], ["merge", "fix", "main"], ["commit", "main", "--force"]):
        refused = project.cli(*command, check=False)
        assert refused.returncode == 1
        assert "is not finished" in refused.stderr
        assert "agentfsd conflicts main" in refused.stderr
        assert "agentfsd merge --continue main" in refused.stderr
    assert (project.lower / "text").read_text() == lower
    assert "10 conflicts undecided" in project.cli("status").stdout
    assert "10 conflicts undecided" in project.cli("log").stdout
    assert [branch["undecided"] for branch in project.json("branch list")] == [10, 0]


def test_markers_that_stay_are_undecided_unless_the_file_is_marked(project: Mounted) -> None:
    leave(project)
    refused = agentfsd(
        "resolve", "-m", str(project.path), "-b", "main", "text", "--edit", env=os.environ | {"VISUAL": "true"}, check=False
    )
    assert refused.returncode == 1
    assert "still has conflict markers" in refused.stderr
    (project.path / "text").write_text("<<<<<<< main\n")
    assert "text" in undecided(project)
    project.cli("resolve", "-b", "main", "text", "--mark")
    assert "text" not in undecided(project)
    failing = agentfsd(
        "resolve", "-m", str(project.path), "-b", "main", "renamed", "--edit", env=os.environ | {"VISUAL": "false"}, check=False
    )
    assert "nothing was decided" in failing.stderr
    assert "renamed" in undecided(project)


def test_an_edit_does_not_overwrite_what_was_changed_meanwhile(project: Mounted, tmp_path: Path) -> None:
    leave(project)
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\necho meanwhile > {project.path}/text\necho edited > "$1"\n')
    editor.chmod(0o755)
    refused = agentfsd(
        "resolve", "-m", str(project.path), "-b", "main", "text", "--edit",
        env=os.environ | {"EDITOR": str(editor), "VISUAL": "", "TMPDIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert "was changed since it was read" in refused.stderr
    assert (project.path / "text").read_text() == "meanwhile\n"


def test_gits_merge_tool_gets_all_versions(project: Mounted, tmp_path: Path) -> None:
    leave(project)
    (tmp_path / "gitconfig").write_text(
        '[merge]\n\ttool = mine\n[mergetool "mine"]\n\tcmd = cat \\"$BASE\\" \\"$LOCAL\\" \\"$REMOTE\\" > \\"$MERGED\\"\n'
    )
    environment = os.environ | {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig"), "GIT_CONFIG_NOSYSTEM": "1"}
    arguments = ["resolve", "-m", str(project.path), "-b", "main", "text", "binary", "--tool"]
    agentfsd(*arguments, env=environment)
    assert (project.path / "text").read_text() == "one\ntwo\nthree\none\nMAIN\nthree\none\nFIX\nthree\n"
    assert (project.path / "binary").read_bytes() == b"b\0asem\0ainf\0ix"
    none = agentfsd(*arguments, env=environment | {"GIT_CONFIG_GLOBAL": "/dev/null"}, check=False)
    assert "names no merge tool" in none.stderr


def test_undo_takes_the_record_away_and_brings_it_back_step_by_step(project: Mounted) -> None:
    before = looks(project)
    leave(project)
    after = looks(project)
    project.cli("snapshot create", "-b", "main", "open")
    project.cli("resolve", "-b", "main", ".", "--ours")
    assert undecided(project) == set()
    project.cli("merge", "--continue", "main")
    assert project.json("conflicts", "main")["state"] == "none"
    assert len(project.json("conflicts", "open")["conflicts"]) == 10
    assert " NAME --from open\n" in (said := project.cli("conflicts", "open").stderr)
    assert "resolve" not in said  # nothing is decided in a snapshot
    assert project.cli("undo").stdout == "undone: merge --continue of main\n"
    assert undecided(project) == set()
    assert project.cli("undo").stdout == "undone: resolve of main\n"
    assert len(undecided(project)) == 10
    assert looks(project) == after
    assert project.cli("undo").stdout == "undone: merge of main\n"
    assert project.json("conflicts", "main")["state"] == "none"
    assert looks(project) == before
    project.cli("restore", "-b", "main", "open")
    assert len(undecided(project)) == 10
    assert looks(project) == after
    assert project.fsck() == []


def test_abort_puts_the_branch_back_and_loses_no_later_work(project: Mounted) -> None:
    before = looks(project)
    leave(project)
    (project.path / "text").write_text("tried\n")
    project.cli("resolve", "-b", "main", "binary", "--theirs")
    (project.path / "later").write_text("work\n")
    refused = project.cli("merge", "--abort", "main", check=False)
    assert refused.returncode == 1
    assert "later" in refused.stderr
    assert "--force" in refused.stderr
    assert (project.path / "later").read_text() == "work\n"
    (project.path / "later").unlink()
    assert project.cli("merge", "--abort", "main").stdout.startswith("took back the merge of fix into main")
    assert looks(project) == before
    assert project.json("conflicts", "main")["state"] == "none"
    project.cli("undo")
    assert (project.path / "text").read_text() == "tried\n"
    assert state(project)["binary"] == "theirs"
    (project.path / "later").write_text("work\n")
    project.cli("merge", "--abort", "--force", "main")
    assert looks(project) == before
    project.cli("undo")
    assert (project.path / "later").read_text() == "work\n"
    assert project.fsck() == []


def test_the_record_survives_a_killed_daemon(project: Mounted) -> None:
    before = looks(project)
    leave(project)
    project.cli("resolve", "-b", "main", "binary", "--theirs")
    shown = project.json("conflicts", "main")
    project.kill()
    project.mount()
    assert project.json("conflicts", "main") == shown
    assert version(project, "text", "base") == b"one\ntwo\nthree\n"
    project.cli("gc")
    project.kill()
    project.mount()
    assert version(project, "gone", "theirs") == b"changed\n"
    project.cli("merge", "--abort", "main")
    project.kill()
    project.mount()
    assert looks(project) == before
    assert project.json("conflicts", "main")["state"] == "none"
    assert project.fsck() == []


def test_versions_stay_when_the_source_is_discarded_and_all_snapshots_are_pruned(project: Mounted) -> None:
    leave(project)
    project.cli("discard", "fix")
    project.cli("gc", "--forget-undo")
    project.cli("prune", "--max-count", "1")
    assert version(project, "text", "theirs") == b"one\nFIX\nthree\n"
    project.cli("resolve", "-b", "main", ".", "--theirs")
    assert (project.path / "binary").read_bytes() == b"f\0ix"
    project.cli("merge", "--continue", "main")
    project.cli("gc", "--forget-undo")
    assert project.fsck() == []


def test_two_connections_that_settle_one_path_at_once_leave_one_of_the_sides(project: Mounted) -> None:
    leave(project)
    record = project.record()

    def settle(how: str) -> str:
        with Mount(str(project.path), record).connect() as daemon:
            daemon.resolve(["binary", "text"], how, "main")  # type: ignore[arg-type]
            return how

    with ThreadPoolExecutor() as threads:
        for _ in range(5):
            assert sorted(threads.map(settle, ["ours", "theirs"])) == ["ours", "theirs"]
            how = state(project)["binary"]
            assert state(project)["text"] == how
            assert (project.path / "binary").read_bytes() == {"ours": b"m\0ain", "theirs": b"f\0ix"}[how]
            assert (project.path / "text").read_text() == {"ours": "one\nMAIN\nthree\n", "theirs": "one\nFIX\nthree\n"}[how]
    assert project.fsck() == []


def test_ten_sources_leave_what_conflicts_and_the_later_ones_wait(make_mount: Callable[..., Mounted], tmp_path: Path) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    for number in range(10):
        (lower / f"file-{number}").write_text("base\n")
    found = make_mount(lower)
    for number in range(10):
        script = f"echo {number} > file-{number // 2}; echo {number} > own-{number}"
        found.run(f"b{number}", "sh", "-ec", script, new=True, view="pid")
    found.run("main", "sh", "-ec", "echo main > file-0; echo main > file-1", view="pid")
    said = leave(found, *(f"b{number}" for number in range(10)))
    # 0 and 2 conflict with main, 4, 6 and 8 are merged; 5, 7 and 9 conflict with them, and 1 and 3 with what is undecided
    assert undecided(found) == {f"file-{number}" for number in range(5)}
    assert found.json("conflicts", "main")["sources"] == ["b0", "b2", "b5", "b7", "b9"]
    assert "b1" in said.stdout
    assert "b3" in said.stdout
    assert not (found.path / "own-1").exists()
    assert (found.path / "own-9").read_text() == "9\n"
    found.cli("resolve", "-b", "main", ".", "--theirs")
    assert [(found.path / f"file-{number}").read_text() for number in range(5)] == ["0\n", "2\n", "5\n", "7\n", "9\n"]
    found.cli("merge", "--continue", "main")
    assert found.cli("merge", "b0", "b2", "b4", "b5", "b9", "--into", "main").stdout.startswith("nothing to do")
    leave(found, "b1", "b3")
    assert undecided(found) == {"file-0", "file-1"}
    assert found.fsck() == []


def test_odd_names_and_paths_that_are_renamed_or_deleted_later(make_mount: Callable[..., Mounted], tmp_path: Path) -> None:
    lower, odd = tmp_path / "lower", b"a\nb \xff'\""
    lower.mkdir()
    (lower / "deep").mkdir()
    for name in (odd, b"deep/one", b"deep/two"):
        Path(os.fsdecode(os.path.join(os.fsencode(lower), name))).write_bytes(b"base\n")
    found = make_mount(lower)
    script = 'for file in a* deep/one deep/two; do echo $1 > "$file"; done'
    found.run("fix", "sh", "-ec", script, "sh", "fix", new=True, view="pid")
    found.run("main", "sh", "-ec", script, "sh", "main", view="pid")
    leave(found)
    assert "\n" not in found.cli("conflicts", "main").stdout.splitlines()[1].partition("a\\nb")[0]
    agentfsd("resolve", "-m", str(found.path), "-b", "main", os.fsdecode(odd), "--theirs")
    assert (found.path / os.fsdecode(odd)).read_bytes() == b"fix\n"
    (found.path / "deep").rename(found.path / "elsewhere")  # the conflicts' paths are gone: that counts as a decision
    assert undecided(found) == set()
    found.cli("resolve", "-b", "main", "deep/one", "--theirs")
    assert (found.path / "deep/one").read_text() == "fix\n"
    unknown = found.cli("resolve", "-b", "main", "nothing", "--ours", check=False)
    assert "is no conflict of main" in unknown.stderr
    (found.path / "deep/one").unlink()
    (found.path / "deep").rmdir()
    (found.path / "deep").write_text("a file\n")
    refused = found.cli("resolve", "-b", "main", "deep/two", "--theirs", check=False)
    assert "deep is no directory" in refused.stderr
    assert (found.path / "deep").read_text() == "a file\n"
    found.cli("resolve", "-b", "main", "deep/two", "--mark")
    assert found.fsck() == []


def test_processes_of_the_target_write_on_while_conflicts_are_settled(project: Mounted) -> None:
    script = "exec 3>>log; n=0; while [ $n -lt 200 ]; do n=$((n+1)); echo $n >&3; echo $n > count; sleep 0.01; done"
    writer = project.start("main", "sh", "-ec", script)
    leave(project)
    for how in ("ours", "theirs", "ours"):
        project.cli("resolve", "-b", "main", ".", f"--{how}")
    project.cli("merge", "--continue", "main")
    assert writer.wait(60) == 0
    assert (project.path / "log").read_text().split() == [str(number) for number in range(1, 201)]
    assert (project.path / "count").read_text() == "200\n"
    assert project.fsck() == []


def test_a_bound_process_settles_its_own_branch_only(project: Mounted) -> None:
    project.cli("merge", "main", "--into", "fix", "--conflicts", check=False)
    project.cli("branch create", "other")
    script = f"""
from agentfs_client import registry
from agentfs_client.locate import Mount
from agentfs_client.errors import AgentFSError
record = [one for one in registry.live_daemons() if one.mountpoint == {str(project.path)!r}][0]
with Mount({str(project.path)!r}, record).connect() as daemon:
    print(len(daemon.conflicts().conflicts), len(daemon.resolve(["binary"], "ours").conflicts))
    for question in ("daemon.conflicts('main')", "daemon.resolve(['text'], 'ours', 'main')", "daemon.end_merge()"):
        try:
            eval(question)
            print("permitted")
        except AgentFSError as exc:
            print(exc.code)
"""
    said = project.run("fix", sys.executable, "-c", script, view="pid").stdout.split()
    assert said[:2] == ["9", "9"]
    assert "permitted" not in said
    assert len(said) == 5


def test_an_unknown_branch_and_a_branch_without_a_merge_are_told(project: Mounted) -> None:
    assert project.cli("conflicts", "fix").stdout == "fix has no unfinished merge\n"
    for command in (["resolve", "-b", "fix", "text", "--ours"], ["merge", "--continue", "fix"], ["merge", "--abort", "fix"]):
        assert "has no unfinished merge" in project.cli(*command, check=False).stderr
    with Mount(str(project.path), project.record()).connect() as daemon, pytest.raises(AgentFSError):
        daemon.conflicts("nobody")


def test_a_dry_run_lists_what_would_be_left_and_changes_nothing(project: Mounted) -> None:
    before = looks(project)
    planned = project.cli("merge", "fix", "main", "--conflicts", "--dry-run", "--json", check=False)
    assert planned.returncode == 1
    assert '"undecided"' in planned.stdout
    assert project.json("conflicts", "main")["state"] == "none"
    assert looks(project) == before


def test_a_conflict_about_a_file_that_would_run_on_your_side_is_not_left_without_being_asked_for(project: Mounted) -> None:
    for branch in ("fix", "main"):
        project.run(branch, "sh", "-ec", f"mkdir -p .vscode; printf '{branch}\\0' > .vscode/tasks.json", view="pid")
    refused = project.cli("merge", "fix", "main", "--conflicts", check=False)
    assert "--hooks" in refused.stderr
    assert project.json("conflicts", "main")["state"] == "none"
    project.cli("merge", "fix", "main", "--conflicts", "--hooks", check=False)
    assert ".vscode/tasks.json" in undecided(project)
