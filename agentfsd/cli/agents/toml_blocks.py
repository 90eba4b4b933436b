"""Adds tables to the end of a TOML file of a person's, and removes them: all that was there keeps its form and its comments.

A file cannot be extended so if it has one of these tables in another form, such as an inline one. That is found out by reading
the file with Python's own parser before and after.
"""

import json
import re
import tomllib
from typing import Any, NamedTuple

_HEADER = re.compile(r"^[ \t]*(\[\[?)[^\[\]\n]+\]\]?[ \t]*(?:#.*)?\r?$", re.MULTILINE)


class NotToml(ValueError):
    """The text is no TOML, or cannot be extended by tables at its end. Its text says why."""


def parse(text: str) -> dict[str, Any]:
    """Return the content of a file.

    Raises:
        NotToml: It is none.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise NotToml(str(exc)) from None
    except RecursionError:
        raise NotToml("it is nested too deeply") from None


class TomlSection(NamedTuple):
    """The text of one table, from the beginning of its header to the *end* of its last value; comments after that are not in it.

    Attributes:
        keys: The keys that lead to it.
        is_element: It is an element of an array of tables.
        content: What the section alone says, as a file.
    """

    start: int
    end: int
    keys: tuple[str, ...]
    is_element: bool
    content: dict[str, Any]


def sections(text: str) -> list[TomlSection]:
    """Return the tables of a file, in order. A text of several lines can look like one: check what comes of a change."""
    headers = list(_HEADER.finditer(text))
    ends = [*(each.start() for each in headers[1:]), len(text)]
    found = []
    for header, end in zip(headers, ends, strict=False):
        try:
            name = parse(header.group())
            end = header.start() + len(_without_remarks(text[header.start() : end]))
            content = parse(text[header.start() : end])
        except NotToml:
            continue
        keys: list[str] = []
        inner: Any = name
        while inner and inner != [{}]:
            keys.append(next(iter(inner)))
            inner = inner[keys[-1]]
        found.append(TomlSection(header.start(), end, tuple(keys), header.group(1) == "[[", content))
    return found


def _without_remarks(text: str) -> str:
    """Return a section without the blank lines and comments at its end."""
    lines = text.splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return "".join(lines)


def without(text: str, found: TomlSection, until: TomlSection) -> str:
    """Return a file without the sections from *found* to *until*, and without the blank line before them."""
    before = text[: found.start]
    for blank in ("\r\n", "\n"):
        if before == blank or before.endswith("\n" + blank):
            before = before.removesuffix(blank)
            break
    return before + text[until.end :]


def written(content: dict[str, Any], above: str = "") -> str:
    """Write tables, arrays of tables and plain values as TOML."""
    lines = [f"{key} = {_plain(value)}\n" for key, value in content.items() if not _is_table(value)]
    text = "".join(lines)
    for key, value in content.items():
        name = f"{above}{key}"
        if isinstance(value, dict):
            inner = written(value, name + ".")
            text += f"\n[{name}]\n{inner}" if any(not _is_table(each) for each in value.values()) else inner
        elif _is_table(value):
            text += "".join(f"\n[[{name}]]\n{written(each, name + '.')}" for each in value)
    return text


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # of texts, numbers, truth values and lists of texts, which TOML writes alike


def adding(text: str, content: dict[str, Any]) -> str:
    """Return what has to be added at the end of a file so that it has *content* as well.

    Raises:
        NotToml: See above.
    """
    before = parse(text)
    block = ("" if not text or text.endswith("\n") else "\n") + written(content).lstrip("" if text else "\n")
    try:
        after = tomllib.loads(text + block)
    except tomllib.TOMLDecodeError as exc:
        raise NotToml(f"its tables cannot be extended: {exc}") from None
    if after != joined(before, content):
        raise NotToml("it has these tables in another form already")
    return block


def joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return both, with their tables joined and their arrays of tables one after the other."""
    both = dict(one)
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(both.get(key), dict):
            both[key] = joined(both[key], value)
        elif isinstance(value, list) and isinstance(both.get(key), list):
            both[key] = both[key] + value
        else:
            both[key] = value
    return both
