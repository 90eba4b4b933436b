"""The command `run`, which starts a program in a branch, at the workspace's own path."""

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import click

from agentfs_client import interpose, locate, registry, wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, NotFoundError
from agentfs_host.mount_table import is_within
from agentfsd.cli import run_questions, shell_completion, shell_prompt
from agentfsd.cli.command_base import Failure, converse, mount_option, refusals
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing, progress_bar
from agentfsd.cli.run_watch import RunWatch
from agentfsd.cli.sandbox import layout, namespace_trial, profiles, runner
from agentfsd.cli.sandbox.layout import RunPlan
from agentfsd.cli.sandbox.options import confine_options
from agentfsd.cli.sandbox.outside_rules import outside_places
from agentfsd.cli.sandbox.profiles import Asked
from agentfsd.cli.sandbox.view import View
from agentfsd.domain_errors import Refusal
from agentfsd.state import state_directory
from agentfsd.types import CONTROL_DIR as CONTROL_NAME

CONTROL_DIR = os.fsdecode(CONTROL_NAME)
_REPORTS = {"yes": "text", "no": ""}  # values of the setting run.report

_TAG_CHARACTERS = 60
_WORDS = (
    "amber", "ash", "birch", "brook", "cedar", "clay", "cliff", "cloud", "coral", "crane", "dawn", "delta", "dune", "fern",
    "finch", "flint", "frost", "glade", "grove", "hazel", "heron", "iris", "jade", "lark", "leaf", "lime", "maple", "mint",
    "moss", "north", "oak", "olive", "opal", "otter", "pearl", "pine", "plum", "quartz", "reed", "ridge", "river", "robin",
    "sage", "slate", "snow", "stone", "swift", "tern", "thorn", "tide", "vale", "willow", "wren",
)  # fmt: skip

_branch_options = (
    click.option(
        "-b",
        "--branch",
        metavar="BRANCH",
        shell_complete=shell_completion.branches,
        help="The branch; by default a new one with a generated name.",
    ),
    click.option("--new", is_flag=True, help="Create the branch; fail if it exists."),
    click.option(
        "--from",
        "source",
        metavar="REF",
        shell_complete=shell_completion.refs,
        help="The branch or snapshot from which a new branch starts; by default main.",
    ),
    click.option(
        "--frozen",
        is_flag=True,
        help="Keep a new branch's unmodified files as they are now, whatever happens in the real directory.",
    ),
    click.option(
        "--io",
        type=click.Choice(["auto", "overlay", "zero-message", "passthrough", "cached"]),
        default="auto",
        show_default=True,
        help="How file data reaches the command. overlay: the kernel's overlayfs does all the work; "
        "zero-message: the kernel opens files without asking the daemon; "
        "passthrough: the kernel reads and writes past the daemon; cached: through the daemon. "
        "See docs/explanation/connections.md.",
    ),
    click.option("--snapshot", "around", is_flag=True, help="Take a snapshot of the branch before and after the command."),
    click.option(
        "--no-namespace",
        is_flag=True,
        help="Use no private mount namespace: the daemon knows the command by its process ids. sudo then works for root only.",
    ),
    click.option(
        "--interpose",
        "forwarded",
        is_flag=True,
        help="Preload a library through which programs get real file descriptors, and read and write past the daemon.",
    ),
    click.option(
        "--report",
        "report",
        flag_value="text",
        help="After the command, report on standard error what was refused, and what changed elsewhere.",
    ),
    click.option(
        "--json", "report", flag_value="json", help="Print that report as one line of JSON, the last of standard error."
    ),
)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_branch_options[0]
@_branch_options[1]
@_branch_options[2]
@_branch_options[3]
@_branch_options[4]
@_branch_options[5]
@_branch_options[6]
@_branch_options[7]
@_branch_options[8]
@_branch_options[9]
@confine_options
@mount_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=shell_completion.files)
@click.pass_context
def run(
    ctx: click.Context, branch: str | None, new: bool, source: str | None, frozen: bool, io: str, around: bool,
    no_namespace: bool, forwarded: bool, report: str | None, asked: Asked, named: str | None, command: tuple[str, ...],
) -> None:  # fmt: skip
    """Run a command in a branch.

    COMMAND and its children see the branch at the mount point and at the path of the real directory. COMMAND starts in the
    current directory, or in the workspace's root if the current directory is outside the workspace. Outside any mount, run
    makes an overlay of the current directory for this command; the directory itself does not change. Signals, the terminal and
    the exit code pass through. With --confine strict, COMMAND can change nothing outside the branch.

    \b
    Example:
      cd project && agentfsd run -- make test
      agentfsd run -b fix-1 --new -- my-agent
      agentfsd run -b fix-1 --snapshot -- make
      agentfsd run -b fix-2 --new --frozen -- my-agent
      agentfsd run --confine strict --write ~/.cache -- my-agent
      agentfsd run --home overlay --report -b fix-1 -- my-agent
      agentfsd interpose set enabled=on && agentfsd run -b fix-1 --interpose -- make
    """
    io = "none" if no_namespace else io
    ctx.exit(
        run_command(
            branch, new, source, io, named, command, frozen=frozen, around=around, forwarded=forwarded, asked=asked,
            report=report or "",
        )
    )  # fmt: skip


def run_command(
    branch: str | None, new: bool, source: str | None, io: str, named: str | None, command: Sequence[str], *,
    frozen: bool = False, around: bool = False, forwarded: bool = False, asked: Asked | None = None, report: str = "",
    is_shell: bool = False,
) -> int:  # fmt: skip
    """Run a command in a branch and return its exit code.

    Args:
        branch: The branch; None: a new one with a generated name.
        new: Make the branch.
        frozen: Give a new branch a frozen base.
        source: The ref from which a new branch starts.
        io: The value of --io, or "none" for no private mount namespace.
        named: The value of -m.
        command: The program and its arguments.
        around: Take a snapshot before and after.
        forwarded: Preload the library that gets real descriptors.
        asked: The options of confinement.
        report: How to report what the run did: text, json, or "" for what the setting says.
        is_shell: The program is an interactive shell, which is to show its branch.
    """
    directory = _current_directory()
    mount, daemon = converse(lambda: _find(named, directory))
    with refusals(), daemon:
        shown_at, *others = _targets(mount, directory)
        if shown_at != mount.mountpoint:
            _check_namespace(shown_at, io == "none")
        preloaded = _preloaded(daemon) if forwarded else {}
        chosen = _choose_branch(daemon, branch, new, source, frozen=frozen)
        starts_in = _start_directory(mount, directory, shown_at)
        env = {**os.environ, "AGENTFS_MOUNT": shown_at, "AGENTFS_BRANCH": chosen.name, **preloaded}
        if starts_in != directory:
            env["PWD"] = starts_in
        if is_shell:
            command, more = shell_prompt.marked(command[0], chosen.name, env)
            env |= more
            printing.note(f"this shell is in branch {chosen.name}, shown at {shown_at}; `exit` leaves it")
        settings = daemon.policy()
        ways = list(dict.fromkeys([settings.get("run.io", io), io])) if io == "auto" else [io]
        is_barred = io == "auto" and namespace_trial.would_bar(mount.mountpoint)
        confinement = profiles.decide(asked or Asked(), settings, chosen.name)
        by_process = io == "none" or (is_barred and shown_at == mount.mountpoint and not confinement.is_asked)
        rules = daemon.list_rules(chosen.id)
        ruled = outside_places(rules, reopened=(confinement.home, confinement.rest) == ("rw", "rw"))
        plan = None
        if not confinement.is_plain or ruled:
            plan = layout.plan(confinement, mount.mountpoint, [shown_at, *others], ruled)
        if ruled and by_process:
            _tell_lacking([f"rules about {printing.plural(len(ruled), 'path')} outside the workspace, without a mount namespace"])
        home = plan.layered_home if plan is not None else ""
        views = () if by_process else _views(mount, daemon, chosen, [shown_at, *others], ways, barred=is_barred, home=home)
        watch = RunWatch(mount, daemon, chosen, plan, report or _REPORTS[settings.get("run.report", "no")])
        order = runner.Command(
            command, env, starts_in, None, lambda pid: daemon.bind(pid, chosen.id, descendants=True), plan,
            _tell_lacking if confinement.covers else lambda missing: None, watch.directories(), _pause_of(mount, chosen),
        )  # fmt: skip
        before = None
        if around:
            before = daemon.create_snapshot(chosen.id, tag=f"before: {_shown_command(command)}", around_run=True)
        asks = any(rule.verb == "ask" for rule in rules)
        asking = run_questions.asked(mount.mountpoint, chosen.name) if asks else contextlib.nullcontext()
        with asking, _undone_if_refused(daemon, chosen, made=new or branch is None):
            ended = _run_somehow(order, views, may_be_seen_by_pid=shown_at == mount.mountpoint and io in ("auto", "none"))
        daemon.leave_views()
        watch.record(command, ended.exit_code)
        if before is not None:
            after = daemon.create_snapshot(chosen.id, tag=f"after: {_shown_command(command)}", around_run=True)
            printing.note(f"snapshots {before.name} (before) and {after.name} (after); back: agentfsd restore {before.name}")
        watch.tell(ended, made_up=branch is None, summarized=branch is None or _is_hidden(mount))
    return ended.exit_code


@contextlib.contextmanager
def _undone_if_refused(daemon: ControlClient, branch: wire.Branch, *, made: bool) -> Iterator[None]:
    """Delete the branch that was *made* for a command if that cannot start."""
    try:
        yield
    except (Refusal, Failure):
        if made:
            with contextlib.suppress(AgentFSError):  # it has changes by now
                daemon.delete_branch(branch.id)
        raise


def _pause_of(mount: locate.Mount, branch: wire.Branch) -> Callable[[], bool]:
    """Return a function that tells whether the daemon has stopped the branch's processes for a moment."""
    if mount.record is None:
        return lambda: False
    state = state_directory.StateDirectory(mount.record.state)
    notes = [place.paused_run(branch.id) for place in (state, state.on_volume("ramdisk"))]
    return lambda: any(map(os.path.exists, notes))


def _preloaded(daemon: ControlClient) -> dict[str, str]:
    """Return the environment variables that make the command get real descriptors. Failure where that is impossible."""
    library = interpose.library()
    if library is None:
        raise Failure(
            "this installation lacks the library for --interpose",
            "install gcc; then scripts/install in a checkout, else pip install --force-reinstall --no-binary agentfsd agentfsd",
        )
    if not {" ", ":"}.isdisjoint(library):
        raise Failure(f"the library lies at {library}, which LD_PRELOAD cannot name", "install it where no name has a space")
    reply = daemon.interpose()
    if not reply.possible:
        raise Failure(f"there are no real descriptors here: {reply.why}", "leave out --interpose; the mount serves all files")
    if reply.settings["enabled"] != "on":
        raise Failure("real descriptors are switched off for this overlay", "agentfsd interpose set enabled=on")
    return interpose.environment(os.environ, library, reply.socket, int(reply.settings["min_read_bytes"]))


def _shown_command(command: Sequence[str]) -> str:
    return printing.printable(" ".join(command))[:_TAG_CHARACTERS]


def _current_directory() -> str:
    try:
        return os.getcwd()
    except OSError as exc:
        raise Failure(f"the current directory is gone: {exc.strerror}", "change to one that exists") from exc


def _find(named: str | None, directory: str) -> locate.Mount:
    """Return the mount that is named or shows *directory*; if there is none, a one-step overlay of *directory*."""
    if named is not None or os.environ.get("AGENTFS_MOUNT"):
        return mount_finder.find(named, revive=True)
    mount = mount_finder.around(directory, registry.live_daemons(), revive=True)
    if mount is not None:
        return mount
    _check_namespace(directory, no_namespace=False)
    from agentfsd.cli.connect import daemon_start  # only here: most runs start no daemon, and importing it takes long

    record = daemon_start.join_hidden(directory, state_directory.default_state(directory))
    return locate.Mount(record.mountpoint, record)


def _is_hidden(mount: locate.Mount) -> bool:
    return mount.record is not None and mount.record.hidden


def _targets(mount: locate.Mount, directory: str) -> list[str]:
    """Return the paths at which the command sees its branch, the one for its environment first.

    A command that starts inside the real directory sees the branch there too, or it would work on the real files.
    """
    if mount.covers(directory) or mount.record is None:
        return [mount.mountpoint]
    if _is_hidden(mount):
        return [mount.lower]
    if not is_within(directory, mount.lower):
        return [mount.mountpoint]
    return [mount.lower] if is_within(mount.mountpoint, mount.lower) else [mount.lower, mount.mountpoint]


def _start_directory(mount: locate.Mount, directory: str, shown_at: str) -> str:
    """Return where the command starts: in *directory*; in the workspace's root if it would write real files there."""
    if any(is_within(directory, root) for root in (mount.mountpoint, mount.lower) if root):
        return directory
    printing.note(f"started in {shown_at}: {directory} is outside the workspace")
    return shown_at


def _check_namespace(shown_at: str, no_namespace: bool) -> None:
    reason = "--no-namespace" if no_namespace else namespace_trial.probe_error()
    if reason:
        raise Failure(
            f"without a private mount namespace the command would see the real files in {shown_at} ({reason})",
            f"mount an overlay over them, and go there: agentfsd mount {shown_at} {shown_at}",
        )


def _choose_branch(daemon: ControlClient, branch: str | None, new: bool, source: str | None, *, frozen: bool) -> wire.Branch:
    if branch is None:
        taken = {each.name for each in daemon.list_branches(count=False)}
        names = (f"{secrets.choice(_WORDS)}-{secrets.choice(_WORDS)}" for _ in iter(int, 1))
        return _make_branch(daemon, next(name for name in names if name not in taken), source, frozen=frozen)
    if new:
        try:
            return _make_branch(daemon, branch, source, frozen=frozen)
        except AgentFSError as exc:
            if exc.code != "branch-exists":
                raise
            raise Failure(exc.message, "choose another name, or leave out --new to go on in it") from exc
    if source is not None:
        raise Failure("--from is for a new branch", f"add --new, or leave out --from: -b {branch} goes on where it is")
    if frozen:
        raise Failure("--frozen is for a new branch", f"add --new, or leave out --frozen: -b {branch} goes on where it is")
    try:
        return daemon.show_branch(branch)
    except NotFoundError as exc:
        raise Failure(exc.message, f"--new creates it: agentfsd run -b {branch} --new -- COMMAND") from exc


def _make_branch(daemon: ControlClient, name: str, source: str | None, *, frozen: bool) -> wire.Branch:
    if not frozen:
        return daemon.create_branch(name, source)
    with progress_bar.of_daemon() as on_progress:
        return daemon.create_branch(name, source, frozen=True, on_progress=on_progress)


def _views(
    mount: locate.Mount,
    daemon: ControlClient,
    branch: wire.Branch,
    targets: list[str],
    ways: list[str],
    *,
    barred: bool,
    home: str,
) -> Iterator[View]:
    """Give the ways to show the command its branch in a private mount namespace, the best first.

    Args:
        mount: The mount.
        daemon: Its daemon.
        branch: The branch.
        targets: The paths at which the command sees the branch.
        ways: The value of --io, after the one of the setting run.io if that is another.
        home: The home directory to show with the branch's changes to it; "" for none.
        barred: The command cannot use a mount made in another namespace, only the mount that is there already.

    Raises:
        AgentFSError: The daemon refused.
        NamespaceError: The way that --io names is impossible.
    """
    for io in ways if not barred else ():
        try:
            yield _own_view(mount, daemon, branch, targets, io, home)
        except AgentFSError as exc:
            if io != "auto" and io == ways[-1]:
                raise runner.NamespaceError(exc.message) from exc
            if io != "auto":
                printing.note(f"not with --io {io}, which the setting run.io asks for: {exc.message}")
    if ways[-1] == "auto":
        # The child opens this path in its own namespace before it is bound: a bound process may not.
        yield View(targets, os.path.join(mount.mountpoint, CONTROL_DIR, "branches", branch.name))


def _own_view(mount: locate.Mount, daemon: ControlClient, branch: wire.Branch, targets: list[str], io: str, home: str) -> View:
    """Return a view of the branch's own mount, which the daemon makes for the branch's first run."""
    opened = daemon.open_view(branch.id, io, home=home)
    if io not in ("auto", opened.reply.io) and opened.reply.joined:
        printing.note(f"branch {branch.name} is in use by another run with --io {opened.reply.io}; this run shares its mount")
    inside = (os.path.join(mount.mountpoint, CONTROL_DIR), CONTROL_DIR)
    return View(
        targets,
        mount=opened.mount,
        user_namespace=opened.user_namespace,
        inside=inside,
        home=opened.home,
        home_why=opened.reply.home_why,
    )


def _run_somehow(order: runner.Command, views: Iterable[View], may_be_seen_by_pid: bool) -> runner.Ended:
    """Run in a private namespace where the system permits it, else by the process's binding alone, which shows the same."""
    reason = ""
    try:
        for view in views:
            with contextlib.closing(view):
                try:
                    return runner.run(replace(order, view=view, plan=_with_home(order.plan, view)))
                except runner.NamespaceError as exc:
                    reason = str(exc)
    except runner.NamespaceError as exc:
        reason = str(exc)
    if not may_be_seen_by_pid:
        raise Refusal(errno.EPERM, "no-namespace", f"the overlay cannot be shown to the command: {reason}")
    if order.plan is not None and order.plan.confinement.is_asked:
        raise profiles.impossible(reason or "it needs a mount namespace of its own")
    if reason:
        _tell_lacking([f"a mount namespace of its own: {reason}"])
    return runner.run(replace(order, plan=None))


def _with_home(plan: RunPlan | None, view: View) -> RunPlan | None:
    """Return the plan; with a read-only home directory if it is to have a layer and *view* has none. Refusal in a strict run."""
    if plan is None or not plan.layered_home or view.home is not None:
        return plan
    why = view.home_why or "the command sees its branch through the mount point"
    if plan.confinement.is_strict:
        raise profiles.impossible(f"no layer over the home directory: {why}", "--home ro makes it read-only instead")
    printing.note(f"the home directory is read-only in this run: {why}")
    return plan.without_layer()


def _tell_lacking(missing: Sequence[str]) -> None:
    printing.note(f"not fully confined: the kernel refuses {'; '.join(missing)}")
