"""Every operation of the control protocol, by the type of its request, collected from the declarations in ``handlers/``.

A new operation takes a message in ``agentfs_client/requests.py`` (about a single file: ``wire_file_requests.py``), a declared
handler in one of these modules, and a command.
"""

from typing import Any

from agentfs_client import wire
from agentfsd.control.handlers import (
    ask_requests,
    binding_requests,
    branch_requests,
    bulk_requests,
    commit_requests,
    conflict_requests,
    content_requests,
    daemon_requests,
    descriptor_requests,
    diff_requests,
    file_requests,
    history_requests,
    note_requests,
    observation_requests,
    rule_requests,
    run_requests,
    snapshot_requests,
    step_requests,
)
from agentfsd.control.operation_declaration import ControlOperation

_MODULES = (
    ask_requests,
    binding_requests,
    branch_requests,
    bulk_requests,
    commit_requests,
    conflict_requests,
    content_requests,
    daemon_requests,
    descriptor_requests,
    diff_requests,
    file_requests,
    history_requests,
    note_requests,
    observation_requests,
    rule_requests,
    run_requests,
    snapshot_requests,
    step_requests,
)

OPERATIONS: dict[type[wire.Request], ControlOperation[Any]] = {
    operation.request: operation
    for module in _MODULES
    for operation in vars(module).values()
    if isinstance(operation, ControlOperation)
}
