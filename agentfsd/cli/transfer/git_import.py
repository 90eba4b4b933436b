"""Makes branches and snapshots of git commits: a branch of one commit, or whatever a history has that is missing here."""

import errno
import os
from dataclasses import dataclass

from agentfs_client import locate
from agentfs_client.control import ControlClient
from agentfs_files.trees.equal_trees import make_equal
from agentfsd.cli.output import printing
from agentfsd.cli.output.progress_bar import Step, progress
from agentfsd.cli.transfer.command_refs import branch_path, check_free, delete_snapshots, discard_branches, is_ours, new_branch
from agentfsd.cli.transfer.git_export import local_repository
from agentfsd.domain_errors import Refusal
from agentfsd.exchange import remote
from agentfsd.exchange.checkout import Checkout
from agentfsd.exchange.place import undisturbed
from agentfsd.exchange.repository import (
    BRANCH,
    SNAPSHOT,
    STATE,
    TAG,
    Commit,
    Oid,
    Repository,
    is_dotgit,
    plain_name,
    trailer,
    unquoted,
)  # fmt: skip
from agentfsd.exchange.states import KNOWN, KNOWN_BRANCHES, REMOTE, snapshot_name
from agentfsd.types import DEFAULT_BRANCH

_HEADS, _TAGS = REMOTE + "heads/", REMOTE + "tags/"
_MAX_NAME = 128
_MAX_TAG = 4096


@dataclass(frozen=True, slots=True)
class ImportOrder:
    """What the options of `import --git` ask for.

    Attributes:
        repository: Path or URL of the repository.
        ref: The commit to import; None: HEAD if ``branch`` is given, else all branches.
        branch: The name of the branch to make of one commit.
        base: The branch or snapshot from which new branches start; None: main.
    """

    repository: str
    ref: str | None
    branch: str | None
    base: str | None


def import_(mount: locate.Mount, daemon: ControlClient, order: ImportOrder) -> list[str]:
    """Import what *order* asks for and print what was done.

    Returns:
        A sentence about each attribute that could not be kept.
    """
    if order.branch is not None:
        check_free(daemon, order.branch)
    url = order.repository if remote.is_url(order.repository) else _existing(order.repository)
    with local_repository(mount, None) as repository, progress("importing from git") as step:
        remote.fetch(repository, url, step)
        repository.join_attributes(remote.REMOTE_NOTES)
        if order.branch is not None:
            commit = _find(repository, order.ref)
            with new_branch(mount, daemon, order.branch, order.base) as directory:
                lacking = make_equal(directory, Checkout(repository, repository.trees(commit)), step, keep=_is_kept)
            words = f"branch {order.branch} made from {str(commit.id)[:10]}"
        else:
            history = _History(mount, daemon, repository, order.base, step)
            lacking, words = history.bring(), history.summary()
    printing.say(words)
    return lacking


def _existing(path: str) -> str:
    return os.path.abspath(Repository.open(path, make=False).path)


def _find(repository: Repository, ref: str | None) -> Commit:
    """Return the commit that *ref* names: a fetched branch or tag, or a commit id. None: HEAD, or the only branch."""
    if ref is not None:
        commit = repository.target(_HEADS + ref) or repository.target(_TAGS + ref)
        return commit or repository.find(ref)
    heads = repository.refs(_HEADS)
    head = repository.target(REMOTE + "HEAD") or (next(iter(heads.values())) if len(heads) == 1 else None)
    if head is None:
        raise Refusal(errno.ENOENT, "no-such-ref", "that repository does not say which branch is meant", "name a REF")
    return head


def _is_kept(path: bytes) -> bool:
    return is_ours(path) or is_dotgit(path)


class _History:
    """The import of a whole history. Each git branch becomes a branch, and each commit of a snapshot a snapshot."""

    def __init__(self, mount: locate.Mount, daemon: ControlClient, repository: Repository, base: str | None, step: Step) -> None:
        self._mount, self._daemon, self._repository, self._step = mount, daemon, repository, step
        self._base = base or DEFAULT_BRANCH
        snapshots, branches = daemon.list_snapshots(), daemon.list_branches(count=False)
        self._taken = {snapshot.name for snapshot in snapshots} | {branch.name for branch in branches}
        self._own_snapshots = {snapshot.id for snapshot in snapshots}
        self._own_branches = {branch.id for branch in branches}
        self._here = self._find_here()
        self._exact: set[Oid] = (
            set()
        )  # commits written by this import: files that the next commit shares with them need no comparison
        self._names: dict[str, str] = {}  # git's branch -> our branch
        self._ids: dict[str, str] = {}
        self._at: dict[str, Oid | None] = {}
        self._made: dict[str, Oid] = {}  # snapshots
        self._branches: dict[str, Oid] = {}  # branches that stay, by id
        self._lacking: list[str] = []

    def _find_here(self) -> dict[Oid, str]:
        """Map commits to the ids of snapshots that this overlay already has: its own, and those of earlier imports."""
        commits = self._repository.snapshots((_HEADS, _TAGS))
        here = {commit: number for number, commit in commits.items()}
        here |= {commit.id: number for number, commit in self._repository.refs(KNOWN).items()}
        return {commit: number for commit, number in here.items() if number in self._own_snapshots}

    def bring(self) -> list[str]:
        """Import the history, all or nothing, and return a sentence about each attribute that could not be kept."""
        try:
            for commit in self._repository.commits((_HEADS, _TAGS)):
                if trailer(commit, SNAPSHOT) and commit.id not in self._here:
                    self._bring_snapshot(commit)
            for ref, tip in self._repository.refs(_HEADS).items():
                if not self._is_here(tip):
                    self._bring_branch(unquoted(ref), tip)
            discard_branches(self._daemon, [number for number in self._ids.values() if number not in self._branches])
            self._daemon.keep_temporary()
        except BaseException:
            with undisturbed(), self._mount.connect() as other:
                delete_snapshots(other, list(self._made))
                discard_branches(other, list(self._names.values()))
            raise
        self._remember()
        return self._lacking

    def summary(self) -> str:
        branches = [name for git_name, name in self._names.items() if self._ids[git_name] in self._branches]
        count = printing.plural(len(branches), "branch", "branches")
        words = f"{printing.plural(len(self._made), 'snapshot')} and {count} imported"
        return f"{words}: {', '.join(branches)}" if branches else words

    def _remember(self) -> None:
        """Note what was imported: another import skips it, and an export continues from these commits."""
        for number, commit in self._made.items():
            self._repository.move(KNOWN + number, commit)
        for number, commit in self._branches.items():
            self._repository.move(KNOWN_BRANCHES + number, commit)
        self._repository.write_notes()

    def _is_here(self, tip: Commit) -> bool:
        if trailer(tip, STATE) in self._own_branches or trailer(tip, SNAPSHOT) in self._own_snapshots:
            return True
        imported = self._repository.refs(KNOWN_BRANCHES)
        return any(commit.id == tip.id and number in self._own_branches for number, commit in imported.items())

    def _bring_snapshot(self, commit: Commit) -> None:
        branch = trailer(commit, BRANCH)
        self._go_to(branch, self._nearest(commit))
        self._write(branch, commit)
        name = self._free(plain_name(snapshot_name(commit)))
        made = self._daemon.create_snapshot(self._ids[branch], name, trailer(commit, TAG)[:_MAX_TAG], temporary=True)
        self._made[made.id] = commit.id
        self._here[commit.id] = made.id
        self._exact.add(commit.id)
        self._at[branch] = commit.id

    def _bring_branch(self, branch: str, tip: Commit) -> None:
        if tip.id in self._here:
            self._go_to(branch, tip.id)
        else:
            self._go_to(branch, self._nearest(tip))
            self._write(branch, tip)
        self._branches[self._ids[branch]] = tip.id

    def _go_to(self, branch: str, commit: Oid | None) -> None:
        """Put our branch for git's *branch* to the snapshot of *commit*, or for None to the base of the import."""
        source = self._here[commit] if commit is not None else self._base
        if branch not in self._names:
            self._names[branch] = self._free(plain_name(branch))
            self._ids[branch] = self._daemon.create_branch(self._names[branch], source, temporary=True).id
        elif self._at[branch] != commit:
            self._daemon.restore(source, self._ids[branch])
        self._at[branch] = commit

    def _write(self, branch: str, commit: Commit) -> None:
        before = self._at[branch]
        base = self._repository.trees(self._repository.commit(before)) if before in self._exact and before else None
        source = Checkout(self._repository, self._repository.trees(commit), base)
        directory = branch_path(self._mount, self._names[branch])
        self._lacking += make_equal(directory, source, self._step, keep=_is_kept)

    def _nearest(self, commit: Commit) -> Oid | None:
        """Return the nearest ancestor along first parents that is a snapshot here."""
        while commit.parents:
            commit = commit.parents[0]
            if commit.id in self._here:
                return commit.id
        return None

    def _free(self, name: str) -> str:
        """Return *name*, with a number if a branch or snapshot has that name already, so that refs stay unambiguous."""
        free, number = name, 1
        while free in self._taken:
            number += 1
            free = f"{name[: _MAX_NAME - 8]}.{number}"
        self._taken.add(free)
        return free
