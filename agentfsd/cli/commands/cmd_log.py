"""log, restore, undo, discard, prune, gc, policy: what was, and going back to it."""

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, converse, json_option, mount_option, plain
from agentfsd.cli.commands.cmd_snapshot import show_snapshots
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import history_graph, printing, progress_bar
from agentfsd.control import status_text


@click.command()
@click.argument("ref", required=False, shell_complete=shell_completion.refs)
@mount_option
@json_option
def log(ref: str | None, named: str | None, as_json: bool) -> None:
    """The history: every snapshot and branch as a graph, newest first; with REF, what led to that.

    \b
    Example:
      agentfsd log
      agentfsd log fix-1
    """
    with client(named) as daemon:
        snapshots = daemon.log(ref) if ref or daemon.hello.bound else daemon.list_snapshots()[::-1]
        branches = [] if as_json else [daemon.show_branch()] if daemon.hello.bound else daemon.list_branches()
    if as_json:
        printing.as_json(plain(snapshots))
        return
    known = {snapshot.id for snapshot in snapshots}
    shown = [found for found in branches if found.name == ref or (ref is None and (found.changed or found.last in known))]
    for line in history_graph.draw(_nodes(snapshots, shown)):
        printing.say(line)


def _nodes(snapshots: list[wire.Snapshot], branches: list[wire.Branch]) -> list[history_graph.GraphNode]:
    """Newest first, each before its parents; a branch's state now stands at the top of its history."""
    newest_branches = sorted(branches, key=lambda found: found.id, reverse=True)
    nodes = [history_graph.GraphNode(found.id, [found.last], _branch_text(found), "o") for found in newest_branches]
    waiting = {found.id: found for found in snapshots}
    children: dict[str, int] = {}
    for found in snapshots:
        for parent in _parents(found):
            children[parent] = children.get(parent, 0) + 1
    while waiting:
        free = [found for found in waiting.values() if not children.get(found.id)] or list(waiting.values())
        newest = max(free, key=lambda found: found.created_ns)
        del waiting[newest.id]
        for parent in _parents(newest):
            children[parent] = children.get(parent, 0) - 1
        nodes.append(history_graph.GraphNode(newest.id, _parents(newest), _snapshot_text(newest)))
    return nodes


def _parents(found: wire.Snapshot) -> list[str]:
    """The one before it, and those that were merged; each once."""
    return list(dict.fromkeys((found.parent, *found.merged)))


def _branch_text(found: wire.Branch) -> str:
    return f"branch {found.name}: {printing.plural(found.changed, 'change')} since {found.base or 'the lower'}"


def _snapshot_text(found: wire.Snapshot) -> str:
    by = f" by {found.author} ({found.author_pid})" if found.author else ""
    tag = f" [{printing.printable(found.tag)}]" if found.tag else ""
    amount = (
        f"{printing.plural(found.file_count, 'file')}, {status_text.size(found.bytes_changed)}" if found.file_count >= 0 else ""
    )
    return f"{found.name}{tag}  {printing.when(found.created_ns)}  {amount}{printing.printable(by)}"


@click.command()
@click.argument("ref", shell_complete=shell_completion.refs)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=bytes))
@click.option(
    "-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Which branch; else the one you are in."
)
@mount_option
def restore(ref: str, paths: tuple[bytes, ...], branch: str | None, named: str | None) -> None:
    """Put a branch back to a snapshot, also for the processes inside it; or only PATHs (files, or directories with all below).

    The whole is instant. Files that are open keep the content they had; everything looked up from now on is the snapshot's.
    `agentfsd undo` takes it back. A tag means the newest snapshot with it: of BRANCH first.

    \b
    Example:
      agentfsd restore -b fix-1 good
      agentfsd restore -b fix-1 before-tool
      agentfsd restore -b fix-1 good src/main.py docs
    """
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon, progress_bar.of_daemon() as on_progress:
        wanted = [mount_finder.in_workspace(mount, path) for path in paths]
        said = daemon.restore(ref, branch, wanted, on_progress=on_progress)
    printing.say(said)


@click.command()
@click.option("--list", "listing", is_flag=True, help="Only show what could be undone, the last first.")
@mount_option
@json_option
def undo(listing: bool, named: str | None, as_json: bool) -> None:
    """Take back the last restore, merge, commit to a branch, or discard; again, the one before it.

    What a branch held until now is kept in a snapshot. A commit into the real directory is not undone by this.

    \b
    Example:
      agentfsd undo
      agentfsd undo --list
    """
    with client(named) as daemon:
        found = daemon.undoable() if listing else [daemon.undo()]
    if as_json:
        printing.as_json(plain(found))
    elif listing:
        printing.table(("what", "branch", "before it"), [(deed.kind, deed.branch, deed.snapshot) for deed in found])
    else:
        printing.say(f"undone: {found[0].kind} of {found[0].branch}")


@click.command()
@click.argument("branches", metavar="BRANCH...", nargs=-1, required=True, shell_complete=shell_completion.branches)
@click.option("--forget", is_flag=True, help="Free its room at once: no undo.")
@mount_option
def discard(branches: tuple[str, ...], forget: bool, named: str | None) -> None:
    """Throw branches away with everything they changed (main: back to the bare lower). `agentfsd undo` brings one back.

    Nothing is thrown away when one of them is not there.

    \b
    Example:
      agentfsd discard fix-1
      agentfsd discard fix-2 fix-3
    """
    with client(named) as daemon:
        for name in dict.fromkeys(daemon.show_branch(branch).name for branch in branches):
            daemon.discard(name, keep=not forget)
            printing.say(f"discarded {name}")


@click.command()
@click.option("-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Only those of one branch.")
@click.option("--max-count", type=click.IntRange(0), help="Keep the newest N of each branch; 0: all.")
@click.option("--max-age", metavar="AGE", help="Keep what is younger, such as 12h or 30d; 0: all.")
@click.option("--keep-tagged/--no-keep-tagged", default=None, help="Keep those with a tag.")
@click.option("--keep-named/--no-keep-named", default=None, help="Keep those that somebody named.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@mount_option
@json_option
def prune(
    branch: str | None, max_count: int | None, max_age: str | None, keep_tagged: bool | None, keep_named: bool | None,
    dry_run: bool, named: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Delete snapshots that are too many or too old; what is not said here, `agentfsd policy` says.

    What `snapshot create --keep` took always stays.

    \b
    Example:
      agentfsd prune --max-count 20 --dry-run
      agentfsd policy set retention.max_age 30d && agentfsd prune
    """
    with client(named) as daemon:
        found = daemon.prune(
            branch, max_count=max_count, max_age=max_age, keep_tagged=keep_tagged, keep_named=keep_named, dry_run=dry_run
        )
    show_snapshots(found, as_json)
    if not as_json:
        printing.say(f"{printing.plural(len(found), 'snapshot')} {'would go' if dry_run else 'deleted'}")


@click.command()
@click.option("--forget-undo", is_flag=True, help="Also what is kept for `agentfsd undo` alone.")
@mount_option
@json_option
def gc(forget_undo: bool, named: str | None, as_json: bool) -> None:
    """Free what nothing refers to any more now, rather than in the next quiet moment.

    \b
    Example:
      agentfsd gc --forget-undo
    """
    with client(named) as daemon, progress_bar.of_daemon() as on_progress:
        freed = daemon.collect_garbage(forget_undo=forget_undo, on_progress=on_progress)
    if as_json:
        printing.as_json({"objects": freed.objects, "freed_bytes": freed.freed_bytes})
    else:
        printing.say(f"freed {status_text.size(freed.freed_bytes)} in {printing.plural(freed.objects, 'object')}")


@click.group()
def policy() -> None:
    """Settings of an overlay: which snapshots are kept, the mode and access list of what is copied up, what is written down.

    \b
    Example:
      agentfsd policy show
      agentfsd policy set retention.max_count 50
      agentfsd policy set copyup.mode_strategy 'clone&umask'
    """


def _show_policy(daemon: ControlClient, as_json: bool) -> None:
    found = daemon.policy()
    if as_json:
        printing.as_json(found)
    else:
        printing.table(("setting", "value"), sorted(found.items()))


@policy.command("show")
@mount_option
@json_option
def show_policy(named: str | None, as_json: bool) -> None:
    """Every setting with its value.

    \b
    Example:
      agentfsd policy show --json
    """
    with client(named) as daemon:
        _show_policy(daemon, as_json)


@policy.command("set")
@click.argument("name")
@click.argument("value")
@mount_option
def set_policy(name: str, value: str, named: str | None) -> None:
    """Change one setting; it is kept with the overlay.

    \b
    retention.max_count    snapshots of a branch that are kept; 0 for all
    retention.max_age      how long (30d, 12h); 0 for ever
    retention.keep_named   yes: those that somebody gave a name are always kept
    retention.keep_tagged  yes: those with a tag as well; no: a tag alone keeps none
    copyup.mode_strategy   mode of a file or directory when a branch first changes it:
                           clone (the lower's), 'clone&umask', or fixed
    copyup.umask           bits that clone&umask takes away, in octal
    copyup.file_mode       what fixed gives to files, in octal
    copyup.dir_mode        likewise to directories
    copyup.acl_strategy    its access list: clone; drop (as setfacl -b); or map-basic
                           (gone, and the group bits are what its entries gave)
    audit.enabled          yes: who changes what is written down (`agentfsd audit`)
    audit.max_bytes        what that may take, such as 64M; the oldest entries go
    log.slow_ms            requests that take longer are logged, and seen in status; 0 for none

    A directory in which only names change keeps its mode and list.

    \b
    Example:
      agentfsd policy set retention.max_age 30d
      agentfsd policy set copyup.mode_strategy fixed
      agentfsd policy set copyup.file_mode 640
    """
    with client(named) as daemon:
        found = daemon.set_policy(name, value)
    printing.say(f"{name} is {found[name]} now")
