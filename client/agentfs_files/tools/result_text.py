"""Format lines and numbers for a model."""

from collections.abc import Iterable


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 line" or "10,312 lines"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def numbered(line_number: int, line: str) -> str:
    return f"{line_number:>6}\t{line}"


def excerpt(line: str, start: int, end: int, characters: int) -> str:
    """Return the part of a long line around characters *start* to *end*."""
    if len(line) <= characters:
        return line
    before = max(0, min(start - (characters - (end - start)) // 2, len(line) - characters))
    after = before + characters
    return f"{'… ' if before else ''}{line[before:after]}{' …' if after < len(line) else ''} [cut: {len(line):,} characters]"


def fitting(lines: Iterable[str], characters: int) -> tuple[list[str], bool]:
    """Return as many *lines* as fit into *characters* with their newlines, but at least one; and whether these are all."""
    shown: list[str] = []
    room = characters
    for line in lines:
        room -= len(line) + 1
        if room < 0 and shown:
            return shown, False
        shown.append(line)
    return shown, True
