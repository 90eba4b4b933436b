"""The recipe for many agents through a real mount, and what `diff`, `run` and `commit` say of commits."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from tests.mounted import Mounted
from tests.repositories.agents import commit, git, start

IDENTITY = (
    "export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x GIT_CONFIG_GLOBAL=/dev/null; "
)


def work(mounted: Mounted, branch: str, files: dict[str, str], message: str) -> None:
    """An agent edits and commits."""
    script = IDENTITY + "; ".join(
        f"mkdir -p $(dirname {name}); printf '%s\\n' {shlex.quote(text)} > {name}" for name, text in files.items()
    )
    script += f"; git add -A; git commit -qm {shlex.quote(message)}; git status --porcelain"
    done = mounted.run(branch, "sh", "-ec", script, new=True)
    assert done.stdout == ""


def test_agents_that_commit_are_merged_and_committed(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    lower = tmp_path / "lower"
    start(lower, {"a": "a"})
    mounted = make_mount(lower)
    names = [f"agent-{number}" for number in range(3)]
    for name in names:
        work(mounted, name, {f"docs/{name}.md": name, f"src-{name}": "x"}, f"Work of {name}")
    shown = mounted.cli("diff", names[0])
    assert "main: 1 commit ahead" in shown.stderr
    assert shown.stdout.splitlines() == ["A\tdocs", f"A\tdocs/{names[0]}.md", f"A\tsrc-{names[0]}"]
    assert ".git/objects" in mounted.cli("diff", "--all", names[0]).stdout
    mounted.sh(names[0], "touch .git/index.lock")
    for arguments in (("merge", names[0], "--into", "main"), ("commit", names[0])):
        refused = mounted.cli(*arguments, check=False)
        assert refused.returncode == 1
        assert "rm .git/index.lock" in refused.stdout
        assert "--ours" not in refused.stderr
        assert "--force" not in refused.stderr
    mounted.sh(names[0], "rm .git/index.lock")
    said = mounted.cli("merge", *names, "--into", "main").stdout
    assert f"{names[1]}: 1 commit to main, merged" in said
    mounted.cli("commit", "main")
    mounted.end()
    git(mounted.lower, "fsck", "--strict", "--no-dangling")
    assert git(mounted.lower, "status", "--porcelain") == ""
    titles = git(mounted.lower, "log", "--format=%s", "--no-merges").splitlines()
    assert sorted(titles) == [*(f"Work of {name}" for name in names), "start"]
    assert sorted(path.name for path in (mounted.lower / "docs").iterdir()) == [f"{name}.md" for name in names]


def test_a_commit_that_meets_a_persons_is_refused_with_two_commands_that_settle_it(
    tmp_path: Path, make_mount: Callable[..., Mounted]
) -> None:
    lower = tmp_path / "lower"
    start(lower, {"a": "a"})
    mounted = make_mount(lower)
    for name in ("one", "two"):
        work(mounted, name, {name: name}, f"Work of {name}")
    persons = commit(lower, {"person": "person"}, "A person's")
    for name, option in (("one", "--as-branches"), ("two", "--merge")):
        refused = mounted.cli("commit", name, check=False)
        assert refused.returncode == 1
        commands = re.findall(r"`agentfsd (commit [^`]*)`", refused.stderr)
        assert [command.split()[-1] for command in commands] == ["--merge", "--as-branches"]
        assert git(lower, "rev-parse", "main") == persons
        mounted.cli(*next(command for command in commands if option in command).split())
    assert git(lower, "log", "-1", "--format=%s", "agentfsd/one/main") == "Work of one"
    assert git(lower, "log", "--format=%s", "--no-merges", "main").splitlines() == ["A person's", "Work of two", "start"]
    assert git(lower, "status", "--porcelain") == ""


def test_an_index_that_git_refreshed_at_the_mount_point_is_no_change_to_build_on(
    tmp_path: Path, make_mount: Callable[..., Mounted]
) -> None:
    lower = tmp_path / "lower"
    start(lower, {"a": "a"})
    mounted = make_mount(lower)
    (mounted.path / ".git" / "index").touch()
    git(mounted.path, "update-index", "--refresh")
    assert (mounted.state / "objects").is_dir()
    work(mounted, "one", {"b": "b"}, "Work of one")
    assert [branch["base"] for branch in mounted.json("branch list") if branch["name"] == "one"] == [""]
    mounted.cli("commit", "one")
    mounted.end()
    assert git(mounted.lower, "log", "-1", "--format=%s") == "Work of one"
    assert git(mounted.lower, "status", "--porcelain") == ""


def test_undo_says_that_a_later_commit_into_the_real_directory_stays(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    lower = tmp_path / "lower"
    start(lower, {"a": "a"})
    mounted = make_mount(lower)
    for name in ("one", "two"):
        work(mounted, name, {name: name}, f"Work of {name}")
    mounted.cli("merge", "one", "--into", "two")
    mounted.cli("commit", "two")
    (entry,) = mounted.json("undo", "--list")
    assert (entry["kind"], entry["committed"]) == ("merge", "two")
    said = mounted.cli("undo")
    assert said.stdout == "undone: merge of two\n"
    assert "two was committed into the real directory after it: that stays" in said.stderr
    assert git(lower, "log", "--format=%s", "--no-merges").splitlines() != ["start"]
    mounted.cli("merge", "one", "--into", "main")
    assert [entry["committed"] for entry in mounted.json("undo", "--list")] == [""]
