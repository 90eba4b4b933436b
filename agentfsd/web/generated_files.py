"""Tells which files programs have generated: by name, by .gitattributes, and by lines that nobody writes. It opens no file."""

import re
from collections.abc import Iterable

from pathspec import GitIgnoreSpec

_NAMES = re.compile(
    r"(^|/)(node_modules|vendor|dist|__snapshots__)/|\.min\.(js|css)$|\.(map|snap|lock)$|_pb2(_grpc)?\.pyi?$|\.pb\.(go|cc|h)$"
    r"|(^|/)(package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|go\.sum)$|\.(generated|g)\.[a-z]+$"
)
_ATTRIBUTE = "linguist-generated"
_MINIFIED = re.compile(r"\.(m?js|css)$")
_LONG_LINE = 200  # characters of a line on average: nobody writes such scripts and styles

_Rule = tuple[
    GitIgnoreSpec, str, bool
]  # what a path matches, in linear time, the directory of the rule, and whether such files are generated


class GeneratedFiles:
    """The rules of one tree.

    Args:
        attributes: The .gitattributes files by their directory ("" for the root).
    """

    def __init__(self, attributes: Iterable[tuple[str, str]] = ()) -> None:
        self._rules: list[_Rule] = []
        for directory, text in sorted(attributes):  # a deeper file's rules come later, and win
            self._rules += [(rule, directory, is_generated) for rule, is_generated in _rules(text)]

    def has(self, path: str) -> bool:
        """Return whether a file is generated. What .gitattributes says wins over its name."""
        for rule, directory, is_generated in reversed(self._rules):
            below = path.removeprefix(f"{directory}/") if directory else path
            if (not directory or below != path) and rule.match_file(below):
                return is_generated
        return _NAMES.search(path) is not None


def is_minified(path: str, patch: bytes, lines: int) -> bool:
    """Return whether the *lines* that a patch of a script or style adds and removes are too long to be written by a person."""
    return _MINIFIED.search(path) is not None and lines > 0 and len(patch) > _LONG_LINE * lines


def directories_of(paths: Iterable[str]) -> list[str]:
    """Return the directories whose .gitattributes count for *paths*."""
    found = {""}
    for path in paths:
        for at, char in enumerate(path):
            if char == "/":
                found.add(path[:at])
    return sorted(found)


def _rules(text: str) -> Iterable[tuple[GitIgnoreSpec, bool]]:
    for line in text.splitlines():
        pattern, *attributes = line.split() or ["#"]
        if pattern.startswith(("#", "!", "[attr]", '"')):
            continue
        for attribute in attributes:
            name, _, value = attribute.partition("=")
            if name.lstrip("-!") != _ATTRIBUTE:
                continue
            compiled = _compiled(pattern)
            if compiled is not None:
                yield compiled, name == _ATTRIBUTE and value not in ("false", "0")


def _compiled(pattern: str) -> GitIgnoreSpec | None:
    try:
        return GitIgnoreSpec.from_lines([pattern])
    except ValueError:
        return None
