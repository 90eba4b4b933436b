"""Reports the changes to files that one client's request makes: to all connections of the kernel, and to listeners."""

from agentfsd.control.handler_services import Services
from agentfsd.control.request_context import RequestContext
from agentfsd.core.branch_events import EventKind
from agentfsd.core.overlay_events import NamedPlace
from agentfsd.core.tree import Inode


class ClientChanges:
    """See ChangeReporter. Await ``services.settle()`` before the answer."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._events, self._pid = services.overlay.events, context.caller.pid
        self.names_changed, self.file_changed = self._events.names_changed, self._events.file_changed

    def tell(self, kind: EventKind, inode: Inode, place: NamedPlace | None = None, before: NamedPlace | None = None) -> None:
        self._events.tell_change(kind, inode, self._pid, _itself, place, before)

    def tell_write(self, inode: Inode) -> None:
        self._events.tell_write(inode, self._pid, _itself)


def _itself(pid: int) -> int:
    """A client is known by its process, not by a thread."""
    return pid
