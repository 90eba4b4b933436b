"""The declaration of a control operation, next to its handler: permission, audit entry, and how it is run.

The meaning of a request is documented with its message in agentfs_client/requests.py.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agentfs_client import wire
from agentfsd.control.audit_notes import NoteMaker
from agentfsd.control.authorization import Permission
from agentfsd.control.handler_services import Services
from agentfsd.control.request_context import RequestContext
from agentfsd.control.snapshot_tags import SnapshotRefs

_R = TypeVar("_R", bound=wire.Request)
_Handler = Callable[[Services, _R, RequestContext], Awaitable[wire.Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOperation(Generic[_R]):
    """One kind of request and how the daemon answers it.

    Attributes:
        request: The type of the request.
        handler: The function that answers it. It raises OSError (Refusal) if the request fails.
        permission: Raises for callers that may not make the request. It is called before the handler.
        note: Makes the entry of the audit trail.
        cancellable: The handler is cancelled when the client closes its end of the socket.
        waits: The handler waits for something to happen, so its time is not counted.
        refs: The fields in which a snapshot's tag can stand for a ref.
    """

    request: type[_R]
    handler: _Handler[_R]
    permission: Permission
    note: NoteMaker
    cancellable: bool = False
    waits: bool = False
    refs: SnapshotRefs | None = None


def control_operation(
    request: type[_R],
    *,
    permission: Permission,
    note: NoteMaker,
    cancellable: bool = False,
    waits: bool = False,
    refs: SnapshotRefs | None = None,
) -> Callable[[_Handler[_R]], ControlOperation[_R]]:
    """Declare the function below as the handler of *request*. See ControlOperation for the arguments."""

    def declare(handler: _Handler[_R]) -> ControlOperation[_R]:
        return ControlOperation(
            request=request, handler=handler, permission=permission, note=note, cancellable=cancellable, waits=waits, refs=refs
        )

    return declare
