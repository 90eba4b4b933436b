"""The command `doctor`, which checks what this machine can do."""

import os

import click
import msgspec

from agentfsd.cli.command_base import EXIT_REFUSED, json_option
from agentfsd.cli.output import printing
from agentfsd.state import state_directory


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check what this machine can do.

    For each thing that is missing, it says what does not work without it, and which command mends it. The exit code is 1 if
    nothing can be mounted.

    \b
    Example:
      agentfsd doctor
    """
    from agentfsd.cli.checkup import (
        capabilities,
        obstacles,  # imported here, or each completion with Tab would wait for them
    )

    states = os.path.dirname(state_directory.default_state("/").path)
    findings = [*capabilities.survey(states), *obstacles.survey(states)]
    usable = all(finding.found for finding in findings if finding.needed)
    if as_json:
        printing.as_json({"usable": usable, "findings": [msgspec.to_builtins(finding) for finding in findings]})
    else:
        for finding in findings:
            printing.say(f"{'ok ' if finding.found else 'NO ' if finding.needed else ' - '} {finding.name}: {finding.detail}")
            if not finding.found:
                if finding.cost:
                    printing.say(f"      without it: {finding.cost}")
                if finding.remedy:
                    printing.say(f"      to mend it: {finding.remedy}")
        printing.say("mounting works here" if usable else "mounting does not work here")
    ctx.exit(0 if usable else EXIT_REFUSED)
