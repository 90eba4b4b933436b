"""Merge git databases between two trees: which of them git has to join, and what each joined one changes.

This module decides and changes nothing. The plain merge of files then skips every path that was decided here.
"""

from collections.abc import Generator, Iterator

from agentfsd.core.tree import Parts, Tree, join
from agentfsd.repositories import reading, work_trees
from agentfsd.repositories.commits import Clash
from agentfsd.repositories.fitted_changes import Changes, Fitted, Progress, Sides
from agentfsd.repositories.gathering import Workshops
from agentfsd.repositories.git_database_paths import OURS_ALONE, Finder, kind_of
from agentfsd.repositories.joined_history import Manner
from agentfsd.repositories.merge_obstacles import find_obstacles
from agentfsd.repositories.reading import GitDatabase
from agentfsd.repositories.repository_fitter import RepositoryFitter


def fit(
    workshops: Workshops, parts: Parts, sides: Sides, mine: Changes, his: Changes, manner: Manner, *, always: bool = False
) -> Generator[Progress, None, Fitted]:  # fmt: skip
    """Decide how to merge the git databases that both sides have, and the working files that these databases track.

    Args:
        workshops: The workshops, which can serve several merges.
        parts: The parts of the overlay.
        sides: The base and both trees. They must not change meanwhile.
        mine: What our side changed since the base, by path.
        his: What the other side changed since the base, by path.
        manner: How to join histories.
        always: Also decide databases that only the other side changed, which the plain merge of files could copy.
    """
    fitted = Fitted()
    for database, inside in (yield from _databases(sides, his)).items():
        by_file = all(kind_of(name) in ("index", "passing", "settings", "other") for name in inside)
        if by_file and not _makes_sparse(inside):
            continue
        touched = {path[len(database) + 1 :] for path in mine if path.startswith(database + b"/")}
        ours = yield from _read(reading.database(sides.ours, database))
        theirs = yield from _read(reading.database(sides.theirs, database))
        if not _is_whole(ours):
            continue
        base = yield from _read(sides.base.database(ours, theirs))
        if not _is_whole(theirs):
            if base.head and _has_new_commits(base, ours):
                text = (
                    f"{manner.names[1]} removed the repository, and {manner.names[0]} has new commits in it: remove it there, too"
                )
                fitted.clashes.append(Clash(database, "repository", text))
                fitted.decided |= {database} | {join(database, name) for name in inside}
            continue
        obstacles = find_obstacles(base, ours, theirs, manner)
        if obstacles:
            fitted.clashes += obstacles
            fitted.decided |= {join(database, name) for name in inside if kind_of(name) in OURS_ALONE}
            if always and theirs.under_way:
                fitted.decided |= set(_working_files(sides.theirs, database, his))
        elif always or touched or _has_new_commits(base, ours) or _needs_git(ours, theirs, manner):
            fitter = RepositoryFitter(workshops, parts, sides, (base, ours, theirs), (mine, his), fitted)
            yield from fitter.fit(inside, touched, manner)
    return fitted


def _makes_sparse(inside: set[bytes]) -> bool:
    """Return whether theirs may have made its checkout a sparse one: files that are gone there are not removed ones."""
    return {b"index", b"info/sparse-checkout"} <= inside


def _working_files(tree: Tree, database: bytes, changes: Changes) -> Iterator[bytes]:
    """Yield the changed paths of a database's working files. They are no conflicts while git has something to finish there."""
    work_tree = work_trees.work_tree_in(tree, database, changes)
    for path in changes if work_tree is not None else ():
        if path.startswith(work_tree + b"/" if work_tree else b"") and not (path + b"/").startswith(database + b"/"):
            yield path


def _needs_git(ours: GitDatabase, theirs: GitDatabase, manner: Manner) -> bool:
    """Whether the plain merge of files will not do, although only they changed the database."""
    return ours.head != theirs.head or bool(theirs.under_way) or manner.way != "merge"


def _is_whole(side: GitDatabase) -> bool:
    """Return whether there is a database to merge. A database with a broken HEAD counts: it is reported as a conflict."""
    return bool(side.head or side.broken)


def _has_new_commits(base: GitDatabase, side: GitDatabase) -> bool:
    """Return whether the side's refs or HEAD differ from the base's.

    The other side has not seen these, so it cannot have meant to remove them.
    """
    return side.refs != base.refs or side.resolve(b"HEAD") != base.resolve(b"HEAD")


def _read(steps: Iterator[GitDatabase | None]) -> Generator[Progress, None, GitDatabase]:
    """Run the steps and return the last database; an empty one if there is none."""
    made = None
    for found in steps:
        made = found or made
        yield 0, 0, "reading refs"
    return made or GitDatabase(b"")


def _databases(sides: Sides, his: Changes) -> Generator[Progress, None, dict[bytes, set[bytes]]]:
    """Find the databases that contain changed paths of the other side.

    Return these paths, relative to their database, by database.
    """
    finder = Finder(lambda path: reading.has(sides.theirs, path) or reading.has(sides.ours, path))
    databases: dict[bytes, set[bytes]] = {}
    for done, path in enumerate(his):
        member = finder.member(path)
        if member is not None and member.inside:
            databases.setdefault(member.database, set()).add(member.inside)
        if done % 50 == 0:
            yield done, len(his), "looking for repositories"
    return databases
