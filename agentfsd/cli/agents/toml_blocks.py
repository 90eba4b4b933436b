"""Adds tables to the end of a TOML file of a person's, and removes them: all that was there keeps its form and its comments.

A file cannot be extended so if it has one of these tables in another form, such as an inline one. That is found out by reading
the file with Python's own parser before and after.
"""

import json
import tomllib
from typing import Any


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
