"""What the option -p of commit, merge, restore and discard does: show what differs, and ask which of it is taken."""

from collections.abc import Sequence

from agentfs_client.control import ControlClient
from agentfsd.cli.output import printing
from agentfsd.cli.picking import hunk_dialogue
from agentfsd.cli.picking.hunks import WHOLE_FILE, ChangedFile, Picks


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
    files = [ChangedFile(patch) for patch in patches]
    if target is not None:
        left = {patch.path_bytes: patch for patch in daemon.patches(branch, target, wanted, context_lines=WHOLE_FILE)}
        files = [file for file in files if file.path in left]
        for file in files:
            file.leave_out(ChangedFile(left[file.path]))
    return _asked(files, verb)


def from_state(daemon: ControlClient, branch: str, ref: str, wanted: Sequence[bytes]) -> Picks:
    """Ask which changes are made to a branch that lead to an earlier state of it."""
    patches = daemon.patches(ref, branch, wanted, internal=False, context_lines=WHOLE_FILE)
    return _asked([ChangedFile(patch) for patch in patches], "restore")


def to_discard(daemon: ControlClient, branch: str) -> Picks:
    """Ask which changes of a branch are taken back. What is returned leads from the branch to the state that it was made from."""
    return from_branch(daemon, branch, None, (), "discard").reversed()


def _asked(files: list[ChangedFile], verb: str) -> Picks:
    files = [file for file in files if file.hunks]
    if not files:
        printing.say(f"there is nothing to {verb}")
        return Picks([], [])
    picks = hunk_dialogue.choose(files, verb)
    if not picks.paths:
        printing.say("nothing was taken: nothing has changed")
    return picks
