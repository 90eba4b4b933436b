"""Represent snapshots and branches as commits: what a commit records about its snapshot, and which refs may move to it.

A branch with changes that no snapshot holds becomes a commit, too. Recording the branch again replaces that commit.
"""

from dataclasses import dataclass

import pygit2

from agentfsd.exchange.repository import BRANCH, SNAPSHOT, STATE, TAG, Repository, Trees, ref_name, trailer, trailer_line

HEADS, TAGS = "refs/heads/", "refs/tags/"
REMOTE = "refs/agentfs/remote/"  # the refs of a remote, as the last fetch saw them
KNOWN = "refs/agentfs/snapshots/"  # commits imported here, by the id of the snapshot that each became
KNOWN_BRANCHES = "refs/agentfs/branches/"  # likewise, by branch id

_EMAIL = "agentfs@localhost"


@dataclass(frozen=True, slots=True)
class ExportState:
    """What a commit records about a snapshot, or about a branch as it is now. ``snapshot`` is the snapshot's id; "" for a
    branch's state.
    """

    name: str
    branch: str
    branch_id: str
    created_ns: int
    author: str
    tag: str = ""
    snapshot: str = ""


def commit_state(repository: Repository, state: ExportState, trees: Trees, parents: list[pygit2.Oid]) -> pygit2.Oid:
    subject = f"{state.name}: {' '.join(state.tag.split())}" if state.tag else state.name
    said = {SNAPSHOT: state.snapshot, BRANCH: state.branch, TAG: state.tag, STATE: "" if state.snapshot else state.branch_id}
    message = f"{subject}\n\n" + "".join(trailer_line(key, value) for key, value in said.items() if value)
    name = "".join(char for char in state.author if char.isprintable() and char not in "<>").strip(" .,;:\"'") or "unknown"
    who = pygit2.Signature(name, _EMAIL, max(0, state.created_ns // 1_000_000_000), 0)
    made = repository.git.create_commit(None, who, who, message, trees.content, parents)
    if trees.attributes is not None:
        repository.keep_attributes(made, trees.attributes)
    return made


def is_same(commit: pygit2.Commit, state: ExportState, parents: list[pygit2.Oid]) -> bool:
    """Tell whether a commit already records the present state of a branch, ignoring the time."""
    return trailer(commit, STATE) == state.branch_id and trailer(commit, BRANCH) == state.branch and commit.parent_ids == parents


def snapshot_name(commit: pygit2.Commit) -> str:
    """Return the name of the snapshot that a commit represents, which is the first part of its subject."""
    return commit.message.partition("\n")[0].partition(":")[0]


def tag_ref(repository: Repository, name: str, number: str, commit: pygit2.Oid) -> str:
    """Return the tag ref for a snapshot. If another commit has that tag, here or at the remote, append part of the id."""
    for ref in (name, f"{name}.{number[-6:]}"):
        seen = [repository.target(TAGS + ref_name(ref)), repository.target(REMOTE + "tags/" + ref_name(ref))]
        if all(target is None or target.id == commit for target in seen):
            break
    return TAGS + ref_name(ref)


def would_lose(repository: Repository, ref: str, state: ExportState, tip: pygit2.Oid, known: set[str]) -> bool:
    """Tell whether moving a branch ref to *tip* would lose commits that it holds here or at the remote.

    Args:
        repository: the repository that holds the ref.
        ref: name of the branch in git.
        state: the state that *tip* records.
        tip: the new target of the ref.
        known: ids of the snapshots that the daemon has. Commits of these are not lost.
    """
    for old in (repository.target(HEADS + ref), repository.target(REMOTE + "heads/" + ref)):
        if old is None or old.id == tip or repository.git.descendant_of(tip, old.id):
            continue
        if trailer(old, STATE) != state.branch_id and trailer(old, SNAPSHOT) not in known:
            return True
    return False
