"""A tool: a name and a description for the model, the types of its parameters and result, and its handler."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from agentfs_files.tools.context import ToolContext, ToolResult

P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

JsonSchema = dict[str, Any]
Tools = tuple["Tool[Any, Any]", ...]


class Handler(Protocol[P_contra, R_co]):
    def __call__(self, params: P_contra, /, *, context: ToolContext) -> ToolResult[R_co]: ...


@dataclass(slots=True, frozen=True)
class Tool(Generic[P, R]):
    """A tool. ``params`` is a msgspec Struct (or a dataclass); ``writes`` says whether it changes the file system."""

    name: str
    description: str
    handler: Handler[P, R]
    params: type[P]
    result: type[R] | None = None
    writes: bool = False

    def schema(self) -> JsonSchema:
        """Return the JSON Schema of the parameters: one object without references, as model APIs require. Raises ValueError for a
        recursive type.
        """
        return json_schema(self.params)

    def for_anthropic(self) -> JsonSchema:
        return {"name": self.name, "description": self.description, "input_schema": self.schema()}

    def for_openai(self) -> JsonSchema:
        function = {"name": self.name, "description": self.description, "parameters": self.schema()}
        return {"type": "function", "function": function}


def json_schema(kind: type[Any]) -> JsonSchema:
    """Return the schema of a type with all references replaced by their definitions."""
    schema = msgspec.json.schema(kind)
    inlined: JsonSchema = _inline(schema, schema.get("$defs", {}), ())
    return inlined


def _is_of_strings(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _inline(node: Any, definitions: dict[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions, within) for item in node]
    if not isinstance(node, dict):
        return node
    rest = {key: _inline(value, definitions, within) for key, value in node.items() if key not in ("$ref", "$defs")}
    if "type" not in rest and _is_of_strings(rest.get("enum")):
        rest["type"] = "string"  # msgspec leaves it out, and some model APIs need it
    if "$ref" not in node:
        return rest
    name = node["$ref"].rpartition("/")[2]
    if name in within:
        raise ValueError(f"{name} contains itself, so its schema has no form without references")
    return _inline(definitions[name], definitions, (*within, name)) | rest
