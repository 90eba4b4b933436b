"""Write the TypeScript client's types of messages, client/typescript/wire.d.ts, and its table of requests, wire.js.

Both come from the wire schema of agentfs_client, and which reply a request has from its operations. `scripts/typescript` calls
this; a test fails while a file differs from what this returns.
"""

import ast
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentfs_client import wire
from agentfs_client.daemon_operations import DaemonOperations
from agentfs_client.question import HELLO
from agentfs_client.repeatable import REPEATABLE

PLACE = Path(__file__).parents[2] / "client" / "typescript"
_OPERATIONS = [inspect.getsource(sys.modules[kind.__module__]) for kind in DaemonOperations.__mro__ if kind is not object]
_SCALARS = {str: "string", int: "number", float: "number", bool: "boolean", bytes: "string", type(None): "null"}
_MADE = "// Made by scripts/typescript from agentfs_client's wire schema. Do not change it here.\n"
_ABOUT = (
    "/**\n * The messages between clients and the daemon, as they are in JSON. Bytes are base64. Times in nanoseconds are\n"
    " * larger than what a number holds exactly: they are true to a quarter of a microsecond.\n */\n"
)


def rendered() -> dict[str, str]:
    """Return the content of each file by its name."""
    return {"wire.d.ts": _declarations(), "wire.js": _table()}


# -- which reply a request has


def replies() -> dict[type[wire.Request], type[wire.Reply]]:
    """Return the reply of every request that an operation sends without descriptors."""
    found: dict[type[wire.Request], type[wire.Reply]] = {wire.Hello: HELLO.expected, wire.Events: wire.EventsOk}
    for source in _OPERATIONS:
        for function in ast.walk(ast.parse(source)):
            if isinstance(function, ast.FunctionDef):
                found.update(_asked(function))
    return found


def _asked(function: ast.FunctionDef) -> Iterator[tuple[type[wire.Request], type[wire.Reply]]]:
    made = {
        node.targets[0].id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ask":
            if any(keyword.arg == "descriptors" for keyword in node.keywords):
                continue
            request = node.args[0]
            if isinstance(request, ast.Name):
                request = made[request.id]
            assert isinstance(request, ast.Call), ast.unparse(node)
            yield _named(request.func), _named(node.args[1])


def _named(node: ast.expr) -> Any:
    """Return the class that ``wire.NAME`` names."""
    assert isinstance(node, ast.Attribute), ast.unparse(node)
    return getattr(wire, node.attr)


# -- wire.d.ts


def _declarations() -> str:
    answered = replies()
    structs: dict[str, type[msgspec.Struct]] = {}
    for request, reply in answered.items():
        for kind in (request, reply, wire.Event, wire.Error, wire.Progress):
            _collect(kind, structs)
    parts = [_MADE, _ABOUT, f"export declare const PROTOCOL_VERSION: {wire.PROTOCOL_VERSION};\n"]
    parts.append("/** What may be sent again to the next daemon. */\nexport declare const REPEATABLE: ReadonlySet<string>;\n")
    parts += [_interface(structs[name]) for name in sorted(structs)]
    parts.append("/** The request and the reply of each operation. */\nexport interface Exchanges {")
    for request, reply in sorted(answered.items(), key=lambda pair: _tag(pair[0])):
        parts.append(f'  "{_tag(request)}": {{ request: {request.__name__}; reply: {reply.__name__} }};')
    parts.append("}\n\nexport type Operation = keyof Exchanges;")
    return "\n".join(parts) + "\n"


def _collect(kind: type[msgspec.Struct], found: dict[str, type[msgspec.Struct]]) -> None:
    """Add a struct and those in its fields."""
    if kind.__name__ in found:
        return
    found[kind.__name__] = kind
    for annotation in typing.get_type_hints(kind).values():
        for inner in _inner(annotation):
            _collect(inner, found)


def _inner(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _inner(argument)


def _interface(kind: type[msgspec.Struct]) -> str:
    is_request = issubclass(kind, wire.Request)
    lines = [*_comment(kind), f"export interface {kind.__name__} {{"]
    if issubclass(kind, wire.Request | wire.Reply):
        lines.append(f'  op: "{_tag(kind)}";')
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        optional = "?" if is_request and not field.required else ""  # a reply has all its fields
        lines.append(f"  {field.encode_name}{optional}: {_type(hints[field.name])};")
    return "\n".join([*lines, "}\n"])


def _comment(kind: type[msgspec.Struct]) -> list[str]:
    text = inspect.cleandoc(kind.__doc__ or "").replace("``", "`").replace("*/", "* /") if "__doc__" in vars(kind) else ""
    if not text:
        return []
    lines = text.splitlines()
    return [f"/** {lines[0]} */"] if len(lines) == 1 else ["/**", *(f" * {line}".rstrip() for line in lines), " */"]


def _type(annotation: Any) -> str:
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation.__name__
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " | ".join(f'"{value}"' for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_type(argument) for argument in arguments)
    if origin in (list, tuple):
        return f"{_type(arguments[0])}[]"
    if origin is dict:
        return f"Record<string, {_type(arguments[1])}>"
    raise TypeError(f"{annotation} has no counterpart in TypeScript yet: add it here")


def _tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)


# -- wire.js


def _table() -> str:
    answered = replies()
    lines = [f"export const PROTOCOL_VERSION = {wire.PROTOCOL_VERSION};", "", "export const REPEATABLE = new Set(["]
    lines += [f'  "{name}",' for name in sorted(_tag(kind) for kind in REPEATABLE & answered.keys())]
    return "\n".join([_MADE.rstrip(), *lines, "]);"]) + "\n"


def main() -> None:
    """Write the files, or with ``--check`` only tell whether they are up to date."""
    stale = [name for name, text in rendered().items() if not (PLACE / name).exists() or (PLACE / name).read_text() != text]
    if "--check" in sys.argv:
        if stale:
            sys.exit(f"out of date: {', '.join(stale)}; scripts/typescript makes them anew")
        return
    for name in stale:
        (PLACE / name).write_text(rendered()[name])


if __name__ == "__main__":
    main()
