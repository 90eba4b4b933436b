"""Adds to and removes from a JSON file of a person's, comments allowed, by its text: all that was there keeps its form.

Libraries that keep comments write a file anew in a form of their own, or are not kept up. Here a change is a list of insertions,
so that it can be taken back byte for byte.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

_TOKEN = re.compile(
    r'(?P<space>[ \t\r\n\ufeff]+)|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<mark>[{}\[\],:])|(?P<text>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<word>[-+.\w]+)",
    re.DOTALL,
)
_DEFAULT_INDENT = "  "

Insertion = tuple[int, str]  # where in the text as it is, and what


class NotJson(ValueError):
    """The text is no JSON. Its text says where."""


@dataclass(slots=True)
class Node:
    """A value in the text, from *start* to *end*.

    Attributes:
        members: Of an object, by key. Of a key that is there twice, the last one.
        elements: Of an array.
        keyed: Of an object, every key with its value, in order.
    """

    start: int
    end: int
    value: Any
    members: dict[str, "KeyedValue"] = field(default_factory=dict)
    elements: list["Node"] = field(default_factory=list)
    keyed: list["KeyedValue"] = field(default_factory=list)

    @property
    def parts(self) -> list["Node"] | list["KeyedValue"]:
        """The members or elements, in order."""
        return self.elements if isinstance(self.value, list) else self.keyed


@dataclass(slots=True)
class KeyedValue:
    """A key and its value, from the beginning of the key to the *end* of the value."""

    start: int
    end: int
    node: Node


class Document:
    """The text of a JSON file, parsed. An empty text is an empty object.

    Raises:
        NotJson: It is no JSON object.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._marks = _tokens(text)
        self._at = 0
        self.root = Node(0, 0, {})
        if self._marks:
            try:
                self.root = self._value()
            except RecursionError:
                raise NotJson("it is nested too deeply") from None
            if self._at < len(self._marks):
                raise NotJson(f"more than one value, at {_place(text, self._marks[self._at][1])}")
            if not isinstance(self.root.value, dict):
                raise NotJson("no object")

    # -- parsing

    def _value(self) -> Node:
        kind, start, end = self._next()
        word = self.text[start:end]
        if word == "{":
            return self._container(start, "}", {})
        if word == "[":
            return self._container(start, "]", [])
        if kind == "mark" or word.lstrip("-") in ("NaN", "Infinity"):  # which Python's parser takes
            raise NotJson(f"unexpected {word} at {_place(self.text, start)}")
        try:
            return Node(start, end, json.loads(word))
        except ValueError:
            raise NotJson(f"unexpected {word} at {_place(self.text, start)}") from None

    def _container(self, start: int, closing: str, value: Any) -> Node:
        node = Node(start, start, value)
        may_go_on = True  # a comma was there, or nothing yet
        while True:
            kind, at, end = self._next()
            word = self.text[at:end]
            if word == closing:
                node.end = end
                return node
            if word == "," and not may_go_on:
                may_go_on = True
                continue
            if word == "," or not may_go_on:
                raise NotJson(f"unexpected {word} at {_place(self.text, at)}")
            may_go_on = False
            self._at -= 1
            if closing == "]":
                node.elements.append(self._value())
                value.append(node.elements[-1].value)
                continue
            following = self._marks[self._at + 1] if self._at + 1 < len(self._marks) else None
            if kind != "text" or following is None or self.text[following[1]] != ":":
                raise NotJson(f"unexpected {word} at {_place(self.text, at)}")
            key = self._value().value
            self._at += 1
            inner = self._value()
            node.members[key] = KeyedValue(at, inner.end, inner)
            node.keyed.append(node.members[key])
            value[key] = inner.value

    def _next(self) -> tuple[str, int, int]:
        if self._at >= len(self._marks):
            raise NotJson("it ends too early")
        self._at += 1
        return self._marks[self._at - 1]

    # -- adding

    def adding(self, keys: Sequence[str], value: Any, *, to_array: bool) -> list[Insertion]:
        """Return the insertions that add a value.

        Args:
            keys: The keys that lead to it. Objects that are missing are made.
            value: The value.
            to_array: It is to become the last element of the array there; else the member there, which must not exist.

        Raises:
            NotJson: There is something else on the way.
        """
        node, left = self.root, list(keys)
        while left and left[0] in node.members:
            node = node.members[left.pop(0)].node
            if not isinstance(node.value, list if to_array and not left else dict):
                raise NotJson(f"{json.dumps('.'.join(keys))} has another form than expected")
        if not left and not to_array:
            raise NotJson(f"{json.dumps('.'.join(keys))} is there already, and says something else")
        if to_array:
            value = [value]
        for key in reversed(left[1:]):
            value = {key: value}
        if not left:
            return self._into(node, "", value[0])
        return self._into(node, json.dumps(left[0], ensure_ascii=False) + ": ", value)

    def _into(self, node: Node, key: str, value: Any) -> list[Insertion]:
        """Insert *value* at the end of an object or array."""
        if not self._marks:  # at most white space and comments
            begin = "{" if self.text.endswith("\n") or "//" not in self.text else "\n{"
            return [
                (
                    len(self.text),
                    begin + "\n" + _DEFAULT_INDENT + key + _pretty(value, _DEFAULT_INDENT, _DEFAULT_INDENT) + "\n}\n",
                )
            ]
        newline = "\r\n" if "\r\n" in self.text else "\n"
        closing = node.end - 1
        parts = node.parts
        before = self._content_end(closing)
        if parts and newline not in self.text[node.start : node.end]:
            return [(parts[-1].end, f", {key}{json.dumps(value, ensure_ascii=False)}")]
        unit = self._unit()
        outer = self._indent_at(node.start)
        inner = self._indent_at(parts[-1].start) if parts else outer + unit
        text = newline + inner + key + _pretty(value, unit, inner).replace("\n", newline)
        if not parts:
            ending = "" if newline in self.text[before:closing] else newline + outer
            return [(before, text + ending)]
        _, at, end = self._marks[self._token_from(closing) - 1]
        if self.text[at:end] == ",":
            return [(before, text + ",")]
        if before == parts[-1].end:
            return [(before, "," + text)]
        return [(parts[-1].end, ","), (before, text)]

    def _content_end(self, position: int) -> int:
        """Return the end of the last thing before *position* that is no white space. A comment is one."""
        end = len(self.text[:position].rstrip())
        last_line = self.text[self.text.rfind("\n", 0, end) + 1 : end]
        return end if "//" not in last_line else len(self.text[:end].rstrip())

    def _indent_at(self, position: int) -> str:
        line = self.text[self.text.rfind("\n", 0, position) + 1 : position]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _unit(self) -> str:
        first = next(iter(self.root.members.values()), None)
        return (self._indent_at(first.start) if first is not None else "") or _DEFAULT_INDENT

    def _token_from(self, position: int) -> int:
        """Return the index of the first token that begins at *position* or after it."""
        return bisect_left(self._marks, position, key=itemgetter(1))

    # -- removing

    def is_bare(self, node: Node) -> bool:
        """Return whether an object or array has nothing in it, not even a comment."""
        return isinstance(node.value, dict | list) and not self.text[node.start + 1 : node.end - 1].strip()

    def without(self, part: Node | KeyedValue, within: Node) -> str:
        """Return the text without one member or element."""
        start = part.start
        while self.text[start - 1].isspace():
            start -= 1
        cuts = [(start, part.end)]
        following, previous = self._token_from(part.end), self._token_from(part.start) - 1
        for index in (following, previous):
            _, at, end = self._marks[index]
            if self.text[at:end] == "," and within.start < at < within.end:
                cuts.append((at, end))
                break
        text = self.text
        for first, last in sorted(cuts, reverse=True):
            text = text[:first] + text[last:]
        return text


def _pretty(value: Any, unit: str, indent: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", "\n" + indent)


def _tokens(text: str) -> list[tuple[str, int, int]]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotJson(f"unexpected {text[at]} at {_place(text, at)}")
        at = match.end()
        if match.lastgroup not in ("space", "comment"):
            found.append((str(match.lastgroup), match.start(), at))
    return found


def _place(text: str, position: int) -> str:
    return f"line {text.count(chr(10), 0, position) + 1}"
