"""The command `fsck`, which checks that everything stored is sound, and repairs it on request."""

import os

import click

from agentfsd.cli.command_base import EXIT_REFUSED, Failure, client, json_option, mount_option
from agentfsd.cli.output import printing, progress_bar
from agentfsd.state import state_directory


@click.command()
@mount_option
@click.option("--state", metavar="DIR", help="Check a state directory that is not mounted.")
@click.option("--scrub", is_flag=True, help="Also read the contents of snapshots and compare them with their checksums.")
@click.option("--repair", is_flag=True, help="Repair the state with what can be read (with --state). Nothing is deleted.")
@click.option("--from-copy", is_flag=True, help="Put the metadata back to the last clean start (with --state).")
@click.option("--discard", is_flag=True, help="Delete the contents that were set aside (with --state).")
@json_option
@click.pass_context
def fsck(
    ctx: click.Context, named: str | None, state: str | None, scrub: bool, repair: bool, from_copy: bool, discard: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Check that everything stored is sound.

    It repairs nothing unless you ask for it. It first recovers a state directory that is not mounted, as a mount would: it
    removes work that a kill left half done. It does not change a damaged state. --repair keeps everything that can be read. It
    moves the damaged metadata to STATE/damaged-TIME, and sets aside contents that belong to no file.

    \b
    Example:
      agentfsd fsck
      agentfsd fsck --scrub
      agentfsd fsck --state ~/.local/state/agentfsd/project-0123456789ab
      agentfsd fsck --state ~/.local/state/agentfsd/project-0123456789ab --repair
    """
    if state is not None:
        from agentfsd.cli.checkup.offline_fsck import Wanted, check_state  # imported here, as it loads most of the daemon

        wanted = Wanted(repair=repair, from_copy=from_copy, scrub=scrub, discard=discard)
        with progress_bar.of_steps() as tell:
            problems = check_state(state_directory.StateDirectory(os.path.realpath(state)), wanted, tell, printing.note)
    else:
        if repair or from_copy or discard:
            raise Failure("a mounted state is not repaired", "unmount it first, then 'agentfsd fsck --state DIR'")
        with client(named) as daemon, progress_bar.of_daemon() as on_progress:
            problems = daemon.fsck(on_progress, scrub=scrub)
            for sentence in daemon.status().damage:
                printing.note(sentence)
    if as_json:
        printing.as_json(problems)
    else:
        for problem in problems:
            printing.say(problem)
        printing.say("sound" if not problems else printing.plural(len(problems), "problem"))
    ctx.exit(EXIT_REFUSED if problems else 0)
