"""Temporary snapshots and branches of one command.

The command removes them when it ends, also on Ctrl-C. After kill -9, the daemon removes them. This module knows nothing of the
command.
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
    """Make SIGTERM and SIGHUP end the block as Ctrl-C does, so that temporary branches and snapshots are removed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def resolve(daemon: ControlClient, ref: str) -> wire.Branch | wire.BranchSnapshot:
    """Return the branch or snapshot that *ref* names; a branch takes precedence.

    Raises:
        Refusal: There is neither.
    """
    try:
        return daemon.show_branch(ref)
    except (NotFoundError, NotAllowedError):  # a bound process may not ask about other branches
        pass
    try:
        return daemon.show_snapshot(ref)
    except NotFoundError:
        hint = "`agentfsd branch list` and `agentfsd snapshot list` show them"
        raise not_found("branch or snapshot", ref, hint) from None


def is_temporary(name: str) -> bool:
    """Say whether a snapshot or branch belongs to an export or import that is under way."""
    return _TEMPORARY.fullmatch(name) is not None


def snapshot_path(mount: locate.Mount, name: str) -> str:
    """Return the path at which the mount shows the snapshot."""
    return os.path.join(mount.mountpoint, os.fsdecode(CONTROL_DIR), "snapshots", name)


def branch_path(mount: locate.Mount, name: str) -> str:
    """Return the path at which the mount shows the branch."""
    return os.path.join(mount.mountpoint, os.fsdecode(CONTROL_DIR), "branches", name)


def is_ours(path: bytes) -> bool:
    """Say whether *path* is the control directory.

    An imported tree may hold `.agentfs/control`. It must not be written to the mount, where writing there sends requests.
    """
    return path == CONTROL_DIR


@contextmanager
def fixed(mount: locate.Mount, state: wire.Branch | wire.BranchSnapshot) -> Iterator[wire.BranchSnapshot]:
    """Give a snapshot that holds *state*: *state* itself, or a temporary snapshot of a branch."""
    if isinstance(state, wire.BranchSnapshot):
        yield state
        return
    name = f"export-{secrets.token_hex(6)}"
    # A connection of its own: a bound process may delete only the snapshots made over the same connection.
    with mount.connect() as daemon:
        try:
            yield daemon.create_snapshot(state.id, name, "temporary: of a running export", temporary=True)
        finally:
            with undisturbed():
                _delete_snapshot(mount, daemon, name)


def _delete_snapshot(mount: locate.Mount, daemon: ControlClient, name: str) -> None:
    try:
        daemon.delete_snapshot(name)
    except NotFoundError:
        pass
    except AgentFSError:  # Ctrl-C ended that connection while the daemon was making the snapshot
        with mount.connect() as other:
            delete_snapshots(other, [name])


def delete_snapshots(daemon: ControlClient, refs: list[str]) -> None:
    """Delete snapshots, the newest first, as each depends on the one before it. Missing ones are no error."""
    for ref in reversed(refs):
        try:
            daemon.delete_snapshot(ref)
        except NotFoundError:
            pass


@contextmanager
def new_branch(mount: locate.Mount, daemon: ControlClient, name: str, source: str | None) -> Iterator[str]:
    """Make a branch and give the path at which the mount shows it.

    The branch has a temporary name until the block ends, so nobody sees it half done under *name*. If the block fails, the
    branch is discarded.
    """
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
    """Discard branches without undo. Missing ones are no error."""
    for ref in reversed(refs):
        try:
            daemon.discard(ref, keep=False)
        except NotFoundError:
            pass


def check_free(daemon: ControlClient, name: str) -> None:
    """Check, before any work is done, that a new branch can have this name.

    Raises:
        Refusal: It is no valid name, or a branch has it.
    """
    if not wire.valid_name(name):
        raise Refusal(
            errno.EINVAL, "bad-name", f"{name!r} is not a branch name",
            "a name starts with a letter or digit, followed by letters, digits, '.', '_' or '-', 128 characters at most",
        )  # fmt: skip
    if name in {branch.name for branch in daemon.list_branches(count=False)}:
        raise Refusal(errno.EEXIST, "branch-exists", f"there is a branch named {name!r} already", "choose another name")
