"""Branches as linked worktrees of git: makes one with its registration in the repository, lists them, removes one with it."""

import contextlib
import errno
import os
import re
from dataclasses import dataclass

from agentfs_client import locate, registry, wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, NotFoundError
from agentfsd.cli.command_base import Failure, converse, refusals
from agentfsd.cli.connect import daemon_start, mount_finder
from agentfsd.cli.worktrees import git_registration
from agentfsd.cli.worktrees.git_registration import WorkingTree
from agentfsd.state import state_directory
from agentfsd.types import CONTROL_DIR

_VIEWS = f"{os.fsdecode(CONTROL_DIR)}/branches"
_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100  # characters, so that a number can follow


@dataclass(frozen=True, slots=True)
class Worktree:
    """A branch that is a worktree, or that stands in for one where there is no repository.

    Attributes:
        name: The branch.
        path: Where its files are.
        directory: Git's directory of the worktree; "" for none.
        git_branch: What is checked out in it; "" if git does not know the worktree.
        changed: How many paths the branch has changed since it was made; -1 if that was not counted.
    """

    name: str
    path: str
    directory: str
    git_branch: str
    changed: int = -1


@dataclass(frozen=True, slots=True)
class Wish:
    """What a new worktree is to be.

    Attributes:
        name: What people and harnesses call it, such as ``feature/login``.
        git_branch: The branch of git; "": *name*.
        source: The branch or snapshot of the overlay from which it starts; None: what the current directory shows.
        commit: The commit to check out; "": the files stay what they are, changes that are not committed included.
        again: Return a worktree of that name that there is already.
        frozen: Keep unmodified files as they are now, whatever happens in the real directory.
    """

    name: str
    git_branch: str = ""
    source: str | None = None
    commit: str = ""
    again: bool = False
    frozen: bool = False


def add(directory: str, named: str | None, wish: Wish) -> Worktree:
    """Make a worktree of the workspace that holds *directory*. Without a repository there, it is a branch only.

    Args:
        directory: Where the harness or the user is.
        named: The mount; None: the one that shows *directory*, or a hidden one.
        wish: What to make.
    """
    repository = git_registration.find(directory)
    git_branch = wish.git_branch or wish.name
    if repository is not None:
        _check(repository, wish, git_branch)
    mount, daemon = converse(lambda: _mount_for(directory, named, repository))
    with daemon:
        source = _starting_point(mount, repository) if wish.source is None else wish.source
        known = {branch.name: branch for branch in daemon.list_branches(count=False)}
        name = _branch_name(wish.name)
        found = known.get(name)
        if found is not None and wish.again and (made := _same(mount, found, repository, git_branch)) is not None:
            return made
        if found is not None and not wish.again:
            raise Failure(f"there is a branch {name!r} already", "`agentfsd worktree list` shows worktrees; choose another name")
        name = _free(name, known)
        daemon.create_branch(name, source, frozen=wish.frozen)
        path = _path(mount, name)
        if repository is None:
            return Worktree(name, path, "", "")
        return _registered(daemon, repository, wish, Worktree(name, path, "", git_branch))


def _check(repository: WorkingTree, wish: Wish, git_branch: str) -> None:
    """Raise Failure, before anything is made, for what git cannot make a worktree of."""
    git_registration.check_names(repository, git_branch, wish.commit)
    if modules := git_registration.submodules(repository):
        raise Failure(
            f"the submodule {modules[0]!r} is checked out: git would find no database for it in a linked worktree",
            f"a branch has its submodules with it: agentfsd run -b {_branch_name(wish.name)} --new -- COMMAND",
        )


def _registered(daemon: ControlClient, repository: WorkingTree, wish: Wish, made: Worktree) -> Worktree:
    """Make a new branch known to git; discard it again if that fails."""
    reason = f"branch {made.name} of agentfsd, which removes it: agentfsd worktree remove {made.name}"
    goes_on, directory = git_registration.has_branch(repository, made.git_branch), ""
    try:
        directory = git_registration.register(repository, made.path, made.git_branch, wish.commit, reason)
        daemon.set_worktree(made.name, directory)
        if wish.commit or goes_on:
            git_registration.check_out(made.path)
    except BaseException:
        with contextlib.suppress(AgentFSError):
            daemon.discard(made.name, keep=False)
        if directory:
            git_registration.unregister(repository.common, made.path)
        raise
    return Worktree(made.name, made.path, directory, made.git_branch)


def _mount_for(directory: str, named: str | None, repository: WorkingTree | None) -> locate.Mount:
    """Return the mount of the workspace; start a hidden one for the repository, or the directory, if there is none."""
    if named is not None or os.environ.get(locate.MOUNT_VARIABLE):
        return mount_finder.find(named, revive=True)
    found = mount_finder.around(os.path.realpath(directory), registry.live_daemons(), revive=True)
    if found is not None:
        return found
    lower = repository.top if repository is not None else os.path.realpath(directory)
    record = daemon_start.join_hidden(lower, state_directory.default_state(lower))
    return locate.Mount(record.mountpoint, record)


def _starting_point(mount: locate.Mount, repository: WorkingTree | None) -> str | None:
    """Return the branch in whose view the repository was found; None for main.

    Raises:
        Failure: The repository's top is not the workspace's.
    """
    if repository is None:
        return None
    top, views = repository.top, os.path.join(mount.mountpoint, _VIEWS)
    if top in (mount.mountpoint, mount.lower):
        return None
    if os.path.dirname(top) == views:
        return os.path.basename(top)
    whole = mount.lower or mount.mountpoint
    raise Failure(
        f"the workspace is {whole}, but the repository's top is {top}",
        f"a worktree needs an overlay of the whole repository: agentfsd mount {top} MOUNTPOINT",
    )


def _branch_name(name: str) -> str:
    """Return the name of the overlay's branch for a worktree: those of git may have slashes and more."""
    made = _NAME.sub("-", name).strip("-._")[:_LONGEST]
    if not made:
        raise Failure(f"{name!r} is no name for a worktree", "use letters and digits")
    return made


def _free(name: str, taken: dict[str, wire.Branch]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found


def _same(mount: locate.Mount, found: wire.Branch, repository: WorkingTree | None, git_branch: str) -> Worktree | None:
    """Return the worktree that a branch is, if it is of that repository and was made for that branch of git."""
    place = Worktree(found.name, _path(mount, found.name), found.worktree, git_registration.checked_out(found.worktree))
    if repository is None:
        return place if not found.worktree else None
    is_ours = found.worktree and git_registration.common_of(found.worktree) == repository.common
    return place if is_ours and place.git_branch == git_branch else None


def _path(mount: locate.Mount, name: str) -> str:
    return os.path.join(mount.mountpoint, _VIEWS, name)


def listed(named: str | None) -> list[Worktree]:
    """Return the worktrees of a mount."""
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon:
        return [
            Worktree(
                each.name, _path(mount, each.name), each.worktree, git_registration.checked_out(each.worktree),
                each.changed if each.counted else -1,
            )
            for each in daemon.list_branches() if each.worktree
        ]  # fmt: skip


def named_by(path: str) -> tuple[str, str] | None:
    """Return (mount point, branch) for the path of a branch's view, which need not be there; None for any other path."""
    before, _, after = os.path.normpath(path).partition(f"/{_VIEWS}/")
    return (before, after) if after and "/" not in after else None


def remove(named: str | None, name: str, *, force: bool, keep_branch: bool, is_path: bool = False) -> str:
    """Remove a worktree: its branch, which undo brings back, and what git has of it. Return a sentence about it.

    Args:
        named: The mount; None: the one of the current directory.
        name: The branch, or the branch of git that is checked out in it.
        force: Also if something is not committed.
        keep_branch: Keep the branch of git, also if all its commits are in another one.
        is_path: The name comes from the worktree's path, and is no branch of git.

    Raises:
        Failure: It is no worktree, or something is not committed.
    """
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon:
        found = daemon.show_branch(name if is_path else _meant(daemon, name))
        if not found.worktree and git_registration.find(_path(mount, found.name)) is not None:
            raise Failure(f"branch {found.name!r} is no worktree", f"`agentfsd discard {found.name}` deletes a branch")
        path, common = _path(mount, found.name), git_registration.common_of(found.worktree) if found.worktree else ""
        git_branch = git_registration.checked_out(found.worktree)
        if not force and common:
            _check_clean(found.name, path)
        is_detached = git_registration.detached_commit(found.worktree) != "" if common else False
        kept = git_registration.keep_detached(common, found.worktree, f"agentfsd/{found.name}") if common else ""
        daemon.discard(found.name)
    said = f"removed worktree {found.name}"
    if found.changed:
        said += "; `agentfsd undo` brings its files back"
    if common:
        objection = git_registration.unregister(common, path)
        if objection:
            raise Failure(f"git still has the worktree {path}: {objection}", f"git worktree unlock {path}; git worktree prune")
        if kept:
            said += f"; its commits, which no branch had, are in the git branch {kept}"
        elif git_branch and not (is_detached or keep_branch) and not git_registration.delete_merged(common, git_branch):
            said += f"; its commits are in the git branch {git_branch}"
    return said


def _meant(daemon: ControlClient, name: str) -> str:
    """Return the branch that somebody means who names it, or what is checked out in it."""
    branches = {branch.name: branch for branch in daemon.list_branches(count=False)}
    if name in branches:
        return name
    checked_out = (
        each.name for each in branches.values() if each.worktree and git_registration.checked_out(each.worktree) == name
    )
    return next(checked_out, name)


def _check_clean(name: str, path: str) -> None:
    lines = git_registration.uncommitted(path)
    if lines:
        shown = ", ".join(line.strip() for line in git_registration.shortened(lines))
        raise Failure(
            f"worktree {name} has changes that are not committed: {shown}",
            f"commit them (git -C {path} commit), or add --force: `agentfsd undo` brings the files back",
        )


def remove_at(path: str) -> str:
    """Remove the worktree at a path, as a harness asks after its own confirmation. Return a sentence; "" if it is gone already.

    Raises:
        Failure: There is something at the path that is no worktree of ours.
    """
    place = named_by(path)
    if place is None:
        if not os.path.lexists(path):
            return ""
        raise Failure(f"{path} is no worktree of agentfsd", "`agentfsd worktree list` shows them")
    try:
        with refusals():
            return remove(place[0], place[1], force=True, keep_branch=False, is_path=True)
    except Failure as exc:
        gone = isinstance(exc.__cause__, NotFoundError) and exc.__cause__.errno == errno.ENOENT
        if gone and not os.path.lexists(path):
            return ""
        raise
