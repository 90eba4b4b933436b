"""merge, restore of paths, undo, discard, prune, gc, policy and log, as a user meets them."""

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import AGENTFSD, Mounted, agentfsd
from tests.repositories.agents import git, start


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    """Two branches that changed different and the same things."""
    lower = tmp_path / "lower"
    lower.mkdir()
    for name in ("one", "two"):
        (lower / name).write_text("".join(f"{number}\n" for number in range(20)))
    found = make_mount(lower)
    found.run("a", "sh", "-ec", "sed -i s/^3$/three/ one; mkdir d; echo new > d/new", new=True)
    found.run("b", "sh", "-ec", "sed -i s/^15$/fifteen/ one; rm two", new=True)
    return found


def lower_of(project: Mounted) -> dict[str, str]:
    return {path.name: path.read_text() for path in project.lower.iterdir()}


def test_two_branches_become_one_and_apart_again(project: Mounted) -> None:
    before = lower_of(project)
    assert "3 changes would go into main" not in project.cli("merge", "a", "b", "--into", "main", "--dry-run").stderr
    assert not (project.path / "d").exists()
    said = project.cli("merge", "a", "b", "--into", "main").stdout
    assert said.startswith("merged a, b into main: ")
    text = (project.path / "one").read_text()
    assert "three\n" in text
    assert "fifteen\n" in text
    assert (project.path / "d" / "new").read_text() == "new\n"
    assert not (project.path / "two").exists()
    assert project.cli("undo").stdout == "undone: merge of main\n"
    assert sorted(path.name for path in project.path.iterdir()) == ["one", "two"]
    assert lower_of(project) == before
    assert project.fsck() == []


def test_a_conflict_is_listed_and_nothing_changes(project: Mounted) -> None:
    project.run("b", "sed", "-i", "s/^3$/drei/", "one")
    refused = project.cli("merge", "a", "b", check=False)
    assert refused.returncode == 1
    assert refused.stdout.split() == [
        "CONFLICT",
        "PATH",
        "WHY",
        "content",
        "one",
        "both",
        "sides",
        "changed",
        "the",
        "same",
        "lines",
    ]
    assert "nothing was changed" in refused.stderr
    assert [c["path"] for c in project.json("diff", "b")["changes"]] == ["one", "two"]
    told = project.cli("merge", "a", "b", "--dry-run", "--json", check=False)
    assert told.returncode == 1
    assert '"kind": "content"' in told.stdout
    project.cli("merge", "a", "b", "--theirs")
    assert "three\n" in project.run("b", "cat", "one").stdout


@pytest.mark.parametrize(
    "arguments", [["a", "b", "c"], ["a", "a"], ["nowhere", "main"], ["a", "nowhere"], ["a", "b", "--ours", "--strategy", "union"]]
)
def test_senseless_merges_are_refused(project: Mounted, arguments: list[str]) -> None:
    refused = project.cli("merge", *arguments, check=False)
    assert refused.returncode in (1, 2)
    assert refused.stderr.startswith("agentfsd: ")
    assert "Traceback" not in refused.stderr


def test_processes_in_a_branch_see_what_was_merged_into_it(project: Mounted) -> None:
    script = "read go; cat one; test -e d/new && test ! -e gone"
    for view in ("pid", "namespace"):
        waiting = project.start("b", "sh", "-ec", script, view=view, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        while not any(found["branch"] == "b" for found in project.json("bindings")):
            time.sleep(0.02)
        project.cli("merge", "a", "b")
        out, _ = waiting.communicate("\n", timeout=20)
        assert waiting.returncode == 0
        assert "three\n" in out
        project.cli("undo")


@pytest.mark.parametrize("view", ["pid", "namespace"])
def test_a_file_that_is_open_goes_on_across_a_merge(project: Mounted, view: str) -> None:
    before = "cp one two; exec 3>> log 4>> one 5< two; echo first >&3; echo mine >&4; echo ready; read go;"
    script = before + "echo later >&3; echo late >&4; cat <&5 > copy"
    working = project.start("b", "sh", "-ec", script, view=view, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert working.stdout is not None
    assert working.stdout.readline() == "ready\n"
    project.cli("merge", "a", "b")
    assert "three\n" in project.run("b", "cat", "one").stdout
    working.communicate("\n", timeout=20)
    assert working.returncode == 0
    assert project.run("b", "cat", "log").stdout == "first\nlater\n"
    text = project.run("b", "cat", "one").stdout
    assert "three\n" in text
    assert text.endswith("19\nmine\nlate\n")
    assert project.run("b", "cat", "copy").stdout == project.run("b", "cat", "two").stdout
    assert project.fsck() == []


def test_paths_go_back_by_themselves(project: Mounted) -> None:
    project.cli("snapshot create", "-b", "a", "good")
    project.run("a", "sh", "-ec", "echo bad > one; rm -r d; echo keep > two; mkdir e; touch e/x")
    project.cli("restore", "-b", "a", "good", "--", "one", "d", "e")
    assert "three\n" in project.run("a", "cat", "one").stdout
    assert project.run("a", "cat", "two", "d/new").stdout == "keep\nnew\n"
    assert project.run("a", "ls").stdout.split() == ["d", "one", "two"]
    assert "no nothing in either state" in project.cli("restore", "-b", "a", "good", "--", "nothing", check=False).stderr
    project.cli("undo")
    assert project.run("a", "cat", "one").stdout == "bad\n"
    assert project.fsck() == []


def test_a_discarded_branch_comes_back_until_it_is_forgotten(project: Mounted) -> None:
    before = project.json("branch show", "a")
    project.cli("discard", "a")
    assert "a" not in [found["name"] for found in project.json("branch list")]
    assert project.json("undo", "--list") == [{"kind": "discard", "branch": "a", "snapshot": "a-1", "committed": ""}]
    project.cli("undo")
    assert project.run("a", "cat", "d/new").stdout == "new\n"
    after = project.json("branch show", "a")
    assert (after["id"], after["changed"]) == (before["id"], before["changed"])
    project.cli("discard", "a", "--forget")
    assert project.cli("undo", check=False).returncode == 1
    assert project.fsck() == []


def test_branches_are_discarded_together_or_not_at_all(project: Mounted) -> None:
    refused = project.cli("discard", "b", "nowhere", check=False)
    assert (refused.returncode, "no branch named 'nowhere'" in refused.stderr) == (1, True)
    assert project.cli("discard", "b", "a", "b").stdout == "discarded b\ndiscarded a\n"
    assert [found["name"] for found in project.json("branch list")] == ["main"]


def test_undo_survives_a_kill(project: Mounted) -> None:
    project.cli("snapshot create", "-b", "a", "good")
    project.run("a", "sh", "-c", "echo later > d/new")
    project.cli("restore", "-b", "a", "good")
    project.kill()
    project.mount()
    project.cli("undo")
    assert project.run("a", "cat", "d/new").stdout == "later\n"


def test_gc_frees_what_undo_would_need(project: Mounted) -> None:
    project.run("a", "sh", "-c", "head -c 3000000 /dev/urandom > big")
    project.cli("discard", "a")
    assert project.json("gc")["freed_bytes"] < 3_000_000
    assert "`agentfsd gc --forget-undo` frees it" in project.cli("gc").stderr
    assert project.json("gc", "--forget-undo")["freed_bytes"] >= 3_000_000
    assert project.json("undo", "--list") == []
    assert project.cli("gc").stderr == ""
    assert project.fsck() == []


def test_old_snapshots_go_and_named_ones_stay(project: Mounted) -> None:
    for number in range(4):
        project.run("a", "sh", "-c", f"echo {number} > n")
        project.cli("snapshot create", "-b", "a")
    project.cli("snapshot create", "-b", "a", "mine")
    names = [found["name"] for found in project.json("snapshot list", "-b", "a")]
    assert [found["name"] for found in project.json("prune", "--max-count", "2", "--dry-run")] == names[:2]
    project.cli("policy set", "retention.max_count", "1")
    assert project.cli("prune").stdout.endswith("3 snapshots deleted\n")
    assert [found["name"] for found in project.json("snapshot list", "-b", "a")] == [names[3], "mine"]
    assert len(project.json("prune", "--max-age", "0.001s", "--no-keep-named")) == 2
    for wrong in (["retention.max_count", "many"], ["retention.max_age", "soon"], ["no.such", "1"]):
        assert project.cli("policy set", *wrong, check=False).returncode == 1
    assert project.json("policy show")["retention.max_count"] == "1"
    for _ in range(3):
        project.run("a", "sh", "-c", "date +%N > n")
        project.cli("snapshot create", "-b", "a")
    assert len(project.json("snapshot list", "-b", "a")) == 1


def test_a_run_leaves_a_snapshot_before_and_after(project: Mounted) -> None:
    agentfsd("run", "-m", str(project.path), "-b", "a", "--snapshot", "--", "sh", "-c", "echo later > d/new", cwd=project.path)
    tags = [(found["kind"], found["tag"].split(":")[0]) for found in project.json("snapshot list", "-b", "a")]
    assert tags == [("run", "before"), ("run", "after")]
    before = project.json("snapshot list", "-b", "a")[0]["name"]
    project.cli("restore", "-b", "a", before)
    assert project.run("a", "cat", "d/new").stdout == "new\n"


def test_the_log_is_a_graph(project: Mounted) -> None:
    project.cli("merge", "a", "b", "--into", "main")
    lines = project.cli("log", "--graph").stdout.splitlines()
    assert any(line.startswith("o branch ") for line in lines)
    assert any("|\\" in line for line in lines)
    listed = project.cli("log").stdout
    assert re.search(r"^  \S+ \S+  merged (a, )?b: snapshot main-\d", listed, re.MULTILINE), listed
    project.cli("discard", "b")
    assert re.search(r"^branch b, which is gone\n  \S+ \S+  snapshot b-", project.cli("log").stdout, re.MULTILINE)
    merged = next(found for found in project.json("log", "main") if found["tag"] == "after merge")
    ids = {found["id"]: found["branch"] for found in project.json("snapshot list")}
    assert {ids[number] for number in merged["merged"]} | {ids.get(merged["parent"], "a")} >= {"a", "b"}


def test_of_several_branches_those_with_conflicts_are_left_out_and_explained(project: Mounted) -> None:
    project.run("c", "sed", "-i", "s/^3$/drei/", "one", new=True)
    dry = project.cli("merge", "a", "b", "c", "--into", "main", "--dry-run", check=False)
    assert "d/new\ta\n" in dry.stdout
    assert "one\ta, b\n" in dry.stdout
    found = project.cli("merge", "a", "b", "c", "--into", "main", check=False)
    assert found.returncode == 1
    assert "merged a, b into main: " in found.stdout
    assert "c was left out" in found.stderr
    assert "one: three  [a and b]" in found.stderr
    assert "show:   agentfsd diff --patch" in found.stderr
    assert " main c -- one\n" in found.stderr
    assert "c --into main --theirs    (c wins)" in found.stderr
    assert "three\n" in (project.path / "one").read_text()
    decided = project.cli("merge", "c", "--into", "main", "--ours")
    assert "1 conflict decided for main: one" in decided.stderr


def test_markers_are_told(project: Mounted) -> None:
    project.run("c", "sed", "-i", "s/^3$/drei/", "one", new=True)
    dry = project.cli("merge", "a", "c", "--into", "main", "--markers", "--dry-run")
    assert "conflict markers would be left in 1 file: one" in dry.stderr
    found = project.cli("merge", "a", "c", "--into", "main", "--markers")
    assert "conflict markers were left in 1 file: one" in found.stderr
    assert ">>>>>>> c\n" in (project.path / "one").read_text()


def test_a_merge_of_git_with_markers_is_aborted_at_once_and_can_be_merged_again(
    make_mount: Callable[..., Mounted], tmp_path: Path
) -> None:
    lower = tmp_path / "lower"
    start(lower, {"text": "text\n"})
    git(lower, "config", "user.name", "A")
    git(lower, "config", "user.email", "a@x")
    mounted = make_mount(lower)
    for name in ("one", "two"):
        script = f"echo {name} > text; echo new > {name}; git add -A; git commit -qm {name}"
        mounted.run(name, "sh", "-ec", script, new=True)
    mounted.cli("merge", "one", "--into", "main")
    mounted.cli("commit", "main")
    mounted.cli("merge", "two", "--into", "main", "--markers")
    for options in ([], ["--force"]):
        refused = mounted.cli("commit", "main", *options, "--dry-run", check=False)
        assert "a merge is under way in main" in refused.stdout
        assert "drift" not in refused.stdout
        assert "--force" not in refused.stderr
    assert "<<<<" not in (lower / "text").read_text()
    mounted.run("main", "git", "merge", "--abort")
    assert not (mounted.path / "two").exists()
    mounted.cli("merge", "two", "--into", "main", "--theirs")
    mounted.cli("commit", "main")
    assert sorted(git(lower, "log", "--format=%s", "--no-merges").splitlines()) == ["one", "start", "two"]
    assert (git(lower, "status", "--porcelain"), (lower / "text").read_text()) == ("", "two\n")


def test_log_draws_branches_with_snapshots_of_their_own_one_below_the_other(mounted: Mounted) -> None:
    for name in ("one", "two", "three"):
        mounted.cli("branch create", name)
        (mounted.subtree(name) / "file").write_text(name)
        mounted.cli("snapshot create", f"{name}-s", "--branch", name)
    lines = mounted.cli("log", "--graph").stdout.splitlines()
    assert [line[:2] for line in lines] == ["o ", "* "] * 3 + ["o "]
    assert [line.split()[2].rstrip(":") for line in lines[::2]] == ["three", "two", "one", "main"]
    assert "main: no changes" in lines[-1]


def test_a_misspelt_branch_is_suggested_only_to_who_may_list_branches(mounted: Mounted) -> None:
    mounted.cli("branch create", "try-1")
    mounted.cli("branch create", "other")
    outside = mounted.cli("branch show", "try1", check=False)
    assert "no branch named 'try1'; did you mean 'try-1'?" in outside.stderr
    inside = mounted.run("other", *AGENTFSD, "diff", "try1", check=False)
    assert inside.returncode == 1
    assert "mean" not in inside.stderr


def test_a_name_with_a_slash_is_refused_with_one_that_is_possible(mounted: Mounted) -> None:
    refused = mounted.cli("branch create", "feature/x", check=False)
    assert refused.returncode == 1
    assert "'feature-x' would be one" in refused.stderr
