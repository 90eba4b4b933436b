"""A person with ten finished agents, by commands alone: what passed is found, compared, merged by hunks and whole, settled,
committed, undone.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import Mounted
from tests.ten_agents import CHANGES, changed, ten_agents


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    return ten_agents(make_mount, tmp_path)


def test_ten_agents_are_reviewed(project: Mounted) -> None:
    # those whose last run passed
    table = {words[0]: line for line in project.cli("compare").stdout.splitlines() if (words := line.split())}
    assert sorted(name for name, line in table.items() if "  ok  " in line) == ["agent-2", "agent-5", "agent-9"]
    assert "  exit 7  " in table["agent-7"]
    rows = project.json("compare")
    passed = sorted(row["branch"] for row in rows if row["run"] and not row["run"]["exit_code"])
    assert passed == ["agent-2", "agent-5", "agent-9"]
    # two of them compared
    differences = project.cli("diff", "agent-2", "agent-5", "-p").stdout
    assert {"-twenty-five by 2", "+twenty-five by 5"} <= set(differences.splitlines())
    # two hunks of one
    done = project.answered("n y y q", "merge", "-p", "agent-2", "main")
    assert done.returncode == 0, done.stdout + done.stderr
    main = project.subtree("main")
    assert (main / "text").read_text() == changed({5: "five by 2", 25: "twenty-five by 2"})
    # all of another, which conflicts
    left = project.cli("merge", "--conflicts", "agent-5", "main", check=False)
    assert (left.returncode, "text" in left.stderr + left.stdout) == (1, True)
    assert all(word in left.stderr for word in ("agentfsd conflicts", "agentfsd resolve", "--continue main"))
    assert "text" in project.cli("conflicts", "main").stdout
    early = project.cli("merge", "--continue", "main", check=False)
    assert early.returncode == 1
    project.cli("resolve", "-b", "main", str(project.path / "text"), "--theirs")
    project.cli("merge", "--continue", "main")
    settled = changed({5: "five by 2"}, CHANGES[5])
    assert ((main / "text").read_text(), (main / "of-5").read_text()) == (settled, "5\n")
    # commit
    shown = project.cli("commit", "main", "--dry-run").stdout
    assert not (project.lower / "of-5").exists()
    assert "of-5" in shown
    project.cli("commit", "main")
    assert ((project.lower / "text").read_text(), (project.lower / "of-5").read_text()) == (settled, "5\n")
    # and another one committed to the branch that it was made from, which is undone
    project.cli("commit", "agent-9")
    assert (project.subtree("team") / "of-9").exists()
    project.cli("undo")
    assert not (project.subtree("team") / "of-9").exists()
    assert project.fsck() == []
