"""The command `interpose`, which decides whether and how programs get real descriptors of a mount's files."""

import click

from agentfs_client import wire
from agentfsd.cli.command_base import Group, client, json_option, mount_option, plain
from agentfsd.cli.output import printing
from agentfsd.cli.output.settings_help import describe_settings
from agentfsd.handoff.forwarding_settings import SETTINGS


@click.group(cls=Group)
def interpose() -> None:
    """Give programs real descriptors of a mount's files.

    A program with a real descriptor reads and writes past the daemon. `agentfsd run --interpose` gives such descriptors to any
    program, `agentfs_client.open` to Python programs. This is off by default, because a process that holds a descriptor can
    read and write the branch's content without any further check.

    \b
    Example:
      agentfsd interpose set enabled=on
      agentfsd interpose get
    """


@interpose.command("get")
@mount_option
@json_option
def get(named: str | None, as_json: bool) -> None:
    """Show the settings, and whether descriptors are possible.

    \b
    Example:
      agentfsd interpose get --json
    """
    with client(named) as daemon:
        reply = daemon.interpose()
    if as_json:
        printing.as_json(plain(reply))
        return
    printing.table(("setting", "value"), sorted(reply.settings.items()))
    printing.say()
    printing.say(_summary(reply))


def _summary(reply: wire.InterposeReply) -> str:
    if not reply.possible:
        return f"nothing is given out: {reply.why}"
    if reply.settings.get("enabled") != "on":
        return "nothing is given out; `agentfsd interpose set enabled=on` changes that"
    return f"descriptors are given out, at present of {printing.plural(reply.open, 'file')}"


_SET_HELP = f"""Change settings.

They take effect at once and are kept with the overlay. For a single setting, NAME VALUE works as well.

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
            reply = daemon.set_interpose(name, value)
            printing.say(f"{name} is {reply.settings[name] or 'empty'} now")
    if not reply.possible:
        printing.note(f"nothing is given out here all the same: {reply.why}")


def _pairs(settings: tuple[str, ...]) -> list[tuple[str, str]]:
    if len(settings) == 2 and "=" not in settings[0]:
        return [(settings[0], settings[1])]
    pairs = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"{setting!r} is not a NAME=VALUE")
        pairs.append((name.strip(), value.strip()))
    return pairs
