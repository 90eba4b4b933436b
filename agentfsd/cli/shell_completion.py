"""Names of branches, snapshots and mounts for shell completion, and the scripts that shells read.

It must never start a daemon, wait long for one, or say anything but the names: a person has only pressed Tab.
"""

import signal
from collections.abc import Callable

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfs_client.registry import live_daemons
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing
from agentfsd.domain_errors import Refusal

SCRIPTS = {  # below share/, where each shell looks by itself
    "bash": "bash-completion/completions/agentfsd",
    "zsh": "zsh/site-functions/_agentfsd",
    "fish": "fish/vendor_completions.d/agentfsd.fish",
}
_PATIENCE_S = 1.0


def script(shell: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None, shell
    return ShellComplete.source(kind(click.Group(), {}, "agentfsd", "_AGENTFSD_COMPLETE"))  # a shell's own looks for that shell


def branches(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _beginning(incomplete, _ask(ctx, _branches))


def snapshots(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _beginning(incomplete, _ask(ctx, _snapshots))


def refs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Branches and snapshots; ids are for copying."""
    return _beginning(incomplete, _ask(ctx, lambda daemon: _branches(daemon) + _snapshots(daemon)))


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def refs_or_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return refs(ctx, param, incomplete) or files(ctx, param, incomplete)


def mounts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Where something is mounted; directories when none of those is meant."""
    live = [CompletionItem(record.mountpoint) for record in live_daemons() if not record.hidden]
    return [item for item in live if item.value.startswith(incomplete)] or [CompletionItem(incomplete, type="dir")]


def _branches(daemon: ControlClient) -> list[CompletionItem]:
    return [CompletionItem(found.name, help=f"branch from {found.base or 'the lower'}") for found in daemon.list_branches()]


def _snapshots(daemon: ControlClient) -> list[CompletionItem]:
    return [
        CompletionItem(found.name, help=f"snapshot of {printing.when(found.created_ns)}") for found in daemon.list_snapshots()
    ]


def _ask(ctx: click.Context, question: Callable[[ControlClient], list[CompletionItem]]) -> list[CompletionItem]:
    """Nothing where no mount is meant or its daemon does not answer; one that hangs ends this process."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a look into a mount that hangs heeds nothing less
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
    try:
        with mount_finder.find(ctx.params.get("named")).connect() as daemon:
            return question(daemon)
    except (AgentFSError, Refusal, OSError):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _beginning(incomplete: str, found: list[CompletionItem]) -> list[CompletionItem]:
    return [item for item in found if item.value.startswith(incomplete)]
