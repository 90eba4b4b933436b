"""Tell which files git ignores, by the rules of the repository that holds them: build output, caches, local settings.

Nothing here parses ignore rules: git does, in a workshop.
"""

from collections.abc import Generator, Iterable, Sequence

from agentfsd.core.tree import Tree, join
from agentfsd.repositories import reading
from agentfsd.repositories.merge_attributes import by_repository, directories_of
from agentfsd.repositories.reading import GitDatabase
from agentfsd.repositories.work_aside import aside
from agentfsd.repositories.workshop import GitFailed, Workshop
from agentfsd.repositories.workshop_inputs import Bundle, IgnoreFiles

Progress = tuple[int, int, str]


def find(place: str, trees: Sequence[Tree], paths: Iterable[bytes]) -> Generator[Progress, None, set[bytes]]:
    """Return those of the *paths* that each of the trees ignores: untracked there, and excluded by its rules.

    Args:
        place: The directory for a workshop.
        trees: The trees. They must not change meanwhile.
        paths: Paths of the workspace.
    """
    left = set(paths)
    for tree in trees:
        ignored = set[bytes]()
        for work_tree, members in by_repository(tree, sorted(left)).items():
            ignored |= yield from _ignored(place, tree, work_tree, members)
        left &= ignored
    return left


def _ignored(place: str, tree: Tree, work_tree: bytes, paths: Sequence[bytes]) -> Generator[Progress, None, set[bytes]]:
    start = len(work_tree) + 1 if work_tree else 0
    database = join(work_tree, b".git")
    side = GitDatabase(b"")
    for step in reading.database(tree, database):
        side = step or side
        yield 0, 0, "reading refs"
    if not side.head:
        return set()  # a .git file: its repository may be anywhere
    rules: dict[bytes, bytes] = {}
    for directory in directories_of(work_tree, paths):
        name = join(directory, b".gitignore")
        data = reading.text(tree, join(work_tree, name))
        if data is not None:
            rules[name] = data
    files = IgnoreFiles(rules, reading.text(tree, join(database, b"info/exclude")) or b"", side.index or b"")
    names = [path[start:] for path in paths]
    try:
        with Workshop(place, side.format) as workshop:

            def work() -> bytes:
                workshop.begin(Bundle({}, {}, set()))
                return workshop.ask_ignored(files, names)

            said = yield from aside(lambda: workshop.run(work))
    except GitFailed:
        return set()
    return {join(work_tree, name) for name in said.split(b"\0") if name}
