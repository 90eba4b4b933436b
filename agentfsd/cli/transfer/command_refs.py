"""Snapshots and branches that exist for one command: gone again at its end, also on Ctrl-C; after kill -9 the daemon sees to it.

Knows nothing of the command.
"""

import errno
import os
import re
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from agentfs_client import locate, wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, NotAllowedError, NotFoundError
from agentfsd.domain_errors import Refusal, not_found
from agentfsd.exchange.place import undisturbed
from agentfsd.types import CONTROL_DIR

_TEMPORARY = re.compile(r"(export|import)-[0-9a-f]{12}")


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end the work inside as Ctrl-C does: what is temporary is removed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def resolve(daemon: ControlClient, ref: str) -> wire.Branch | wire.BranchSnapshot:
    """What a ref names; a branch goes before a snapshot."""
    try:
        return daemon.show_branch(ref)
    except (NotFoundError, NotAllowedError):  # a bound process may not even ask whether it is one
        pass
    try:
        return daemon.show_snapshot(ref)
    except NotFoundError:
        hint = "`agentfsd branch list` and `agentfsd snapshot list` show them"
        raise not_found("branch or snapshot", ref, hint) from None


def is_temporary(name: str) -> bool:
    """Whether a snapshot or branch belongs to an export or import that is under way."""
    return _TEMPORARY.fullmatch(name) is not None


def snapshot_path(mount: locate.Mount, name: str) -> str:
    return os.path.join(mount.mountpoint, os.fsdecode(CONTROL_DIR), "snapshots", name)


def branch_path(mount: locate.Mount, name: str) -> str:
    return os.path.join(mount.mountpoint, os.fsdecode(CONTROL_DIR), "branches", name)


def is_ours(path: bytes) -> bool:
    """A tree from elsewhere may hold `.agentfs/control`: what is written there are requests."""
    return path == CONTROL_DIR


@contextmanager
def fixed(mount: locate.Mount, found: wire.Branch | wire.BranchSnapshot) -> Iterator[wire.BranchSnapshot]:
    """A state that does not change: the snapshot itself, or of a branch one that is taken for the purpose."""
    if isinstance(found, wire.BranchSnapshot):
        yield found
        return
    name = f"export-{secrets.token_hex(6)}"
    # A conversation of its own: the one that makes a snapshot may delete it, also when its process is bound to a branch.
    with mount.connect() as daemon:
        try:
            yield daemon.create_snapshot(found.id, name, "temporary: of a running export", temporary=True)
        finally:
            with undisturbed():
                _delete_snapshot(mount, daemon, name)


def _delete_snapshot(mount: locate.Mount, daemon: ControlClient, name: str) -> None:
    try:
        daemon.delete_snapshot(name)
    except NotFoundError:
        pass
    except AgentFSError:  # interrupted while it was being made: that conversation has ended
        with mount.connect() as other:
            delete_snapshots(other, [name])


def delete_snapshots(daemon: ControlClient, refs: list[str]) -> None:
    """Newest first, as they depend on each other; those that are not there are no error."""
    for ref in reversed(refs):
        try:
            daemon.delete_snapshot(ref)
        except NotFoundError:
            pass


@contextmanager
def new_branch(mount: locate.Mount, daemon: ControlClient, name: str, source: str | None) -> Iterator[str]:
    """The directory of a branch that gets its *name* at the end; nobody sees it half done under that name."""
    check_free(daemon, name)
    temporary = f"import-{secrets.token_hex(6)}"
    try:
        made = daemon.create_branch(temporary, source, temporary=True)
        yield branch_path(mount, temporary)
        daemon.rename_branch(made.id, name)
    except BaseException:
        with undisturbed(), mount.connect() as other:
            discard_branches(other, [temporary])
        raise


def discard_branches(daemon: ControlClient, refs: list[str]) -> None:
    """For good; those that are not there are no error."""
    for ref in reversed(refs):
        try:
            daemon.discard(ref, keep=False)
        except NotFoundError:
            pass


def check_free(daemon: ControlClient, name: str) -> None:
    """Refusal before any work is done."""
    if not wire.valid_name(name):
        raise Refusal(
            errno.EINVAL, "bad-name", f"{name!r} is no branch name",
            "a name starts with a letter or digit and goes on with letters, digits, '.', '_' or '-', 128 characters at most",
        )  # fmt: skip
    if name in {branch.name for branch in daemon.list_branches()}:
        raise Refusal(errno.EEXIST, "branch-exists", f"there is a branch named {name!r} already", "choose another name")
