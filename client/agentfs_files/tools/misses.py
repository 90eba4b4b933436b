"""Explain why a text to replace is not in a file: name the model's probable mistake and show the lines that it may have meant."""

import difflib
import re

from agentfs_files.tools.result_text import numbered

_LINE_NUMBER = re.compile(r"^ *\d+\t", re.M)
_WORD = re.compile(r"\w+")
_CANDIDATES = 50
_COMPARED = 300  # characters of a line that are compared
_LIKE_ENOUGH = 0.6
_SHOWN = 12


def explain_miss(text: str, wanted: str, path: str) -> str:
    """Return one or two sentences. Both texts have ``\\n`` as line ending."""
    missing = f"old_string is not in {path}."
    if (bare := _LINE_NUMBER.sub("", wanted)) != wanted and bare in text:
        return f"{missing} It holds the line numbers that read_file shows; leave them off, with the tab behind them."
    lines, wanted_lines = text.split("\n"), wanted.strip("\n").split("\n")
    at = _but_for_white_space(lines, wanted_lines)
    if at is not None:
        how = _how(lines[at], wanted_lines[0])
        return f"{missing} The white space differs{how}. The file has:\n{_block(lines, at, len(wanted_lines))}"
    at = _closest(lines, wanted_lines)
    if at is None:
        return f"{missing} Nothing there is like it; read_file shows what there is."
    return f"{missing} The closest lines are:\n{_block(lines, at, len(wanted_lines))}{_first_difference(lines, at, wanted_lines)}"


def _but_for_white_space(lines: list[str], wanted: list[str]) -> int | None:
    """Return where the same lines begin if white space does not count."""
    sought = ["".join(line.split()) for line in wanted]
    if not any(sought):
        return None
    squeezed = ["".join(line.split()) for line in lines]
    for at in range(len(lines) - len(sought) + 1):
        if squeezed[at] == sought[0] and squeezed[at : at + len(sought)] == sought:
            return at
    return None


def _how(line: str, wanted: str) -> str:
    tabs, wanted_tabs = "\t" in line, "\t" in wanted
    if tabs == wanted_tabs:
        return ""
    return ": the file has tabs there, old_string spaces" if tabs else ": old_string has tabs there, the file spaces"


def _closest(lines: list[str], wanted: list[str]) -> int | None:
    """Return where the most similar lines begin, judged by the longest wanted line."""
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    sought = wanted[anchor].strip()[:_COMPARED]
    words = set(_WORD.findall(sought))
    by_words = sorted(
        range(len(lines)), key=lambda index: (-len(words.intersection(_WORD.findall(lines[index][:_COMPARED]))), index)
    )
    matcher = difflib.SequenceMatcher(b=sought, autojunk=False)
    best, where = _LIKE_ENOUGH, None
    for index in by_words[:_CANDIDATES]:
        matcher.set_seq1(lines[index].strip()[:_COMPARED])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, where = ratio, index
    return None if where is None else max(0, where - anchor)


def _first_difference(lines: list[str], at: int, wanted: list[str]) -> str:
    for number, line in enumerate(wanted, at):
        there = lines[number] if number < len(lines) else None
        if there != line:
            has = "ends before it" if there is None else f"has {there[:_COMPARED]!r}"
            return f"\nThe first difference is in line {number + 1}: the file {has}, old_string has {line[:_COMPARED]!r}."
    return ""


def _block(lines: list[str], at: int, length: int) -> str:
    shown = [numbered(number, line[:_COMPARED]) for number, line in enumerate(lines[at : at + min(length, _SHOWN)], at + 1)]
    return "\n".join(shown)
