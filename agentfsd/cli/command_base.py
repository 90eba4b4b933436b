"""What all commands share: common options, a client for the mount that the user means, and errors as one sentence."""

import importlib
import keyword
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click
import msgspec

from agentfs_client import locate
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, DaemonGoneError
from agentfs_client.registry import DaemonRecord
from agentfs_host import mount_table
from agentfsd.cli import shell_completion
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing
from agentfsd.domain_errors import Refusal

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_WHOLE = 1000  # characters, more than any first sentence of a help has

PATIENCE_S = 15.0  # the limit for answers that take a daemon no time
_ATTEMPTS = 3
_ATTEMPT_EVERY_S = 0.1

_F = TypeVar("_F", bound=Callable[..., Any])


class Failure(click.ClickException):
    """A refusal, shown as a sentence and a hint; exit code 1."""

    exit_code = EXIT_REFUSED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: Any = None) -> None:
        printing.fail(self.message, self.hint)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the errors of the daemon, of its client and of the system into Failure."""
    try:
        yield
    except (Refusal, AgentFSError) as exc:
        raise Failure(exc.message, exc.hint) from exc
    except BrokenPipeError:
        raise  # the program that reads our output has ended
    except OSError as exc:
        where = f"{os.fsdecode(exc.filename)}: " if exc.filename else ""
        raise Failure(f"{where}{exc.strerror or exc}") from exc


@dataclass(frozen=True, slots=True)
class HelpSection:
    """Names of commands that the help of a group shows below one title."""

    title: str
    commands: tuple[str, ...]


class ImportedCommands(MutableMapping[str, click.Command]):
    """Commands by name. Each is imported from ``agentfsd/cli/commands/cmd_NAME.py`` when it is first asked for.

    A command line uses one of forty commands, and importing all takes ten times as long as most of them work.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._commands: dict[str, click.Command | None] = dict.fromkeys(sorted(names))

    def __getitem__(self, name: str) -> click.Command:
        command = self._commands[name]
        if command is None:
            module = importlib.import_module(f"agentfsd.cli.commands.cmd_{name}")
            command = self._commands[name] = getattr(module, name + "_" * keyword.iskeyword(name))
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __contains__(self, name: object) -> bool:
        return name in self._commands

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


class Group(click.Group):
    """A command group whose commands never end in a traceback."""

    def __init__(self, *args: Any, sections: Sequence[HelpSection] = (), **extra: Any) -> None:
        """With *sections*: their commands are imported by name, and the help shows them below the sections' titles."""
        super().__init__(*args, **extra)
        self._sections = sections
        if sections:
            self.commands = ImportedCommands(name for section in sections for name in section.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every command with the whole first sentence of its help, which click would cut to the width of a line."""
        for section in self._sections or [HelpSection("Commands", tuple(self.list_commands(ctx)))]:
            commands = [self.commands[name] for name in section.commands]
            rows = [(command.name or "", command.get_short_help_str(_WHOLE)) for command in commands if not command.hidden]
            with formatter.section(section.title):
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a group without a command prints its help, with exit code 2."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit(EXIT_USAGE)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with refusals():
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted.

        An error is printed as `agentfsd:` and a sentence.
        """

        def run() -> Any:
            return super(Group, self).main(args, prog_name, complete_var, standalone_mode=False, **extra)

        if not standalone_mode:
            return run()
        sys.exit(self._exit_code(run))

    def _exit_code(self, run: Callable[[], Any]) -> int:
        try:
            code = run()
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except click.UsageError as exc:
            path = exc.ctx.command_path if exc.ctx is not None else "agentfsd"
            printing.fail(exc.format_message().rstrip("."), f"`{path} --help` shows how")
            return EXIT_USAGE
        except click.ClickException as exc:
            exc.show()
            return exc.exit_code
        except click.Abort:
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # without this, the interpreter prints an error at exit
            return EXIT_REFUSED
        except Exception as exc:
            if os.environ.get("AGENTFS_DEBUG"):
                raise
            printing.fail(f"internal error: {type(exc).__name__}: {exc}", "AGENTFS_DEBUG=1 shows where; please report it")
            return EXIT_REFUSED


class WithPaths(click.Command):
    """A command that takes paths after ``--``, in ``ctx.obj``. click itself would mix them with the other arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        cut = args.index("--") if "--" in args else len(args)
        ctx.obj = [os.fsencode(path) for path in args[cut + 1 :]]
        return super().parse_args(ctx, args[:cut])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PATH...]"]


def mount_option(command: _F) -> _F:
    """Give a command the option -m, which names the mount."""
    return click.option(
        "-m",
        "--mount",
        "named",
        metavar="MOUNTPOINT",
        shell_complete=shell_completion.mounts,
        help="The mount; by default the one that shows the current directory.",
    )(command)


def json_option(command: _F) -> _F:
    """Give a command the option --json."""
    return click.option("--json", "as_json", is_flag=True, help="For programs: print one JSON document.")(command)


@contextmanager
def client(named: str | None) -> Iterator[ControlClient]:
    """Connect to the daemon of the mount that the user means."""
    _, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon:
        yield daemon


@contextmanager
def answering(record: DaemonRecord | None) -> Iterator[None]:
    """Raise Failure with a hint if a daemon was stopped, or does not answer within PATIENCE_S. Use it for connections with that
    limit.
    """
    if record is not None and record.is_stopped():
        raise _silent(record)
    try:
        yield
    except DaemonGoneError as exc:
        if record is None or not isinstance(exc.__cause__, TimeoutError):
            raise
        raise _silent(record) from None


def _silent(record: DaemonRecord) -> Failure:
    hint = f"'kill -CONT {record.pid}' if it was stopped; else 'kill -9 {record.pid}' and mount again: acknowledged writes stay"
    return Failure(f"the daemon of {record.mountpoint}, process {record.pid}, does not answer", hint)


def converse(find: Callable[[], locate.Mount], timeout_s: float | None = None) -> tuple[locate.Mount, ControlClient]:
    """Find a mount and connect to its daemon. Try again if an idle one-step daemon has just ended.

    Args:
        find: Finds the mount.
        timeout_s: The limit for each answer, in seconds; None: no limit.
    """
    for _ in range(_ATTEMPTS - 1):
        mount = find()
        try:
            daemon = mount.connect(timeout_s)
        except DaemonGoneError:
            if mount.record is None or not mount.record.hidden:
                raise
        else:
            if not _is_ending(mount, daemon):
                return mount, daemon
            daemon.close()
        time.sleep(_ATTEMPT_EVERY_S)
    mount = find()
    return mount, mount.connect(timeout_s)


def _is_ending(mount: locate.Mount, daemon: ControlClient) -> bool:
    """Return whether an idle one-step daemon has already unmounted, and answers for the last time."""
    if mount.record is None or not mount.record.hidden or daemon.hello.bound:  # a bound process may not see the mount
        return False
    return mount_table.mount_at(mount.mountpoint) is None


def plain(value: Any) -> Any:
    """Convert a wire struct to dictionaries and lists, for JSON."""
    return msgspec.to_builtins(value)
