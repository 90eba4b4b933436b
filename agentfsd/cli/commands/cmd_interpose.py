"""interpose: whether programs get real descriptors of the files of a mount, and how."""

import click

from agentfs_client import wire
from agentfsd.cli.command_base import Group, client, json_option, mount_option, plain
from agentfsd.cli.output import printing
from agentfsd.cli.output.settings_help import describe_settings
from agentfsd.handoff.forwarding_settings import SETTINGS


@click.group(cls=Group)
def interpose() -> None:
    """Give programs real descriptors of the files of a mount.

    What a program reads and writes with one does not pass through the daemon.
    `agentfsd run --interpose` gives them to any program, `agentfs_client.open` to one in Python. Off until somebody says so:
    what holds one reads and writes the branch's content without being asked again.

    \b
    Example:
      agentfsd interpose set enabled=on
      agentfsd interpose get
    """


@interpose.command("get")
@mount_option
@json_option
def get(named: str | None, as_json: bool) -> None:
    """Every setting with its value, and whether descriptors can be given out here.

    \b
    Example:
      agentfsd interpose get --json
    """
    with client(named) as daemon:
        found = daemon.interpose()
    if as_json:
        printing.as_json(plain(found))
        return
    printing.table(("setting", "value"), sorted(found.settings.items()))
    printing.say()
    printing.say(_summary(found))


def _summary(found: wire.InterposeReply) -> str:
    if not found.possible:
        return f"nothing is given out: {found.why}"
    if found.settings.get("enabled") != "on":
        return "nothing is given out; `agentfsd interpose set enabled=on` changes that"
    return f"descriptors are given out, at present of {printing.plural(found.open, 'file')}"


_SET_HELP = f"""Change settings, from now on and for good. NAME VALUE does as well for a single one.

{describe_settings(SETTINGS.values())}

\b
Example:
  agentfsd interpose set enabled=on max_copy_bytes=256M
  agentfsd interpose set allow "python3* /usr/bin/git"
"""


@interpose.command("set", help=_SET_HELP)
@click.argument("settings", metavar="NAME=VALUE...", nargs=-1, required=True)
@mount_option
def set_(settings: tuple[str, ...], named: str | None) -> None:
    wanted = _pairs(settings)
    with client(named) as daemon:
        known = daemon.interpose().settings
        for name, _ in wanted:
            if name not in known:
                raise click.UsageError(f"there is no setting named {name!r}; there are {', '.join(known)}")
        for name, value in wanted:
            found = daemon.set_interpose(name, value)
            printing.say(f"{name} is {found.settings[name] or 'empty'} now")
    if not found.possible:
        printing.note(f"nothing is given out here all the same: {found.why}")


def _pairs(settings: tuple[str, ...]) -> list[tuple[str, str]]:
    if len(settings) == 2 and "=" not in settings[0]:
        return [(settings[0], settings[1])]
    pairs = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"{setting!r} is no NAME=VALUE")
        pairs.append((name.strip(), value.strip()))
    return pairs
