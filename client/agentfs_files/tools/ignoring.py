"""What .gitignore and .ignore files leave out, by the rules of git: the nearest file decides, and a directory that is left out
goes with all that is in it. Those files are read through the file system like any others; what is decided about are paths.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from agentfs_files.filesystem.filesystem_protocol import Filesystem

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_NAMES = (".gitignore", ".ignore")  # of one directory, the latter counts more
_GIT = ".git"
_EXCLUDE = ".git/info/exclude"


class Ignored:
    """The rules for what lies beneath the directory *base*. Whoever names an ignored directory as the base gets to see it."""

    def __init__(self, filesystem: Filesystem, base: str) -> None:
        self._filesystem = filesystem
        self._base = "" if base == "." else base
        self._rules: dict[str, _Rules] = {}
        self._read_above()
        self._read_beneath()
        self._directory_is_out = cache(self._decide_directory)

    def keeps(self, path: str) -> bool:
        """Whether a file beneath the base is not left out."""
        return not any(self._directory_is_out(directory) for directory in self._between(path)) and not self._decide(path, False)

    def _between(self, path: str) -> Iterator[str]:
        """The directories beneath the base and above *path*, the uppermost first."""
        end = len(self._base) + 1 if self._base else 0
        while (end := path.find("/", end)) > 0:
            yield path[:end]
            end += 1

    def _decide_directory(self, path: str) -> bool:
        return path.rpartition("/")[2] == _GIT or self._decide(path, True)

    def _decide(self, path: str, is_directory: bool) -> bool:
        """What the nearest ignore file with a word about *path* says."""
        directory = path
        while directory:
            directory = directory.rpartition("/")[0]
            rules = self._rules.get(directory)
            verdict = None if rules is None else rules.verdict(path[len(directory) + 1 if directory else 0 :], is_directory)
            if verdict is not None:
                return verdict
        return False

    def _read_above(self) -> None:
        """Rules of the directories from the root to the base; none of those above it if they leave out the base itself."""
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
                continue  # there is none, or none that could be understood
            lines += [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
        if lines:
            self._rules[directory] = _Rules(lines)


class _Rules:
    """Those of one directory. To the library a rule about a directory is one about the files in it. Here directories are asked
    for first; so ``name/`` is nothing to a file, and to a directory the same as ``name``."""

    def __init__(self, lines: list[str]) -> None:
        rules = [line.rstrip(" ") for line in lines]
        self._for_files = _compiled([rule for rule in rules if not rule.endswith("/")])
        self._for_directories = _compiled([rule.removesuffix("/") for rule in rules])

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """Whether it is left out; None where no rule is about it."""
        return (self._for_directories if is_directory else self._for_files).check_file(path).include


def _compiled(lines: list[str]) -> "GitIgnoreSpec":
    """The rules that *lines* are; those that are none have no effect, as with git."""
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
    """Those of *paths* (files beneath *base*) that are kept, and those that are left out."""
    rules = Ignored(filesystem, base)
    kept: list[str] = []
    left_out: list[str] = []
    for path in paths:
        (kept if rules.keeps(path) else left_out).append(path)
    return kept, left_out
