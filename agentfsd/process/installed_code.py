"""Tells whether the installed program is still the one that runs: an upgrade replaces its files."""

import os

import agentfsd

_FILE = agentfsd.__file__


def _identity() -> tuple[int, int, int] | None:
    try:
        status = os.stat(_FILE)
    except OSError:  # an upgrade is under way, or the program was removed
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


_at_start = _identity()


def has_changed() -> bool:
    """Return whether another version was installed since this process has started."""
    now = _identity()
    return now is not None and now != _at_start
