"""Tells the user which attributes an export or import could not keep."""

import click

from agentfsd.cli.output import printing


def report_lost(lacking: list[str]) -> None:
    """Print the attributes that could not be kept. This is no error: an ordinary user cannot give files to others."""
    if lacking:
        printing.note(f"{printing.plural(len(lacking), 'attribute')} could not be kept:")
    for line in lacking[: printing.SHOWN_PATHS]:
        printing.detail(line)
    if len(lacking) > printing.SHOWN_PATHS:
        click.echo(f"  ... and {len(lacking) - printing.SHOWN_PATHS} more", err=True)
