"""The help of the commands that change settings, made from the settings' declarations."""

import textwrap
from collections.abc import Iterable

from agentfsd.core.declared_settings import Setting

_WIDTH = 94  # within the width that the command line's help has at most


def describe_settings(settings: Iterable[Setting]) -> str:
    """Return a paragraph that click leaves as it is: one setting a line, with its meaning and its default."""
    settings = list(settings)
    column = max(len(setting.name) for setting in settings) + 2
    lines = ["\b"]
    for setting in settings:
        text = f"{setting.meaning} [default: {setting.default or 'empty'}]"
        first, *rest = textwrap.wrap(text, _WIDTH - column, break_long_words=False, break_on_hyphens=False)
        lines += [f"{setting.name:{column}}{first}", *(" " * column + line for line in rest)]
    return "\n".join(lines)
