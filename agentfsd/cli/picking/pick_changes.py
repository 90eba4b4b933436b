"""What the option -p of commit, merge, restore and discard does: show what differs, and ask which of it is taken."""

from collections.abc import Sequence

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.cli.output import printing
from agentfsd.cli.picking import hunk_dialogue
from agentfsd.review.hunks import WHOLE_FILE, ChangedFile, Picks, may_be_directory


def from_branch(daemon: ControlClient, branch: str, target: str | None, wanted: Sequence[bytes], verb: str) -> Picks:
    """Ask which changes of a branch are taken.

    Args:
        daemon: The daemon.
        branch: The branch.
        target: The branch that gets them, which may have some already; None for the real directory.
        wanted: The only paths to ask about; empty for all.
        verb: What is done with them.
    """
    patches = daemon.patches(branch, paths=wanted, own=True, internal=False, context_lines=WHOLE_FILE)
    files = _with_hunks(patches)
    if target is not None:
        left = {patch.path_bytes: patch for patch in daemon.patches(branch, target, wanted, context_lines=WHOLE_FILE)}
        files = [file for file in files if file.path in left]
        for file in files:
            file.leave_out(ChangedFile(left[file.path]))
    return _asked(files, verb)


def from_state(daemon: ControlClient, branch: str, ref: str, wanted: Sequence[bytes]) -> Picks:
    """Ask which changes are made to a branch that lead to an earlier state of it."""
    patches = daemon.patches(ref, branch, wanted, internal=False, context_lines=WHOLE_FILE)
    return _asked(_with_hunks(patches), "restore")


def to_discard(daemon: ControlClient, branch: str) -> Picks:
    """Ask which changes of a branch are taken back. What is returned leads from the branch to the state that it was made from."""
    return from_branch(daemon, branch, None, (), "discard").reversed()


def _with_hunks(patches: Sequence[wire.FilePatch]) -> list[ChangedFile]:
    """Return the files to ask about. To take a directory's attributes by its path would take all that is in it."""
    left_out = [patch for patch in patches if may_be_directory(patch)]
    for patch in left_out:
        printing.note(f"not asked about: {printing.quoted(patch.path_bytes) or '.'}: {patch.note}")
    return [ChangedFile(patch) for patch in patches if not may_be_directory(patch)]


def _asked(files: list[ChangedFile], verb: str) -> Picks:
    files = [file for file in files if file.hunks]
    if not files:
        printing.say(f"there is nothing to {verb}")
        return Picks([], [])
    picks = hunk_dialogue.choose(files, verb)
    if not picks.paths:
        printing.say("nothing was taken: nothing has changed")
    return picks
