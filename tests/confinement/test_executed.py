"""What would run on the person's side is no part of a commit or merge that did not ask for it."""

import os
import subprocess

import pytest

from agentfsd.core.declared_settings import EXECUTED_PATHS
from agentfsd.history.executed_paths import why_by_path
from tests.mounted import Mounted, agentfsd

CHANGES = {
    "a git hook": ("mkdir -p .git/hooks; echo id > .git/hooks/post-commit", ".git/hooks/post-commit"),
    "a command for git": ("git config core.fsmonitor /bin/true", ".git/config"),
    "another place of hooks": ("git config core.hooksPath x", ".git/config"),
    "a filter": ("git config filter.x.smudge id", ".git/config"),
    "an alias": ("git config alias.st '!id'", ".git/config"),
    "configuration elsewhere": ("git config include.path ../x", ".git/config"),
    "a driver": ("echo '* filter=x' > .gitattributes", ".gitattributes"),
    "settings of an agent": ("mkdir .claude; echo {} > .claude/settings.json", ".claude/settings.json"),
    "settings in a part": ("mkdir -p part/.vscode; echo {} > part/.vscode/tasks.json", "part/.vscode/tasks.json"),
    "an environment": ("echo id > .envrc", ".envrc"),
    "a setuid program": ("cp /bin/true program; chmod u+s program", "program"),
}


@pytest.fixture
def repository(mounted: Mounted) -> Mounted:
    subprocess.run(["git", "init", "-q", mounted.lower], check=True)
    mounted.cli("branch create", "b")
    return mounted


@pytest.mark.parametrize("name", CHANGES)
def test_a_commit_refuses_what_runs_on_the_persons_side(repository: Mounted, name: str) -> None:
    script, path = CHANGES[name]
    repository.run("b", "sh", "-ec", f"echo more > new; {script}")
    refused = repository.cli("commit", "b", check=False)
    assert refused.returncode == 1
    assert path in refused.stdout
    assert "--hooks" in refused.stderr and "agentfsd diff --patch b\n" in refused.stderr
    assert not (repository.lower / "new").exists()
    assert "executed" in repository.cli("commit", "b", "--dry-run", check=False).stdout
    repository.cli("commit", "b", "--hooks")
    assert (repository.lower / "new").exists()
    assert (repository.lower / path).exists()


def test_a_merge_refuses_it_too(repository: Mounted) -> None:
    repository.run("b", "sh", "-ec", "echo id > .envrc")
    repository.cli("branch create", "other")
    assert repository.cli("merge", "b", "other", check=False).returncode == 1
    assert not (repository.subtree("other") / ".envrc").exists()
    repository.cli("merge", "b", "other", "--hooks")
    assert (repository.subtree("other") / ".envrc").exists()


def test_what_git_writes_in_passing_is_taken_along(repository: Mounted) -> None:
    script = """
        git config user.name x; git config user.email x@x; git config branch.main.remote origin
        printf '*.png binary\\n*.txt text=auto diff=python merge=union\\n' > .gitattributes
        git add -A; git commit -qm x
    """
    repository.run("b", "sh", "-ec", script.replace("diff=python ", ""))
    repository.cli("commit", "b")
    assert os.listdir(repository.lower / ".git" / "refs" / "heads")


def test_going_without_a_hook_is_no_danger(repository: Mounted) -> None:
    (repository.lower / ".envrc").write_text("id\n")
    repository.run("b", "rm", ".envrc")
    repository.cli("commit", "b")
    assert not (repository.lower / ".envrc").exists()


def test_the_list_is_a_setting(repository: Mounted) -> None:
    repository.cli("policy set", "executed.paths", "Makefile")
    repository.run("b", "sh", "-ec", "echo id > .envrc; echo all: > Makefile")
    refused = repository.cli("commit", "b", check=False).stdout
    assert "Makefile" in refused
    assert ".envrc" not in refused


def test_a_run_names_it_first(repository: Mounted) -> None:
    done = agentfsd("run", "-m", str(repository.path), "--", "sh", "-c", "echo id > a; echo id > .envrc", cwd=repository.path)
    said = done.stderr.splitlines()
    assert "2 changes" in said[0]
    assert said[1].startswith("  .envrc: run by")


def test_samples_of_hooks_do_not_run() -> None:
    patterns = EXECUTED_PATHS.split()
    assert why_by_path(b".git/hooks/pre-commit", patterns)
    assert why_by_path(b".git/modules/a/b/hooks/pre-commit", patterns)
    assert not why_by_path(b".git/hooks/pre-commit.sample", patterns)
    assert not why_by_path(b"src/hooks/pre-commit", patterns)
