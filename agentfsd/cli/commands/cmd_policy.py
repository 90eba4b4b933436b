"""policy: show and change the settings of an overlay."""

import click

from agentfs_client.control import ControlClient
from agentfsd.cli.command_base import Group, client, json_option, mount_option
from agentfsd.cli.output import printing
from agentfsd.cli.output.settings_help import describe_settings
from agentfsd.core.policy_settings import SETTINGS


@click.group(cls=Group)
def policy() -> None:
    """Show and change the settings of an overlay.

    They say which snapshots are kept, which mode and access list a copied-up file gets, and what the audit trail records.

    \b
    Example:
      agentfsd policy show
      agentfsd policy set retention.max_count 50
      agentfsd policy set copyup.mode_strategy 'clone&umask'
    """


def _show_policy(daemon: ControlClient, as_json: bool) -> None:
    found = daemon.policy()
    if as_json:
        printing.as_json(found)
    else:
        printing.table(("setting", "value"), sorted(found.items()))


@policy.command("show")
@mount_option
@json_option
def show_policy(named: str | None, as_json: bool) -> None:
    """Every setting with its value.

    \b
    Example:
      agentfsd policy show --json
    """
    with client(named) as daemon:
        _show_policy(daemon, as_json)


_SET_HELP = f"""Change one setting; it is kept with the overlay.

{describe_settings(SETTINGS.values())}

A directory in which only names change keeps its mode and list.

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
        found = daemon.set_policy(name, value)
    printing.say(f"{name} is {found[name]} now")
