"""Which paths tell by their names that what lies there is run on the person's side. It opens no file."""

import functools
from collections.abc import Callable, Sequence


def why_by_path(path: bytes, patterns: Sequence[str]) -> str:
    """Say why the name alone tells that a file is run; "" where it does not. *patterns* are as in .gitignore."""
    matches = _matcher(tuple(patterns))(path.decode(errors="replace"))
    return "run by git, an editor, a shell or an agent's harness" if matches else ""


@functools.lru_cache(4)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    import pathspec  # which every command would wait for

    return pathspec.GitIgnoreSpec.from_lines(patterns).match_file
