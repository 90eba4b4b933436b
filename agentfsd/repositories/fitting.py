"""Merge git databases between two trees: git joins the histories in a workshop, and the result becomes a list of changes.

This module decides and changes nothing. The plain merge of files then skips every path that was decided here.
"""

import itertools
import os
import stat
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agentfsd.core.copyup import WantedAttributes
from agentfsd.core.inode import LowerIdentity
from agentfsd.core.transplant import attributes_of
from agentfsd.core.tree import Inode, Parts, Tree, join
from agentfsd.core.tree_diff import EntryPair
from agentfsd.repositories import gathering, logs_of_refs, merge_attributes, reading
from agentfsd.repositories.before import Before
from agentfsd.repositories.checkouts import TrackedFiles
from agentfsd.repositories.commits import Clash
from agentfsd.repositories.gathering import Workshops
from agentfsd.repositories.git_database_paths import Finder, kind_of, work_tree_of
from agentfsd.repositories.joined_history import Joined, Manner, MovedRef
from agentfsd.repositories.joining import Joiner
from agentfsd.repositories.merge_obstacles import command_in, find_obstacles
from agentfsd.repositories.reading import GitDatabase
from agentfsd.repositories.work_aside import aside
from agentfsd.repositories.workshop import FEW, GitFailed

Changes = Mapping[bytes, EntryPair]
Progress = tuple[int, int, str]

_OURS_ALONE = ("object", "ref", "head", "index", "state", "passing", "log", "lock")


class Fit(NamedTuple):
    """A change to make at a path of our side.

    Attributes:
        path: The path.
        source: The inode that the path becomes; None removes the path.
        content: The content to write instead of the source's; None keeps the source's.
        look: The attributes to set instead of the source's; None keeps the source's.
        found: For a working file, what the lower had there before it was read, if our side is the lower; None for other files.
    """

    path: bytes
    source: Inode | None
    content: bytes | None = None
    look: WantedAttributes | None = None
    found: LowerIdentity | None = None


@dataclass(slots=True)
class Fitted:
    """The result of fit().

    Attributes:
        decided: The paths that the plain merge of files must skip.
        committed: The paths of files that differ between the two commits, and that the merged commit has.
        fits: The changes to make.
        clashes: The conflicts.
        settled: The conflicts of files that a favoured side decided, or that conflict markers were left for.
        said: One sentence for each thing that was done.
        unfinished: The databases in which a merge of git is left under way, with conflict markers.
    """

    decided: set[bytes] = field(default_factory=set)
    committed: set[bytes] = field(default_factory=set)
    fits: list[Fit] = field(default_factory=list)
    clashes: list[Clash] = field(default_factory=list)
    settled: list[Clash] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    unfinished: list[bytes] = field(default_factory=list)


class Sides(NamedTuple):
    """The three inputs of a merge."""

    base: Before
    ours: Tree
    theirs: Tree


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
        if all(kind_of(name) in ("index", "passing", "settings", "other") for name in inside):
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
            fitted.decided |= {join(database, name) for name in inside if kind_of(name) in _OURS_ALONE}
            if always and theirs.under_way:
                fitted.decided |= set(_working_files(sides.theirs, database, his))
        elif always or touched or _has_new_commits(base, ours) or _needs_git(ours, theirs, manner):
            yield from _Fitter(workshops, parts, sides, (base, ours, theirs), (mine, his), fitted).fit(inside, touched, manner)
    return fitted


def _working_files(tree: Tree, database: bytes, changes: Changes) -> Iterator[bytes]:
    """Yield the changed paths of a database's working files. They are no conflicts while git has something to finish there."""
    work_tree = work_tree_in(tree, database)
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


class _Fitter:
    """Merges one repository."""

    def __init__(
        self, workshops: Workshops, parts: Parts, sides: Sides, databases: tuple[GitDatabase, GitDatabase, GitDatabase],
        changes: tuple[Changes, Changes], fitted: Fitted,
    ) -> None:  # fmt: skip
        self._workshops, self._parts, self._sides, self._fitted = workshops, parts, sides, fitted
        self._base, self._ours, self._theirs = databases
        self._mine, self._his = changes
        self._path = self._ours.path
        self._coming: set[bytes] = set()
        like = reading.at(sides.ours, join(self._path, b"HEAD"))
        assert like is not None
        self._like = like
        self._look = attributes_of(like)

    def fit(self, inside: set[bytes], touched: set[bytes], manner: Manner) -> Generator[Progress, None, None]:
        """Merge the repository and enter the changes or conflicts.

        Args:
            inside: The paths in the database that the other side changed.
            touched: The paths in the database that our side changed.
            manner: How to join histories.
        """
        try:
            joined = yield from self._join(inside, manner)
        except GitFailed as exc:
            self._decide(inside)
            text = f"{exc} ({command_in(manner.names[1], self._path, 'fsck')} says more)"
            self._fitted.clashes.append(Clash(self._path, "repository", text))
            return
        work_tree = work_tree_in(self._sides.ours, self._path)
        if joined.clashes:
            self._decide(inside)
            for clash in joined.clashes:
                path = join(work_tree, clash.path) if work_tree is not None and clash.path else self._path
                self._fitted.clashes.append(clash._replace(path=path))
                self._fitted.decided.add(path)
            if work_tree is not None and not self._ours.bare:
                yield from self._leave_to_git(joined, work_tree)
            return
        if work_tree is not None:
            self._fitted.settled += [clash._replace(path=join(work_tree, clash.path)) for clash in joined.settled]
        self._take_objects(inside, touched, joined)
        self._take_refs(joined)
        self._take_logs(inside, touched, joined)
        if manner.way != "beside":
            self._take_index(inside, touched, joined)
        self._take_rest(inside, touched)
        self._decide(inside)
        self._fitted.said += joined.said
        yield 0, 0, "repositories"
        if work_tree is not None and not self._ours.bare and not joined.parted:
            yield from self._take_files(joined, work_tree)

    def _leave_to_git(self, joined: Joined, work_tree: bytes) -> Generator[Progress, None, None]:
        """Has nobody else report conflicts of files that both sides have as they committed them: git has told its own."""
        checkout = TrackedFiles(self._sides.ours, self._sides.theirs, self._mine, self._his, work_tree, self._like)
        for path in checkout.as_committed(joined):
            if path is not None:
                self._fitted.decided.add(path)
            yield 0, 0, "repositories"

    def _take_files(self, joined: Joined, work_tree: bytes) -> Generator[Progress, None, None]:
        checkout = TrackedFiles(self._sides.ours, self._sides.theirs, self._mine, self._his, work_tree, self._like)
        differences = itertools.chain(joined.to_ours.items(), joined.to_theirs.items())
        self._fitted.committed |= {join(work_tree, name) for name, difference in differences if difference.new.oid}
        for decision in checkout.decide(joined):
            if decision is not None:
                self._fitted.decided.add(decision.path)
                if not decision.stays:
                    look = decision.look
                    if look is not None:
                        look = look._replace(mtime_ns=time.time_ns())
                    self._fitted.fits.append(Fit(decision.path, decision.source, decision.content, look, decision.found))
            yield 0, 0, "repositories"

    def _decide(self, inside: set[bytes]) -> None:
        self._fitted.decided |= {join(self._path, name) for name in inside if kind_of(name) in _OURS_ALONE}

    def _join(self, inside: set[bytes], manner: Manner) -> Generator[Progress, None, Joined]:
        trees = [self._sides.ours, self._sides.theirs]  # not the base: what only it has would be missing in the result
        workshop = self._workshops.at(self._path, self._ours.format)
        bundle = yield from gathering.bundle_of(trees, self._path, workshop.known)
        lowers = gathering.lower_objects(self._parts, trees, self._path)
        work_tree = None if self._ours.bare else work_tree_in(self._sides.ours, self._path)
        paths = itertools.chain(self._mine, self._his)
        attributes = yield from merge_attributes.find(self._sides.ours, self._path, work_tree, paths)
        sides = (self._base, self._ours, self._theirs)
        self._coming = self._find_coming(inside)
        coming = {name[len(b"objects/") :] for name in self._coming} & bundle.contents.keys()

        def work() -> Joined:
            workshop.begin(bundle, lowers, coming if len(coming) > FEW else ())
            workshop.cut(side.shallow for side in sides)
            if attributes is not None:
                workshop.apply(attributes)
            joined = Joiner(workshop, *sides, manner).join()
            joined.pack = workshop.pack
            return joined

        try:
            return (yield from aside(lambda: workshop.run(work), self._workshops.meanwhile))
        finally:
            bundle.close()

    def _find_coming(self, inside: set[bytes]) -> set[bytes]:
        """The object files that we lack."""
        found = set()
        for name in inside:
            path = join(self._path, name)
            new = self._his[path].new
            is_object = kind_of(name) == "object" and new is not None and new.is_file
            if is_object and not gathering.is_passing_object(name) and not reading.has(self._sides.ours, path):
                found.add(name)
        return found

    # -- what becomes of files

    def _write(self, inside: bytes, content: bytes, mode: int = 0) -> None:
        now = time.time_ns()
        look = self._look._replace(mode=mode or self._look.mode, xattrs={}, atime_ns=now, mtime_ns=now)
        self._fitted.fits.append(Fit(join(self._path, inside), self._like, content, look))

    def _remove(self, inside: bytes) -> None:
        self._fitted.fits.append(Fit(join(self._path, inside), None))

    def _take_objects(self, inside: set[bytes], touched: set[bytes], joined: Joined) -> None:
        """Enter the object files of both sides. Files with the same name have the same content."""
        information = any(name.startswith(b"objects/info/") for name in touched)
        packed: frozenset[bytes] = frozenset()
        if joined.pack is not None:
            packed = joined.pack.objects
            self._write(b"objects/" + joined.pack.name + b".pack", joined.pack.data, stat.S_IFREG | 0o444)
            self._write(b"objects/" + joined.pack.name + b".idx", joined.pack.directory, stat.S_IFREG | 0o444)
        for name in sorted(self._coming):
            if name.startswith((b"objects/info/", b"objects/pack/multi-pack-index")) and information:
                continue
            if name[len(b"objects/") :] not in packed:
                self._fitted.fits.append(Fit(join(self._path, name), self._his[join(self._path, name)].new))
        for name in sorted(touched - inside):
            if self._mine[join(self._path, name)].new is not None or not name.startswith(b"objects/"):
                continue
            old = reading.at(self._sides.theirs, join(self._path, name))
            if old is not None and old.is_file and not name.startswith((b"objects/info/", b"objects/pack/multi-pack")):
                self._fitted.fits.append(Fit(join(self._path, name), old))  # we threw away what they may have built on
        there = {one.path for one in self._fitted.fits}
        for name, data in joined.made.items():
            path = join(self._path, b"objects/" + name)
            if path not in there and not reading.has(self._sides.ours, path):
                self._write(b"objects/" + name, data, stat.S_IFREG | 0o444)

    def _take_refs(self, joined: Joined) -> None:
        gone = {name for name, moved in joined.refs.items() if not moved.new}
        for name, moved in joined.refs.items():
            if moved.new:
                self._write(name, moved.new + b"\n")
            elif name in self._ours.loose:
                self._remove(name)
        if gone & reading.packed_refs(self._ours.packed).keys():
            self._write(b"packed-refs", reading.without_packed(self._ours.packed, gone))
        if joined.head:
            self._write(b"HEAD", joined.head + b"\n")
        if joined.stages:
            self._fitted.unfinished.append(self._path)
            self._write(b"MERGE_HEAD", joined.theirs + b"\n")
            self._write(b"MERGE_MODE", b"")
            self._write(b"ORIG_HEAD", joined.was + b"\n")
            lines = b"".join(b"#\t" + path + b"\n" for path in sorted(joined.stages))
            self._write(b"MERGE_MSG", b"Merge commit '" + joined.theirs + b"'\n\n# Conflicts:\n" + lines)

    def _take_logs(self, inside: set[bytes], touched: set[bytes], joined: Joined) -> None:
        moved = {b"logs/" + name: found for name, found in joined.refs.items()}
        if joined.now != joined.was:
            why = joined.refs[self._ours.branch].why if self._ours.branch in joined.refs else "merge"
            moved[b"logs/HEAD"] = MovedRef(joined.was, joined.now, why)
        names = {name for name in inside if kind_of(name) == "log"} | moved.keys()
        for name in sorted(names):
            path = join(self._path, name)
            ours, theirs = (reading.text(tree, path, reading.REFS_BYTES) for tree in (self._sides.ours, self._sides.theirs))
            if moved.get(name) and not moved[name].new:
                made = None
            else:
                entry = logs_of_refs.entry(moved[name], joined.who) if name in moved else b""
                is_stash = name == b"logs/refs/stash"
                first = self._stash_that_no_log_has(joined) if is_stash and name in moved else b""
                if is_stash and theirs is not None and not entry:
                    entry = self._stash_that_no_log_has(joined)  # our newest stash stays the newest line
                made = logs_of_refs.join(self._sides.base.text(path), ours, theirs, entry, under=is_stash, first=first)
            if made is None and ours is not None:
                self._remove(name)
            elif made is not None and made != ours:
                self._write(name, made)

    def _stash_that_no_log_has(self, joined: Joined) -> bytes:
        """Return a line for our newest stash: `git reflog expire` leaves nothing but the ref, which is about to move."""
        tip = self._ours.refs.get(b"refs/stash", b"")
        return logs_of_refs.entry(MovedRef(b"", tip, "a stash"), joined.who) if tip else b""

    def _take_index(self, inside: set[bytes], touched: set[bytes], joined: Joined) -> None:
        theirs = self._theirs.resolve(b"HEAD")
        if joined.now == theirs and b"index" not in touched and not joined.stages and self._theirs.index is not None:
            for name in sorted(inside):
                if kind_of(name) == "index":
                    self._fitted.fits.append(Fit(join(self._path, name), self._his[join(self._path, name)].new))
        elif joined.index is not None:
            self._write(b"index", joined.index)

    def _take_rest(self, inside: set[bytes], touched: set[bytes]) -> None:
        """Enter files that git writes as a by-product, where our side has none.

        An operation that is under way there stays theirs.
        """
        for name in sorted(inside):
            new = self._his[join(self._path, name)].new
            if kind_of(name) == "passing" and new is not None and not reading.has(self._sides.ours, join(self._path, name)):
                self._fitted.fits.append(Fit(join(self._path, name), new))
        if b"shallow" in inside & touched:
            self._write(
                b"shallow", b"".join(sorted({*self._ours.shallow.splitlines(True), *self._theirs.shallow.splitlines(True)}))
            )
            self._fitted.decided.add(join(self._path, b"shallow"))


def work_tree_in(tree: Tree, database: bytes) -> bytes | None:
    """Return the directory of the workspace that holds the files tracked by a database; None if it cannot be determined."""
    work_tree = work_tree_of(database)
    if work_tree is not None:
        return work_tree
    for line in (reading.text(tree, join(database, b"config")) or b"").splitlines():
        key, _, value = line.partition(b"=")
        if key.strip().lower() == b"worktree" and not value.strip().startswith(b"/"):
            path = os.path.normpath(join(database, value.strip().strip(b'"')))
            return None if path.startswith(b"..") else path if path != b"." else b""
    return None
