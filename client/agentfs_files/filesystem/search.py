"""Match globs with wcmatch, and regular expressions in linear time with RE2.

RE2 supports neither look-around nor back-references. Patterns with those use the package `regex`, if it is installed, with a time
limit. The first search imports both libraries.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from agentfs_files.filesystem.file_results import GrepMatch

PathMatch = Callable[[str], bool]
_Span = tuple[int, int]

BLOCK_BYTES = 1 << 20
_MAGIC = re.compile(r"[*?\[{\\]")
_REPEATING = re.compile(r"(?<!\\)[*+]\(")
_NEGATING = re.compile(r"(?:!(?!\())+")
_BEYOND_RE2 = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9]|\(\?P=|[*+?}]\+")
_ABOUT_THE_TEXT = re.compile(r"\\[AzZ]|\(\?[a-zA-Z]*[-sm]")  # constructs that match a text differently from its single lines
_FEW_GLOBSTARS = 2
_LINE_SECONDS = 1.0
_TOTAL_SECONDS = 10.0
_LEAST_SECONDS = 0.001


def path_matcher(pattern: str, *, by_name: bool = False, extended: bool = False) -> PathMatch:
    """Return a function that tells whether a path matches a glob: ``*``, ``?``, ``[...]``, ``{a,b}``, and ``**`` for any number
    of directories. Hidden names match, too.

    Args:
        pattern: the glob.
        by_name: whether a pattern without a slash applies to the last name.
        extended: whether ``@(a|b)``, ``?(a|b)`` and ``!(a|b)`` are patterns, too, and a leading ``!`` negates the whole.

    Raises:
        ValueError: the pattern expands to too many alternatives, or is ``extended`` and has ``*(a|b)`` or ``+(a|b)``.
    """
    if extended:
        return _extended_matcher(pattern, by_name=by_name)
    return _plain_matcher(pattern, by_name=by_name, extended=False)


def _extended_matcher(pattern: str, *, by_name: bool) -> PathMatch:
    if _REPEATING.search(pattern):  # in Python's regular expressions such a one can take exponential time
        raise ValueError(f"{pattern!r} cannot be matched: *(...) and +(...) are no patterns here; \\( stands for a bracket")
    marks = _NEGATING.match(pattern)
    count = len(marks[0]) if marks else 0
    matches = _plain_matcher(pattern[count:], by_name=by_name, extended=True)
    return (lambda path: not matches(path)) if count % 2 else matches


def _plain_matcher(pattern: str, *, by_name: bool, extended: bool) -> PathMatch:
    import bracex
    from wcmatch._wcparse import PatternLimitException  # not exported publicly

    try:
        if pattern.count("**") <= _FEW_GLOBSTARS:
            return _compile_glob(pattern, by_name=by_name, extended=extended)
        ways = [_way(way, extended=extended) for way in bracex.expand(pattern, keep_escapes=True)]
    except (ValueError, PatternLimitException, bracex.ExpansionLimitException) as exc:
        raise ValueError(f"{pattern!r} cannot be matched: {exc}") from exc
    return lambda path: any(matches(path) for matches in ways)


def _way(pattern: str, *, extended: bool) -> PathMatch:
    """Return the matcher of one alternative, which may have no ``**`` though others have many."""
    if "**" not in pattern.split("/"):
        return _compile_glob(pattern, extended=extended)
    globstars = _Globstars(pattern, extended=extended)
    return lambda path: globstars.match(path.split("/"))


def _compile_glob(pattern: str, *, by_name: bool = False, extended: bool = False) -> PathMatch:
    from wcmatch import glob

    flags = glob.GLOBSTAR | glob.DOTGLOB | glob.BRACE | glob.CASE | glob.FORCEUNIX | (glob.MATCHBASE if by_name else 0)
    return glob.compile(pattern, flags=flags | (glob.EXTGLOB if extended else 0)).match


class _Globstars:
    """A pattern with many ``**``, matched name by name. A regular expression would try every way to distribute the directories
    among them.
    """

    def __init__(self, pattern: str, *, extended: bool = False) -> None:
        runs: list[list[PathMatch]] = [[]]  # patterns of names between the globstars
        for name in pattern.split("/"):
            if name == "**":
                runs.append([])
            else:
                runs[-1].append(_compile_glob(name, extended=extended))
        self._head, *self._middle, self._tail = runs

    def match(self, names: Sequence[str]) -> bool:
        end = len(names) - max(1, len(self._tail))  # a last ** stands for one name at least
        at = len(self._head)
        if at > end or not _fits(self._head, names, 0) or not _fits(self._tail, names, end):
            return False
        for run in self._middle:
            while not (at + len(run) <= end and _fits(run, names, at)):
                at += 1
                if at > end:
                    return False
            at += len(run)
        return True


def _fits(run: Sequence[PathMatch], names: Sequence[str], at: int) -> bool:
    return all(matches(name) for matches, name in zip(run, names[at:], strict=False))


def split_pattern(pattern: str) -> tuple[str, str, int | None]:
    """Return the directory that a glob begins with, the rest of the pattern, and how deep that reaches (None: any depth)."""
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    fixed = 0
    while fixed < len(names) - 1 and not _MAGIC.search(names[fixed]):
        fixed += 1
    rest = names[fixed:]
    deep = any("**" in name or "{" in name for name in rest)
    return "/".join(names[:fixed]), "/".join(rest), None if deep else len(rest)


class Expression(Protocol):
    """A compiled regular expression."""

    def lines(self, block: bytes) -> Iterator[_Span]:
        """Yield the positions of lines in *block*, which is valid UTF-8, that may match. No other line matches."""
        ...

    def find(self, line: str) -> _Span | None:
        """Return the first match in a line, in characters."""
        ...


class _Linear:
    def __init__(self, pattern: str) -> None:
        import re2

        options = re2.Options()
        options.log_errors = False
        self._line = re2.compile(pattern, options)
        try:
            self._block = None if _ABOUT_THE_TEXT.search(pattern) else re2.compile(f"(?m:{pattern})", options)
        except re2.error:  # \Q without \E quotes the bracket
            self._block = None

    def lines(self, block: bytes) -> Iterator[_Span]:
        """Search the whole block with RE2, so that Python only handles the matches. If a match crosses the end of a line,
        continue with the next line.
        """
        if self._block is None:
            yield from _all_lines(block)
            return
        position = 0
        while (match := self._block.search(block, position)) is not None:
            start = block.rfind(b"\n", 0, match.start()) + 1
            if start == len(block):
                break  # after the last newline
            end = block.find(b"\n", match.start())
            position = len(block) + 1 if end < 0 else end + 1
            yield start, position - 1
            if position >= len(block):
                break

    def find(self, line: str) -> _Span | None:
        match = self._line.search(line)
        return None if match is None else match.span()


class _Backtracking:
    """An expression with a time limit for each line and for all lines."""

    def __init__(self, pattern: str) -> None:
        import regex

        self._pattern = pattern
        self._compiled = regex.compile(pattern)
        self._seconds_left = _TOTAL_SECONDS

    def lines(self, block: bytes) -> Iterator[_Span]:
        return _all_lines(block)

    def find(self, line: str) -> _Span | None:
        start = time.monotonic()
        try:
            match = self._compiled.search(line, timeout=max(_LEAST_SECONDS, min(_LINE_SECONDS, self._seconds_left)))
            self._seconds_left -= time.monotonic() - start
        except TimeoutError as exc:
            raise ValueError(
                f"the expression {self._pattern!r} takes too long; without look-around and back-references it takes linear time"
            ) from exc
        return None if match is None else match.span()


def compile_expression(pattern: str) -> Expression:
    """Compile a regular expression. Raises ValueError that says what is wrong and where."""
    import re2

    try:
        return _Linear(pattern)
    except re2.error as exc:
        if not _BEYOND_RE2.search(pattern):
            raise _invalid(pattern, _said(exc)) from exc
    return _with_look_around(pattern)


def _with_look_around(pattern: str) -> Expression:
    try:
        import regex
    except ImportError as exc:
        hint = "look-around and back-references need the package `regex` (pip install 'agentfsd[regex]')"
        raise _invalid(pattern, hint) from exc
    try:
        return _Backtracking(pattern)
    except regex.error as exc:
        raise _invalid(pattern, str(exc)) from exc


def _invalid(pattern: str, why: str) -> ValueError:
    return ValueError(f"Invalid regex {pattern!r}: {why}")


def _said(exc: Exception) -> str:
    said = exc.args[0] if exc.args else exc
    return said.decode() if isinstance(said, bytes) else str(said)


def grep_file(expression: Expression, path: str, chunks: Iterable[bytes], most: int) -> list[GrepMatch]:
    """Return the first *most* matching lines; none if the file has a zero byte or is not UTF-8."""
    matches: list[GrepMatch] = []
    before, last = 0, b""  # number of lines in earlier blocks, updated when the next block arrives
    for block in _whole_lines(chunks):
        if not _is_text(block):
            return []
        before, last = before + last.count(b"\n"), block
        number, counted = before + 1, 0
        for start, end in expression.lines(block):
            line = block[start:end].decode()
            span = expression.find(line)
            if span is not None:
                number, counted = number + block.count(b"\n", counted, start), start
                matches.append(GrepMatch(path, number, line, *span))
                if len(matches) == most:
                    return matches
    return matches


def _is_text(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in block


def _all_lines(block: bytes) -> Iterator[_Span]:
    position = 0
    while position < len(block):
        end = block.find(b"\n", position)
        end = len(block) if end < 0 else end
        yield position, end
        position = end + 1


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in blocks that end with a newline, except the last one. A line may be longer than a block."""
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end and size + end >= BLOCK_BYTES:
            yield b"".join((*parts, chunk[:end]))
            parts, size = [chunk[end:]], len(chunk) - end
        else:
            parts.append(chunk)
            size += len(chunk)
    if size:
        yield b"".join(parts)
