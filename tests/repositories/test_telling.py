"""What is said of a branch's repository: its new commits, and what `git status` would call changed."""

from pathlib import Path

import pytest

from tests.repositories.agents import Agents, commit, git, start
from tests.repositories.test_later_rounds import told


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_files_that_git_ignores_or_another_repository_holds_are_none_that_are_not_committed(tmp_path: Path, form: str) -> None:
    agents = Agents(tmp_path)
    start(agents.lower, {".gitignore": "*.o\nbuild/\n", "a": "a\n"}, f"--object-format={form}")
    start(agents.lower / "inner", {"b": "b\n"})
    git(agents.lower, "clone", "-q", "--bare", "inner", "bare.git")
    agents.branch("one")
    place = agents.work("one")
    made = commit(place / "inner", {"b": "B\n", "c": "c\n"}, "Inner change")
    git(place / "inner", "push", "-q", "../bare.git", "HEAD:refs/heads/new")
    git(place, "worktree", "add", "-q", "linked", "--detach")
    (place / "a").write_text("A\n")
    git(place, "add", "a")
    git(place, "commit", "-qm", "Fix parser")
    tip = git(place, "rev-parse", "HEAD")
    git(place, "config", "user.name", "somebody")
    (place / "build").mkdir()
    for name in ("main.o", "build/log", "notes"):
        (place / name).write_text("x\n")
    agents.keep("one")
    assert told(agents, "one") == [
        f"main: 1 commit ahead ({tip[:7]} Fix parser), 1 uncommitted file",
        "main: 1 other ref changed (new)",
        f"main: 1 commit ahead ({made[:7]} Inner change)",
    ]
    agents.close()
