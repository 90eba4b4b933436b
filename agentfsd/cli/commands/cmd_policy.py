"""The command `policy`, which shows and changes the settings of an overlay."""

import click

from agentfs_client.control import ControlClient
from agentfsd.cli.command_base import Group, client, json_option, mount_option
from agentfsd.cli.output import printing
from agentfsd.cli.output.settings_help import describe_settings
from agentfsd.core.declared_settings import SETTINGS


@click.group(cls=Group)
def policy() -> None:
    """Show and change the settings of an overlay.

    The settings decide which snapshots are kept, which mode and access list a copied-up file gets, and what the audit trail
    records.

    \b
    Example:
      agentfsd policy show
      agentfsd policy set retention.max_count 50
      agentfsd policy set copyup.mode_strategy 'clone&umask'
    """


def _show_policy(daemon: ControlClient, as_json: bool) -> None:
    settings = daemon.policy()
    if as_json:
        printing.as_json(settings)
    else:
        printing.table(("setting", "value"), sorted(settings.items()))


@policy.command("show")
@mount_option
@json_option
def show_policy(named: str | None, as_json: bool) -> None:
    """Show every setting with its value.

    \b
    Example:
      agentfsd policy show --json
    """
    with client(named) as daemon:
        _show_policy(daemon, as_json)


_SET_HELP = f"""Change one setting.

It takes effect at once and is kept with the overlay.

{describe_settings(SETTINGS.values())}

A directory in which only names change keeps its mode and its access list.

\b
Example:
  agentfsd policy set retention.max_age 30d
  agentfsd policy set copyup.mode_strategy fixed
  agentfsd policy set copyup.file_mode 640
"""


@policy.command("set", help=_SET_HELP)
@click.argument("name")
@click.argument("value")
@mount_option
def set_policy(name: str, value: str, named: str | None) -> None:
    with client(named) as daemon:
        settings = daemon.set_policy(name, value)
    printing.say(f"{name} is now {settings[name]}")
