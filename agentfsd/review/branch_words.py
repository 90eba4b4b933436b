"""Says in words what has become of a branch. Scripts wait for commands that use it, so it imports nothing."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentfs_client import wire


def kept(branch: "wire.Branch") -> str:
    """Say whether what a branch has changed is in another branch or in the real directory, and whether it went on; "" if not."""
    if branch.merged_into:
        since = f", {branch.merged_since} change{'' if branch.merged_since == 1 else 's'} since" if branch.merged_since else ""
        return f"merged into {branch.merged_into}{since}"
    if not branch.committed_ns:
        return ""
    if not branch.changed:
        return "committed"
    return "committed, more since" if branch.changed_ns > branch.committed_ns else "committed in part"
