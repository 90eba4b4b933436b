"""Completes branches, snapshots and mounts in shells, and makes the scripts that shells read.

The user has only pressed Tab, so it must never start a daemon, wait long for one, or print an error.
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

SCRIPTS = {  # the paths below share/ that each shell reads by itself
    "bash": "bash-completion/completions/agentfsd",
    "zsh": "zsh/site-functions/_agentfsd",
    "fish": "fish/vendor_completions.d/agentfsd.fish",
}
_PATIENCE_S = 1.0


def script(shell: str) -> str:
    """Return the completion script for bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    return ShellComplete.source(
        kind(click.Group(), {}, "agentfsd", "_AGENTFSD_COMPLETE")
    )  # the subclasses' source() needs that shell to be installed


def branches(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _beginning(incomplete, _ask(ctx, _branches))


def snapshots(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _beginning(incomplete, _ask(ctx, _snapshots))


def refs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of branches and snapshots; not their ids, which users copy."""
    return _beginning(incomplete, _ask(ctx, lambda daemon: _branches(daemon) + _snapshots(daemon)))


def asks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the numbers of questions that wait."""
    return _beginning(incomplete, _ask(ctx, lambda daemon: [
        CompletionItem(str(each.id), help=f"{each.command} wants to {each.what} {each.path}") for each in daemon.list_asks()
    ]))  # fmt: skip


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def refs_or_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return refs(ctx, param, incomplete) or files(ctx, param, incomplete)


def mounts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete mount points, or directories if no mount point begins like that."""
    live = [CompletionItem(record.mountpoint) for record in live_daemons() if not record.hidden]
    return [item for item in live if item.value.startswith(incomplete)] or [CompletionItem(incomplete, type="dir")]


def _branches(daemon: ControlClient) -> list[CompletionItem]:
    return [
        CompletionItem(branch.name, help=f"branch from {branch.base or 'the lower'}")
        for branch in daemon.list_branches(count=False)
    ]


def _snapshots(daemon: ControlClient) -> list[CompletionItem]:
    return [
        CompletionItem(snapshot.name, help=f"snapshot of {printing.when(snapshot.created_ns)}")
        for snapshot in daemon.list_snapshots()
    ]


def _ask(ctx: click.Context, question: Callable[[ControlClient], list[CompletionItem]]) -> list[CompletionItem]:
    """Ask the daemon; return nothing if there is no mount or no answer. A mount that hangs ends this process."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # only a signal that kills ends a system call on a mount that hangs
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
    try:
        with mount_finder.find(ctx.params.get("named")).connect() as daemon:
            return question(daemon)
    except (AgentFSError, Refusal, OSError):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _beginning(incomplete: str, items: list[CompletionItem]) -> list[CompletionItem]:
    return [item for item in items if item.value.startswith(incomplete)]
