"""The descriptors that a daemon left with the service manager for the next one. Source: sd_listen_fds(3)."""

import os

_FIRST_STORED = 3  # SD_LISTEN_FDS_START


def stored_descriptors() -> dict[str, int]:
    """Return the descriptors that a daemon of this service has left with the service manager, by name."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return {}
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    count = int(os.environ.get("LISTEN_FDS", "0"))
    return {name: _FIRST_STORED + number for number, name in enumerate(names[:count])}


def take_stored() -> dict[str, int]:
    """Return the same for good: close-on-exec, and no child finds them in its environment."""
    stored = stored_descriptors()
    for fd in stored.values():
        os.set_inheritable(fd, False)
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(name, None)
    return stored
