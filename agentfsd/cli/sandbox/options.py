"""The options of `run` by which somebody says how it is confined."""

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from agentfsd.cli.sandbox.profiles import PROFILES, Asked

_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--confine", "profile", type=click.Choice(PROFILES), help="How far to confine it; else as `policy` says."),
    click.option(
        "--home", type=click.Choice(["overlay", "ro", "hide", "rw"]),
        help="The home directory: changes belong to the branch (diff --home shows them); read-only; an empty one; as it is.",
    ),
    click.option("--rest", type=click.Choice(["ro", "rw"]), help="Everything else."),
    click.option("--tmp", type=click.Choice(["private", "shared"]), help="/tmp, /var/tmp: empty ones of its own; everybody's."),
    click.option("--net", type=click.Choice(["host", "none"]), help="The network: this machine's, or none but itself."),
    click.option("--write", metavar="PATH", multiple=True, help="Leave this writable."),
    click.option("--read", metavar="PATH", multiple=True, help="Leave this to read alone."),
    click.option("--hide", metavar="PATH", multiple=True, help="Show nothing there."),
)  # fmt: skip


def confine_options(command: _F) -> _F:
    """Add the options to a command, which gets them as one argument *asked*."""

    @functools.wraps(command)
    def with_asked(
        *args: Any, profile: str | None, home: str | None, rest: str | None, tmp: str | None, net: str | None,
        write: tuple[str, ...], read: tuple[str, ...], hide: tuple[str, ...], **others: Any,
    ) -> Any:  # fmt: skip
        paths = [tuple(os.path.realpath(path) for path in given) for given in (write, read, hide)]
        return command(*args, asked=Asked(profile, home, rest, tmp, net, *paths), **others)

    decorated: Any = with_asked
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
