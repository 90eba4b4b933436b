"""The command `watch`, which prints changes in branches as they happen."""

import click

from agentfs_client import wire
from agentfs_client.errors import AgentFSError, DaemonGoneError
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Failure, client, mount_option, plain
from agentfsd.cli.output import printing


@click.command()
@click.argument("branch", required=False, shell_complete=shell_completion.branches)
@mount_option
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object on a line.")
def watch(branch: str | None, named: str | None, as_json: bool) -> None:
    """Show changes as they happen.

    Each line names the time, the kind of change, the branch and the path. Without BRANCH, it shows all branches. It ends with
    Ctrl-C (exit code 130), when the branch is deleted (0), or when the daemon ends (1). A file that a process writes all the time
    is shown as modified five times a second. Restoring or discarding a branch is a single line; `agentfsd diff` shows the files.
    "overlap" names a path that other branches have changed, too, "conflict" one at which a merge with them would conflict. Kinds
    that begin with "note-" are about notes (`agentfsd notes`). If the daemon is killed or replaced, the command goes on with the
    next one.

    \b
    Example:
      agentfsd watch
      agentfsd watch fix-1 --json | jq -r 'select(.kind == "created").path'
    """
    begun = f"watching {branch or 'every branch you may see'}; Ctrl-C ends it"
    while True:
        try:
            _watch(named, branch, as_json, begun)
        except DaemonGoneError:
            if not _has_successor(named):
                raise
            begun = "the daemon was started again; what happened meanwhile is not shown"
        else:
            return


def _watch(named: str | None, branch: str | None, as_json: bool, begun: str) -> None:
    with client(named) as daemon, daemon.events(branch) as events:
        printing.note(begun)
        for event in events:
            if as_json:
                printing.as_json_line(plain(event))
            else:
                printing.say(f"{printing.clock(event.time_ns)}  {event.kind:<16} {event.branch:<16} {_subject(event)}".rstrip())


def _has_successor(named: str | None) -> bool:
    """Whether another daemon goes on with the mount."""
    try:
        with client(named):
            return True
    except (AgentFSError, Failure):
        return False


def _subject(event: wire.Event) -> str:
    if event.kind == "lost":
        return f"({printing.plural(event.count, 'event')} not shown: this reader was too slow)"
    if event.kind in ("bound", "unbound"):
        return f"process {event.pid}"
    if not event.path_bytes:
        return f"note {event.name} about the branch" if event.kind.startswith("note-") else event.name or "."
    path = printing.quoted(event.path_bytes + b"/" * event.is_dir)
    if event.kind.startswith("note-"):
        return f"note {event.name} about {path}"
    if event.kind in ("overlap", "conflict"):
        return f"{path} (changed in {event.name}, too)"
    return f"{printing.quoted(event.old_path_bytes)} -> {path}" if event.old_path_bytes else path
