"""The records by which other processes find a daemon: STATE/daemon.json and its record in the registry of live daemons."""

import contextlib
import os

import msgspec

from agentfs_client.registry import DaemonRecord as DaemonRecord
from agentfs_client.registry import live_daemons as live_daemons
from agentfs_client.registry import process_start_ticks as process_start_ticks
from agentfs_client.registry import read_record, runtime_dir
from agentfsd.domain_errors import NO_ROOM
from agentfsd.state.state_directory import StateDirectory, path_digest


def publish(record: DaemonRecord) -> None:
    """Write STATE/daemon.json, which stays for the next start, and the record in the registry."""
    data = msgspec.json.format(msgspec.json.encode(record)) + b"\n"
    _replace(StateDirectory(record.state).record, data)
    _overwrite(registered_at(record.state), data)


def withdraw(record: DaemonRecord) -> None:
    """Remove the record from the registry, unless a newer daemon has replaced it."""
    path = registered_at(record.state)
    current = read_record(path)
    if current is not None and current.pid == record.pid:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def registered_at(state: str) -> str:
    """Return the path of the registry record for a state directory."""
    return os.path.join(runtime_dir(), f"{path_digest(state)}.json")


def _overwrite(path: str, data: bytes) -> None:
    """Write a file that stays the same one, as it is mounted into the namespaces of runs, and is whole at every moment."""
    try:
        with open(path, "r+b", buffering=0) as file:
            file.write(data.ljust(os.fstat(file.fileno()).st_size))
    except FileNotFoundError:
        _replace(path, data)


def _replace(path: str, data: bytes) -> None:
    """Replace a file. On a full disk, overwrite the old one: a daemon must be able to start there."""
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as exc:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if exc.errno not in NO_ROOM or not os.path.exists(path):
            raise
        with open(path, "r+b") as file:
            file.write(data)
            file.truncate()
