"""policy: show and change the settings of an overlay."""

import click

from agentfs_client.control import ControlClient
from agentfsd.cli.command_base import Group, client, json_option, mount_option
from agentfsd.cli.output import printing


@click.group(cls=Group)
def policy() -> None:
    """Settings of an overlay: which snapshots are kept, the mode and access list of what is copied up, what is written down.

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


@policy.command("set")
@click.argument("name")
@click.argument("value")
@mount_option
def set_policy(name: str, value: str, named: str | None) -> None:
    """Change one setting; it is kept with the overlay.

    \b
    retention.max_count    snapshots of a branch that are kept; 0 for all
    retention.max_age      how long (30d, 12h); 0 for ever
    retention.keep_named   yes: those that somebody gave a name are always kept
    retention.keep_tagged  yes: those with a tag as well; no: a tag alone keeps none
    copyup.mode_strategy   mode of a file or directory when a branch first changes it:
                           clone (the lower's), 'clone&umask', or fixed
    copyup.umask           bits that clone&umask takes away, in octal
    copyup.file_mode       what fixed gives to files, in octal
    copyup.dir_mode        likewise to directories
    copyup.acl_strategy    its access list: clone; drop (as setfacl -b); or map-basic
                           (gone, and the group bits are what its entries gave)
    audit.enabled          yes: who changes what is written down (`agentfsd audit`)
    audit.max_bytes        what that may take, such as 64M; the oldest entries go
    log.slow_ms            requests that take longer are logged, and seen in status; 0 for none

    A directory in which only names change keeps its mode and list.

    \b
    Example:
      agentfsd policy set retention.max_age 30d
      agentfsd policy set copyup.mode_strategy fixed
      agentfsd policy set copyup.file_mode 640
    """
    with client(named) as daemon:
        found = daemon.set_policy(name, value)
    printing.say(f"{name} is {found[name]} now")
