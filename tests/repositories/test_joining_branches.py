"""Merging branches in which agents use git: one history of all commits, and a working tree that git calls clean."""

from pathlib import Path

import pytest

from agentfsd.history.merge_records import Rules
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git
from tests.repositories.joined import lines, shown

TRAPS = (
    "core.fsmonitor", "filter.x.clean", "filter.x.smudge", "merge.x.driver", "core.pager", "core.editor", "gpg.program",
    "core.sshCommand", "diff.external", "alias.merge-tree", "credential.helper", "uploadpack.packObjectsHook",
)  # fmt: skip


def test_disjoint_commits_of_two_agents_make_one_history(agents: Agents) -> None:
    agents.branch("one", "two", "all")
    tips = [agents.commit("one", {"a": "A\n"}, "one's"), agents.commit("two", {"b": "B\n", "c": "c\n"}, "two's")]
    merged = agents.merge("one", "two", into="all")
    assert merged.conflicts == []
    place = shown(agents, "all")
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(place, "rev-list", "--parents", "-n1", "HEAD").split()[1:] == tips
    assert [(place / name).read_text() for name in "abc"] == ["A\n", "B\n", "c\n"]


def test_lines_that_clash_refuse_and_nothing_changes(agents: Agents) -> None:
    agents.branch("one", "two")
    agents.commit("one", {"text": lines(l3="one")}, "one")
    agents.commit("two", {"text": lines(l3="two"), "new": "new\n"}, "two")
    before = agents.opened.overlay.comparison.diff(None, "one")
    merged = agents.merge("two", into="one")
    assert [(conflict.path, conflict.kind) for conflict in merged.conflicts] == [(b"text", "content")]
    assert agents.opened.overlay.comparison.diff(None, "one") == before


def test_markers_leave_a_merge_that_git_knows(agents: Agents) -> None:
    agents.branch("one", "two")
    tip = agents.commit("one", {"text": lines(l3="one", l9="mine")}, "one")
    his = agents.commit("two", {"text": lines(l3="two"), "new": "new\n"}, "two")
    assert agents.merge("two", into="one", rules=Rules(markers=True)).conflicts == []
    place = shown(agents, "one")
    assert git(place, "status", "--porcelain") == "A  new\nUU text"
    assert git(place, "rev-parse", "HEAD", "MERGE_HEAD").split() == [tip, his]
    assert (place / "text").read_text() == lines(l3="<<<<<<< one\none\n=======\ntwo\n>>>>>>> two", l9="mine")
    assert [line.split()[2] for line in git(place, "ls-files", "-u").splitlines()] == ["1", "2", "3"]
    (agents.base / "both").write_text(lines(l3="both"))
    settings = f"mergetool.it.cmd=cp {agents.base}/both $MERGED", "mergetool.it.trustExitCode=true"
    git(place, "-c", settings[0], "-c", settings[1], "mergetool", "-y", "--tool=it")
    git(place, "commit", "-qm", "merged")
    assert git(place, "show", "HEAD:text") == lines(l3="both").rstrip("\n")
    assert git(place, "rev-list", "--parents", "-n1", "HEAD").split()[1:] == [tip, his]


@pytest.mark.parametrize(("favor", "line"), [("ours", "one"), ("theirs", "two"), ("union", "one\ntwo")])
def test_a_favourite_decides_the_lines_that_clash(agents: Agents, favor: str, line: str) -> None:
    agents.branch("one", "two")
    agents.commit("one", {"text": lines(l3="one")}, "one")
    agents.commit("two", {"text": lines(l3="two", l12="his")}, "two")
    assert agents.merge("two", into="one", rules=Rules(favor=favor)).conflicts == []  # type: ignore[arg-type]
    place = shown(agents, "one")
    assert (place / "text").read_text() == lines(l3=line, l12="his")
    assert git(place, "status", "--porcelain") == ""


@pytest.mark.parametrize("way", ["squash", "rebase"])
def test_a_line_of_single_commits(agents: Agents, way: str) -> None:
    agents.branch("one", "two")
    tip = agents.commit("one", {"a": "A\n"}, "one")
    for name in ("b", "c"):
        agents.commit("two", {name: "two\n"}, f"makes {name}")
    assert agents.merge("two", into="one", rules=Rules(way=way)).conflicts == []  # type: ignore[arg-type]
    place = shown(agents, "one")
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "rev-list", "--merges", "HEAD") == ""
    titles = git(place, "log", "--format=%s", f"{tip}..").splitlines()
    assert titles == (["makes c", "makes b"] if way == "rebase" else ["Squashed: main of two"])


def test_a_rebase_loses_no_edit_of_a_merge_commit(agents: Agents) -> None:
    agents.branch("one", "two", "three")
    agents.commit("one", {"a": "A\n"}, "one's")
    for name, edit in (("two", ""), ("three", "edited\n")):
        place = agents.work(name)
        git(place, "switch", "-qc", "side")
        commit(place, {"side": "side\n"}, "on the side")
        git(place, "switch", "-q", "main")
        commit(place, {"b": "B\n"}, "on main")
        git(place, "merge", "-q", "--no-commit", "side")
        commit(place, {"b": edit} if edit else {}, "merges the side")
        git(place, "branch", "-D", "side")
        agents.keep(name)
    refused = agents.merge("three", into="one", rules=Rules(way="rebase"))
    assert [conflict.kind for conflict in refused.conflicts] == ["history"]
    assert "merges the side of three" in refused.conflicts[0].message
    merged = agents.merge("two", into="one", rules=Rules(way="rebase"))
    assert (merged.conflicts, merged.said) == ([], ["two: 2 commits to main, rebased"])
    titles = git(shown(agents, "one"), "log", "--format=%s", "main").splitlines()
    assert (set(titles[:2]), titles[2:]) == ({"on main", "on the side"}, ["one's", "start"])


def test_it_says_who_brings_what(agents: Agents) -> None:
    agents.branch("one", "two", "three")
    agents.commit("one", {"a": "A\n"}, "one's")
    agents.commit("two", {"b": "B\n"}, "two's")
    agents.commit("three", {"c": "C\n"}, "three's")
    agents.commit("three", {"d": "D\n"}, "three's again")
    said = agents.merge("two", into="one").said + agents.merge("three", into="one", rules=Rules(way="squash")).said
    assert said == ["two: 1 commit to main, merged", "three: 2 commits to main, squashed into one"]


def test_what_stands_in_the_way_comes_with_the_command_that_settles_it(agents: Agents) -> None:
    agents.branch("one", "two")
    agents.commit("one", {"a": "A\n"}, "one's")
    agents.commit("two", {"b": "B\n"}, "two's")
    agents.opened.write(".git/index.lock", b"", "two")
    agents.opened.write(".git/refs/heads/broken", b"no id\n", "two")
    agents.opened.write(".git/MERGE_HEAD", b"0" * 40, "one")
    told = {conflict.path: conflict.message for conflict in agents.merge("two", into="one").conflicts}
    assert "`agentfsd run -b two -- rm .git/index.lock`" in told[b".git/index.lock"]
    assert "`agentfsd run -b two -- rm .git/refs/heads/broken`" in told[b".git/refs/heads/broken"]
    assert "`agentfsd run -b one -- git merge --abort`" in told[b".git"]


def test_side_by_side_leaves_the_checkout_alone(agents: Agents) -> None:
    agents.branch("one", "two")
    tip = agents.commit("one", {"a": "A\n"}, "one")
    his = agents.commit("two", {"b": "B\n"}, "two")
    assert agents.merge("two", into="one", rules=Rules(way="beside")).conflicts == []
    place = shown(agents, "one")
    assert git(place, "rev-parse", "HEAD", "agentfsd/two/main").split() == [tip, his]
    assert git(place, "status", "--porcelain") == ""
    assert (place / "b").read_text() == "b\n"


def test_work_on_branches_of_their_own_comes_into_ours(agents: Agents) -> None:
    agents.branch("one", "two", "all")
    tips = []
    for name, file in (("one", "a"), ("two", "b")):
        place = agents.work(name)
        git(place, "switch", "-qc", f"feature-{name}")
        tips.append(commit(place, {file: f"{name}\n"}, name))
        agents.keep(name)
    assert agents.merge("one", "two", into="all").conflicts == []
    place = shown(agents, "all")
    assert git(place, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(place, "rev-parse", "feature-one", "feature-two").split() == tips
    assert git(place, "merge-base", "--octopus", "main", *tips) != ""
    assert [git(place, "branch", "--contains", tip, "main") for tip in tips] == ["* main", "* main"]
    assert git(place, "status", "--porcelain") == ""


def test_work_that_was_kept_beside_can_be_merged_later(agents: Agents) -> None:
    agents.branch("one", "two")
    agents.commit("one", {"a": "A\n"}, "one")
    place = agents.work("two")
    git(place, "switch", "-qc", "feature")
    his = commit(place, {"b": "B\n", "new": "new\n"}, "two")
    agents.keep("two")
    agents.merge("two", into="one", rules=Rules(way="beside"))
    assert agents.merge("two", into="one").said == ["two: 1 commit to main, merged"]
    place = shown(agents, "one")
    assert his in git(place, "rev-list", "main").split()
    assert (place / "new").read_text() == "new\n"
    assert git(place, "status", "--porcelain") == ""


def test_work_that_the_real_repository_has_under_a_tag_is_still_merged(agents: Agents) -> None:
    agents.branch("one", "two")
    his = agents.commit("two", {"new": "new\n"}, "two's")
    place = agents.work("two")
    git(place, "tag", "release")
    agents.keep("two")
    assert commit_lower(agents.opened, ref="two", as_branches=True).conflicts == []
    place = agents.work("one")
    git(place, "switch", "-qc", "feature")
    commit(place, {"b": "B\n"}, "one's")
    agents.keep("one")
    assert agents.merge("two", into="one").said == ["two: 1 commit to feature, merged"]
    place = shown(agents, "one")
    assert his in git(place, "rev-list", "feature").split()
    assert (place / "new").read_text() == "new\n"
    assert git(place, "status", "--porcelain") == ""


def test_what_ours_had_staged_where_they_committed_comes_unstaged(agents: Agents) -> None:
    agents.branch("one", "two")
    place = agents.work("one")
    (place / "text").write_text(lines(l3="staged"))
    (place / "new").write_text("staged\n")
    git(place, "add", "-A")
    agents.keep("one")
    agents.commit("two", {"text": lines(l16="two"), "b": "B\n"}, "two's")
    assert agents.merge("two", into="one").conflicts == []
    place = shown(agents, "one")
    assert git(place, "status", "--porcelain") == "A  new\n M text"
    assert (place / "text").read_text() == lines(l3="staged", l16="two")


def test_work_on_a_branch_beside_one_that_was_deleted_here_and_moved_there(agents: Agents) -> None:
    git(agents.lower, "branch", "topic")
    agents.branch("one")
    place = agents.work("one")
    git(place, "branch", "-q", "-D", "topic")
    git(place, "switch", "-qc", "feature")
    his = commit(place, {"a": "A\n"}, "one's")
    agents.keep("one")
    git(agents.lower, "switch", "-q", "topic")
    mine = commit(agents.lower, {"b": "B\n"}, "person's")
    git(agents.lower, "switch", "-q", "main")
    assert commit_lower(agents.opened, rule="merge", ref="one").conflicts == []
    git(agents.lower, "fsck", "--strict", "--no-dangling")
    assert git(agents.lower, "rev-parse", "topic", "feature", "main").split() == [mine, his, his]
    assert git(agents.lower, "status", "--porcelain") == ""


def test_what_is_not_committed_comes_as_it_is(agents: Agents) -> None:
    agents.branch("one", "two")
    agents.commit("one", {"a": "A\n"}, "one")
    agents.commit("two", {"b": "B\n"}, "two")
    place = agents.work("two")
    (place / "text").write_text(lines(l3="dirty"))
    (place / "untracked").write_text("untracked\n")
    agents.keep("two")
    assert agents.merge("two", into="one").conflicts == []
    place = shown(agents, "one")
    assert git(place, "status", "--porcelain") == " M text\n?? untracked"
    assert (place / "text").read_text() == lines(l3="dirty")


def test_a_rewritten_history_is_taken_where_ours_has_not_moved(agents: Agents) -> None:
    agents.branch("one", "two")
    first = git(agents.lower, "rev-parse", "HEAD")
    place = agents.work("two")
    (place / "a").write_text("amended\n")
    git(place, "commit", "-qa", "--amend", "-m", "amended")
    agents.keep("two")
    place = agents.work("one")
    git(place, "tag", "mine")  # our side has moved elsewhere: no fast-forward of the whole branch
    agents.keep("one")
    assert agents.merge("two", into="one").conflicts == []
    place = shown(agents, "one")
    assert git(place, "log", "--format=%s", "main") == "amended"
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "rev-parse", "main@{1}") == first


def test_tags_notes_stashes_and_other_branches(agents: Agents) -> None:
    agents.branch("one", "two")
    for name in ("one", "two"):
        place = agents.work(name)
        git(place, "branch", "side")
        git(place, "tag", "same-name", "-m", name)
        git(place, "tag", f"of-{name}")
        git(place, "notes", "add", "-m", f"note of {name}", git(place, "rev-parse", "main:a" if name == "one" else "main:b"))
        (place / "a").write_text(f"stashed by {name}\n")
        git(place, "stash")
        commit(place, {name: name}, name)
        git(place, "branch", "-f", "side", "HEAD")
        agents.keep(name)
    assert agents.merge("two", into="one").conflicts == []
    place = shown(agents, "one")
    assert git(place, "tag").split() == ["agentfsd/two/same-name", "of-one", "of-two", "same-name"]
    assert git(place, "cat-file", "tag", "same-name").splitlines()[-1] == "one"
    assert [git(place, "stash", "show", "-p", f"stash@{{{number}}}").splitlines()[-1] for number in (0, 1)] == [
        "+stashed by one", "+stashed by two",
    ]  # fmt: skip
    assert [git(place, "notes", "show", git(place, "rev-parse", f"main:{name}")) for name in "ab"] == [
        "note of one", "note of two",
    ]  # fmt: skip
    assert len(git(place, "rev-list", "--parents", "-n1", "side").split()) == 3
    assert git(place, "status", "--porcelain") == ""


def test_a_garbage_collection_on_either_side_loses_nothing(agents: Agents) -> None:
    agents.branch("one", "two", "three", "all")
    tips = [agents.commit(name, {name: name}, name) for name in ("one", "two", "three")]
    for name in ("one", "all"):
        place = agents.work(name)
        git(place, "gc", "-q", "--prune=now")
        agents.keep(name)
    assert agents.merge("one", "two", "three", into="all").conflicts == []
    place = shown(agents, "all")
    assert git(place, "status", "--porcelain") == ""
    assert set(tips) <= set(git(place, "rev-list", "main").split())


def test_a_lock_and_a_rebase_under_way_are_honoured(agents: Agents) -> None:
    agents.branch("one", "two", "three")
    agents.commit("one", {"a": "A\n"}, "one")
    agents.commit("two", {"b": "B\n"}, "two")
    agents.opened.write(".git/index.lock", b"", "two")
    assert [conflict.kind for conflict in agents.merge("two", into="one").conflicts] == ["locked"]
    agents.opened.unlink(".git/index.lock", "two")
    place = agents.work("two")
    git(place, "switch", "-qc", "other", "HEAD~1")
    commit(place, {"b": "another\n"}, "clashes")
    git(place, "rebase", "main", check=False)
    agents.keep("two")
    found = agents.merge("two", into="one").conflicts
    assert [(conflict.path, conflict.kind) for conflict in found] == [(b".git", "under-way")]


UNDER_WAY = {
    "merge side": "merge --abort", "cherry-pick side": "cherry-pick --abort", "revert --no-commit HEAD": "revert --abort",
    "rebase side": "rebase --abort", "bisect start HEAD HEAD~1": "bisect reset", "cherry-pick side HEAD": "cherry-pick --abort",
}  # fmt: skip


@pytest.mark.parametrize("command", UNDER_WAY)
def test_what_git_is_in_the_middle_of_stays_where_it_is(agents: Agents, command: str) -> None:
    agents.branch("one", "two", "busy")
    agents.commit("one", {"a": "A\n"}, "one's")
    tip = agents.commit("two", {"a": "two\n"}, "two's")
    place = agents.work("busy")
    git(place, "switch", "-qc", "side")
    commit(place, {"text": lines(l3="side")}, "on the side")
    git(place, "switch", "-q", "main")
    his = commit(place, {"text": lines(l3="main")}, "busy one's")
    git(place, *command.split(), check=False)
    agents.keep("busy")
    from_busy, into_busy = agents.merge("busy", into="one").conflicts, agents.merge("two", into="busy").conflicts
    assert [(found.path, found.kind) for found in (*from_busy, *into_busy)] == [(b".git", "under-way"), (b".git", "repository")]
    assert all(f"`agentfsd run -b busy -- git {UNDER_WAY[command]}`" in found.message for found in (*from_busy, *into_busy))
    for rule in ("merge", "force"):
        assert [found.path for found in commit_lower(agents.opened, ref="busy", rule=rule).conflicts] == [b".git"]
    place = agents.work("busy")
    git(place, "update-index", "-q", "--refresh", check=False)  # the copy has other inodes
    git(place, *UNDER_WAY[command].split())
    agents.keep("busy")
    merged = agents.merge("busy", "two", into="one", leave_conflicting=True)
    assert (merged.merged, [found.kind for found in merged.conflicts]) == (["busy"], ["content"])
    commits = git(shown(agents, "one"), "rev-list", "--all").split()
    assert his in commits
    assert tip not in commits


def test_nothing_that_a_workspace_names_is_run(agents: Agents, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    for name in TRAPS:
        git(agents.lower, "config", name, str(trap))
    for hook in ("post-merge", "reference-transaction", "post-index-change", "pre-commit", "post-commit", "post-checkout"):
        (agents.lower / ".git" / "hooks" / hook).symlink_to(trap)
    (agents.lower / ".git" / "info" / "attributes").write_text("* filter=x merge=x diff=x\n")
    agents.branch("one", "two")
    for name, text in (("one", lines(l3="one")), ("two", lines(l9="two"))):
        place = agents.work(name)
        saved = (place / ".git" / "config").read_text()
        for file in (".git/hooks", ".git/info"):
            (place / file).rename(place / (file + "-away"))
        git(place, "init", "-q")
        (place / ".git" / "config").write_text("[core]\nrepositoryformatversion = 0\n")
        commit(place, {"text": text}, name)
        (place / ".git" / "config").write_text(saved)
        agents.keep(name)
    (tmp_path / "sprung").unlink(missing_ok=True)
    assert agents.merge("two", into="one").conflicts == []
    assert agents.opened.read("text", "one").decode() == lines(l3="one", l9="two")
    assert not (tmp_path / "sprung").exists()
