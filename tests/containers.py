"""A podman of the tests' own: its service, its storage and its containers live in namespaces that end with the fixture, on a
tmpfs that nobody else sees; the image is made of what Debian has installed. No registry, no network, nothing of the machine's."""

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from podman import PodmanClient
    from podman.domain.containers import Container

IMAGE = "localhost/agentfs-test:latest"
WAITING = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"]
PATHS = {"busybox": "/bin", "dash": "/gnu/bin", "bash": "/bash/bin:/gnu/bin"}  # by which shell `sh` is

_TOOLS = (
    "cat", "chmod", "chown", "dd", "find", "ln", "ls", "mkdir", "mkfifo", "mv", "readlink", "rm", "sleep", "stat", "tar", "xargs",
)  # fmt: skip
_CONTAINERS = """
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
exit_command_delay = 5
runtime = "crun"
"""
_STORAGE = """
[storage]
driver = "{driver}"
runroot = "{store}/run"
graphroot = "{store}/root"
"""
# What podman, crun and CNI keep in /run and /var/lib they keep on a tmpfs; crun refuses a cgroup2 with controllers beside
# version 1, so there is none. All that is so in this mount namespace alone.
_START = """
for place in "$1/store" /run /var/lib; do mount -t tmpfs none "$place"; done
umount /sys/fs/cgroup/unified 2>/dev/null
podman --log-level error --root "$1/store/root" --runroot "$1/store/run" --tmpdir "$1/store/tmp" \
    --network-config-dir "$1/store/networks" --storage-driver "$2" system service --time 0 "unix://$1/socket" &
wait
"""


def configured(directory: Path, store: str, driver: str) -> dict[str, str]:
    """The environment of a podman that keeps what it has in *store*; its configuration is written into *directory*."""
    (directory / "containers.conf").write_text(_CONTAINERS)
    (directory / "storage.conf").write_text(_STORAGE.format(driver=driver, store=store))
    return {
        "CONTAINERS_CONF": str(directory / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
    }


class PodmanService:
    """Skips the test, with what podman said, where containers do not run."""

    def __init__(self) -> None:
        for command in ("podman", "crun", "busybox"):
            if shutil.which(command) is None:
                pytest.skip(f"{command} is not installed; scripts/install --tests does it")
        if os.geteuid() != 0:
            pytest.skip("a podman of one's own, away from the machine's, needs root")
        self._base = Path(tempfile.mkdtemp(prefix="agentfs-podman-"))
        (self._base / "store").mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        said = ""
        for driver in ("overlay", "vfs"):
            said = self._try(driver)
            if not said:
                return
            self.stop()
        shutil.rmtree(self._base)
        pytest.skip(f"podman runs no container here: {said}")

    @property
    def uri(self) -> str:
        return f"http+unix://{self._base}/socket"

    def client(self) -> "PodmanClient":
        from podman import PodmanClient

        return PodmanClient(base_url=self.uri)

    def _try(self, driver: str) -> str:
        """Starts the service, and a container in it; what was wrong, if anything."""
        settings = configured(self._base, f"{self._base}/store", driver)
        apart = [
            "setpriv", "--pdeathsig", "KILL",
            "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave",
        ]  # fmt: skip
        command = [*apart, "sh", "-c", _START, "sh", str(self._base), driver]
        with open(self._base / "log", "wb") as log:
            self._process = subprocess.Popen(command, cwd=self._base, env=os.environ | settings, stderr=log, stdout=log)
        if not within(10, (self._base / "socket").exists):
            return (self._base / "log").read_text(errors="replace").strip() or "its service did not start"
        with self.client() as client:
            response = client.api.post("/images/import", params={"reference": IMAGE}, data=root_file_system())
            response.raise_for_status()
            try:
                self.run(client).remove(force=True)
            except OSError as exc:
                return str(exc)
        return ""

    def run(self, client: "PodmanClient", shell: str = "busybox") -> "Container":
        """A container with an empty /workspace that does nothing until it is told to end."""
        container = client.containers.create(
            IMAGE, WAITING, environment={"PATH": PATHS[shell]}, network_mode="none", stop_timeout=0
        )
        try:
            container.start()
        except OSError:
            container.remove(force=True)
            raise
        return container

    def stop(self) -> None:
        """Kills whatever runs in it: the first process of its process namespace ends, and with it all."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        with contextlib.suppress(FileNotFoundError):
            (self._base / "socket").unlink()

    def end(self) -> None:
        self.stop()
        shutil.rmtree(self._base)


@contextlib.contextmanager
def podman_service() -> Iterator[PodmanService]:
    service = PodmanService()
    try:
        yield service
    finally:
        service.end()


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def root_file_system() -> bytes:
    """A root file system: busybox, and beside it dash, bash and GNU tools with their libraries."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for directory in ("bin", "etc", "tmp", "workspace", "gnu", "gnu/bin", "bash", "bash/bin"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        busybox = os.path.realpath(shutil.which("busybox") or "")
        archive.add(busybox, "bin/busybox")
        for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if name != "busybox":
                _link(archive, f"bin/{name}", "busybox")
        tools = {f"gnu/bin/{name}": os.path.realpath(shutil.which(name) or "") for name in _TOOLS}
        tools |= {"gnu/bin/sh": os.path.realpath("/bin/dash"), "bash/bin/sh": os.path.realpath("/bin/bash")}
        for name, path in tools.items():
            archive.add(path, name)
        for library in sorted(_libraries(list(tools.values()))):
            archive.add(os.path.realpath(library), library.lstrip("/"))
    return buffer.getvalue()


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _libraries(paths: list[str]) -> set[str]:
    told = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=True).stdout
    return {word for line in told.splitlines() for word in line.split() if word.startswith("/") and not word.endswith(":")}
