"""export and import on real mounts: round trips, histories that travel between overlays, and Ctrl-C at any time."""

import json
import os
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agentfsd.cli.main import main
from tests.compare import describe, differences
from tests.exchange.trees import make_rich_tree, unlike
from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_fuse, needs_namespaces

Make = Callable[..., Mounted]


@pytest.fixture
def rich(tmp_path: Path, make_mount: Make) -> Mounted:
    """A mount over a rich lower; its branch "work" has changed some of it, with a snapshot "point" in between."""
    lower = tmp_path / "lower"
    lower.mkdir()
    make_rich_tree(lower)
    mounted = make_mount(lower)
    cli(mounted, "branch create", "work")
    work = mounted.subtree("work")
    (work / "text").write_text("changed\n")
    shutil.rmtree(work / "empty")
    (work / "new").mkdir()
    (work / "new" / "leaf").write_text("leaf\n")
    (work / ".git").mkdir()
    (work / ".git" / "config").write_text("not git's to hold\n")
    cli(mounted, "snapshot create", "point", "-b", "work", "--tag", "half way")
    (work / "new" / "later").symlink_to("leaf")
    (work / "binary").unlink()
    return mounted


def snapshot(mounted: Mounted, name: str) -> Path:
    return mounted.path / ".agentfs" / "snapshots" / name


def cli(mounted: Mounted, command: str, *arguments: str, code: int = 0) -> str:
    """A command in this process, which saves starting a hundred; what it said."""
    done = CliRunner().invoke(main, [*command.split(), "-m", str(mounted.path), *arguments])
    assert done.exit_code == code, done.output
    assert "internal error" not in done.output
    return done.output


def listed(mounted: Mounted, command: str, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli(mounted, command, *arguments, "--json"))
    return found


def names(mounted: Mounted, command: str) -> list[str]:
    return sorted(found["name"] for found in listed(mounted, command))


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=True).stdout.strip()


def test_branch_and_snapshot_become_directories(rich: Mounted, tmp_path: Path) -> None:
    cli(rich, "export", "work", str(tmp_path / "out"))
    assert unlike(rich.subtree("work"), tmp_path / "out") == []
    cli(rich, "export", "point", str(tmp_path / "out2"))
    assert unlike(snapshot(rich, "point"), tmp_path / "out2") == []
    assert names(rich, "snapshot list") == ["point"]


def test_zip_becomes_an_equal_branch(rich: Mounted, tmp_path: Path) -> None:
    cli(rich, "export", "work", str(tmp_path / "out.zip"))
    cli(rich, "import", str(tmp_path / "out.zip"), "-b", "back")
    assert unlike(rich.subtree("work"), rich.subtree("back")) == []
    assert json.loads(cli(rich, "diff", "work", "back", "--json")) == {"op": "changes", "changes": [], "repositories": []}
    assert names(rich, "branch list") == ["back", "main", "work"]
    assert names(rich, "snapshot list") == ["point"]


def test_import_stores_only_what_differs(rich: Mounted, tmp_path: Path) -> None:
    cli(rich, "export", "work", str(tmp_path / "out"))
    cli(rich, "import", str(tmp_path / "out"), "-b", "back", "--from", "point")
    assert unlike(rich.subtree("work"), rich.subtree("back")) == []
    (found,) = [found for found in listed(rich, "branch list") if found["name"] == "back"]
    assert found["changed"] <= 4  # later and binary, and the directories of both


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_process_in_a_branch_exports_its_own_branch(rich: Mounted, tmp_path: Path, view: str) -> None:
    if view == "namespace":
        needs_namespaces()
    rich.run("work", *AGENTFSD, "export", "work", str(tmp_path / "out"), view=view)
    assert unlike(rich.subtree("work"), tmp_path / "out") == []
    rich.run("work", *AGENTFSD, "export", "--git", str(tmp_path / "history.git"), "work", view=view)
    assert git(tmp_path / "history.git", "log", "--format=%s", "work") == "work\npoint: half way"
    for refused in (["export", "main", str(tmp_path / "no")], ["import", str(tmp_path / "out"), "-b", "no"]):
        assert rich.run("work", *AGENTFSD, *refused, view=view, check=False).returncode == 1
    assert not (tmp_path / "no").exists()
    assert names(rich, "snapshot list") == ["point"]
    assert names(rich, "branch list") == ["main", "work"]


def test_branch_of_a_one_step_overlay_is_exported(tmp_path: Path) -> None:
    needs_fuse()
    needs_namespaces()
    project = tmp_path / "project"
    project.mkdir()
    (project / "file").write_text("real\n")
    agentfsd("run", "-b", "try", "--new", "--", "sh", "-c", "echo changed > file; echo x > more", cwd=project)
    inside = ["run", "-b", "try", "--", *AGENTFSD, "export", "try", str(tmp_path / "inner")]
    agentfsd(*inside, cwd=project)
    agentfsd("export", "try", str(tmp_path / "out"), cwd=project)
    agentfsd("export", "--git", str(tmp_path / "history.git"), cwd=project)
    agentfsd("import", str(tmp_path / "out"), "-b", "again", cwd=project)
    agentfsd("umount", str(project))
    for copy in ("inner", "out"):
        assert (tmp_path / copy / "file").read_text() == "changed\n"
        assert sorted(os.listdir(tmp_path / copy)) == ["file", "more"]
    assert git(tmp_path / "history.git", "show", "try:file") == "changed"
    assert (project / "file").read_text() == "real\n"


def test_refusals_change_nothing(rich: Mounted, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    (tmp_path / "bad.zip").write_bytes(b"no zip")
    for arguments, words in (
        (["export", "work", str(full)], "not empty"),
        (["export", "work", str(full / "mine")], "no directory"),
        (["export", "nothing", str(tmp_path / "x")], "no branch or snapshot"),
        (["export", "work", str(tmp_path / "missing" / "x")], "No such file"),
        (["export", "--force", "work", str(rich.lower)], "the lower"),
        (["export", "--force", "work", str(rich.path)], "the mount"),
        (["export", "--git", str(full)], "not a git repository"),
        (["import", str(tmp_path / "bad.zip"), "-b", "x"], "cannot be read"),
        (["import", str(full), "-b", "work"], "already"),
        (["import", str(full), "-b", "../x"], "not a branch name"),
        (["import", str(tmp_path / "missing"), "-b", "x"], "missing"),
        (["import", "--git", str(full)], "not a git repository"),
        (["import", "--git", f"file://{full}", "-b", "x"], "full"),
    ):
        assert words in cli(rich, *arguments, code=1), arguments
    assert os.listdir(full) == ["mine"]
    assert names(rich, "branch list") == ["main", "work"]
    assert names(rich, "snapshot list") == ["point"]
    for arguments in (["export"], ["export", "work"], ["import"], ["import", "x"], ["import", "--git", "x", "ref"]):
        cli(rich, *arguments, code=2)


def test_full_directory_is_made_equal_by_force(rich: Mounted, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("goes")
    cli(rich, "export", "--force", "work", str(tmp_path / "out"))
    assert unlike(rich.subtree("work"), tmp_path / "out") == []


# -- git


def without_git(tree: Path) -> dict[str, tuple[object, ...]]:
    """Directories' times and number of entries show a .git that is left out."""
    return {name: found for name, found in describe(tree).items() if not name.startswith(".git")}


@pytest.fixture
def second(tmp_path: Path, rich: Mounted, make_mount: Make) -> Mounted:
    """Another machine, so to speak: a lower with the same content elsewhere."""
    lower = tmp_path / "second"
    subprocess.run(["cp", "-a", str(rich.lower), str(lower)], check=True)
    return make_mount(lower)


def check_same(rich: Mounted, second: Mounted) -> None:
    assert differences(without_git(snapshot(rich, "point")), without_git(snapshot(second, "point"))) == []
    assert differences(without_git(rich.subtree("work")), without_git(second.subtree("work"))) == []


def test_history_becomes_git_history_once(rich: Mounted, tmp_path: Path) -> None:
    repository = tmp_path / "history.git"
    cli(rich, "snapshot create", "root", "-b", "main")
    cli(rich, "branch create", "side", "--from", "point")
    cli(rich, "snapshot create", "on-side", "-b", "side")
    cli(rich, "export", "--git", str(repository))
    git(repository, "fsck", "--strict")
    assert git(repository, "log", "--format=%s", "work") == "work\npoint: half way"
    assert git(repository, "log", "--format=%s", "side") == "on-side\npoint: half way"
    assert git(repository, "rev-parse", "main") == git(repository, "rev-parse", "root")
    assert git(repository, "show", "point:text") == "changed"
    assert ".git" not in git(repository, "ls-tree", "-r", "--name-only", "work")
    (found,) = [found for found in listed(rich, "snapshot list") if found["name"] == "point"]
    said = f"{found['author']} {found['created_ns'] // 10**9}"
    assert git(repository, "log", "-1", "--format=%an %at", "point") == said
    assert git(repository, "log", "-1", "--format=%(trailers:key=Agentfs-Snapshot,valueonly)", "point") == found["id"]

    before = git(repository, "count-objects", "-v"), git(repository, "show-ref")
    assert "0 commits" in cli(rich, "export", "--git", str(repository))
    assert (git(repository, "count-objects", "-v"), git(repository, "show-ref")) == before
    (rich.subtree("work") / "text").write_text("more\n")
    assert "1 commit " in cli(rich, "export", "--git", str(repository))
    assert git(repository, "show", "work:text") == "more"


def test_merge_is_a_commit_with_two_parents(rich: Mounted, tmp_path: Path) -> None:
    repository = tmp_path / "history.git"
    cli(rich, "branch create", "side", "--from", "point")
    (rich.subtree("side") / "sided").write_text("side")
    cli(rich, "snapshot create", "on-side", "-b", "side")
    cli(rich, "merge", "side", "work")
    cli(rich, "export", "--git", str(repository), "work")
    assert git(repository, "show", "work:sided") == "side"
    assert "on-side" in git(repository, "log", "--format=%s", "work^2", "--")
    git(repository, "fsck", "--strict")


def test_full_export_finds_what_changed_in_the_lower(rich: Mounted, tmp_path: Path) -> None:
    repository = tmp_path / "history.git"
    cli(rich, "export", "--git", str(repository), "work")
    (rich.lower / "sub" / "program").write_text("#!/bin/true\n")
    cli(rich, "export", "--git", str(repository), "--full", "work")
    assert git(repository, "show", "work:sub/program") == "#!/bin/true"


def test_snapshots_travel_to_another_overlay_and_back(rich: Mounted, second: Mounted, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/remote.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "remote.git")
    cli(rich, "export", "--git", url)
    git(tmp_path / "remote.git", "fsck", "--strict")

    assert "1 snapshot and 2 branches imported" in cli(second, "import", "--git", url)
    check_same(rich, second)
    (found,) = listed(second, "snapshot list")
    assert (found["name"], found["tag"], found["branch"]) == ("point", "half way", "work")
    assert "0 snapshots and 0 branches" in cli(second, "import", "--git", url)
    assert "0 snapshots and 0 branches" in cli(rich, "import", "--git", url)

    (second.subtree("work") / "text").write_text("from the second\n")
    cli(second, "snapshot create", "answer", "-b", "work")
    cli(second, "branch rename", "work", "answered")
    assert "1 commit " in cli(second, "export", "--git", url, "answered")
    log = git(tmp_path / "remote.git", "log", "--format=%s", "answered")
    assert log == "answer\npoint: half way"
    assert "1 snapshot and 1 branch imported: answered" in cli(rich, "import", "--git", url)
    assert (snapshot(rich, "answer") / "text").read_text() == "from the second\n"
    assert [found["name"] for found in listed(rich, "log", "answered")] == ["answer", "point"]
    assert rich.fsck() == []
    assert second.fsck() == []


def test_branch_of_another_overlay_is_never_overwritten(rich: Mounted, second: Mounted, tmp_path: Path) -> None:
    repository = tmp_path / "history.git"
    cli(rich, "export", "--git", str(repository))
    tip = git(repository, "rev-parse", "work")
    cli(second, "branch create", "work")
    (second.subtree("work") / "text").write_text("second\n")
    cli(second, "snapshot create", "point", "-b", "work")
    assert "not of this overlay" in cli(second, "export", "--git", str(repository), "work", code=1)
    cli(second, "export", "--git", str(repository))
    assert git(repository, "rev-parse", "work") == tip
    assert len(git(repository, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags").splitlines()) == 5
    cli(second, "export", "--force", "--git", str(repository), "work")
    assert git(repository, "show", "work:text") == "second"


def test_one_commit_becomes_a_branch(rich: Mounted, second: Mounted, tmp_path: Path) -> None:
    repository = tmp_path / "history.git"
    cli(rich, "export", "--git", str(repository), "work")
    (second.path / ".git").mkdir()
    (second.path / ".git" / "own").write_text("stays")
    cli(second, "import", "--git", str(repository), "point", "-b", "at-point")
    assert differences(without_git(snapshot(rich, "point")), without_git(second.subtree("at-point"))) == []
    assert (second.subtree("at-point") / ".git" / "own").read_text() == "stays"
    cli(second, "import", "--git", str(repository), "-b", "at-head")
    assert differences(without_git(rich.subtree("work")), without_git(second.subtree("at-head"))) == []
    assert names(second, "snapshot list") == []


def test_no_request_can_be_smuggled_in(rich: Mounted, tmp_path: Path) -> None:
    """What is written to .agentfs/control of a branch would be asked in the importer's name."""
    evil = tmp_path / "evil"
    (evil / ".agentfs").mkdir(parents=True)
    (evil / ".agentfs" / "control").write_text('{"op":"discard","ref":"work"}')
    (evil / "file").write_text("")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.write(evil / ".agentfs" / "control", "files/.agentfs/control")
        archive.writestr("files/file", "")
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"],
    ):
        git(evil, *command)
    for number, source in enumerate(([str(evil)], [str(tmp_path / "evil.zip")], ["--git", str(evil)])):
        assert "not to be touched" in cli(rich, "import", *source, "-b", f"b{number}")
        assert (rich.subtree(f"b{number}") / "file").exists()
        assert "work" in names(rich, "branch list")
        assert (rich.subtree("work") / "text").read_text() == "changed\n"


# -- Ctrl-C


@pytest.fixture
def large(tmp_path: Path, make_mount: Make) -> Mounted:
    """So many files that there is time to interrupt."""
    lower = tmp_path / "lower"
    for number in range(2000):
        path = lower / f"d{number % 60}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * 50)
    return make_mount(lower)


def has_begun(mounted: Mounted) -> bool:
    return bool(os.listdir(mounted.path / ".agentfs" / "snapshots"))


def interrupt(arguments: list[str], begun: Callable[[], bool], number: signal.Signals) -> str:
    """Starts a command, and sends the signal once it is in the middle of it."""
    process = subprocess.Popen([*AGENTFSD, *arguments], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not begun():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(number)
    words = process.communicate(timeout=20)[1]
    assert process.returncode == 130, words
    assert "Traceback" not in words
    return words


def test_interrupted_export_leaves_nothing(large: Mounted, tmp_path: Path) -> None:
    before = sorted(os.listdir(tmp_path))
    for number, *what in (
        (signal.SIGINT, "main", str(tmp_path / "out")),
        (signal.SIGTERM, "main", str(tmp_path / "out.zip")),
        (signal.SIGINT, "--git", str(tmp_path / "history.git"), "main"),
    ):
        words = interrupt(["export", "-m", str(large.path), *what], lambda: has_begun(large), number)
        assert "--git" in what or f"interrupted: nothing was written to {what[1]}" in words
        assert sorted(os.listdir(tmp_path)) == before
        assert names(large, "snapshot list") == []


def test_interrupted_import_leaves_nothing(large: Mounted, tmp_path: Path, make_mount: Make) -> None:
    other = make_mount()
    point = ["-m", str(other.path)]
    cli(large, "snapshot create", "point")
    cli(large, "export", "--git", str(tmp_path / "history.git"))
    for what in (["-b", "new", str(large.lower)], ["--git", str(tmp_path / "history.git")]):
        interrupt(["import", *point, *what], lambda: len(os.listdir(other.path / ".agentfs" / "branches")) > 1, signal.SIGINT)
        assert names(other, "branch list") == ["main"]
        assert names(other, "snapshot list") == []
    assert other.fsck() == []
