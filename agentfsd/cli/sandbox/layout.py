"""Plan which places a run shows, covers or hides. The plan is made in the caller's namespace; enclosing.py carries it out.

This module mounts nothing, and looks into no other user's mount, because its daemon may not answer.
"""

import contextlib
import errno
import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agentfs_client.registry import DaemonRecord, read_record, runtime_dir
from agentfs_host import mount_table
from agentfs_host.mount_table import Mounted, is_within
from agentfsd.cli.sandbox.aliases import Alias, aliases
from agentfsd.cli.sandbox.profiles import Confinement
from agentfsd.domain_errors import Refusal
from agentfsd.linux import home_directory
from agentfsd.state import daemon_records, state_directory
from agentfsd.state.state_directory import StateDirectory

_FUSE_CONTROL = "fusectl"  # a write to NUMBER/abort in it ends a mount
_TEMPORARY = ("/tmp", "/var/tmp")
_RESOLVER = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/connman/resolv.conf")


@dataclass(frozen=True, slots=True)
class Place:
    """A path, and what the run shows there.

    Attributes:
        how: rw or ro: what is there now; overlay: the same, with the branch's changes; fresh: an empty writable directory; hide:
            nothing.
    """

    path: str
    how: Literal["rw", "ro", "overlay", "fresh", "hide"]
    mode: str = "1777"


@dataclass(frozen=True, slots=True)
class Cover:
    """A directory that is empty in the run except for the files *keep* in it.

    Attributes:
        is_mount: It is the mount point of another daemon, which may not answer.
    """

    path: str
    keep: tuple[str, ...] = ()
    is_writable: bool = False
    is_mount: bool = False


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run shows besides its branch at the mount point, in the order in which it is done.

    Attributes:
        views: Further places of the branch, or of a part of it.
        homes: Other names of the home directory, or of a part of it, which show what the home directory shows.
        pins: Directories above covered places, which must not be renamed.
    """

    confinement: Confinement
    places: tuple[Place, ...] = ()
    views: tuple[Alias, ...] = ()
    homes: tuple[Alias, ...] = ()
    covers: tuple[Cover, ...] = ()
    pins: tuple[str, ...] = ()

    @property
    def layered_home(self) -> str:
        """The home directory, if the run's changes to it belong to the branch; else ""."""
        return next((place.path for place in self.places if place.how == "overlay"), "")

    def without_layer(self) -> "RunPlan":
        """Return the same plan with a read-only home directory."""
        return replace(self, places=tuple(replace(each, how="ro") if each.how == "overlay" else each for each in self.places))


def plan(confinement: Confinement, mountpoint: str, targets: Sequence[str], ruled: Sequence[Place] = ()) -> RunPlan:
    """Plan a run.

    Args:
        confinement: What to confine.
        mountpoint: The mount point of the run's daemon.
        targets: The paths at which the run shows its branch.
        ruled: Places that rules by path make: see outside_rules.py. A place that an option names goes before them.

    Raises:
        Refusal: A place cannot be shown as requested.
    """
    table = mount_table.mount_table()
    records = _records()
    record = next((each for each in records if each.mountpoint == mountpoint and each.alive()), None)
    views = _views(record, targets, table) if confinement.covers else []
    shown = [*targets, *(view.path for view in views)]
    places = _with_other_names(_with_ruled(_places(confinement, shown, table), ruled, shown), shown, table)
    gone = [place.path for place in places if place.how in ("fresh", "hide")]
    homes = [name for name in _home_names(places, table) if not any(is_within(name.path, path) for path in [*gone, *shown])]
    covers = [
        cover for cover in (_covers(record, records, shown, table) if confinement.covers else [])
        if cover.keep or not any(is_within(cover.path, place) for place in gone)
    ]  # fmt: skip
    layered = next((place.path for place in places if place.how == "overlay"), "")
    pins = [
        path
        for path in _pins(
            [*shown, *(cover.path for cover in covers), *(place.path for place in ruled if place in places)], shown, table
        )
        if not is_within(path, layered or path + "/")
    ]
    return RunPlan(confinement, tuple(places), tuple(views), tuple(homes), tuple(covers), tuple(pins))


# -- the branch ---------------------------------------------------------------------------------------------------------


def _views(record: DaemonRecord | None, targets: Sequence[str], table: Sequence[Mounted]) -> list[Alias]:
    """Return the real path of the workspace and its other names. A mount point inside the workspace is shown once more there."""
    if record is None or record.lower == "/":
        return []
    real = [] if record.lower in targets else [Alias(record.lower, "")]
    again = [Alias(path, "") for path in targets if real and is_within(path, record.lower)]
    return [*real, *again, *aliases(record.lower, table)]


# -- what is covered ----------------------------------------------------------------------------------------------------


def _covers(
    record: DaemonRecord | None, records: Sequence[DaemonRecord], shown: Sequence[str], table: Sequence[Mounted]
) -> list[Cover]:  # fmt: skip
    registries = [path for path in _registries() if _exists_or_made(path)]
    states = _states(records, shown)
    others = [mounted.mountpoint for mounted in table if mounted.fstype == mount_table.FSTYPE]
    keep = _kept(record)
    covers: dict[str, Cover] = {}
    for path in [*registries, *states]:
        inside = tuple(name for name in keep if is_within(name, path))
        for place in (path, *(alias.path for alias in aliases(path, table) if not alias.below)):
            renamed = tuple(place + name[len(path) :] for name in inside) if place == path else ()
            covers.setdefault(place, Cover(place, renamed, path in registries))
    for path in others:
        covers.setdefault(path, Cover(path, is_mount=True))
    for mounted in table:
        if mounted.fstype == _FUSE_CONTROL:
            covers.setdefault(mounted.mountpoint, Cover(mounted.mountpoint))
    harmless = {path: cover for path, cover in covers.items() if not any(_hides(path, place) for place in shown)}
    return [cover for path, cover in harmless.items() if not _is_inside_another(path, harmless)]


def _hides(path: str, shown: str) -> bool:
    return is_within(path, shown) or is_within(shown, path)


def _is_inside_another(path: str, covers: Iterable[str]) -> bool:
    return any(other != path and is_within(path, other) for other in covers)


def _exists_or_made(path: str) -> bool:
    """Make a directory in which records or states are looked for, so that it can be covered. The command could make it, too."""
    home = home_directory.find()
    if path.startswith(("/tmp/", "/run/")) or (home and is_within(path, home)):
        with contextlib.suppress(OSError):
            os.makedirs(path, mode=0o700, exist_ok=True)
    return os.path.isdir(path)


def _registries() -> list[str]:
    """Return the directories in which daemons of this user register; for root, those of all users."""
    directories = [os.path.realpath(runtime_dir()), "/run/agentfsd", f"/tmp/agentfsd-{os.geteuid()}"]
    if os.environ.get("XDG_RUNTIME_DIR"):
        directories.append(os.path.join(os.path.realpath(os.environ["XDG_RUNTIME_DIR"]), "agentfsd"))
    if os.geteuid() == 0:
        directories += glob.glob("/run/user/*/agentfsd")
        directories += (path for path in glob.glob("/tmp/agentfsd-*") if path[14:].isdecimal())
    return list(dict.fromkeys(directories))


def _records() -> list[DaemonRecord]:
    """Return the records of daemons in all registries. The run and its daemon may use different registries."""
    paths = [path for registry in _registries() for path in glob.glob(os.path.join(glob.escape(registry), "*.json"))]
    return [record for path in paths if (record := read_record(path)) is not None]


def _states(records: Iterable[DaemonRecord], shown: Sequence[str]) -> list[str]:
    """Return the state directories: those in the default place, and those of all registered daemons."""
    directories = [record.state for record in records]
    for parent in {
        os.path.dirname(state_directory.default_state("/").path),
        os.path.realpath(os.path.expanduser("~/.local/state/agentfsd")),
    }:
        if not _exists_or_made(parent):
            continue
        if any(is_within(place, parent) for place in shown):  # a workspace beside the state directories stays
            directories += [entry.path for entry in os.scandir(parent) if os.path.exists(StateDirectory(entry.path).lock)]
        else:
            directories.append(parent)
    return [path for path in dict.fromkeys(directories) if os.path.isdir(path)]


def _kept(record: DaemonRecord | None) -> list[str]:
    """Return the files through which a bound command reaches its own daemon."""
    if record is None:
        return []
    state = StateDirectory(record.state)
    noted = [os.path.join(path, os.path.basename(daemon_records.registered_at(record.state))) for path in _registries()]
    return [path for path in (record.socket, state.doorway, *noted) if os.path.exists(path)]


def _pins(covered: Iterable[str], shown: Sequence[str], table: Sequence[Mounted]) -> list[str]:
    """Return the directories above covered places, the outermost first.

    Mount points are left out, since they cannot be renamed.
    """
    mountpoints = {mounted.mountpoint for mounted in table} | set(shown)
    pins = set()
    for path in covered:
        while (path := os.path.dirname(path)) != "/":
            if path not in mountpoints and not any(is_within(path, place) for place in shown):
                pins.add(path)
    return sorted(pins)


# -- everything else ----------------------------------------------------------------------------------------------------


def _places(confinement: Confinement, shown: Sequence[str], table: Sequence[Mounted]) -> list[Place]:
    """Return the places, each outer one before those inside it."""
    places = [*_temporary(confinement), *_home(confinement, shown, table)]
    for how, paths in (("ro", confinement.read), ("rw", confinement.write), ("hide", confinement.hide)):
        for path in paths:
            _check(path, shown)
            places.append(Place(path, how))  # type: ignore[arg-type]
    return sorted(places, key=lambda place: place.path.count("/") if place.path != "/" else 0)


def _with_ruled(places: list[Place], ruled: Sequence[Place], shown: Sequence[str]) -> list[Place]:
    """Add places of rules. Leave out those in the workspace or above it, and those in what is hidden anyway."""
    gone = [place.path for place in places if place.how in ("fresh", "hide")]
    named = {place.path for place in places}
    added = [
        place for place in ruled
        if place.path not in named and not any(_hides(place.path, path) for path in shown)
        and not any(is_within(place.path, path) for path in gone)
    ]  # fmt: skip
    return sorted([*places, *added], key=lambda place: place.path.count("/") if place.path != "/" else 0)


def _with_other_names(places: list[Place], shown: Sequence[str], table: Sequence[Mounted]) -> list[Place]:
    """Add the other names of what is hidden or read-only, and of exceptions to that."""
    home = home_directory.find()
    covered = [place.path for place in places if place.how in ("ro", "hide") and place.path != home]
    added = [
        Place(name.path, place.how)
        for place in places
        if place.path in covered or (place.how == "rw" and any(is_within(place.path, path) for path in covered))
        for name in aliases(place.path, table)
    ]
    return _with_ruled(places, added, shown)


def _home_names(places: Sequence[Place], table: Sequence[Mounted]) -> list[Alias]:
    """Return the other names of the home directory, if the run shows something else there than what is there."""
    home = home_directory.find()
    return aliases(home, table) if any(place.path == home for place in places) else []


def _check(path: str, shown: Sequence[str]) -> None:
    if not os.path.lexists(path):
        raise Refusal(errno.ENOENT, "no-such-path", f"there is no {path}", "name what is there")
    if any(is_within(path, place) for place in shown):
        message = f"{path} lies in the workspace, where the branch decides"
        raise Refusal(errno.EINVAL, "in-workspace", message, "these options are for what lies outside")
    if path == "/":
        raise Refusal(errno.EINVAL, "bad-path", "the root cannot be opened or hidden so", "use --rest for all other files")


def _temporary(confinement: Confinement) -> list[Place]:
    places = []
    if confinement.tmp == "private":
        places += [Place(path, "fresh") for path in _TEMPORARY if os.path.isdir(path) and not os.path.islink(path)]
    elif confinement.rest == "ro":
        places += [Place(path, "rw") for path in _TEMPORARY if os.path.isdir(path) and not os.path.islink(path)]
    if confinement.is_strict:  # sockets of services, which act for whoever asks
        places += [Place("/run", "fresh", "755"), *(Place(path, "ro") for path in _RESOLVER if os.path.exists(path))]
        if os.path.isdir("/var/run") and not os.path.islink("/var/run"):
            places.append(Place("/var/run", "fresh", "755"))
    return places


def _home(confinement: Confinement, shown: Sequence[str], table: Sequence[Mounted]) -> list[Place]:
    home = home_directory.find()
    if not home or any(is_within(home, place) for place in shown):
        if confinement.home == "rw" or home:
            return []
        raise Refusal(errno.ENOENT, "no-home", "there is no home directory to confine", "set HOME, or say --home rw")
    if confinement.home == "rw" and confinement.rest == "rw":
        return []
    if confinement.home == "overlay":
        return [Place(home, "overlay"), *(Place(path, "ro") for path in _mounted_in(home, shown, table))]
    return [Place(home, "fresh" if confinement.home == "hide" else confinement.home, "700")]


def _mounted_in(home: str, shown: Sequence[str], table: Sequence[Mounted]) -> list[str]:
    """Other file systems in the home directory, the outermost: a layer over the home directory does not show them."""
    paths = dict.fromkeys(each.mountpoint for each in table if each.fstype != mount_table.FSTYPE)
    found = [path for path in paths if path != home and is_within(path, home) and not any(_hides(path, at) for at in shown)]
    return [path for path in found if not _is_inside_another(path, found)]
