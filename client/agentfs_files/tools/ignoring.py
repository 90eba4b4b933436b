"""Apply .gitignore and .ignore files by the rules of git: the nearest file decides, and ignoring a directory ignores everything
in it.

The ignore files are read through the file system like any others, and the rules apply to paths.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from agentfs_files.filesystem.filesystem_protocol import Filesystem

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_NAMES = (".gitignore", ".ignore")  # in the same directory the latter takes precedence
_GIT = ".git"
_EXCLUDE = ".git/info/exclude"


class Ignored:
    """The rules for everything beneath the directory *base*. If *base* itself is ignored, its content is not."""

    def __init__(self, filesystem: Filesystem, base: str) -> None:
        self._filesystem = filesystem
        self._base = "" if base == "." else base
        self._rules: dict[str, _Rules] = {}
        self._read_above()
        self._read_beneath()
        self._directory_is_out = cache(self._decide_directory)

    def keeps(self, path: str) -> bool:
        """Tell whether a file beneath the base is not ignored."""
        return not any(self._directory_is_out(directory) for directory in self._between(path)) and not self._decide(path, False)

    def _between(self, path: str) -> Iterator[str]:
        """Yield the directories beneath the base and above *path*, topmost first."""
        end = len(self._base) + 1 if self._base else 0
        while (end := path.find("/", end)) > 0:
            yield path[:end]
            end += 1

    def _decide_directory(self, path: str) -> bool:
        return path.rpartition("/")[2] == _GIT or self._decide(path, True)

    def _decide(self, path: str, is_directory: bool) -> bool:
        """Return the decision of the nearest ignore file that has a rule for *path*."""
        directory = path
        while directory:
            directory = directory.rpartition("/")[0]
            rules = self._rules.get(directory)
            verdict = None if rules is None else rules.verdict(path[len(directory) + 1 if directory else 0 :], is_directory)
            if verdict is not None:
                return verdict
        return False

    def _read_above(self) -> None:
        """Read the rules of the directories from the root to the base; drop them if they ignore the base itself."""
        self._add("", (_EXCLUDE, *_NAMES))
        end = 0
        while end < len(self._base):
            end = self._base.find("/", end + 1) % (len(self._base) + 1)
            directory = self._base[:end]
            if self._decide_directory(directory):
                self._rules.clear()
            self._add(directory, _NAMES)

    def _read_beneath(self) -> None:
        found = {match.path.rpartition("/")[::2] for match in self._filesystem.glob("**/.*ignore", path=self._base or ".")}
        for directory in sorted({directory for directory, name in found if name in _NAMES} - {self._base}):
            if not any(self._decide_directory(above) for above in self._between(f"{directory}/")):
                self._add(directory, _NAMES)

    def _add(self, directory: str, names: Iterable[str]) -> None:
        lines: list[str] = []
        for name in names:
            try:
                text = self._filesystem.read(f"{directory}/{name}" if directory else name, limit=-1).content
            except (OSError, ValueError):
                continue  # there is none, or it is not readable
            lines += [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
        if lines:
            self._rules[directory] = _Rules(lines)


class _Rules:
    """The rules of one directory.

    The library treats a rule for a directory as one for the files in it. Here directories are decided first, so ``name/`` never
    matches a file, and for a directory it means the same as ``name``.
    """

    def __init__(self, lines: list[str]) -> None:
        rules = [line.rstrip(" ") for line in lines]
        self._for_files = _compiled([rule for rule in rules if not rule.endswith("/")])
        self._for_directories = _compiled([rule.removesuffix("/") for rule in rules])

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """Return whether a path is ignored; None if no rule matches."""
        return (self._for_directories if is_directory else self._for_files).check_file(path).include


def _compiled(lines: list[str]) -> "GitIgnoreSpec":
    """Compile the valid rules among *lines*. Invalid ones have no effect, as in git."""
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:
        return GitIgnoreSpec.from_lines(filter(_is_rule, lines))


def _is_rule(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def without_ignored(filesystem: Filesystem, base: str, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split *paths* (files beneath *base*) into those that are kept and those that are ignored."""
    rules = Ignored(filesystem, base)
    kept: list[str] = []
    left_out: list[str] = []
    for path in paths:
        (kept if rules.keeps(path) else left_out).append(path)
    return kept, left_out
