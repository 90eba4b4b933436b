"""A socket server in a thread of its own, with everything that it uses made there."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from agentfsd.asking.questions import Questions
from agentfsd.binding.table import Bindings
from agentfsd.control.control_socket import ControlSocketServer, listen
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.handler_services import Services
from agentfsd.control.service import ControlService
from agentfsd.core.overlay import Overlay
from agentfsd.telemetry.process_identity import ProcessIdentifier
from tests.overlays import Opened


def services_for(overlay: Overlay, bindings: Bindings, info: DaemonInfo) -> Services:
    """What a daemon without a mount has."""
    return Services(
        overlay=overlay,
        bindings=bindings,
        info=info,
        identify=ProcessIdentifier(bindings, overlay),
        questions=Questions(lambda: 60, bindings.process_of),
    )


@contextmanager
def serving(base: Path) -> Iterator[tuple[str, ControlService]]:
    """The socket's path, and the service behind it, which belongs to that thread."""
    path = str(base / "control.sock")
    started, found = threading.Event(), []

    async def serve() -> None:
        opened, bindings = Opened(base), Bindings()
        service = ControlService(
            services_for(
                opened.overlay, bindings, DaemonInfo("0", 0, "/lower", "/mnt", "/state", "pyfuse3", "hostfs", 0, os.geteuid())
            )
        )
        with trio.CancelScope() as scope:
            listener = listen(path)
            found.append((service, scope, trio.lowlevel.current_trio_token()))
            started.set()
            await ControlSocketServer(service).serve(listener)
        bindings.close()
        opened.close()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert started.wait(10)
    service, scope, token = found[0]
    yield path, service
    token.run_sync_soon(scope.cancel)
    thread.join(10)
    assert not thread.is_alive()
