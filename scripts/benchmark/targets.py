"""What is measured: the bare directory, agentfsd in its views, and its peers. Each shows a data set of the lower in views.

A *stage* lasts for one measurement and holds what a target needs for it (a daemon, say); a *view* is one writable tree.
"""

import contextlib
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmark.places import is_mounted, unmount, used_bytes
from benchmark.site import Site
from benchmark.worker import BenchError, Worker

_MOUNT_TIMEOUT_S = 15.0


@dataclass(slots=True)
class View:
    """``root``: where the data set is, as the worker sees it. ``branch``: its name, for agentfsd."""

    root: str
    worker: Worker
    branch: str = ""


class Stage(Protocol):
    def view(self, dataset: str, linked: bool) -> AbstractContextManager[View]:
        """A fresh writable tree with one data set. *linked*: its files are not going to be written in place."""
        ...

    def held_bytes(self) -> int:
        """What the changes in all views take on the disk."""
        ...

    def rss_bytes(self) -> int:
        """Memory of the processes that serve the views; 0 when there is none."""
        ...

    def remount(self) -> float:
        """Unmounts and mounts again what is there; seconds that the mount took. No view's worker may be left."""
        ...

    def settle(self) -> None:
        """Returns when nothing is being tidied up any more."""
        ...


class Target(Protocol):
    @property
    def name(self) -> str: ...

    def why_not(self) -> str:
        """Why this target cannot be had on this machine; "" when it can."""
        ...

    def stage(self, site: Site) -> AbstractContextManager[Stage]: ...


# -- the bare directory -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bare:
    """A plain directory on the same file system: what everything else is compared with."""

    name: str = "bare"

    def why_not(self) -> str:
        return ""

    @contextlib.contextmanager
    def stage(self, site: Site) -> Iterator[Stage]:
        with _removed(site, site.place.scratch("bare")) as base:
            yield _BareStage(site, base)


@dataclass(frozen=True, slots=True)
class _BareStage:
    _site: Site
    _base: Path

    @contextlib.contextmanager
    def view(self, dataset: str, linked: bool) -> Iterator[View]:
        with _removed(self._site, Path(self._site.command("mktemp", "-d", "-p", str(self._base)).strip())) as copy:
            how = ["-al"] if linked else ["-a", "--reflink=never"]
            self._site.command("cp", *how, str(self._site.lower / dataset), str(copy))
            with contextlib.closing(Worker("/", self._site.environment)) as worker:
                yield View(str(copy / dataset), worker)

    def held_bytes(self) -> int:
        return used_bytes(self._base)

    def rss_bytes(self) -> int:
        return 0

    def remount(self) -> float:
        raise BenchError("a directory needs no mount")

    def settle(self) -> None:
        pass


# -- other overlays ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peer:
    """Any overlay that a command mounts. {lower}, {upper}, {work} and {mountpoint} in the command are replaced."""

    name: str
    command: str
    reason: str = ""

    def why_not(self) -> str:
        return self.reason

    @contextlib.contextmanager
    def stage(self, site: Site) -> Iterator[Stage]:
        with _removed(site, site.place.scratch(self.name)) as base:
            yield _PeerStage(site, base, self.command, [])


@dataclass(frozen=True, slots=True)
class _PeerStage:
    _site: Site
    _base: Path
    _command: str
    _mounted: list["_PeerMount"]

    @contextlib.contextmanager
    def view(self, dataset: str, linked: bool) -> Iterator[View]:
        own = Path(self._site.command("mktemp", "-d", "-p", str(self._base)).strip())
        mount = _PeerMount(self._site, own, self._command)
        self._mounted.append(mount)
        try:
            mount.begin()
            with contextlib.closing(Worker("/", self._site.environment)) as worker:
                yield View(str(mount.mountpoint / dataset), worker)
        finally:
            mount.end()
            self._mounted.remove(mount)
            self._site.command("rm", "-rf", str(own))

    def held_bytes(self) -> int:
        return sum(used_bytes(mount.directory) for mount in self._mounted)

    def rss_bytes(self) -> int:
        return sum(mount.rss_bytes() for mount in self._mounted)

    def remount(self) -> float:
        begin = 0.0
        for mount in self._mounted:
            mount.end()
            begin = time.perf_counter()
            mount.begin()
        return time.perf_counter() - begin

    def settle(self) -> None:
        pass


class _PeerMount:
    """One mount of a peer, with an upper directory of its own."""

    def __init__(self, site: Site, directory: Path, command: str) -> None:
        self._site, self.directory = site, directory
        self.mountpoint, upper, work = (directory / name for name in ("mnt", "upper", "work"))
        for path in (self.mountpoint, upper, work):
            path.mkdir()
        names = {"lower": site.lower, "upper": upper, "work": work, "mountpoint": self.mountpoint}
        self._argv = [word.format_map(names) for word in shlex.split(command)]
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Returns when it is mounted; the command may go on in the foreground, or end."""
        errors = self.directory / "errors"
        with errors.open("wb") as stream:
            self._process = subprocess.Popen(
                self._argv, env=self._site.environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _MOUNT_TIMEOUT_S
        while not is_mounted(self.mountpoint):
            if self._process.poll() not in (None, 0) or time.monotonic() > deadline:
                said = " ".join(errors.read_text(errors="replace").split())
                raise BenchError(f"cannot mount: {said[-300:] or 'nothing was mounted in time'}")
            time.sleep(0.001)

    def end(self) -> None:
        unmount(self.mountpoint)
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def rss_bytes(self) -> int:
        """Memory of the processes that have this mount point in their command line."""
        found = subprocess.run(["pgrep", "-f", "--", str(self.mountpoint)], capture_output=True, text=True, check=False)
        return sum(rss_of(int(pid)) for pid in found.stdout.split())


# -- shared -----------------------------------------------------------------------------------------------------------


def rss_of(pid: int) -> int:
    """The memory of a process; 0 when it has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * 4096


@contextlib.contextmanager
def _removed(site: Site, path: Path) -> Iterator[Path]:
    """*path*, and afterwards it is gone. By rm(1), because a large tree would take Python long."""
    try:
        yield path
    finally:
        site.command("rm", "-rf", str(path))
