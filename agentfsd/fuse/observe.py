"""A closer look at a request that was slow, or while somebody asks who does what. Its cost is no matter."""

import os
import time

from agentfsd.fuse.nodes import DirNode, FileNode, NodeTable, VirtualNode
from agentfsd.fuse.operations import Operations
from agentfsd.telemetry.slow import Slow


def look_closer(operations: Operations, op: str, took_ns: int, node: int, tid: int) -> None:
    """After the answer to a request that was about that node (0: nobody knows)."""
    connections = operations.connections
    traffic = connections.traffic
    tree_id, where = _place(operations.nodes, node)
    for profile in traffic.profiles:
        profile.note(op, took_ns, tid, tree_id)
    if took_ns <= traffic.slow.limit_ns:
        return
    who = connections.identify.of_thread(tid, tree_id)
    name = connections.identify.branch_name(who.branch_id)
    traffic.slow.note(Slow(time.time_ns(), took_ns, op, where, name, who.branch_id, who.pid, who.command))


def _place(nodes: NodeTable, number: int) -> tuple[str, str]:
    """The branch or snapshot ("" for the caller's) and the path."""
    try:
        node = nodes[number]
    except OSError:
        return nodes.top.tree_id, "?"
    if isinstance(node, FileNode):
        return node.inode.tree.id, os.fsdecode(node.inode.path)
    if isinstance(node, DirNode):
        return node.view.tree_id, os.fsdecode(b"/".join(node.path()))
    return (node.owner.view.tree_id, os.fsdecode(b".agentfs")) if isinstance(node, VirtualNode) else ("", "?")
