"""Names the attributes that an export or import could not keep."""

import click

from agentfsd.cli.output import printing


def report_lost(lacking: list[str]) -> None:
    """What could not be kept is said, and no error: an ordinary user can give no file away."""
    if lacking:
        printing.note(f"{printing.plural(len(lacking), 'attribute')} could not be kept:")
    for line in lacking[: printing.SHOWN_PATHS]:
        printing.detail(line)
    if len(lacking) > printing.SHOWN_PATHS:
        click.echo(f"  ... and {len(lacking) - printing.SHOWN_PATHS} more", err=True)
