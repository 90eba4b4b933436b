"""agentfsd as a target: a daemon of its own for each measurement, and a branch for each view."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agentfs_client import interpose
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from benchmark.places import unmount, used_bytes
from benchmark.site import AGENTFSD, Site
from benchmark.targets import Stage, View
from benchmark.worker import BenchError, Worker

VIEWS = ("run", "interposed", "pid", "subtree")
NAMESPACED = ("run", "interposed")  # views that `run --io` applies to
_QUIET_S = 0.06
_SETTLE_TIMEOUT_S = 10.0
_END_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Agentfs:
    """``view``: one of VIEWS. ``io`` and ``session``: values of `run --io` and `mount --session`, "" for the default."""

    view: str
    io: str = ""
    session: str = ""

    @property
    def name(self) -> str:
        return self.view + f":{self.io}" * bool(self.io) + f"@{self.session}" * bool(self.session)

    @property
    def is_plain(self) -> bool:
        """Stands for its daemon in what does not depend on the view."""
        return self.view == "run" and not self.io

    @property
    def forwards(self) -> bool:
        """Programs get real descriptors."""
        return self.view == "interposed"

    def why_not(self) -> str:
        for command, option, value in (("run", "--io", self.io), ("mount", "--session", self.session)):
            if value and value not in choices(command, option):
                return f"this agentfsd has no `{command} {option} {value}`"
        if self.forwards and interpose.library() is None:
            return "this agentfsd was installed without the library for `run --interpose`"
        return "" if Path("/dev/fuse").exists() else "/dev/fuse is missing"

    @contextlib.contextmanager
    def stage(self, site: Site) -> Iterator[Stage]:
        base = site.place.scratch("agentfsd")
        stage = AgentfsStage(site, base, self)
        try:
            stage.mount()
            yield stage
        finally:
            stage.end()
            site.command("rm", "-rf", str(base))


@cache
def choices(command: str, option: str) -> list[str]:
    """The values that an option of agentfsd takes, as its help has them; empty where there is no such option."""
    said = subprocess.run([AGENTFSD, command, "--help"], capture_output=True, text=True, check=False).stdout
    found = re.search(rf"{option} \[([^\]]+)\]", said)
    return re.sub(r"\s", "", found[1]).split("|") if found else []


class AgentfsStage:
    """A mounted daemon. ``control``: a kept connection to its socket."""

    control: ControlClient

    def __init__(self, site: Site, base: Path, target: Agentfs) -> None:
        self._site, self._target = site, target
        self.mountpoint, self.state = base / "mnt", base / "state"
        self.mountpoint.mkdir()
        self._made = self._pid = self._start_ticks = 0

    def mount(self) -> None:
        session = ["--session", self._target.session] if self._target.session else []
        self.cli("mount", str(self._site.lower), str(self.mountpoint), "--state", str(self.state), *session)
        record = self._record()
        self._pid, self._start_ticks = int(record["pid"]), int(record["start_ticks"])
        self.control = ControlClient.connect(record["socket"], timeout_s=600.0)
        if self._target.forwards:
            self.allow_descriptors()

    def cli(self, *arguments: str) -> str:
        return self._site.command(AGENTFSD, *arguments)

    @contextlib.contextmanager
    def view(self, dataset: str, linked: bool) -> Iterator[View]:
        self._made += 1
        branch = f"bench-{self._made}"
        with _refusals():
            self.control.create_branch(branch)
        try:
            with contextlib.closing(self._worker(branch)) as worker:
                yield View(f"{self._root(branch)}/{dataset}", worker, branch)
        finally:
            self._discard(branch)

    def _root(self, branch: str) -> str:
        return str(self.mountpoint / ".agentfs/branches" / branch if self._target.view == "subtree" else self.mountpoint)

    def _worker(self, branch: str) -> Worker:
        prefix: list[str] = []
        if self._target.view != "subtree":
            prefix = [AGENTFSD, "run", "-m", str(self.mountpoint), "-b", branch]
            prefix += ["--no-namespace"] * (self._target.view == "pid")
            prefix += ["--interpose"] * self._target.forwards
            prefix += ["--io", self._target.io] * bool(self._target.io) + ["--"]
        return Worker("/", self._site.environment, prefix)

    def _discard(self, branch: str) -> None:
        """A branch that cannot be discarded goes with the whole state, a moment later."""
        with contextlib.suppress(AgentFSError):
            self.control.discard(branch, keep=False)

    def held_bytes(self) -> int:
        return used_bytes(self.state)

    def rss_bytes(self) -> int:
        with _refusals():
            return self.control.status().resources["rss_bytes"]

    def allow_descriptors(self) -> None:
        with _refusals():
            self.control.set_interpose("enabled", "on")

    def forwardings(self) -> int:
        """How many real descriptors the daemon has given out so far."""
        with _refusals():
            return self.control.status().resources["forwardings"]

    def remount(self) -> float:
        self.control.close()
        self.cli("umount", str(self.mountpoint))
        begin = time.perf_counter()
        self.mount()
        return time.perf_counter() - begin

    def pause(self, *, killed: bool) -> float:
        """Return the longest time, in seconds, that a look-up takes while the daemon is killed, or replaced by `restart`."""
        before, longest, over = self._record(), [0.0], threading.Event()

        def look() -> None:
            for number in itertools.count():
                began = time.perf_counter()
                os.path.lexists(f"{self.mountpoint}/missing-{number}")
                longest[0] = max(longest[0], time.perf_counter() - began)
                if over.wait(0.001):
                    return

        looking = threading.Thread(target=look)
        looking.start()
        time.sleep(_QUIET_S)
        if killed:
            os.kill(before["pid"], signal.SIGKILL)
        else:
            self.cli("restart", "-m", str(self.mountpoint))
        deadline = time.monotonic() + _END_TIMEOUT_S
        while self._record()["pid"] == before["pid"] and time.monotonic() < deadline:
            time.sleep(0.005)
        over.set()
        looking.join()
        self._pid, self._start_ticks = self._record()["pid"], self._record()["start_ticks"]
        return longest[0]

    def _record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.state / "daemon.json").read_text())
        return record

    def settle(self) -> None:
        """Until the daemon has used no processor for a moment: discarded branches are removed in the background."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        used = -1
        while used != (used := self._ticks()) and time.monotonic() < deadline:
            time.sleep(_QUIET_S)

    def _ticks(self) -> int:
        fields = self._stat()
        if not fields:
            raise BenchError("the daemon has died")
        return int(fields[11]) + int(fields[12])

    def end(self) -> None:
        """Unmounts; a daemon that does not end by itself is killed."""
        if hasattr(self, "control"):
            self.control.close()
        for arguments in (["umount", str(self.mountpoint)], ["umount", "--lazy", str(self.mountpoint)]):
            with contextlib.suppress(BenchError):
                self.cli(*arguments)
                break
        deadline = time.monotonic() + _END_TIMEOUT_S
        while self._lives():
            if time.monotonic() > deadline:
                keeper = self._record()["keeper"]  # which would start the next daemon
                subprocess.run(["kill", "-9", *[str(pid) for pid in (keeper, self._pid) if pid]], check=False)
                deadline = time.monotonic() + 1
            time.sleep(0.01)
        unmount(self.mountpoint)

    def _lives(self) -> bool:
        """Whether our daemon is still there, and its number not another process's."""
        fields = self._stat()
        return bool(fields) and fields[0] != "Z" and int(fields[19]) == self._start_ticks

    def _stat(self) -> list[str]:
        """The fields of /proc/PID/stat from the third on; empty when the daemon has gone."""
        try:
            return Path(f"/proc/{self._pid}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            return []


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What the daemon refuses becomes a cell of the table."""
    try:
        yield
    except AgentFSError as exc:
        raise BenchError(exc.message) from exc
