"""What an integration adds to the files of a harness, as insertions into their texts, and how it is found there again."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from agentfsd.cli.agents import toml_blocks
from agentfsd.cli.agents.json_splicing import Document, Insertion, KeyedValue, Node, NotJson
from agentfsd.cli.agents.toml_blocks import NotToml, TomlSection

__all__ = ["Added", "JsonAdditions", "JsonEntry", "NotJson", "NotToml", "SettingsChange", "TomlTables", "WholeFile"]

_IsOurs = Callable[[Any], bool]


class Added(NamedTuple):
    """A text, and the parts of it that were added, from and to, in order. ``names``: of the entries that were added."""

    text: str
    spans: tuple[tuple[int, int], ...]
    names: frozenset[str] = frozenset()

    def with_more(self, insertions: Sequence[Insertion]) -> "Added":
        """Insert more. The places are those of the present text."""
        text, spans, names = self
        for place, new in sorted(insertions, reverse=True):
            text = text[:place] + new + text[place:]
            length = len(new)
            moved = [(start + length * (start >= place), end + length * (end > place)) for start, end in spans]
            inside = any(start < place < end for start, end in spans)
            spans = tuple(sorted([*moved, *([] if inside else [(place, place + length)])]))
        return Added(text, spans, names)

    def taken_back(self) -> str:
        """Return the text without these parts."""
        text = self.text
        for start, end in reversed(self.spans):
            text = text[:start] + text[end:]
        return text


class SettingsChange(Protocol):
    """What is added to one file."""

    @property
    def path(self) -> str:
        """The file."""

    def added(self, text: str) -> "Added":
        """Return the text with what is added. NotJson or NotToml if that cannot be done."""

    def is_in(self, text: str, names: Collection[str] = ()) -> bool:
        """Return whether a text has all of it already, as it would be added now. *names*: what a record says was added."""

    def without(self, text: str, names: Collection[str] = ()) -> str:
        """Return a text that somebody has changed since, without what is ours. *names*: what a record says was added."""

    def is_whole(self, text: str) -> bool:
        """Return whether a text is what is written if there is no file: without a record, there was none."""


@dataclass(frozen=True, slots=True)
class JsonEntry:
    """One value to add to a JSON file.

    Attributes:
        keys: The keys that lead to it.
        value: The value.
        to_array: It becomes an element of the array there.
        is_ours: Recognizes such a value, of any version.
        within: The key of an array in other elements, and what recognizes ours in it.
        by_record: It is removed only if a record says that it was added: a person may have made such an entry by hand.
    """

    keys: tuple[str, ...]
    value: Any
    to_array: bool
    is_ours: _IsOurs
    within: tuple[str, _IsOurs] | None = None
    by_record: bool = False

    @property
    def name(self) -> str:
        """What a record calls it."""
        return ".".join(self.keys)

    def is_in(self, content: Any, names: Collection[str] = ()) -> bool:
        """Return whether a file's content has it. An entry that does the same, made by hand, will do."""
        if _has(content, self):
            return True
        for key in self.keys:
            content = content.get(key) if isinstance(content, dict) else None
        return self.by_record and self.name not in names and self.is_ours(content)

    def is_removed(self, names: Collection[str]) -> bool:
        """Return whether it may be removed, by what a record has."""
        return not self.by_record or self.name in names


@dataclass(frozen=True, slots=True)
class JsonAdditions:
    """Entries that are added to a JSON file, whose comments and form stay."""

    path: str
    entries: tuple[JsonEntry, ...]

    def added(self, text: str) -> Added:
        """See SettingsChange."""
        made = Added(text, ())
        for entry in self.entries:
            if not entry.is_in(Document(made.text).root.value):
                made = made.with_more(Document(made.text).adding(entry.keys, entry.value, to_array=entry.to_array))
                made = made._replace(names=made.names | {entry.name})
        return made

    def is_in(self, text: str, names: Collection[str] = ()) -> bool:
        """See SettingsChange."""
        root = Document(text).root.value
        return all(entry.is_in(root, names) for entry in self.entries)

    def without(self, text: str, names: Collection[str] = ()) -> str:
        """See SettingsChange. An object or array that is left with nothing in it is removed as well."""
        entries = [entry for entry in self.entries if entry.is_removed(names)]
        if not entries:
            return text
        document = Document(text)
        for entry in entries:
            had = document.text
            while (found := _find(document.root, entry)) is not None:
                document = Document(document.without(*found))
            for length in range(len(entry.keys), 0, -1) if document.text != had else ():
                document = _without_bare(document, entry.keys[:length])
        return document.text

    def is_whole(self, text: str) -> bool:
        """See SettingsChange."""
        return text == JsonAdditions(self.path, tuple(each for each in self.entries if not each.by_record)).added("").text


@dataclass(frozen=True, slots=True)
class TomlTables:
    """Entries that are added as tables to the end of a TOML file."""

    path: str
    entries: tuple[JsonEntry, ...]

    def added(self, text: str) -> Added:
        """See SettingsChange."""
        before = toml_blocks.parse(text)
        entries = [entry for entry in self.entries if not entry.is_in(before)]
        content: dict[str, Any] = {}
        for entry in entries:
            content = toml_blocks.joined(content, _nested(entry))
        block = [(len(text), toml_blocks.adding(text, content))] if entries else []
        return Added(text, (), frozenset(entry.name for entry in entries)).with_more(block)

    def is_in(self, text: str, names: Collection[str] = ()) -> bool:
        """See SettingsChange."""
        content = toml_blocks.parse(text)
        return all(entry.is_in(content, names) for entry in self.entries)

    def without(self, text: str, names: Collection[str] = ()) -> str:
        """See SettingsChange. What is ours is found by what it says; nothing else in the file may change its meaning."""
        entries = [entry for entry in self.entries if entry.is_removed(names)]
        if not entries:
            return text
        rest = toml_blocks.parse(text)
        for entry in entries:
            while (found := _our_sections(text, entry)) is not None:
                text = toml_blocks.without(text, *found)
        for entry in entries:
            rest = _less(rest, entry)
        if _pruned(toml_blocks.parse(text)) != _pruned(rest):
            raise NotToml("our tables were changed by hand: remove them by hand, too")
        return text

    def is_whole(self, text: str) -> bool:
        """See SettingsChange. Hooks are only added to a file that has some."""
        return False


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file that is ours altogether. ``header``: how the file of any version begins; "" if only its whole content tells."""

    path: str
    content: str
    header: str = ""

    def added(self, text: str) -> Added:
        """See SettingsChange."""
        if text.strip():
            raise NotJson("there is a file of this name already")
        return Added(text, (), frozenset([self.path])).with_more([(len(text), self.content)])

    def is_in(self, text: str, names: Collection[str] = ()) -> bool:
        """See SettingsChange."""
        return text == self.content

    def without(self, text: str, names: Collection[str] = ()) -> str:
        """See SettingsChange."""
        if text == self.content or (self.header and text.startswith(self.header)):
            return ""
        if names:
            raise NotJson("it was edited since it was installed: remove it by hand")
        return text

    def is_whole(self, text: str) -> bool:
        """See SettingsChange."""
        return not self.without(text)


# -- JSON values


def _at(node: Node, keys: Sequence[str]) -> Node | None:
    for key in keys:
        if key not in node.members:
            return None
        node = node.members[key].node
    return node


def _has(root: Any, entry: JsonEntry) -> bool:
    for key in entry.keys:
        if not isinstance(root, dict) or key not in root:
            return False
        root = root[key]
    return entry.value in root if entry.to_array and isinstance(root, list) else bool(root == entry.value)


def _find(root: Node, entry: JsonEntry) -> tuple[Node | KeyedValue, Node] | None:
    """Return what is ours at an entry's place, and what holds it."""
    if entry.to_array:
        within = _at(root, entry.keys)
        elements = within.elements if within is not None else []
        ours = next((each for each in elements if entry.is_ours(each.value)), None)
        return (ours, within) if within is not None and ours is not None else _find_within(elements, entry)
    within = _at(root, entry.keys[:-1])
    member = within.members.get(entry.keys[-1]) if within is not None else None
    return (member, within) if within is not None and member is not None and entry.is_ours(member.node.value) else None


def _find_within(elements: Sequence[Node], entry: JsonEntry) -> tuple[Node, Node] | None:
    """Return what is ours among what others have in elements of an array, and the array that holds it."""
    key, is_ours = entry.within or ("", lambda value: False)
    arrays = [each.members[key].node for each in elements if key in each.members]
    return next(((part, array) for array in arrays for part in array.elements if is_ours(part.value)), None)


def _without_bare(document: Document, keys: Sequence[str]) -> Document:
    within = _at(document.root, keys[:-1])
    member = within.members.get(keys[-1]) if within is not None else None
    if within is None or member is None or not document.is_bare(member.node):
        return document
    if len(within.keyed) > len(within.members):  # an earlier value of this key would come to light
        return document
    return Document(document.without(member, within))


# -- TOML values


def _nested(entry: JsonEntry) -> dict[str, Any]:
    value = [entry.value] if entry.to_array else entry.value
    for key in reversed(entry.keys):
        value = {key: value}
    return dict(value)


def _our_sections(text: str, entry: JsonEntry) -> tuple[TomlSection, TomlSection] | None:
    """Return the first and the last section of what is ours at an entry's place."""
    found = toml_blocks.sections(text)
    for index, section in enumerate(found):
        if section.keys == entry.keys and section.is_element == entry.to_array:
            last = index
            while last + 1 < len(found) and found[last + 1].keys[: len(entry.keys)] == entry.keys != found[last + 1].keys:
                last += 1
            if entry.is_ours(_value(toml_blocks.parse(text[section.start : found[last].end]), entry.keys)):
                return section, found[last]
        elif entry.within is not None and section.is_element and section.keys == (*entry.keys, entry.within[0]):
            is_ours = entry.within[1](_value(section.content, section.keys))
            if is_ours:
                return section, section
    return None


def _value(content: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        content = content[key] if isinstance(content, dict) else content[-1][key]
    return content[-1] if isinstance(content, list) else content


def _less(content: dict[str, Any], entry: JsonEntry) -> dict[str, Any]:
    """Return what a file says without what is ours at an entry's place."""
    key, *left = entry.keys
    inner = content.get(key)
    if left:
        deeper = JsonEntry(tuple(left), entry.value, entry.to_array, entry.is_ours, entry.within)
        return {**content, key: _less(inner, deeper)} if isinstance(inner, dict) else content
    if not entry.to_array:
        return {name: value for name, value in content.items() if name != key or not entry.is_ours(value)}
    if not isinstance(inner, list):
        return content
    kept = [each for each in inner if not entry.is_ours(each)]
    if entry.within is not None:
        name, is_ours = entry.within
        kept = [
            {**each, name: [part for part in each[name] if not is_ours(part)]}
            if isinstance(each, dict) and isinstance(each.get(name), list)
            else each
            for each in kept
        ]
    return {**content, key: kept}


def _pruned(content: Any) -> Any:
    """Return a value without the empty tables and arrays in it."""
    if isinstance(content, dict):
        return {key: value for key, each in content.items() if (value := _pruned(each)) not in ({}, [])}
    if isinstance(content, list):
        return [value for each in content if (value := _pruned(each)) not in ({}, [])]
    return content
