"""Answer diff.patch. The event loop reads what changed, in steps; a separate process compares it.

That process takes 100 ms or more to start, so the event loop itself compares what takes only a few milliseconds.
"""

import errno
import sys
import tempfile

import msgspec
import trio

from agentfs_client import wire
from agentfsd.control.client_paths import requested_paths
from agentfsd.control.cooperative import drive
from agentfsd.control.request_context import RequestContext
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.history import compare, patch
from agentfsd.history.paths import parse
from agentfsd.repositories.git_internals import GitInternals

MAX_CONTEXT_LINES = 1_000_000
_LITTLE_BYTES, _LITTLE_FILES = 64 << 10, 64  # shuffled lines, the worst of all, take 20 ms then


def check(request: wire.DiffPatch) -> None:
    """Raise Refusal for paths and numbers that are invalid, before anything is read."""
    parse(requested_paths(request))
    if not 0 <= request.context_lines <= MAX_CONTEXT_LINES:
        raise invalid(f"{request.context_lines} lines of context cannot be shown", f"give 0 to {MAX_CONTEXT_LINES}")


async def make(
    overlay: Overlay, old: Tree, new: Tree, request: wire.DiffPatch, context: RequestContext, state: str
) -> list[wire.FilePatch]:
    """Make the patches that lead from *old* to *new*.

    Args:
        overlay: The overlay.
        old: The tree to compare with.
        new: The tree that is compared.
        request: What to compare, and how.
        context: The request whose client gets the progress.
        state: The directory for the unnamed file that holds the contents. $TMPDIR is not used, because it may be in the mount.

    Raises:
        Refusal: The patch is too large.
    """
    wanted = parse(requested_paths(request))
    with tempfile.TemporaryFile(dir=state) as spool:
        changes = await drive(overlay.comparison.diff_in_steps(old, new, wanted), context)
        if not request.internal and not wanted:
            changes = GitInternals(old, new).without(changes, lambda change: change.path)
        pairs = await drive(
            patch.read(old, new, changes, wanted, spool.fileno(), stat_only=request.stat_only, keeps_back=context.keeps_back),
            context,
        )
        context.progress(0, 0, "comparing")
        job = compare.Job(pairs, request.stat_only, request.context_lines, request.ignore_space)
        if len(pairs) <= _LITTLE_FILES and job.size_bytes <= _LITTLE_BYTES:
            outcome = compare.compare(job, spool.fileno())
        else:
            outcome = await _compare_apart(job, spool.fileno())
    if outcome.too_long_at is not None:
        shown = outcome.too_long_at.decode("utf-8", "backslashreplace")
        raise Refusal(
            errno.EFBIG, "too-long", f"with {shown} the patch is longer than {compare.MAX_PATCH_BYTES >> 20} MiB",
            "name fewer paths at once",
        )  # fmt: skip
    return [_wire_patch(file_patch) for file_patch in outcome.patches]


async def _compare_apart(job: compare.Job, spool_fd: int) -> compare.ComparisonOutcome:
    command = [sys.executable, "-P", "-m", compare.__name__, str(spool_fd)]
    done = await trio.run_process(command, stdin=msgspec.msgpack.encode(job), capture_stdout=True, pass_fds=[spool_fd])
    return msgspec.msgpack.decode(done.stdout, type=compare.ComparisonOutcome)


def _wire_patch(file_patch: compare.PairPatch) -> wire.FilePatch:
    pair = file_patch.pair
    return wire.FilePatch(
        status=pair.status,
        **wire.path_fields(pair.path),
        **wire.path_fields(pair.old_path if pair.old_path != pair.path else b"", "old_path"),
        added=file_patch.added,
        removed=file_patch.removed,
        is_binary=file_patch.is_binary,
        old_size=pair.old_size,
        new_size=pair.new_size,
        old_mode=pair.old.mode if pair.old else 0,
        new_mode=pair.new.mode if pair.new else 0,
        patch=file_patch.patch,
        note=pair.note,
        lower_moved=pair.lower_moved,
    )
