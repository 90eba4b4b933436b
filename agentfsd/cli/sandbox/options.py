"""The options of `run` that confine its command."""

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from agentfsd.cli.sandbox.profiles import PROFILES, Asked

_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--confine", "profile", type=click.Choice(PROFILES),
        help="The profile of confinement; by default the setting `confine` (see `agentfsd policy`).",
    ),
    click.option(
        "--home", type=click.Choice(["overlay", "ro", "hide", "rw"]),
        help="The home directory: its changes belong to the branch (overlay); read-only (ro), empty (hide) or writable (rw).",
    ),
    click.option("--rest", type=click.Choice(["ro", "rw"]), help="All other files of the machine: read-only or writable."),
    click.option(
        "--tmp", type=click.Choice(["private", "shared"]),
        help="/tmp and /var/tmp: empty and private to the command, or shared.",
    ),
    click.option("--net", type=click.Choice(["host", "none"]), help="The network: the machine's, or only a loopback interface."),
    click.option("--write", metavar="PATH", multiple=True, help="Keep PATH writable. Can be repeated."),
    click.option("--read", metavar="PATH", multiple=True, help="Make PATH read-only. Can be repeated."),
    click.option("--hide", metavar="PATH", multiple=True, help="Show nothing at PATH. Can be repeated."),
)  # fmt: skip


def confine_options(command: _F) -> _F:
    """Add the options to a command. The command gets them as one argument *asked*."""

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
