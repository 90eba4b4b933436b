"""Prompts made of sections: text with parameters, and the tools that belong to it. This module talks to no model."""

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, runtime_checkable

import msgspec

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.session.typevars import OutputT, ParamsT
from agentfs_files.tools.context import Deadline
from agentfs_files.tools.tool import Tool, Tools

_PARAMETER = re.compile(r"\$(\$?)\{([A-Za-z_]\w*)\}")


class PromptError(ValueError):
    """A prompt cannot be composed or rendered."""


@runtime_checkable
class WorkspaceSection(Protocol):
    """A section that has a file system."""

    @property
    def filesystem(self) -> Filesystem: ...


class Section(Generic[ParamsT]):
    """A part of a prompt. ``params`` are default values for its template."""

    def __init__(
        self,
        *,
        title: str,
        key: str,
        tools: Sequence[Tool[Any, Any]] = (),
        children: "Sequence[Section[Any]]" = (),
        params: ParamsT | None = None,
        accepts_overrides: bool = True,
    ) -> None:
        self.title, self.key = title, key
        self.children = tuple(children)
        self.params = params
        self.accepts_overrides = accepts_overrides
        self._tools = tuple(tools)

    @property
    def tools(self) -> Tools:
        return self._tools

    def render(self, values: Mapping[str, Any], override: str | None = None) -> str:
        """Return the text below the title. *override* replaces the template."""
        return ""

    def walk(self) -> "Iterator[Section[Any]]":
        """Yield this section and those beneath it, in order."""
        yield self
        for child in self.children:
            yield from child.walk()


class MarkdownSection(Section[ParamsT]):
    """A section whose ``template`` is Markdown. ``${name}`` stands for a parameter; ``$${name}`` is literal."""

    def __init__(
        self,
        *,
        title: str,
        key: str,
        template: str,
        tools: Sequence[Tool[Any, Any]] = (),
        children: Sequence[Section[Any]] = (),
        params: ParamsT | None = None,
        accepts_overrides: bool = True,
    ) -> None:
        super().__init__(title=title, key=key, tools=tools, children=children, params=params, accepts_overrides=accepts_overrides)
        self.template = textwrap.dedent(template).strip()

    def render(self, values: Mapping[str, Any], override: str | None = None) -> str:
        """Return the text. Raises PromptError if a parameter has no value."""
        known = {**_values(self.params), **values}

        def value(found: re.Match[str]) -> str:
            escaped, name = found.groups()
            if escaped:
                return f"${{{name}}}"
            if name not in known:
                raise PromptError(f"the section {self.key!r} needs a value for its parameter {name!r}")
            return str(known[name])

        return _PARAMETER.sub(value, self.template if override is None else override)


@dataclass(frozen=True)
class PromptTemplate(Generic[OutputT]):
    """The sections of a prompt; ``ns`` and ``key`` name it.

    Raises:
        PromptError: two sections have the same key, or two tools the same name.
    """

    ns: str
    key: str
    sections: Sequence[Section[Any]] = ()
    name: str | None = None

    def __post_init__(self) -> None:
        _check_unique("sections with the key", [section.key for section in self.walk()])
        _check_unique("tools with the name", [tool.name for section in self.walk() for tool in section.tools])

    def walk(self) -> Iterator[Section[Any]]:
        """Yield all sections in order, each before those beneath it."""
        for section in self.sections:
            yield from section.walk()


@dataclass(frozen=True)
class RenderedPrompt(Generic[OutputT]):
    """The text and tools for a model."""

    text: str
    tools: Tools
    prompt: "Prompt[OutputT]"
    deadline: Deadline | None = None

    def section_of(self, tool: Tool[Any, Any] | str) -> Section[Any] | None:
        """Return the section that a tool (or its name) belongs to."""
        name = tool if isinstance(tool, str) else tool.name
        return next((section for section in self.prompt.template.walk() if name in (one.name for one in section.tools)), None)


class Prompt(Generic[OutputT]):
    """A template with values.

    ``overrides`` replace the templates of sections, by section key.

    Raises:
        PromptError: a section does not exist or must not be overridden.
    """

    def __init__(self, template: PromptTemplate[OutputT], *, overrides: Mapping[str, str] | None = None) -> None:
        self.template = template
        self._overrides = {key: textwrap.dedent(text).strip() for key, text in (overrides or {}).items()}
        open_to = [section.key for section in template.walk() if section.accepts_overrides]
        for key in self._overrides.keys() - set(open_to):
            raise PromptError(f"the section {key!r} cannot be overridden; these can: {', '.join(open_to) or 'none'}")

    def filesystem(self) -> Filesystem | None:
        """The file system of the first section that has one."""
        for section in self.template.walk():
            if isinstance(section, WorkspaceSection):
                return section.filesystem
        return None

    def render(self, *params: object, deadline: Deadline | None = None, **values: object) -> RenderedPrompt[OutputT]:
        """Return text and tools. *params* are mappings, or records whose fields are values; *values* override them."""
        known: dict[str, Any] = {}
        for record in params:
            known |= _values(record)
        known |= values
        parts = [part for section in self.template.sections for part in self._parts(section, known, 2)]
        tools = tuple(tool for section in self.template.walk() for tool in section.tools)
        return RenderedPrompt("\n\n".join(parts), tools, self, deadline)

    def _parts(self, section: Section[Any], values: Mapping[str, Any], level: int) -> Iterator[str]:
        yield f"{'#' * min(level, 6)} {section.title}"
        body = section.render(values, self._overrides.get(section.key))
        if body:
            yield body
        for child in section.children:
            yield from self._parts(child, values, level + 1)


def _values(record: object) -> dict[str, Any]:
    if record is None:
        return {}
    if isinstance(record, Mapping):
        return dict(record)
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.asdict(record)
    raise TypeError(f"parameters are a mapping, a dataclass or a msgspec Struct, not {type(record).__name__}")


def _check_unique(kind: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise PromptError(f"there are several {kind} {name!r}; each must be the only one in a prompt")
