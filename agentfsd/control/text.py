"""Status as people read it."""

import time

from agentfs_client import wire


def status(found: wire.StatusReply) -> str:
    """A few lines: what is mounted where, and a table of branches."""
    held, files = size(found.usage.get("bytes", 0)), found.usage.get("objects", 0)
    lines = [
        f"{found.lower} is mounted on {found.mountpoint}",
        f"daemon {found.daemon}, process {found.pid}, up {_span(time.time_ns() - found.started_ns)}, session {_session(found)}",
        f"state in {found.state}, {found.cap_backstore}: {held} in {files} files",
        *([found.backstore_why] if found.backstore_why else []),
        *([f"descriptors are forwarded ({found.fd_forwarding})"] if found.fd_forwarding != "off" else []),
        "",
        f"{'BRANCH':<24} {'CHANGES':>8} {'PROCESSES':>10}  BASE",
    ]
    lines += [f"{b.name:<24} {b.changed:>8} {b.processes:>10}  {b.base or '(the lower)'}" for b in found.branches]
    return "\n".join(lines) + "\n"


def _session(found: wire.StatusReply) -> str:
    return f"{found.session} ({found.session_why})" if found.session_why else found.session


def _span(ns: int) -> str:
    seconds = max(0, ns // 1_000_000_000)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def size(count: int) -> str:
    """A number of bytes in binary units."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
