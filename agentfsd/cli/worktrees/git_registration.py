"""Makes a place known to git as a linked worktree, and takes that back: what `git worktree add` does, without a checkout.

It runs git, and knows no branch of an overlay. Source: gitrepository-layout(5), git-worktree(1).
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from agentfsd.cli import git_environment
from agentfsd.cli.command_base import Failure

_HARMLESS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")  # an agent may have written the files
_TIMEOUT_S = 60.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class WorkingTree:
    """A working tree of a repository, as git sees it.

    Attributes:
        top: The top of that working tree.
        own: Git's directory of that working tree.
        common: The directory that all working trees share.
    """

    top: str
    own: str
    common: str


def find(directory: str) -> WorkingTree | None:
    """Return the repository that holds a directory; None if there is none, or it has no working tree there.

    Raises:
        Failure: git is missing, or refuses the repository.
    """
    asked = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--absolute-git-dir", "--git-common-dir")
    done = _git(directory, *asked)
    lines = done.stdout.splitlines()
    if done.returncode == 0 and len(lines) == len(asked) - 2:
        return WorkingTree(*lines)
    if done.returncode == 0 or "not a git repository" in done.stderr or "must be run in a work tree" in done.stderr:
        return None
    raise _failed("git cannot read the repository", done)


def check_names(repository: WorkingTree, branch: str, commit: str) -> None:
    """Raise Failure if git takes *branch* for no name, or knows no *commit*. `git worktree add` reads either as an option."""
    done = _git(repository.top, "check-ref-format", "--branch", branch)
    if done.returncode != 0 or done.stdout.rstrip("\n") != branch:
        raise Failure(f"{branch!r} is no name for a branch of git", "a name is letters, digits, -, _, . and /, such as fix/login")
    known = _git(repository.top, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") if commit else None
    if commit.startswith("-") or (known is not None and known.returncode != 0):
        raise Failure(f"git knows no commit {commit!r} here", "name a commit, a tag or a branch of git")


def submodules(repository: WorkingTree) -> list[str]:
    """Return the paths of the submodules that are checked out with a database in the repository's own. Failure."""
    if not os.path.isdir(os.path.join(repository.common, "modules")):
        return []
    done = _git(repository.top, "ls-files", "--stage", "-z")
    if done.returncode != 0:
        raise _failed("git cannot list its files", done)
    paths = (line.partition("\t")[2] for line in done.stdout.split("\0") if line.startswith("160000 "))
    return [path for path in paths if os.path.isfile(os.path.join(repository.top, path, ".git"))]


def register(repository: WorkingTree, place: str, branch: str, commit: str, reason: str) -> str:
    """Make *place* a linked worktree on a branch of git; nothing is written there.

    The new worktree gets a copy of the index of the one that *repository* was found from.

    Args:
        repository: The repository.
        place: The absolute path of the worktree.
        branch: A branch of git. If it is new, it begins at *commit*.
        commit: Where it begins; "": at the commit that is checked out.
        reason: Why git must neither remove nor prune the worktree itself.

    Returns:
        Git's directory of the worktree.

    Raises:
        Failure: There is no commit yet, the name is none for a branch, or another worktree has the branch checked out.
    """
    exists = has_branch(repository, branch)
    if exists and commit:
        raise Failure(f"there is a git branch {branch!r} already", "leave --at out to go on with it, or choose another name")
    with tempfile.TemporaryDirectory(prefix="agentfsd-worktree-") as away:
        made = os.path.join(away, os.path.basename(place))
        new = () if exists else ("-b", branch)
        what = (branch,) if exists else (commit or "HEAD",)
        done = _git(
            repository.top, "worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", reason, *new, "--", made, *what
        )
        if done.returncode != 0:
            raise _failed("git makes no worktree", done)
        with open(os.path.join(made, ".git"), encoding="utf-8", errors="surrogateescape") as file:
            directory = os.path.normpath(os.path.join(made, file.read().removeprefix("gitdir:").strip()))
    with open(os.path.join(directory, "gitdir"), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(os.path.join(place, ".git") + "\n")
    _copy_index(repository.own, directory)
    return directory


def _copy_index(source: str, target: str) -> None:
    """Copy an index with its times: by them git knows which files it must read again."""
    with os.scandir(source) as entries:
        names = [
            entry.name for entry in entries
            if (entry.name == "index" or entry.name.startswith("sharedindex.")) and entry.is_file(follow_symlinks=False)
        ]  # fmt: skip
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # a shared index that git has just replaced
            _copy_file(os.path.join(source, name), os.path.join(target, name))


def _copy_file(source: str, target: str) -> None:
    """Copy a file with its times. An agent may have put a symlink in its place: OSError ELOOP."""
    with open(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as old, open(target, "wb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        times = os.fstat(old.fileno())
        os.utime(new.fileno(), ns=(times.st_atime_ns, times.st_mtime_ns))


def check_out(place: str) -> None:
    """Make the files of a worktree those of its commit, but for ignored and untracked ones. Failure."""
    done = _git(place, "reset", "--quiet", "--hard")
    if done.returncode != 0:
        raise _failed("git cannot check the commit out", done)


def unregister(common: str, place: str) -> str:
    """Have git forget the worktree at *place*, which is not there any more. Return what git objects to, or ""."""
    done = _git("/", "--git-dir", common, "worktree", "remove", "--force", "--force", "--", place)
    return "" if done.returncode == 0 else _words(done)


def delete_merged(common: str, branch: str) -> bool:
    """Delete a branch of git if no commit is lost with it. Return whether it was deleted."""
    return _git("/", "--git-dir", common, "branch", "--quiet", "-d", "--", branch).returncode == 0


def detached_commit(directory: str) -> str:
    """Return the commit that a worktree has checked out without a branch; "" if a branch is checked out."""
    try:
        with open(os.path.join(directory, "HEAD"), encoding="utf-8", errors="surrogateescape") as file:
            head = file.read().strip()
    except OSError:
        return ""
    return "" if head.startswith("ref: ") or not head.isalnum() else head


def keep_detached(common: str, directory: str, branch: str) -> str:
    """Give the commits of a detached HEAD a branch if no ref has them. Return the branch; "" if none was needed. Failure."""
    commit = detached_commit(directory)
    if not commit or _git("/", "--git-dir", common, "for-each-ref", "--count=1", f"--contains={commit}").stdout.strip():
        return ""
    branch = f"{branch}-{commit[:10]}"
    done = _git("/", "--git-dir", common, "branch", "--", branch, commit)
    if done.returncode != 0:
        raise _failed("git cannot keep the commits of this worktree", done)
    return branch


def has_branch(repository: WorkingTree, branch: str) -> bool:
    """Return whether the repository has a branch of that name."""
    return _git(repository.top, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}").returncode == 0


def uncommitted(place: str) -> list[str]:
    """Return a line of `git status` for each file that is not committed, without ignored ones. Failure."""
    done = _git(place, "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty")
    if done.returncode != 0:
        raise _failed("git cannot say what is uncommitted", done)
    return done.stdout.splitlines()


def common_of(directory: str) -> str:
    """Return the repository's directory that holds git's directory of a worktree; "" if that is gone."""
    try:
        with open(os.path.join(directory, "commondir"), encoding="utf-8", errors="surrogateescape") as file:
            return os.path.normpath(os.path.join(directory, file.read().strip()))
    except OSError:
        return ""


def checked_out(directory: str) -> str:
    """Return the branch of git that a worktree has checked out, or a commit; "" if git does not know the worktree any more.

    Args:
        directory: Git's directory of the worktree.
    """
    try:
        with open(os.path.join(directory, "HEAD"), encoding="utf-8", errors="surrogateescape") as file:
            head = file.read().strip()
    except OSError:
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:10]


def _git(directory: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = git_environment.own() | {"LC_ALL": "C"}
    try:
        return subprocess.run(
            ["git", *_HARMLESS, *arguments], cwd=directory, env=environment, capture_output=True, text=True,
            errors="surrogateescape", timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError as exc:
        if not os.path.isdir(directory):
            raise Failure(f"there is no directory {directory!r}", "name one that is in the repository") from exc
        raise Failure("git is not installed", "a worktree is one of git's: install it, or use `agentfsd branch create`") from exc
    except subprocess.TimeoutExpired as exc:
        raise Failure(f"git {arguments[0]} has not ended within {_TIMEOUT_S:.0f} s") from exc


def _words(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "it said nothing")


def _failed(what: str, done: subprocess.CompletedProcess[str]) -> Failure:
    return Failure(f"{what}: {_words(done)}", _advice(done.stderr))


def _advice(said: str) -> str:
    if "invalid reference: HEAD" in said or "not a valid object name: 'HEAD'" in said:
        return "the repository has no commit yet: make one"
    if "already checked out" in said or "already used by worktree" in said:
        return "choose another name, or --git-branch"
    return ""


def shortened(lines: list[str]) -> Iterator[str]:
    """Yield the first of many lines, and how many more there are."""
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"and {len(lines) - _SHOWN} more"
