"""The command `gc`, which frees the space of unused contents."""

import click

from agentfsd.cli.command_base import client, json_option, mount_option
from agentfsd.cli.output import printing, progress_bar
from agentfsd.control import status_text


@click.command()
@click.option("--forget-undo", is_flag=True, help="Also free what is kept only for `agentfsd undo`.")
@mount_option
@json_option
def gc(forget_undo: bool, named: str | None, as_json: bool) -> None:
    """Free the space of unused contents.

    The daemon does this by itself when it is idle. This command does it now.

    \b
    Example:
      agentfsd gc
      agentfsd gc --forget-undo
    """
    with client(named) as daemon, progress_bar.of_daemon() as on_progress:
        freed = daemon.collect_garbage(forget_undo=forget_undo, on_progress=on_progress)
        is_more_kept = not forget_undo and not as_json and bool(daemon.undoable())
    if as_json:
        printing.as_json({"objects": freed.objects, "freed_bytes": freed.freed_bytes})
    else:
        printing.say(f"freed {status_text.size(freed.freed_bytes)} in {printing.plural(freed.objects, 'object')}")
    if is_more_kept:
        printing.note("what `agentfsd undo` needs stays, such as discarded branches; `agentfsd gc --forget-undo` frees it")
