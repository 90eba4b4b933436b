"""Tags of snapshots: what retention makes of them, and a tag in the place of a ref."""

import os
import sqlite3
import sys
from pathlib import Path

import pytest

from agentfsd.core.overlay_snapshots import RUN, UNNAMED
from agentfsd.domain_errors import Refusal
from tests.mounted import Mounted
from tests.overlays import Opened

HOOK = "before-tool"  # the tag of README's hook
KEPT, TAGGED = "kept", "tagged"  # kinds


def names(mounted: Mounted, *arguments: str) -> list[str]:
    return [found["name"] for found in mounted.json("snapshot list", *arguments)]


def test_the_readmes_hook_leaves_no_more_than_the_readme_says(mounted: Mounted) -> None:
    mounted.cli("policy set", "retention.max_count", "3")
    mounted.cli("snapshot create", "-b", "main", "mine")
    mounted.cli("snapshot create", "-b", "main", "--tag", "release", "--keep")
    for number in range(6):
        (mounted.path / "file").write_text(str(number))
        mounted.cli("snapshot create", "--tag", HOOK)
    assert names(mounted) == ["mine", "main-2", "main-6", "main-7", "main-8"]
    assert "  NEW FILES  NEW BYTES  " in mounted.cli("snapshot list").stdout
    assert mounted.json("prune", "--no-keep-named", "--max-age", "0.001s")[0]["name"] == "mine"
    assert names(mounted) == ["main-2"]  # which was to be kept


def test_snapshots_of_runs_are_limited_by_a_setting_of_their_own(opened: Opened) -> None:
    opened.overlay.settings.set("retention.automatic_count", "2")
    for _ in range(4):
        opened.overlay.snapshots.create("main", kind=RUN)
        opened.overlay.snapshots.create("main")
        opened.overlay.retention.apply(opened.overlay.default_id)
    assert sorted(found.kind for found in opened.overlay.snapshots.all()) == [RUN, RUN, *[UNNAMED] * 4]


def test_a_policy_may_keep_tags(opened: Opened) -> None:
    opened.overlay.settings.set("retention.max_count", "1")
    opened.overlay.settings.set("retention.keep_tagged", "yes")
    for _ in range(3):
        made = opened.overlay.snapshots.create("main", tag=HOOK)
        opened.overlay.retention.apply(opened.overlay.default_id)
    assert made.kind == TAGGED
    assert len(opened.overlay.snapshots.all()) == 3
    opened.overlay.settings.set("retention.keep_tagged", "no")
    assert opened.overlay.snapshots.create("main", "named-and-kept", kind=KEPT).kind == KEPT
    opened.overlay.retention.apply(opened.overlay.default_id)
    assert [found.name for found in opened.overlay.snapshots.all()] == ["main-3", "named-and-kept"]


@pytest.mark.parametrize(("said", "keeps_named"), [("no", "no"), ("yes", "yes"), ("", "yes")])
def test_an_older_state_keeps_what_was_said(tmp_path: Path, said: str, keeps_named: str) -> None:
    """Version 3 knew one setting for names and tags, and tagged snapshots had the kind of named ones."""
    opened = Opened(tmp_path)
    for name, tag in ((None, HOOK), ("main-x", HOOK), ("mine", "")):
        opened.overlay.snapshots.create("main", name, tag)
    left = opened.overlay.snapshots.create("main", "export-0123456789ab", "temporary: of a running export")
    opened.close()
    with sqlite3.connect(tmp_path / "meta.db") as database:
        database.execute("UPDATE snapshot SET kind = ''")
        database.execute("DROP TABLE seal")
        database.execute("DROP TABLE step")
        database.execute("ALTER TABLE layer DROP COLUMN base")
        database.execute("PRAGMA user_version = 3")
        if said:
            database.execute("INSERT INTO fact VALUES ('policy.retention.keep_tagged', ?)", (said,))
    database.close()
    (tmp_path / "meta.db-sums").unlink()  # there were none then
    opened.open()
    assert [(found.name, found.kind) for found in opened.overlay.snapshots.all()] == [
        ("main-1", TAGGED),
        ("main-x", ""),
        ("mine", ""),
    ]
    assert not opened.overlay.refs.exists(left.id)
    policy = opened.overlay.settings.values()
    assert (policy["retention.keep_tagged"], policy["retention.keep_named"]) == (said or "no", keeps_named)
    opened.close()


@pytest.fixture
def tagged(mounted: Mounted) -> Mounted:
    """Two agents, each with two snapshots of the hook's tag."""
    for agent in ("agent-1", "agent-2"):
        for turn in ("first", "second"):
            mounted.sh(
                agent, f"echo {agent} {turn} > file; agentfsd snapshot create --tag {HOOK}", new=turn == "first", env=path()
            )
        mounted.sh(agent, "echo later > file")
    return mounted


def path() -> dict[str, str]:
    """Where `agentfsd` of this checkout is."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_a_tag_is_the_newest_snapshot_of_the_branch_concerned(tagged: Mounted) -> None:
    said = tagged.cli("restore", "-b", "agent-1", HOOK).stdout
    assert said == "agent-1 is at agent-1-2 again\n"
    assert tagged.run("agent-1", "cat", "file").stdout == "agent-1 second\n"
    assert tagged.run("agent-2", "cat", "file").stdout == "later\n"
    assert tagged.cli("diff", HOOK, "agent-2").stdout == "M\tfile\n"
    assert tagged.cli("diff", "agent-2", HOOK).stdout == "M\tfile\n"
    assert tagged.sh("agent-2", f"agentfsd diff {HOOK}; agentfsd restore {HOOK} file; cat file", env=path()).splitlines() == [
        "M\tfile", "as in agent-2-2 again: 1 change in agent-2", "agent-2 second",
    ]  # fmt: skip
    assert (tagged.path / ".agentfs" / "snapshots" / "agent-1-2" / "file").read_text() == "agent-1 second\n"
    assert not (tagged.path / ".agentfs" / "snapshots" / HOOK).exists()


def test_a_tag_of_several_branches_is_refused_with_the_candidates(tagged: Mounted) -> None:
    for command in (["diff", HOOK], ["branch create", "x", "--from", HOOK], ["snapshot delete", HOOK], ["log", HOOK]):
        refused = tagged.cli(*command, check=False)
        assert refused.returncode == 1
        assert "agent-2-2 (of agent-2), agent-1-2 (of agent-1)" in refused.stderr
    tagged.cli("snapshot create", "-b", "main", "--tag", HOOK)
    assert tagged.cli("branch create", "x", "--from", HOOK).returncode == 0  # one's own branch goes first
    assert tagged.json("branch show", "x")["base"] == ""
    tagged.cli("snapshot create", "-b", "agent-1", "--tag", "only here")
    assert tagged.cli("snapshot delete", "only here").stdout == "snapshot agent-1-3 deleted\n"


def test_a_bound_process_knows_its_own_tags_alone(tagged: Mounted) -> None:
    tagged.cli("snapshot create", "-b", "agent-1", "--tag", "secret-word")
    refused = tagged.run("agent-2", "agentfsd", "diff", "secret-word", check=False, env=path())
    assert refused.returncode != 0
    assert "agent-1" not in refused.stderr


def test_names_and_ids_go_before_tags(opened: Opened) -> None:
    overlay = opened.overlay
    first, named = overlay.snapshots.create("main", tag="main"), overlay.snapshots.create("main", "good")
    overlay.snapshots.create("main", tag="good")
    overlay.snapshots.create("main", tag=first.id)
    assert overlay.refs.find("good").id == named.id
    assert overlay.refs.find("main").id == overlay.default_id
    assert overlay.refs.find(first.id).id == first.id
    with pytest.raises(Refusal):
        overlay.refs.find("nowhere")


def test_a_branch_made_from_another_finds_its_histories_tags(tagged: Mounted) -> None:
    tagged.cli("branch create", "deeper", "--from", "agent-1")
    tagged.cli("restore", "-b", "deeper", HOOK)
    assert tagged.run("deeper", "cat", "file").stdout == "agent-1 second\n"
