"""fsck, status and doctor of a state directory that was damaged: what they say, and what a repair keeps."""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agentfsd.metadata.operation_journal import read_header
from tests.mounted import Mounted, agentfsd


def objects(mounted: Mounted) -> list[Path]:
    return sorted(path for path in (mounted.state / "objects").glob("??/*") if path.is_file())


def fsck(mounted: Mounted, *options: str) -> tuple[int, str, str]:
    done = agentfsd("fsck", "--state", str(mounted.state), *options, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def await_true(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def noted_commits(mounted: Mounted) -> int:
    """How many commits of the database the journal does not hold any more."""
    header = read_header((mounted.state / "meta.db-acknowledged").read_bytes())
    return header.commits if header is not None else 0


def test_metadata_that_lost_its_end_is_refused_until_somebody_decides(mounted: Mounted) -> None:
    for number in range(50):
        (mounted.path / f"f{number}").write_text(f"content {number}")
    await_true(lambda: noted_commits(mounted) > 0, "no commit is made")  # from then on the journal does without its records
    mounted.kill()
    os.truncate(mounted.state / "meta.db-wal", 0)
    there = objects(mounted)
    refused = agentfsd("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state), check=False)
    assert refused.returncode == 1
    assert "is damaged: the last" in refused.stderr
    assert f"agentfsd fsck --state {mounted.state}" in refused.stderr
    code, said, hint = fsck(mounted)
    assert (code, "commit" in said, "--repair goes on with what is there" in hint) == (1, True, True)
    assert json.loads(fsck(mounted, "--json")[1]) == [said.splitlines()[0]]
    assert objects(mounted) == there

    code, said, notes = fsck(mounted, "--repair")
    assert (code, said) == (0, "sound\n")
    assert notes.count("set aside: ") == len(there)
    assert list(mounted.state.glob("damaged-*/meta.db"))
    mounted.mount()
    (damage,) = mounted.json("status")["damage"]
    assert f"{len(there)} set-aside contents" in damage
    assert damage in " ".join(mounted.cli("status").stdout.split())
    assert "unmount it first" in agentfsd("fsck", "-m", str(mounted.path), "--repair", check=False).stderr
    agentfsd("umount", str(mounted.path))
    assert fsck(mounted, "--discard")[1:] == ("sound\n", "")


def spoil_a_tree(path: Path) -> None:
    """The names of branches and snapshots can be read still."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'inode'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


@pytest.mark.parametrize(
    ("harm", "lost"),
    [
        (lambda path: path.write_bytes(b"\xff" * 20_000), "which branches and snapshots were made since cannot be read any more"),
        (spoil_a_tree, "is not in it, nor are branch lately, snapshot s-late"),
    ],
    ids=["no database", "a tree"],
)
def test_going_back_to_the_copy_of_the_last_start(mounted: Mounted, harm: Callable[[Path], object], lost: str) -> None:
    (mounted.path / "early").write_text("early")
    agentfsd("umount", str(mounted.path))
    (mounted.state / "meta.db-clean").unlink(missing_ok=True)
    mounted.mount()
    await_true((mounted.state / "meta.db-clean").exists, "no copy is made")
    (mounted.path / "late").write_text("late")
    mounted.cli("branch create", "lately")
    mounted.cli("snapshot create", "s-late", "-b", "lately")
    agentfsd("umount", str(mounted.path))
    database = mounted.state / "meta.db"
    harm(database)
    assert "--repair cannot go on with it; --from-copy goes back to the metadata of" in fsck(mounted)[2]
    assert "nothing was changed; --from-copy" in fsck(mounted, "--repair")[2]
    code, said, notes = fsck(mounted, "--from-copy")
    assert (code, said, notes.count("set aside: ")) == (0, "sound\n", 1)
    assert "the state is that of 20" in notes
    assert lost in notes
    assert "1 content made since then: set aside" in notes
    assert not any(odd in notes for odd in ("***", "\\n"))
    mounted.mount()
    assert sorted(os.listdir(mounted.path)) == sorted([*os.listdir(mounted.lower), "early"])
    assert (mounted.path / "early").read_text() == "early"


@pytest.mark.parametrize("session", ["native", "pyfuse3"])
def test_a_lost_content_is_said_by_mount_and_status_and_gives_eio(mounted: Mounted, session: str) -> None:
    (mounted.path / "new").write_text("changed")
    agentfsd("umount", str(mounted.path))
    for path in objects(mounted):
        path.unlink()
        os.mkfifo(path)
    command = ["mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state), "--session", session]
    said = agentfsd(*command).stderr
    assert "the content of 1 file is missing: reading it fails with EIO" in said
    assert mounted.json("status")["damage"] == ["the content of 1 file is missing: reading it fails with EIO"]
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            (mounted.path / "new").read_text()
    assert len(mounted.fsck()) == 1
    (mounted.path / "new").unlink()
    (mounted.path / "new").write_text("again")
    assert (mounted.path / "new").read_text() == "again"
    assert mounted.fsck() == []


def test_scrub_finds_what_changed_in_a_snapshot(mounted: Mounted) -> None:
    (mounted.path / "new").write_text("kept in a snapshot")
    mounted.cli("snapshot create")
    (there,) = objects(mounted)

    def is_found() -> bool:
        """Made in quiet moments: until then nobody can know."""
        there.write_text("kept in a snapshot")
        time.sleep(3)
        there.write_text("kept in a snapShot")
        return mounted.cli("fsck", "--scrub", check=False).returncode == 1

    await_true(is_found, "no checksum is made")
    assert "does not hold what it held" in mounted.cli("fsck", "--scrub", check=False).stdout
    assert mounted.cli("fsck").stdout == "sound\n"


def test_doctor_names_a_state_that_is_damaged(mounted: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFS_STATE_HOME", str(mounted.state.parent))
    (mounted.path / "new").write_text("changed")

    def damage() -> dict[str, str]:
        findings = json.loads(agentfsd("doctor", "--json", check=False).stdout)["findings"]
        return next(finding for finding in findings if finding["name"] == "damage")

    assert damage()["detail"] == "none"
    mounted.kill()
    (mounted.state / "meta.db-acknowledged").unlink()
    assert "meta.db-acknowledged is missing" in damage()["detail"]
    assert f"agentfsd fsck --state {mounted.state}" in damage()["remedy"]
    assert fsck(mounted, "--repair")[0] == 0
    assert damage()["detail"] in ("none", f"{mounted.state}: 1 contents were set aside")


def whole(mounted: Mounted) -> dict[str, bytes]:
    """Everything that lies in the state directory."""
    return {str(path): path.read_bytes() for path in mounted.state.rglob("*") if path.is_file()}


def found_by_doctor() -> dict[str, str]:
    findings = json.loads(agentfsd("doctor", "--json", check=False).stdout)["findings"]
    found: dict[str, str] = next(finding for finding in findings if finding["name"] == "damage")
    return found


HARMS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: os.truncate(path, 0),
    "short": lambda path: os.truncate(path, 300),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.parametrize(("harm", "alone"), [("empty", False), ("empty", True), ("short", True), ("zeroed", False)])
def test_contents_without_a_database_are_damage_and_nothing_is_changed(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch, harm: str, alone: bool
) -> None:
    """*alone*: nothing lies beside the database any more."""
    monkeypatch.setenv("AGENTFS_STATE_HOME", str(mounted.state.parent))
    (mounted.path / "new").write_text("acknowledged")
    mounted.kill()
    HARMS[harm](mounted.state / "meta.db")
    for path in mounted.state.glob("meta.db-*") if alone else ():
        path.unlink()
    before = whole(mounted)
    code, said, hint = fsck(mounted)
    assert (code, "meta.db" in said, "sound" in said) == (1, True, False)
    assert "--repair cannot go on with it; there is no copy" in hint
    code, said, hint = fsck(mounted, "--repair")
    assert (code, said) == (1, "")
    assert "nothing was changed" in hint
    assert "meta.db" in found_by_doctor()["detail"]
    assert whole(mounted) == before
    refused = agentfsd("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state), check=False)
    assert (refused.returncode, "meta.db" in refused.stderr) == (1, True)
    assert len(objects(mounted)) == 1


def test_what_was_changed_without_contents_counts_as_well(mounted: Mounted) -> None:
    mounted.cli("branch create", "kept")
    mounted.kill()
    os.truncate(mounted.state / "meta.db", 0)
    assert fsck(mounted)[0] == 1
    refused = agentfsd("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state), check=False)
    assert "is damaged: the metadata database" in refused.stderr


def test_a_lost_content_is_named_with_whoever_has_it_and_can_be_got_rid_of(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTFS_STATE_HOME", str(mounted.state.parent))
    (mounted.path / "d").mkdir()
    (mounted.path / "d" / "one").write_text("one")
    mounted.cli("snapshot create", "s-one")
    mounted.cli("branch create", "two")
    agentfsd("umount", str(mounted.path))
    (there,) = objects(mounted)
    there.unlink()
    assert "1 content of files lost" in found_by_doctor()["detail"]
    _, said, _ = fsck(mounted)
    assert "(file 'd/one' of branch main, branch two, snapshot s-one); restore it from another state, or remove it" in said
    code, again, notes = fsck(mounted, "--repair")
    assert (code, again) == (1, said)
    assert notes.count("the content of 1 file is missing") == 1
    assert "--repair cannot bring back what is lost" in notes
    mounted.mount()
    assert "the content of 1 file is missing" in found_by_doctor()["detail"]
    assert "the content of d/one is lost" in mounted.cli("diff", "--patch", check=False).stderr
    assert "'d/one' could not be written" in mounted.cli("commit", check=False).stderr
    assert [row["name"] for row in mounted.json("snapshot list")] == ["s-one"]
    (mounted.path / "d" / "one").unlink()
    mounted.cli("branch delete", "two")
    assert "(file 'd/one' of snapshot s-one); it goes when the snapshot is deleted" in mounted.cli("fsck", check=False).stdout
    mounted.cli("snapshot delete", "s-one")
    await_true(lambda: mounted.cli("fsck", check=False).stdout == "sound\n", "the content is not forgotten")
