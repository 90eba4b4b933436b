"""Measure how long control requests take: count them by kind, and log slow ones."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentfs_client import wire
from agentfsd.control import audit_notes
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import ControlOperation
from agentfsd.control.progress_channel import ClientGone
from agentfsd.control.request_context import RequestContext
from agentfsd.telemetry.slow_requests import SlowOperation


@contextmanager
def metered(
    services: Services, operation: ControlOperation[Any], request: wire.Request, context: RequestContext
) -> Iterator[None]:
    """Count the block as one request, with its time and whether it failed."""
    tag = str(type(request).__struct_config__.tag)
    tally, began_ns = services.traffic.tally("control", tag), time.monotonic_ns()
    try:
        yield
    except ClientGone:
        raise
    except Exception:
        tally.errors += 1
        raise
    finally:
        took_ns = 0 if operation.waits else time.monotonic_ns() - began_ns
        tally.total_ns += took_ns
        tally.classes[took_ns.bit_length()] += 1
        if took_ns > services.traffic.slow.limit_ns:
            _, command = services.identify.of_process(context.caller.pid)
            branch = getattr(request, "branch", None) or context.branch
            services.traffic.slow.note(
                SlowOperation(
                    time.time_ns(), took_ns, tag, audit_notes.subject(request), branch, context.bound_to or "",
                    context.caller.pid, command,
                )
            )  # fmt: skip
