"""Man pages of all commands, made from their click definitions: one for each command and group, in man(7)'s macros.

It must never import what a command needs only when it runs.
"""

import inspect
import re
from collections.abc import Iterator

import click

_VERBATIM = "\b"  # click's mark for a paragraph whose lines stay as they are


def pages(name: str, root: click.Group, version: str, date: str) -> dict[str, str]:
    """File name (``agentfsd-branch-list.1``) to text. *date*: YYYY-MM-DD, for the footer."""
    found = _walk(click.Context(root, info_name=name, **root.context_settings), root)
    return {f"{_dashed(ctx)}.1": "\n".join(_page(ctx, version, date)) + "\n" for ctx in found}


def _walk(ctx: click.Context, command: click.Command) -> Iterator[click.Context]:
    yield ctx
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.commands[name]
            if not below.hidden:
                yield from _walk(click.Context(below, info_name=name, parent=ctx), below)


def _page(ctx: click.Context, version: str, date: str) -> Iterator[str]:
    command = ctx.command
    yield f'.TH "{_dashed(ctx).upper()}" 1 "{date}" "agentfsd {version}" "agentfsd"'
    yield ".SH NAME"
    yield f"{_escape(_dashed(ctx))} \\- {_escape(command.get_short_help_str(200).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {_escape(ctx.command_path)}"
    yield _line(" ".join(command.collect_usage_pieces(ctx)))
    description, examples = _split(inspect.cleandoc(command.help or ""))
    yield ".SH DESCRIPTION"
    yield from _paragraphs(description)
    yield from _options(ctx)
    if isinstance(command, click.Group):
        yield from _commands(ctx, command)
    if examples:
        yield ".SH EXAMPLES"
        yield from _paragraphs(examples)
    if ctx.parent is None:
        yield from [".SH EXIT STATUS", "0 done, 1 refused or failed, 2 wrong usage.", ".SH ENVIRONMENT"]
        yield from [".TP", "\\fBAGENTFS_MOUNT\\fR", "The mount that is meant where none is named and none is around."]
        yield from [
            ".TP",
            "\\fBAGENTFS_STATE_HOME\\fR",
            "Where state directories are made; else",
            _line("~/.local/state/agentfsd."),
        ]
    else:
        yield from [".SH SEE ALSO", f".BR {_escape(_dashed(ctx.parent))} (1)"]


def _split(text: str) -> tuple[list[str], list[str]]:
    """The paragraphs of a help text, without and with "Example:" as their first line."""
    paragraphs = re.split(r"\n\s*\n|\n(?=\x08\n)", text.split("\f")[0].strip())
    examples = [paragraph for paragraph in paragraphs if re.match(r"(\x08\n)?Example:\n", paragraph)]
    return [paragraph for paragraph in paragraphs if paragraph not in examples], [
        text.replace("Example:\n", "", 1) for text in examples
    ]


def _paragraphs(paragraphs: list[str]) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        if paragraph.startswith(_VERBATIM):
            yield ".nf"
            yield from (_line(line, verbatim=True) for line in paragraph.lstrip(_VERBATIM).strip("\n").splitlines())
            yield ".fi"
        else:
            yield from (_line(line.strip()) for line in paragraph.splitlines() if line.strip())


def _options(ctx: click.Context) -> Iterator[str]:
    options = [parameter for parameter in ctx.command.get_params(ctx) if isinstance(parameter, click.Option)]
    records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
    if records:
        yield ".SH OPTIONS"
    for names, text in records:
        yield from [".TP", f"\\fB{_escape(names)}\\fR", _line(" ".join(text.split()))]


def _commands(ctx: click.Context, group: click.Group) -> Iterator[str]:
    yield ".SH COMMANDS"
    for name in group.list_commands(ctx):
        command = group.commands[name]
        if not command.hidden:
            yield from [".TP", f".BR {_escape(f'{_dashed(ctx)}-{name}')} (1)", _line(command.get_short_help_str(200))]


def _dashed(ctx: click.Context) -> str:
    return ctx.command_path.replace(" ", "-")


def _line(text: str, verbatim: bool = False) -> str:
    """A line of text that troff takes for nothing else: a leading dot or quote would be a request."""
    escaped = _escape(text)
    return "\\&" + escaped if escaped.startswith((".", "'", " ")) or (verbatim and not escaped) else escaped


def _escape(text: str) -> str:
    """A hyphen stays one (to be copied and pasted), as do a backslash, tilde, caret, quote and backquote."""
    table = {"\\": "\\e", "-": "\\-", "~": "\\(ti", "^": "\\(ha", "`": "\\(ga", "'": "\\(aq", '"': "\\(dq"}
    return "".join(table.get(char, char) for char in text)
