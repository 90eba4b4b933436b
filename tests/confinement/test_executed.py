"""What would run on the person's side is no part of a commit or merge that did not ask for it."""

import os
import subprocess

import pytest

from agentfsd.core.declared_settings import EXECUTED_PATHS
from agentfsd.history.executed_paths import why_by_path
from tests.mounted import Mounted, agentfsd

GIT_IN = "git init -q --bare made; git -C made config core.fsmonitor id; mv made/* "
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
    "two headers in a line": ("printf '[user] [core] fsmonitor = id\\n' >> .git/config", ".git/config"),
    "a pager of one command": ("git config pager.log id", ".git/config"),
    "an alias with an option": ("git config alias.st '-c core.pager=id log'", ".git/config"),
    "an alias after quotes": ("printf '[alias]\\n x = \"\"!id\\n' >> .git/config", ".git/config"),
    "an address that is a program": ("git config remote.origin.url 'ext::sh -c id'", ".git/config"),
    "a transport": ("git config protocol.ext.allow always", ".git/config"),
    "a setting that nobody knows": ("git config lately.invented id", ".git/config"),
    "settings of a submodule": (f"mkdir -p .git/modules/m; {GIT_IN} .git/modules/m", ".git/modules/m/HEAD"),
    "settings of a repository that is there": ("git -C sub config core.fsmonitor id", "sub/.git/config"),
    "a repository of another name": (f"mkdir data; {GIT_IN} data", "data/HEAD"),
    "hooks of a repository of another name": ("git init -q --bare data; echo id > data/hooks/update", "data/HEAD"),
    "a hook in a repository of another name": ("echo id > bare/hooks/update", "bare/hooks/update"),
    "another place of .git": ("mv .git data; ln -s data .git", ".git"),
    "a file that leads outside": ("rm -rf sub/.git; echo gitdir: /tmp/x > sub/.git", "sub/.git"),
    "a file that leads above": ("rm -rf sub/.git; echo gitdir: ../../x > sub/.git", "sub/.git"),
    "a file that leads through a link": (
        "rm -rf sub/.git; ln -s /tmp way; mkdir x; echo gitdir: ../way/x > sub/.git", "sub/.git",
    ),
    "hooks in another place": ("rm -rf .git/hooks; mkdir ci; echo id > ci/update; ln -s ../ci .git/hooks", ".git/hooks"),
    "settings in another place": ("mv .git/config settings; ln -s ../settings .git/config", ".git/config"),
    "settings of another directory": ("git worktree add -q w; echo /tmp/x > .git/worktrees/w/commondir",
                                      ".git/worktrees/w/commondir"),
    "attributes of the repository": ("mkdir -p .git/info; echo '* filter=x' > .git/info/attributes", ".git/info/attributes"),
}  # fmt: skip


@pytest.fixture
def repository(mounted: Mounted) -> Mounted:
    for place in ("", "sub"):
        subprocess.run(["git", "init", "-q", mounted.lower / place], check=True)
        commit = ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "first"]
        subprocess.run(["git", "-C", mounted.lower / place, *commit], check=True)
    subprocess.run(["git", "init", "-q", "--bare", mounted.lower / "bare"], check=True)
    mounted.cli("branch create", "b")
    return mounted


@pytest.mark.sample(12)
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


def test_what_git_makes_in_passing_needs_no_permission(repository: Mounted) -> None:
    """A clone, a submodule, a worktree, a bare repository: their .git files lead to settings that were looked at."""
    script = f"""
        git clone -q bare clone 2>/dev/null; git init -q --bare another; git worktree add -q {repository.path}/w
        git -c protocol.file.allow=always submodule --quiet add ./sub module
        git config submodule.module.update rebase; git config core.abbrev 12; git config gc.auto 0
        git config lfs.repositoryformatversion 0; git config url.https://mirror/.insteadOf https://origin/
    """
    repository.run("b", "sh", "-ec", script)
    assert "by git" not in repository.cli("diff", "b").stdout
    repository.cli("commit", "b")
    for name in ("w/.git", "module/.git"):
        assert (repository.lower / name).is_file()


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
