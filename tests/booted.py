"""A machine of its own for tests: systemd as process 1 of new namespaces, over a copy-on-write view of the running root.

Nothing it does reaches the machine itself: its root is an overlayfs in memory, its control groups are a subtree of their own, its
/proc/sys is read-only. Only the directory `shared` is the real one, and outlives a reboot; so does what `systemctl enable` did.
"""

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentfs_host import mount_table
from tests.throwaway import needs_view_of_root

_CHECKOUT = Path(__file__).parent.parent
SYSTEMD = "/lib/systemd/systemd"
UNITS = "/run/units"
_OLDEST = 250
_PATIENCE_S = 60  # beside other work
_OF_THE_MACHINE = (  # what a boot takes here; sysinit.target would set the clock and kernel parameters
    "basic.target", "exit.target", "final.target", "local-fs.target", "local-fs-pre.target", "multi-user.target", "paths.target",
    "remote-fs.target", "shutdown.target", "slices.target", "sockets.target", "systemd-exit.service", "systemd-journald.service",
    "systemd-journald.socket", "timers.target", "umount.target",
)  # fmt: skip
_SYSINIT = "[Unit]\nDescription=Less than usual\nRequires=local-fs.target systemd-journald.socket\nAfter=local-fs.target\n"
_JOURNAL = "[Journal]\nStorage=volatile\nForwardToConsole=no\nReadKMsg=no\n"
_BOOT = """
echo $$ >"$CGROUP/cgroup.procs"
exec unshare --cgroup --mount --pid --ipc --uts --fork --kill-child --propagation private sh -ec "$INSIDE"
"""
_INSIDE = """
mount -t tmpfs tmpfs "$BASE"
mkdir "$BASE/upper" "$BASE/work" "$BASE/root"
root="$BASE/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$BASE/upper,workdir=$BASE/work" "$root"
for directory in "$CHECKOUT" "$SHARED"; do # where that is no part of the root's own file system
    mkdir -p "$root$directory"
    mount --bind "$directory" "$root$directory"
done
mkdir -p "$root/etc/systemd/system"
mount --bind "$SHARED/enabled" "$root/etc/systemd/system"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
cp -a "$SHARED/boot/." "$root/"
cd "$root"
mkdir -p .old
pivot_root . .old
[ ! -e /dev/console ] || mount --bind "$SHARED/console" /dev/console
umount -l .old
mount --make-rshared /
exec env -i container=other "PATH=$PATH:/usr/local/bin" \
    SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/units:/run/systemd/generator SYSTEMD_LOG_TARGET=console \
    /lib/systemd/systemd --system --unit=multi-user.target --show-status=no >>"$SHARED/console" 2>&1
"""


def needs_systemd() -> None:
    """Skips where no systemd can be started for a test, and says what is missing."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if not os.path.exists(SYSTEMD) or shutil.which("systemctl") is None:
        pytest.skip("systemd is not installed")
    said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.findall(r"\d+", said)[0]) < _OLDEST:
        pytest.skip(f"this systemd is older than {_OLDEST}")
    if not _control_groups():
        pytest.skip("there is no writable cgroup2 file system")
    needs_view_of_root()
    tried = subprocess.run(["unshare", "--cgroup", "--mount", "--pid", "--ipc", "--uts", "--fork", "true"], capture_output=True)
    if tried.returncode != 0:
        pytest.skip("new namespaces are not permitted here")


def _control_groups() -> str:
    """Where a cgroup2 file system is in which a group can be made; "" for nowhere."""
    for mounted in mount_table.mount_table():
        if mounted.fstype == "cgroup2":
            trial = Path(mounted.mountpoint) / f"agentfsd-trial-{os.getpid()}"
            with contextlib.suppress(OSError):
                trial.mkdir()
                trial.rmdir()
                return mounted.mountpoint
    return ""


class Machine:
    """``shared``: a directory that is the same inside and outside. Files of ``boot`` are put into the root at each start."""

    def __init__(self, shared: Path) -> None:
        self.shared, self.boot = shared, shared / "boot"
        self._base = shared / "base"
        self._cgroup = Path(_control_groups()) / f"agentfsd-test-{os.getpid()}"
        self._started: subprocess.Popen[str] | None = None
        self._process_1 = 0
        units = self.boot / UNITS.lstrip("/")
        units.mkdir(parents=True)
        self._base.mkdir()
        (shared / "enabled").mkdir()  # /etc/systemd/system: what is enabled is so after the next start
        for name in _OF_THE_MACHINE:
            shutil.copy(f"/lib/systemd/system/{name}", units)
        (units / "sysinit.target").write_text(_SYSINIT)
        (self.boot / "etc" / "systemd").mkdir(parents=True)
        (self.boot / "etc" / "systemd" / "journald.conf").write_text(_JOURNAL)
        (self.boot / "etc" / "machine-id").write_text(f"{0xA6E47F5:032x}\n")

    @property
    def units(self) -> Path:
        """Where a unit is put for the next start."""
        return self.boot / UNITS.lstrip("/")

    def start(self) -> "Machine":
        """Boots; returns when multi-user.target is reached."""
        self._cgroup.mkdir(exist_ok=True)
        (self.shared / "console").touch()
        environment = {
            **os.environ, "CGROUP": str(self._cgroup), "BASE": str(self._base), "SHARED": str(self.shared),
            "CHECKOUT": str(_CHECKOUT), "INSIDE": _INSIDE,
        }  # fmt: skip
        self._started = subprocess.Popen(["sh", "-ec", _BOOT], env=environment, stderr=subprocess.PIPE, text=True)
        self.wait(self._has_process_1)
        self.wait(lambda: self.sh("systemctl is-active multi-user.target", check=False).strip() == "active")
        return self

    def _has_process_1(self) -> bool:
        assert self._started is not None
        if self._started.poll() is not None:
            assert self._started.stderr is not None
            raise AssertionError(f"systemd did not start: {self._started.stderr.read()}{self.console()}")
        children = Path(f"/proc/{self._started.pid}/task/{self._started.pid}/children").read_text().split()
        self._process_1 = int(children[0]) if children else 0
        return bool(children) and Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n"

    def sh(self, script: str, check: bool = True, **options: Any) -> str:
        """A script's output, inside."""
        inside = ["nsenter", "-t", str(self._process_1), "-a", "sh", "-ec", script]
        environment = {"PATH": f"{os.environ['PATH']}:/usr/local/bin", "HOME": "/root", "LANG": "C"}
        done = subprocess.run(inside, capture_output=True, text=True, timeout=60, check=False, env=environment, **options)
        if check and done.returncode != 0:
            raise AssertionError(f"{script}: exit code {done.returncode}\n{done.stdout}{done.stderr}{self.console()}")
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """A file of the root, now and at each start to come."""
        kept = self.boot / path.lstrip("/")
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(text)
        self.sh(f"mkdir -p '{os.path.dirname(path)}'; cp -p '{kept}' '{path}'")

    def wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not until():
            if time.monotonic() > deadline:
                raise AssertionError(f"that did not come about\n{self.console()}")
            time.sleep(0.02)

    def console(self) -> str:
        return (self.shared / "console").read_text(errors="replace")[-5000:]

    def shut_down(self) -> None:
        """In order, as for a reboot."""
        assert self._started is not None
        self.sh("systemctl --no-block exit")
        self._started.wait(timeout=60)
        self.end()

    def end(self) -> None:
        """At once, whatever runs; all of its mounts go with their namespace."""
        if self._started is None:
            return
        self._started.kill()
        self._started.wait()
        if self._started.stderr is not None:
            self._started.stderr.close()
        self._started = None
        deadline = time.monotonic() + _PATIENCE_S
        while self._cgroup.exists() and time.monotonic() < deadline:
            for directory, _, _ in os.walk(self._cgroup, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
            time.sleep(0.02)
