"""Requests for descriptors, and what a daemon says of those that it gave out."""

import os
import time
from typing import Any

from tests.handoff.asking import ask, keep
from tests.mounted import Mounted

MIB = 1 << 20


def switch_on(mounted: Mounted, **settings: str) -> None:
    for name, value in {"enabled": "on", **settings}.items():
        reply, _ = ask(mounted.state / "control.sock", {"op": "interpose.set", "name": name, "value": value})
        assert reply["settings"][name] == value


def tell(mounted: Mounted, **request: Any) -> dict[str, Any]:
    """A request about descriptors that is refused, or brings none."""
    reply, fds = ask(mounted.state / "control.sock", request)
    assert fds == []
    return reply


def done(mounted: Mounted, **request: Any) -> dict[str, Any]:
    """A request that is not refused."""
    reply = tell(mounted, **request)
    assert reply["op"] != "error", reply
    return reply


def changed(mounted: Mounted) -> list[str]:
    return [change["path"] for change in done(mounted, op="diff")["changes"]]


def open_fd(mounted: Mounted, path: str, flags: int = os.O_RDONLY, **more: Any) -> tuple[int, str]:
    """The descriptor, and what kind it is."""
    reply, fds = ask(mounted.state / "control.sock", {"op": "fd.open", "path": path, "flags": flags, **more})
    assert reply["op"] == "fd", reply
    assert len(fds) == 1
    return fds[0], reply["source"]


def wait_until_nobody_has_any(mounted: Mounted) -> None:
    end = time.monotonic() + 10
    while done(mounted, op="status")["resources"]["forwarded"]:
        assert time.monotonic() < end
        time.sleep(0.05)


def open_on(mounted: Mounted, name: str, flags: int, mode: int = 0o666) -> int:
    """On the mount, as any program does."""
    return keep(os.open(mounted.path / name, flags, mode))
