"""Notes a slow request, a refused one, and every request while a profile runs. Only such requests pay for this."""

import os
import time

from agentfsd.escape import printable
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.kernel_nodes import DirNode, FileNode, VirtualNode
from agentfsd.fuse.nodes import NodeTable
from agentfsd.telemetry.refused_requests import CODES, RefusedRequest
from agentfsd.telemetry.slow_requests import SlowOperation


def look_closer(connection: Connection, op: str, took_ns: int, node_id: int, tid: int) -> None:
    """Note a request that has been answered; *node_id* is 0 where the node is not known."""
    connections = connection.shared
    traffic = connections.traffic
    place = _place(connection.nodes, node_id)
    if place is None:  # a control request, which control/ notes itself
        return
    tree_id, where = place
    for profile in traffic.profiles:
        profile.note(op, took_ns, tid, tree_id)
    if took_ns <= traffic.slow.limit_ns:
        return
    who = connections.identify.of_thread(tid, tree_id)
    name = connections.identify.branch_name(who.branch_id)
    traffic.slow.note(SlowOperation(time.time_ns(), took_ns, op, where, name, who.branch_id, who.pid, who.command))


def note_refusal(connection: Connection, op: str, code: int, node_id: int, tid: int) -> None:
    """Count a request that was answered with an errno, if that means that the process may not do it."""
    if code not in CODES:
        return
    place = _place(connection.nodes, node_id)
    if place is None:  # a control request, which control/ notes itself
        return
    tree_id, path = place
    connections = connection.shared
    who = connections.identify.of_thread(tid, tree_id)
    connections.traffic.refused.note(RefusedRequest(who.branch_id, op, code, printable(path), who.command))


def _place(nodes: NodeTable, node_id: int) -> tuple[str, str] | None:
    """The branch or snapshot ("" for the caller's) and the path; None for what is virtual."""
    try:
        node = nodes[node_id]
    except OSError:
        return nodes.top.tree_id, "?"
    if isinstance(node, FileNode):
        return node.inode.tree.id, os.fsdecode(node.inode.path)
    if isinstance(node, DirNode):
        return node.view.tree_id, os.fsdecode(b"/".join(node.path()))
    return None if isinstance(node, VirtualNode) else ("", "?")
