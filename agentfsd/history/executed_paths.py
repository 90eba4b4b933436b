"""Tells by a path's name whether programs of the user run the file there. It opens no file."""

import functools
from collections.abc import Callable, Sequence


def why_by_path(path: bytes, patterns: Sequence[str]) -> str:
    """Return why a program runs the file, judged by its name alone; "" if no pattern matches. *patterns* are as in .gitignore."""
    matches = _matcher(tuple(patterns))(path.decode(errors="replace"))
    return "run by git, an editor, a shell or an agent's harness" if matches else ""


@functools.lru_cache(4)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    import pathspec  # imported late: the import would delay every command

    return pathspec.GitIgnoreSpec.from_lines(patterns).match_file
