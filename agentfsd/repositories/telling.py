"""Describe what a branch did with git: which commits it made, and how many files it has not committed."""

import stat
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from agentfsd.core.tree import Parts, Tree, join
from agentfsd.repositories import ignored_files, reading, work_trees
from agentfsd.repositories.checkouts import is_as
from agentfsd.repositories.commits import NOTHING, Commits, Difference
from agentfsd.repositories.gathering import bundle_of, lower_objects, workplace
from agentfsd.repositories.git_database_paths import Finder, is_internal
from agentfsd.repositories.merge_attributes import by_repository
from agentfsd.repositories.reading import GitDatabase
from agentfsd.repositories.work_aside import aside
from agentfsd.repositories.workshop import GitFailed, Workshop

MOST_COMMITS = 10  # that are named

Progress = tuple[int, int, str]


class Told(NamedTuple):
    """What was done with git in one repository.

    Attributes:
        path: The directory of the tracked files, or the database of a bare repository.
        branch: The git branch that is checked out, or HEAD.
        commits: (id, title) of the newest new commits.
        ahead: The number of new commits.
        behind: The number of commits that the git branch had before and lacks now.
        refs: Other refs that changed.
        uncommitted: The number of changed files that differ from the newest commit, without those that git ignores.
    """

    path: bytes
    branch: str
    commits: tuple[tuple[str, str], ...]
    ahead: int
    behind: int
    refs: tuple[str, ...]
    uncommitted: int

    def merged_from(self, name: str) -> list[str]:
        """Say how many commits came from the branch *name*: ``agent-1: 2 commits to main``; nothing if none did."""
        return [f"{name}: {_plural(self.ahead, 'commit')} to {self.branch}"] if self.ahead else []

    def sentence(self) -> str:
        """Describe it in one line: ``main: 2 commits ahead (a1b2c3 Fix parser; d4e5f6 Add test), 1 uncommitted file``."""
        parts = []
        if self.ahead:
            named = "; ".join(f"{oid[:7]} {title}" for oid, title in self.commits)
            more = "; ..." if self.ahead > len(self.commits) else ""
            parts.append(f"{_plural(self.ahead, 'commit')} ahead ({named}{more})")
        if self.behind:
            parts.append(f"{_plural(self.behind, 'commit')} behind")
        if self.refs:
            parts.append(f"{_plural(len(self.refs), 'other ref')} changed ({', '.join(self.refs[:5])})")
        if self.uncommitted:
            parts.append(_plural(self.uncommitted, "uncommitted file"))
        return f"{self.branch}: {', '.join(parts)}"


def tell(parts: Parts, old: Tree, new: Tree, changed: Iterable[bytes]) -> Generator[Progress, None, list[Told]]:
    """Describe each repository that both trees have and whose database contains *changed* paths."""
    changed = list(changed)
    finder = Finder(lambda path: reading.has(new, path))
    directories = {path.rpartition(b"/")[0] for path in changed} - {b""}
    databases = sorted({member.database for directory in directories if (member := finder.member(directory))})
    yield 0, 0, "looking for repositories"
    repositories = []
    for database in databases:
        sides: list[GitDatabase] = []
        for tree in (old, new):
            made = GitDatabase(b"")
            for step in reading.database(tree, database):
                made = step or made
                yield 0, 0, "reading refs"
            sides.append(made)
        if sides[1].head and not sides[1].reftable:
            told = yield from _tell(parts, old, new, sides[0], sides[1], changed, finder)
            if told is not None and (told.ahead or told.behind or told.refs or told.uncommitted):
                repositories.append(told)
    return repositories


def _tell(
    parts: Parts, old: Tree, new: Tree, was: GitDatabase, now: GitDatabase, changed: list[bytes], finder: Finder
) -> Generator[Progress, None, Told | None]:  # fmt: skip
    bundle = yield from bundle_of((old, new), now.path)
    lowers = lower_objects((old, new), now.path)
    before, after = was.resolve(now.branch or b"HEAD"), now.resolve(b"HEAD")
    before = before or was.resolve(b"HEAD")

    def work() -> tuple[list[bytes], tuple[int, int], dict[bytes, Difference]] | None:
        try:
            with Workshop(workplace(parts), now.format, bundle, lowers) as workshop:
                workshop.cut((was.shallow, now.shallow))
                return _look(workshop, before, after)
        except (GitFailed, OSError):
            return None  # an object is missing, or somebody changed the branch meanwhile
        finally:
            bundle.close()

    looked = yield from aside(work)
    if looked is None:
        return None
    lines, (behind, ahead), committed = looked
    work_tree = work_trees.work_tree_in(new, now.path, changed)
    uncommitted = list[bytes]()
    for path in _files(old, new, changed) if work_tree is not None and not now.bare else ():
        if _is_uncommitted(old, new, path, work_tree or b"", committed):
            uncommitted.append(path)
        yield 0, 0, "comparing with commits"
    uncommitted = [path for path in _own_files(new, uncommitted, work_tree or b"") if not _is_in_database(finder, path)]
    ignored = (yield from ignored_files.find(workplace(parts), (new,), uncommitted)) if uncommitted else ()
    names = {*was.refs, *now.refs} - {now.branch}
    refs = sorted(_short(name) for name in names if was.refs.get(name) != now.refs.get(name))
    parted = (line.partition(b" ") for line in lines)
    commits = tuple((oid.decode(), title.decode("utf-8", "replace")) for oid, _, title in parted)
    branch = _short(now.branch) if now.branch else "HEAD"
    path = work_tree if work_tree is not None and not now.bare else now.path
    return Told(path, branch, commits, ahead, behind, tuple(refs), len(uncommitted) - len(ignored))


def _look(workshop: Workshop, before: bytes, after: bytes) -> tuple[list[bytes], tuple[int, int], dict[bytes, Difference]]:
    """Return the lines of the new commits, the numbers (behind, ahead), and what the commits changed, by path."""
    commits = Commits(workshop)
    if not after or before == after:
        return [], (0, 0), {}
    trees = [commits.tree_of(before), commits.tree_of(after)]
    differences = commits.differences([(trees[0], trees[1])])[0]
    known = [b"^" + before] if before else []
    said = workshop.git("log", f"--max-count={MOST_COMMITS}", "--format=%H %s", after, *known, "--")
    if before:
        counted = workshop.git("rev-list", "--left-right", "--count", before + b"..." + after, "--").split()
    else:
        counted = [b"0", workshop.git("rev-list", "--count", after, "--").strip()]
    return said.splitlines(), (int(counted[0]), int(counted[1])), differences


def _files(old: Tree, new: Tree, changed: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each changed path once, and what is below directories that only *new* has: of a renamed one, `diff` names only it."""
    todo, seen = list(changed), set[bytes]()
    while todo:
        path = todo.pop()
        if path in seen or is_internal(path):
            continue
        seen.add(path)
        yield path
        directory = reading.at(new, path)
        if directory is not None and directory.is_dir and reading.at(old, path) is None:
            todo += [join(path, name) for name in new.names(directory)]


def _own_files(tree: Tree, paths: list[bytes], work_tree: bytes) -> list[bytes]:
    """Return the paths that are in no other repository or linked worktree below the work tree."""
    return by_repository(tree, paths).get(work_tree, []) if reading.has(tree, join(work_tree, b".git")) else paths


def _is_in_database(finder: Finder, path: bytes) -> bool:
    directory = path.rpartition(b"/")[0]
    return bool(directory) and finder.member(directory) is not None


def _is_uncommitted(old: Tree, new: Tree, path: bytes, work_tree: bytes, committed: dict[bytes, Difference]) -> bool:
    """Return whether a changed file differs from the newest commit."""
    if is_internal(path) or not path.startswith(join(work_tree, b"")):
        return False
    inode, difference = reading.at(new, path), committed.get(path[len(join(work_tree, b"")) :])
    if inode is not None and inode.is_dir:
        return False
    if difference is None and inode is not None and not inode.content:
        before = reading.at(old, path)  # git keeps one bit of a mode
        if before is not None and before.lower_path == inode.lower_path and not (before.mode ^ inode.mode) & stat.S_IXUSR:
            return before.content != 0
    return difference is None or not is_as(inode, difference.new if difference.new.oid else NOTHING)


def _short(name: bytes) -> str:
    return name.removeprefix(b"refs/heads/").removeprefix(b"refs/").decode("utf-8", "backslashreplace")


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
