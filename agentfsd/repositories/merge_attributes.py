"""Find the attributes by which git merges the files of a work tree, and let git tell what they say of a path.

Nothing here parses attributes: git does, in a workshop. A merge driver of the workspace is a command, so it is never run.
"""

from collections.abc import Collection, Generator, Iterable, Iterator
from typing import Literal, NamedTuple

from agentfsd.core.tree import Tree, join
from agentfsd.repositories import reading
from agentfsd.repositories.work_aside import aside
from agentfsd.repositories.workshop import GitFailed, Workshop
from agentfsd.repositories.workshop_inputs import AttributeFiles, Bundle

Progress = tuple[int, int, str]

_WORDS = (b"merge", b"binary", b"conflict-marker-size")  # without one of them, attributes say nothing of merges


class FileRule(NamedTuple):
    """How git merges a file.

    Attributes:
        way: text (line by line), union (line by line, with the lines of both sides where they conflict) or whole (not at all).
        kind: The kind of the conflict, if both sides changed a file that is not merged; otherwise "".
        message: What to tell about that conflict.
    """

    way: Literal["text", "union", "whole"]
    kind: str = ""
    message: str = ""


BY_LINES = FileRule("text")
_BOTH = FileRule("union")
_NOT_BY_LINES = FileRule("whole", "binary", "changed on both sides, and its git attributes say that it is not merged by lines")
_VALUES = {b"set": BY_LINES, b"unspecified": BY_LINES, b"unset": _NOT_BY_LINES}
_BUILT_IN = {b"text": BY_LINES, b"binary": _NOT_BY_LINES, b"union": _BOTH}


def find(
    tree: Tree, database: bytes, work_tree: bytes | None, paths: Iterable[bytes]
) -> Generator[Progress, None, AttributeFiles | None]:  # fmt: skip
    """Read what says how to merge some files: ``.gitattributes`` beside and above them, and ``info/attributes``.

    Args:
        tree: The tree that is merged into: git reads the working files of that side.
        database: The git database.
        work_tree: The directory that holds the files tracked by it; None if there is none.
        paths: Paths of the workspace. Those outside of the work tree or in a database are skipped.

    Returns:
        The files; None if they say nothing of merges.
    """
    information = reading.text(tree, join(database, b"info/attributes")) or b""
    files: dict[bytes, bytes] = {}
    if work_tree is not None:
        for done, directory in enumerate(directories_of(work_tree, paths)):
            name = join(directory, b".gitattributes")
            data = reading.text(tree, join(work_tree, name))
            if data is not None:
                files[name] = data
            if done % 50 == 0:
                yield done, 0, "reading attributes"
    if not any(word in data for data in (information, *files.values()) for word in _WORDS):
        return None
    settings = reading.text(tree, join(database, b"config")) or b""
    return AttributeFiles(files, information, settings if b"driver" in settings.lower() else b"")


def directories_of(work_tree: bytes, paths: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the directories above the paths, relative to the work tree, each once."""
    yield b""
    seen, above = {b""}, work_tree + b"/" if work_tree else b""
    for path in paths:
        if not path.startswith(above) or b"/.git/" in b"/" + path:
            continue
        directory = path[len(above) :].rpartition(b"/")[0]
        while directory not in seen:
            seen.add(directory)
            yield directory
            directory = directory.rpartition(b"/")[0]


def rules_of(workshop: Workshop, paths: Collection[bytes]) -> dict[bytes, FileRule]:
    """Return how git merges files, by path relative to the work tree, with the attributes that the workshop has.

    Raises:
        GitFailed: git failed.
    """
    if not paths or not workshop.has_attributes:
        return {}
    said = workshop.git("check-attr", "--stdin", "-z", "merge", data=b"".join(path + b"\0" for path in paths), in_tree=True)
    fields = said.split(b"\0")
    return {path: _rule(value, workshop.drivers) for path, value in zip(fields[:-1:3], fields[2::3], strict=True)}


def _rule(value: bytes, drivers: Collection[bytes]) -> FileRule:
    """Return the rule for a value of the attribute ``merge``.

    A driver that the repository's settings define goes before git's own of the same name; one that is not defined means lines.
    """
    if value in drivers and value not in _VALUES:
        name = value.decode("utf-8", "backslashreplace")
        message = f"changed on both sides, and its merge driver, {name}, is not run: it is a command of the workspace"
        return FileRule("whole", "content", message)
    return (_VALUES | _BUILT_IN).get(value, BY_LINES)


def rules_in(place: str, tree: Tree, paths: Iterable[bytes]) -> Generator[Progress, None, dict[bytes, FileRule]]:
    """Return how git merges files of any repositories of a tree, by path. A path that is not in the result is merged by lines.

    Args:
        place: The directory for a workshop.
        tree: The tree that is merged into.
        paths: Paths of files in the workspace.
    """
    rules: dict[bytes, FileRule] = {}
    for work_tree, members in by_repository(tree, paths).items():
        found = yield from find(tree, join(work_tree, b".git"), work_tree, members)
        if found is None:
            continue
        start = len(work_tree) + 1 if work_tree else 0
        try:
            said = yield from _ask(place, found, [path[start:] for path in members])
        except GitFailed as exc:
            rules |= dict.fromkeys(members, FileRule("whole", "content", f"git cannot tell how to merge it: {exc}"))
        else:
            rules |= {path: said[path[start:]] for path in members}
    return rules


def _ask(place: str, files: AttributeFiles, names: list[bytes]) -> Generator[Progress, None, dict[bytes, FileRule]]:
    with Workshop(place, "sha1") as workshop:

        def work() -> dict[bytes, FileRule]:
            workshop.begin(Bundle({}, {}, set()))
            workshop.apply(files)
            return rules_of(workshop, names)

        return (yield from aside(lambda: workshop.run(work)))


def by_repository(tree: Tree, paths: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """Group the paths by the directory above them that has ``.git``. Those in no work tree are left out."""
    known: dict[bytes, bool] = {}
    found: dict[bytes, list[bytes]] = {}
    for path in paths:
        directory = path
        while directory and b"/.git/" not in b"/" + path:
            directory = directory.rpartition(b"/")[0]
            if directory not in known:
                known[directory] = reading.has(tree, join(directory, b".git"))
            if known[directory]:
                found.setdefault(directory, []).append(path)
                break
    return found
