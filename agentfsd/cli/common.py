"""What every command shares: the -m option, a client for the mount that was meant, errors as one sentence."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
import msgspec

from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfsd.cli import locate, output
from agentfsd.errors import Refusal

EXIT_REFUSED = 1

_F = TypeVar("_F", bound=Callable[..., Any])


class Failure(click.ClickException):
    """A refusal, shown as a sentence and a hint; exit code 1."""

    exit_code = EXIT_REFUSED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: Any = None) -> None:
        output.fail(self.message, self.hint)


@contextmanager
def refusals() -> Iterator[None]:
    """Turns what the rooms and the daemon raise into Failure."""
    try:
        yield
    except (Refusal, AgentFSError) as exc:
        raise Failure(exc.message, exc.hint) from exc
    except OSError as exc:
        where = f"{os.fsdecode(exc.filename)}: " if exc.filename else ""
        raise Failure(f"{where}{exc.strerror or exc}") from exc


class Group(click.Group):
    """A command group whose commands never end in a traceback for something that the user can mend."""

    def invoke(self, ctx: click.Context) -> Any:
        with refusals():
            return super().invoke(ctx)


def mount_option(command: _F) -> _F:
    return click.option("-m", "--mount", "named", metavar="MOUNTPOINT", help="Which mount, if not the one around you.")(command)


def json_option(command: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="For programs: one JSON document.")(command)


@contextmanager
def client(named: str | None) -> Iterator[ControlClient]:
    """A conversation with the daemon of the mount that the user means."""
    mount = locate.find(named, revive=True)
    with connect(mount) as found:
        yield found


def connect(mount: locate.Mount) -> ControlClient:
    """By socket when the daemon is ours to reach; else through the mount."""
    if mount.record is not None and os.access(mount.record.socket, os.W_OK):
        return ControlClient.connect(mount.record.socket)
    return ControlClient.open_mount(mount.mountpoint)


def plain(value: Any) -> Any:
    """A wire struct as plain dictionaries and lists, for JSON."""
    return msgspec.to_builtins(value)
