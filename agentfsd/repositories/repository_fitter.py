"""Merge one git database: git joins the histories in a workshop, and the result becomes changes of files.

Like fitting.py, this module changes nothing.
"""

import itertools
import stat
import time
from collections.abc import Generator, Iterator

from agentfsd.core.transplant import attributes_of
from agentfsd.core.tree import Parts, Tree, join
from agentfsd.repositories import alternates, gathering, logs_of_refs, merge_attributes, reading, work_trees, worktree_checkouts
from agentfsd.repositories.checkouts import TrackedFiles, is_as
from agentfsd.repositories.commits import Clash, Commits
from agentfsd.repositories.fitted_changes import Changes, Fit, Fitted, Progress, Sides
from agentfsd.repositories.gathering import Workshops
from agentfsd.repositories.git_database_paths import OURS_ALONE, kind_of, of_linked
from agentfsd.repositories.joined_history import Joined, Manner, MovedRef
from agentfsd.repositories.joining import Joiner
from agentfsd.repositories.merge_obstacles import command_in
from agentfsd.repositories.reading import GitDatabase
from agentfsd.repositories.ref_files import LogJoiner, in_the_way
from agentfsd.repositories.ref_names import short_name
from agentfsd.repositories.work_aside import aside
from agentfsd.repositories.workshop import FEW, GitFailed
from agentfsd.repositories.worktree_checkouts import LinkedCheckout


class RepositoryFitter:
    """Merges one repository.

    Args:
        workshops: Has the workshop of this repository.
        parts: The parts of the overlay.
        sides: The base and both trees.
        databases: The repository in each of them.
        changes: What our side and theirs changed since the base, by path.
        fitted: Gets the changes and conflicts.
    """

    def __init__(
        self, workshops: Workshops, parts: Parts, sides: Sides, databases: tuple[GitDatabase, GitDatabase, GitDatabase],
        changes: tuple[Changes, Changes], fitted: Fitted,
    ) -> None:  # fmt: skip
        self._workshops, self._parts, self._sides, self._fitted = workshops, parts, sides, fitted
        self._base, self._ours, self._theirs = databases
        self._mine, self._his = changes
        self._path = self._ours.path
        self._coming: set[bytes] = set()
        self._linked: list[LinkedCheckout] = []
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
        if manner.way != "beside":
            sides, kept_apart = (self._ours, self._theirs), self._fitted.clashes
            self._linked, clashes = worktree_checkouts.find(self._sides, *sides, inside, touched, manner)
            kept_apart += clashes
        try:
            joined = yield from self._join(inside, manner)
        except GitFailed as exc:
            self._decide(inside)
            text = f"{exc} ({self._advice(manner)})"
            self._fitted.clashes.append(Clash(self._path, "repository", text))
            return
        joined.clashes += self._blocked(joined)
        work_tree = self._work_tree()
        joined.clashes += self._unresolved(joined, touched, manner)
        if joined.clashes:
            yield from self._refuse(inside, joined, work_tree)
            return
        if work_tree is not None:
            self._fitted.settled += [clash._replace(path=join(work_tree, clash.path)) for clash in joined.settled]
        if self._alternates.text != (self._alternates_of(self._sides.ours) or b""):
            self._write(alternates.PATH, self._alternates.text)
        self._take_objects(inside, touched, joined)
        self._take_refs(joined)
        self._take_logs(inside, joined)
        if manner.way != "beside":
            self._take_index(inside, touched, joined)
        self._take_rest(inside, touched)
        self._decide(inside)
        self._fitted.said += joined.said
        yield 0, 0, "repositories"
        if work_tree is not None and not self._ours.bare and not joined.parted:
            self._say_unstaged(joined, work_tree, manner.names[0])
            yield from self._take_files(joined, work_tree)
        for linked in self._linked:
            self._say_unstaged(joined.linked[linked.name], linked.work_tree, manner.names[0])
            yield from self._take_linked(linked, joined.linked[linked.name], inside, touched)

    def _advice(self, manner: Manner) -> str:
        """Say what helps where git failed."""
        if self._sides.ours.on_base and not self._sides.theirs.on_base:  # whose lower may have commits that ours lacks
            return f"if it came to the real directory since {manner.names[0]} was made: `agentfsd rebase {manner.names[0]}` first"
        return f"{command_in(manner.names[1], self._path, 'fsck')} says more"

    def _work_tree(self) -> bytes | None:
        return work_trees.work_tree_in(self._sides.ours, self._path, itertools.chain(self._his, self._mine))

    def _unresolved(self, joined: Joined, touched: set[bytes], manner: Manner) -> Iterator[Clash]:
        """Yield a conflict for each index of ours that has unresolved conflicts of git, as after `git stash pop`."""
        parts = [(self._path, joined)] if manner.way != "beside" and not self._takes_their_index(touched, joined) else []
        told = {clash.path.rpartition(b"/")[0] for clash in self._fitted.clashes}
        linked = [one for one in self._linked if joined.linked and join(self._path, one.name) not in told]
        for place, part in [*parts, *((one.work_tree, joined.linked[one.name]) for one in linked)]:
            if part.unmerged:
                name, first = manner.names[0], part.unmerged[0].decode("utf-8", "backslashreplace")
                text = f"{name} has conflicts that nobody has resolved, such as {first}: resolve them, and `git add` them"
                yield Clash(b"", "repository", f"{text} ({command_in(name, place, 'status')} lists them)")

    def _refuse(self, inside: set[bytes], joined: Joined, work_tree: bytes | None) -> Generator[Progress, None, None]:
        """Enter the conflicts of a join."""
        self._decide(inside)
        names = {linked.name for linked in self._linked}
        self._fitted.decided |= {join(self._path, name) for name in inside if of_linked(name)[0] in names}
        if self._ours.bare:  # its HEAD may name the branch of a linked worktree
            heads = {linked.head: linked.work_tree for linked in self._linked}
            work_tree = heads.get(b"ref: " + self._ours.branch)
        for clash in joined.clashes:
            path = join(work_tree, clash.path) if work_tree is not None and clash.path else self._path
            self._fitted.clashes.append(clash._replace(path=path))
            self._fitted.decided.add(path)
        if work_tree is not None:
            yield from self._leave_to_git(joined, work_tree)

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
        self._fitted.decided |= {join(self._path, name) for name in inside if kind_of(name) in OURS_ALONE}

    def _join(self, inside: set[bytes], manner: Manner) -> Generator[Progress, None, Joined]:
        trees = [self._sides.ours, self._sides.theirs]  # not the base: what only it has would be missing in the result
        workshop = self._workshops.at(self._path, self._ours.format)
        bundle = yield from gathering.bundle_of(trees, self._path, workshop.known)
        lowers = gathering.lower_objects(trees, self._path)
        work_tree = None if self._ours.bare else self._work_tree()
        paths = itertools.chain(self._mine, self._his)
        attributes = yield from merge_attributes.find(self._sides.ours, self._path, work_tree, paths)
        sides = (self._base, self._ours, self._theirs)
        texts = (self._sides.base.text(join(self._path, alternates.PATH)), *map(self._alternates_of, self._sides[1:]))
        self._alternates = alternates.unite(*texts)
        self._coming = self._find_coming(inside)
        coming = {name[len(b"objects/") :] for name in self._coming} & bundle.contents.keys()

        def work() -> Joined:
            workshop.begin(bundle, lowers, coming if len(coming) > FEW else ())
            workshop.cut(side.shallow for side in sides)
            if attributes is not None:
                workshop.apply(attributes)
            joined = Joiner(workshop, *sides, manner).join(self._linked)
            joined.pack = workshop.pack
            self._refuse_to_borrow(Commits(workshop), joined, manner)
            return joined

        try:
            return (yield from aside(lambda: workshop.run(work), self._workshops.meanwhile))
        finally:
            bundle.close()

    def _alternates_of(self, tree: Tree) -> bytes | None:
        return reading.text(tree, join(self._path, alternates.PATH))

    def _refuse_to_borrow(self, commits: Commits, joined: Joined, manner: Manner) -> None:
        """Add a conflict if what comes needs objects from a place from which ours no longer borrows."""
        if not self._alternates.lost:
            return
        come = {moved.new for moved in joined.refs.values()} | {joined.now}
        have = {*self._ours.refs.values(), joined.was}
        come, have = ({name for name in names if name and not name.startswith(b"ref: ")} for names in (come, have))
        if not commits.is_whole(come, have):
            place, (ours, theirs) = self._alternates.lost[0].decode("utf-8", "backslashreplace"), manner.names
            mend = command_in(theirs, self._path, "repack -a -d")
            text = f"{theirs} needs objects of {place}, from which {ours} no longer borrows: {mend} copies them"
            joined.clashes.append(Clash(b"", "repository", text))

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
        for name in sorted(self._coming - {alternates.PATH}):
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

    def _blocked(self, joined: Joined) -> Iterator[Clash]:
        """Yield a conflict for each ref whose place has a file that is no ref, or a directory with such a file."""
        gone = {join(self._path, name) for name, moved in joined.refs.items() if not moved.new}
        for name, moved in joined.refs.items():
            found = in_the_way(self._sides.ours, join(self._path, name), gone) if moved.new else b""
            if found:
                place = found.decode("utf-8", "backslashreplace")
                text = f"{place} is in the place of {short_name(name)}, and is no ref: repair it, or remove it"
                yield Clash(b"", "repository", text)

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

    def _take_logs(self, inside: set[bytes], joined: Joined) -> None:
        logs = list(LogJoiner(self._sides, (self._base, self._ours, self._theirs), joined).join(inside))
        for name, ours, made in logs:
            if made is None and ours is not None:
                self._remove(name)
        gone = {fit.path for fit in self._fitted.fits if fit.source is None}
        for name, ours, made in logs:
            if made is not None and made != ours and not in_the_way(self._sides.ours, join(self._path, name), gone):
                self._write(name, made)

    def _take_index(self, inside: set[bytes], touched: set[bytes], joined: Joined) -> None:
        if self._takes_their_index(touched, joined):
            for name in sorted(inside):
                if kind_of(name) == "index":
                    self._fitted.fits.append(Fit(join(self._path, name), self._his[join(self._path, name)].new))
        elif joined.index not in (None, self._ours.index):
            self._write(b"index", joined.index)

    def _take_linked(
        self, linked: LinkedCheckout, part: Joined, inside: set[bytes], touched: set[bytes]
    ) -> Generator[Progress, None, None]:
        """Enter what becomes of a linked worktree: HEAD, index, log and files."""
        own = {name for name in inside if name.startswith(linked.name + b"/")}
        kinds = {name: kind_of(name[len(linked.name) + 1 :]) for name in own}
        if not (linked.was or part.now != linked.theirs) and part.index is None:
            return
        self._fitted.decided |= {join(self._path, name) for name, kind in kinds.items() if kind in OURS_ALONE}
        if linked.head != self._ours.worktrees.get(linked.name):
            self._write(linked.name + b"/HEAD", linked.head + b"\n")
        if part.index is not None:
            self._write(linked.name + b"/index", part.index)
        for name, kind in kinds.items():
            new = self._his[join(self._path, name)].new
            is_missing = kind == "passing" and not reading.has(self._sides.ours, join(self._path, name))
            if new is not None and (is_missing or (kind == "index" and part.index is None)):
                self._fitted.fits.append(Fit(join(self._path, name), new))
        self._take_log(linked.name + b"/logs/HEAD", part)
        yield from self._take_files(part, linked.work_tree)

    def _take_log(self, name: bytes, part: Joined) -> None:
        path = join(self._path, name)
        ours, theirs = (reading.text(tree, path, reading.REFS_BYTES) for tree in (self._sides.ours, self._sides.theirs))
        moved = MovedRef(part.was, part.now, "merge")
        entry = logs_of_refs.entry(moved, part.who) if part.now and part.now != part.was else b""
        made = logs_of_refs.join(self._sides.base.text(path), ours, theirs, entry)
        if made is not None and made != ours:
            self._write(name, made)

    def _takes_their_index(self, touched: set[bytes], joined: Joined) -> bool:
        is_there = joined.now == self._theirs.resolve(b"HEAD") and self._theirs.index is not None
        return is_there and b"index" not in touched and not joined.stages

    def _say_unstaged(self, part: Joined, work_tree: bytes, name: str) -> None:
        """Tell of what was staged, is no longer, and is in no file."""
        for path, entry in part.unstaged.items():
            if not is_as(reading.at(self._sides.ours, join(work_tree, path)), entry):
                shown = path.decode("utf-8", "backslashreplace")
                what = f"`git cat-file -p {entry.oid[:12].decode()}` shows it" if entry.oid else "it was removed"
                self._fitted.said.append(f"{shown}: what {name} had staged is no longer staged, as the merge changes it; {what}")

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
