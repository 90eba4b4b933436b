"""Everything that can be measured, and the targets that can be chosen, by name."""

import fnmatch
import os
import shutil
from collections.abc import Sequence

import click

from benchmark import changes, forwarding, history, latency, throughput, work
from benchmark.agentfs import NAMESPACED, VIEWS, Agentfs
from benchmark.measure import Measurement
from benchmark.settings import Settings
from benchmark.targets import Bare, Peer, Target

BASELINE = "bare"
_OVERLAY_OPTIONS = "lowerdir={lower},upperdir={upper},workdir={work}"
_OVERLAYFS = f"mount -t overlay overlay -o {_OVERLAY_OPTIONS} {{mountpoint}}"
_FUSE_OVERLAYFS = f"fuse-overlayfs -o {_OVERLAY_OPTIONS} {{mountpoint}}"


def measurements(settings: Settings, only: Sequence[str] = ()) -> list[Measurement]:
    """In the order of the table. A pattern is one of the shell, for the name or the title of a row."""
    found = [found for room in (latency, throughput, forwarding, history, changes, work) for found in room.measurements(settings)]
    return [one for one in found if not only or any(_matches(one, pattern) for pattern in only)]


def _matches(measurement: Measurement, pattern: str) -> bool:
    words = [measurement.name, *(row.title for row in measurement.rows)]
    return any(fnmatch.fnmatch(word, pattern) for word in words)


def targets(names: Sequence[str], io: Sequence[str], sessions: Sequence[str], peers: Sequence[str]) -> list[Target]:
    """The bare directory first. Without names: everything. *io* and *sessions* add variants of each agentfsd target."""
    others = {peer.name: peer for peer in [_overlayfs(), _fuse_overlayfs(), *map(_peer, peers)]}
    wanted = [name for name in names or [*VIEWS, *others] if name != BASELINE]
    found: list[Target] = [Bare()]
    for name in wanted:
        if name in others:
            found.append(others[name])
        else:
            found += _variants(_agentfs(name, list(others)), io, sessions)
    return list({target.name: target for target in found}.values())


def _variants(target: Agentfs, io: Sequence[str], sessions: Sequence[str]) -> list[Target]:
    modes = ["", *io] if target.view in NAMESPACED and not target.io else [target.io]
    chosen = sessions if sessions and not target.session else [target.session]
    return [Agentfs(target.view, mode, session) for session in chosen for mode in modes]


def _agentfs(name: str, others: list[str]) -> Agentfs:
    rest, _, session = name.partition("@")
    view, _, io = rest.partition(":")
    if view not in VIEWS or (io and view not in NAMESPACED):
        known = ", ".join([BASELINE, *VIEWS, *others])
        more = "run:IO, interposed:IO, VIEW@SESSION"
        raise click.BadParameter(f"{name!r} is not a target; there are {known}, and {more}", param_hint="--target")
    return Agentfs(view, io, session)


def _overlayfs() -> Peer:
    return Peer("overlayfs", _OVERLAYFS, "" if os.geteuid() == 0 else "needs root")


def _fuse_overlayfs() -> Peer:
    found = shutil.which("fuse-overlayfs")
    return Peer("fuse-overlayfs", _FUSE_OVERLAYFS, "" if found else "is not installed: scripts/install --bench")


def _peer(text: str) -> Peer:
    name, found, command = text.partition("=")
    if not (name and found and command):
        raise click.BadParameter(f"{text!r} should be NAME=COMMAND", param_hint="--peer")
    return Peer(name, command)
