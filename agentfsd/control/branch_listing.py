"""Describe branches and bindings for replies."""

from collections import Counter

from agentfs_client import wire
from agentfsd.control.cooperative import drive
from agentfsd.control.handler_services import Services
from agentfsd.types import BranchInfo


def wire_branch(services: Services, info: BranchInfo, processes: int = 0) -> wire.Branch:
    """Describe a branch. *processes*: the number of processes in it."""
    last = services.overlay.refs.snapshot(info.last) if info.last else None
    return wire.Branch(
        name=info.name, id=info.id, base=info.base, created_ns=info.created_ns, changed=info.changed, processes=processes,
        last=info.last, last_name=last.name if last is not None else "", last_ns=last.created_ns if last is not None else 0,
        changed_ns=services.audit.changed.get(info.id, 0) if services.audit is not None else 0,
    )  # fmt: skip


async def wire_branches(services: Services) -> list[wire.Branch]:
    """Describe every branch. Other requests are answered meanwhile."""
    busy = Counter(binding.branch_id for binding in services.bindings.bindings())
    branches = await drive(services.overlay.branches.describe_in_steps())
    return [wire_branch(services, info, busy[info.id]) for info in branches]


def wire_bindings(services: Services) -> list[wire.Binding]:
    """Describe every binding of a process to a branch."""
    return [
        wire.Binding(
            pid=binding.pid,
            branch=services.branch_name(binding.branch_id),
            explicit=binding.explicit,
            command=binding.command,
            since_ns=binding.since_ns,
        )
        for binding in services.bindings.bindings()
    ]
