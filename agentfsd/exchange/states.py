"""States as commits: what a commit says of the snapshot that it is, and which refs may be moved to it.

A branch's state that no snapshot holds is a commit as well; it is replaced when the branch is recorded again.
"""

from dataclasses import dataclass

import pygit2

from agentfsd.exchange.repository import BRANCH, SNAPSHOT, STATE, TAG, Repository, Trees, ref_name, trailer, trailer_line

HEADS, TAGS = "refs/heads/", "refs/tags/"
REMOTE = "refs/agentfs/remote/"  # what was last seen at a remote
KNOWN = "refs/agentfs/snapshots/"  # commits that came from elsewhere, by the id of the snapshot that was made of them here
KNOWN_BRANCHES = "refs/agentfs/branches/"  # likewise, by the id of the branch

_EMAIL = "agentfs@localhost"


@dataclass(frozen=True, slots=True)
class ExportState:
    """A snapshot (``snapshot``: its id), or a branch as it is now (``snapshot`` is "")."""

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
    """Whether a commit says of a branch's state now what would be said again, but for the time."""
    return trailer(commit, STATE) == state.branch_id and trailer(commit, BRANCH) == state.branch and commit.parent_ids == parents


def snapshot_name(commit: pygit2.Commit) -> str:
    """The name of the snapshot that a commit is: what its subject begins with."""
    return commit.message.partition("\n")[0].partition(":")[0]


def tag_ref(repository: Repository, name: str, number: str, commit: pygit2.Oid) -> str:
    """Where a snapshot is tagged; one whose name is taken by another commit, here or at the remote, goes on with its id."""
    for ref in (name, f"{name}.{number[-6:]}"):
        seen = [repository.target(TAGS + ref_name(ref)), repository.target(REMOTE + "tags/" + ref_name(ref))]
        if all(found is None or found.id == commit for found in seen):
            break
    return TAGS + ref_name(ref)


def would_lose(repository: Repository, ref: str, state: ExportState, tip: pygit2.Oid, known: set[str]) -> bool:
    """Whether a branch holds commits, here or at the remote, that moving it would lose. *known*: snapshots that there are."""
    for old in (repository.target(HEADS + ref), repository.target(REMOTE + "heads/" + ref)):
        if old is None or old.id == tip or repository.git.descendant_of(tip, old.id):
            continue
        if trailer(old, STATE) != state.branch_id and trailer(old, SNAPSHOT) not in known:
            return True
    return False
