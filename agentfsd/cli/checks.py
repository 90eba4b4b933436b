"""doctor and fsck."""

import os

import click
import msgspec

from agentfsd import runtime
from agentfsd.backstore import ramdisk
from agentfsd.cli import output, progress
from agentfsd.cli.common import EXIT_REFUSED, Failure, client, json_option, mount_option


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """What this machine can do, what each missing thing costs, and the command that mends it.

    \b
    Example:
      agentfsd doctor
    """
    from agentfsd.cli import capabilities, obstacles  # here, or every Tab would wait for them

    states = os.path.dirname(runtime.default_state("/").path)
    findings = [*capabilities.survey(states), *obstacles.survey(states)]
    usable = all(finding.found for finding in findings if finding.needed)
    if as_json:
        output.as_json({"usable": usable, "findings": [msgspec.to_builtins(finding) for finding in findings]})
    else:
        for finding in findings:
            output.say(f"{'ok ' if finding.found else 'NO ' if finding.needed else ' - '} {finding.name}: {finding.detail}")
            if not finding.found:
                if finding.cost:
                    output.say(f"      without it: {finding.cost}")
                if finding.remedy:
                    output.say(f"      to mend it: {finding.remedy}")
        output.say("mounting works here" if usable else "mounting does not work here")
    ctx.exit(0 if usable else EXIT_REFUSED)


@click.command()
@mount_option
@click.option("--state", metavar="DIR", help="Check a state directory that is not mounted.")
@json_option
@click.pass_context
def fsck(ctx: click.Context, named: str | None, state: str | None, as_json: bool) -> None:
    """Check that everything stored is sound. Repairs nothing.

    A state directory that is not mounted is first put in order as a mount would do it: what a kill left half-done goes.

    \b
    Example:
      agentfsd fsck
      agentfsd fsck --state ~/.local/state/agentfsd/project-0123456789ab
    """
    if state is not None:
        problems = _check_state(runtime.State(os.path.realpath(state)))
    else:
        with client(named) as daemon, progress.of_daemon() as on_progress:
            problems = daemon.fsck(on_progress)
    if as_json:
        output.as_json(problems)
    else:
        for problem in problems:
            output.say(problem)
        output.say("sound" if not problems else output.plural(len(problems), "problem"))
    ctx.exit(EXIT_REFUSED if problems else 0)


def _check_state(state: runtime.State) -> list[str]:
    from agentfsd.backstore.hostfs import HostBackstore  # most of what there is: here, or every command and every Tab would wait
    from agentfsd.core.overlay import Overlay
    from agentfsd.lower.host import HostLower
    from agentfsd.metadata.store import Store

    record = state.last_record()
    place = state.on_ramdisk() if ramdisk.is_there(state.ramdisk) else state
    if not os.path.exists(place.metadata) or record is None:
        raise Failure(f"{state.path} is no agentfsd state directory", "`agentfsd status` names the one of a mount")
    with runtime.locked(state):
        lower, backstore = HostLower(record.lower), HostBackstore(place.objects)
        store = Store.open(place.metadata, record.lower)
        try:
            overlay = Overlay(store, lower, backstore)
            while overlay.reap():
                pass
            return overlay.fsck()
        finally:
            store.close()
            backstore.close()
            lower.close()
