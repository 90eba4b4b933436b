"""run and shell: a command in a branch, at the workspace's own path."""

import os
import secrets
import sys
from collections.abc import Sequence

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import NotFoundError
from agentfsd import mounts, runtime
from agentfsd.cli import locate, namespace, output, runner, start
from agentfsd.cli.common import Failure, connect, mount_option, refusals
from agentfsd.errors import Refusal

_WORDS = (
    "amber", "ash", "birch", "brook", "cedar", "clay", "cliff", "cloud", "coral", "crane", "dawn", "delta", "dune", "fern",
    "finch", "flint", "frost", "glade", "grove", "hazel", "heron", "iris", "jade", "lark", "leaf", "lime", "maple", "mint",
    "moss", "north", "oak", "olive", "opal", "otter", "pearl", "pine", "plum", "quartz", "reed", "ridge", "river", "robin",
    "sage", "slate", "snow", "stone", "swift", "tern", "thorn", "tide", "vale", "willow", "wren",
)  # fmt: skip

_branch_options = (
    click.option("-b", "--branch", metavar="BRANCH", help="Which branch; else a fresh one with a made-up name."),
    click.option("--new", is_flag=True, help="Make the branch; refuse one that exists."),
    click.option("--from", "source", metavar="REF", help="What a new branch starts from; else main as it is now."),
    click.option("--no-namespace", is_flag=True, help="Rely on the view by process, without a private mount namespace."),
)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_branch_options[0]
@_branch_options[1]
@_branch_options[2]
@_branch_options[3]
@mount_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(
    ctx: click.Context, branch: str | None, new: bool, source: str | None, no_namespace: bool, named: str | None,
    command: tuple[str, ...],
) -> None:  # fmt: skip
    """Run COMMAND in a branch: it and its children see that branch, at the workspace's own path.

    Outside any mount, the current directory is overlaid for that command alone; it stays as it is. Signals, terminal and
    exit code pass through.

    \b
    Example:
      cd project && agentfsd run -- make test
      agentfsd run -b fix-1 --new -- my-agent
    """
    ctx.exit(_in_branch(branch, new, source, no_namespace, named, command))


@click.command()
@click.argument("branch", required=False)
@click.option("--new", is_flag=True, help="Make the branch; refuse one that exists.")
@mount_option
@click.pass_context
def shell(ctx: click.Context, branch: str | None, new: bool, named: str | None) -> None:
    """Open $SHELL in a branch. AGENTFS_BRANCH holds its name, for your prompt.

    \b
    Example:
      agentfsd shell fix-1
    """
    program = os.environ.get("SHELL") or "/bin/sh"
    ctx.exit(_in_branch(branch, new, None, False, named, (program,)))


def _in_branch(
    branch: str | None, new: bool, source: str | None, no_namespace: bool, named: str | None, command: Sequence[str]
) -> int:
    one_step = _one_step_lower(named)
    if one_step is not None and no_namespace:
        raise Failure(
            "without a private mount namespace the overlay would be seen by nobody",
            f"mount it first: agentfsd mount {one_step} {one_step}",
        )
    mount = _join(one_step) if one_step is not None else locate.find(named)
    with refusals(), connect(mount) as daemon:
        chosen = _choose_branch(daemon, branch, new, source)
        code = _run(daemon, mount, chosen, one_step, no_namespace, command)
        if one_step is not None or branch is None:
            _report(daemon, chosen)
    return code


def _one_step_lower(named: str | None) -> str | None:
    """The directory to overlay for one command, when no mount was named and none is around; None otherwise."""
    if named is not None or os.environ.get("AGENTFS_MOUNT"):
        return None
    directory = os.getcwd()
    live = runtime.live_daemons()
    mounted = mounts.mount_of(directory)
    if mounted is not None and mounted.fstype == mounts.FSTYPE:
        return None
    found = locate.around(directory, live, revive=True)
    if found is None:
        return directory
    record = found.record
    return record.lower if record is not None and record.hidden else None


def _join(lower: str) -> locate.Mount:
    reason = namespace.probe_error()
    if reason:
        raise Failure(
            f"a private mount namespace is not to be had here: {reason}", f"mount it first: agentfsd mount {lower} {lower}"
        )
    record = start.join_hidden(lower, runtime.default_state(lower))
    return locate.Mount(record.mountpoint, record)


def _choose_branch(daemon: ControlClient, branch: str | None, new: bool, source: str | None) -> wire.Branch:
    if branch is None:
        taken = {found.name for found in daemon.list_branches()}
        names = (f"{secrets.choice(_WORDS)}-{secrets.choice(_WORDS)}" for _ in iter(int, 1))
        return daemon.create_branch(next(name for name in names if name not in taken), source)
    if new:
        return daemon.create_branch(branch, source)
    if source is not None:
        raise Failure("--from is for a new branch", f"add --new, or leave out --from: -b {branch} goes on where it is")
    try:
        return daemon.show_branch(branch)
    except NotFoundError as exc:
        raise Failure(exc.message, f"--new makes it: agentfsd run -b {branch} --new -- COMMAND") from exc


def _run(
    daemon: ControlClient,
    mount: locate.Mount,
    branch: wire.Branch,
    one_step: str | None,
    no_namespace: bool,
    command: Sequence[str],
) -> int:
    shown_at = one_step or mount.mountpoint
    env = {**os.environ, "AGENTFS_MOUNT": shown_at, "AGENTFS_BRANCH": branch.name}
    # Looked up by the child, in its own namespace, before it is bound: afterwards it may not.
    views = {} if no_namespace else {shown_at: os.path.join(mount.mountpoint, ".agentfs/branches", branch.name)}
    order = runner.Command(command, env, os.getcwd(), views, lambda pid: daemon.bind(pid, branch.id))
    ended = _run_somehow(order, one_step is not None)
    if ended.left_behind and sys.stderr.isatty():
        output.note(f"{output.plural(len(ended.left_behind), 'process', 'processes')} still running in {branch.name}")
    return ended.exit_code


def _run_somehow(order: runner.Command, needs_view: bool) -> runner.Ended:
    """In a private namespace where that is permitted; else by the process's binding alone, which is as right."""
    try:
        return runner.run(order)
    except runner.NamespaceError as exc:
        if needs_view:
            raise Refusal(1, "no-namespace", f"the overlay cannot be shown to the command: {exc}") from exc
        return runner.run(runner.Command(order.argv, order.env, order.cwd, {}, order.bind))


def _report(daemon: ControlClient, branch: wire.Branch) -> None:
    """What the command changed, and what to do about it."""
    found = daemon.diff(b=branch.id)
    if not found:
        output.note(f"nothing changed in branch {branch.name}")
        return
    output.note(f"{output.plural(len(found), 'change')} in branch {branch.name}; the real files are as they were")
    for change in found[: output.SHOWN_PATHS]:
        click.echo(f"  {change.status} {output.printable(change.path)}", err=True)
    if len(found) > output.SHOWN_PATHS:
        click.echo(f"  ... and {len(found) - output.SHOWN_PATHS} more", err=True)
    click.echo(f"  show it:    agentfsd diff {branch.name}", err=True)
    click.echo(f"  go on:      agentfsd run -b {branch.name} -- COMMAND      (it is kept until you discard it)", err=True)
    click.echo(f"  discard it: agentfsd discard {branch.name}", err=True)
