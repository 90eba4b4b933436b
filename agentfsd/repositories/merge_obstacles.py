"""What in a repository has to be settled by people before it can be merged, and the commands that settle it."""

import shlex

from agentfsd.core.tree import join
from agentfsd.repositories.commits import Clash
from agentfsd.repositories.git_database_paths import ENDED_BY
from agentfsd.repositories.joined_history import REAL_DIRECTORY, Manner
from agentfsd.repositories.reading import GitDatabase


def find_obstacles(base: GitDatabase, ours: GitDatabase, theirs: GitDatabase, manner: Manner) -> list[Clash]:
    """Return what stands in the way of a merge. Each message ends with what to do.

    Of the kinds, ``repository`` and ``locked`` are decided by no option of a merge. Something under way in theirs is of the kind
    ``under-way``, which a favoured side decides; but not for the real directory, where files with conflict markers have no place.
    """
    clashes, into_real = [], manner.names[0] == REAL_DIRECTORY
    for side, name in zip((ours, theirs), manner.names, strict=True):
        clashes += _obstacles_of(side, name)
        what = side.under_way[0] if side.under_way else ""
        if what and (side is ours or (side.under_way != base.under_way and (into_real or not manner.favor))):
            text = f"{what} is under way in {name}: finish it, or end it with {command_in(name, side.path, ENDED_BY[what])}"
            clashes.append(Clash(side.path, "repository" if side is ours or into_real else "under-way", text))
    if ours.format != theirs.format:
        text = f"object ids are {ours.format} here and {theirs.format} there: git cannot merge such repositories"
        clashes.append(Clash(ours.path, "repository", text))
    return list({clash.path: clash for clash in reversed(clashes)}.values())  # a branch shows the lower's locks, too


def _obstacles_of(side: GitDatabase, name: str) -> list[Clash]:
    clashes = []
    if side.reftable:
        migrate = command_in(name, side.path, "refs migrate --ref-format=files")
        text = f"the refs of {name} are in reftable format, which cannot be merged: {migrate} changes that"
        clashes.append(Clash(side.path, "repository", text))
    for ref in side.broken:
        path = join(side.path, ref)
        text = f"what {name} has there is neither an object id nor the name of a ref: repair it, or {_removal(name, path)}"
        clashes.append(Clash(path, "repository", text))
    for lock in side.locks:
        path = join(side.path, lock)
        text = f"git is at work in {name}, or was killed there: wait for it, or {_removal(name, path)}"
        clashes.append(Clash(path, "locked", text))
    return clashes


def command_in(name: str, database: bytes, command: str) -> str:
    """A git command in a branch, or in the real directory, as one types it."""
    place = database.removesuffix(b"/.git") if database != b".git" else b""
    return _typed(name, f"git -C {_quoted(place)} {command}" if place else f"git {command}")


def _removal(name: str, path: bytes) -> str:
    return f"remove it with {_typed(name, f'rm {_quoted(path)}')}"


def _typed(name: str, command: str) -> str:
    return f"`{command}` there" if name == REAL_DIRECTORY else f"`agentfsd run -b {shlex.quote(name)} -- {command}`"


def _quoted(path: bytes) -> str:
    return shlex.quote(path.decode("utf-8", "backslashreplace"))
