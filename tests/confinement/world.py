"""A small world that a command of `run` may try to reach: a home with a workspace and its state, other mounts, services.

Everything lies below one directory and belongs to one user, root or an ordinary one; `escaped` says what has changed in it.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from agentfs_client.registry import DaemonRecord, read_record
from agentfs_host import mount_table
from tests.confinement import tries
from tests.mounted import AGENTFSD

_ROOT = Path(__file__).parents[2]
ORDINARY = 65534
SECRET = "only for who is outside"


class World:
    """``user``: whose all of it is; ``cli`` runs agentfsd as that user. ``within``: the directory in which it is made."""

    def __init__(self, user: int, within: str | None = None) -> None:
        self.user = user
        self.base = Path(tempfile.mkdtemp(prefix="agentfsd-world-", dir=within))
        self.home, self.outside = self.base / "home", self.base / "outside"
        self.lower, self.point = self.home / "proj", self.home / "work"
        self.other_lower, self.other_point = self.base / "other", self.base / "othermnt"
        self.registry, self.alias, self.part, self.state_alias = (self.base / name for name in ("run", "alias", "part", "states"))
        self._services: list[socket.socket] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._branches = {"main", "mine", "other"}
        self.master, self.terminal = os.openpty()

    def __enter__(self) -> "World":
        directories = (
            self.home / ".ssh", self.home / "links", self.home / "dir", self.point, self.lower / "victims", self.lower / "part",
            self.outside / "empty", self.other_lower, self.other_point, self.registry, self.alias, self.part, self.state_alias,
            self.base / "shared",
        )  # fmt: skip
        for directory in directories:
            directory.mkdir(parents=True)
        (self.home / ".ssh" / "id").write_text(SECRET)
        (self.home / ".bashrc").write_text("as it was\n")
        (self.home / "victim").write_text("as it was\n")
        (self.home / "links" / "proj").symlink_to("../proj")
        (self.other_lower / "secret").write_text(SECRET)
        for name in tries.TRIES:
            (self.lower / "victims" / name).write_text("as it was\n")
        for path in (self.base, *self.base.rglob("*")):
            os.chown(path, self.user, self.user, follow_symlinks=False)
        subprocess.run(["mount", "--bind", self.lower, self.alias], check=True)
        subprocess.run(["mount", "--bind", self.lower / "part", self.part], check=True)
        control = ["mount", "-t", "fusectl", "fusectl", "/sys/fs/fuse/connections"]  # as systemd does
        self._has_control = subprocess.run(control, capture_output=True, check=False).returncode == 0  # else it is there
        self.cli("mount", str(self.lower), str(self.point))
        subprocess.run(["mount", "--bind", self.state().state, self.state_alias], check=True)
        self.cli("mount", str(self.other_lower), str(self.other_point))
        for branch in ("mine", "other"):
            self.cli("branch", "create", branch, "-m", str(self.point))
        self.cli(
            "run",
            "--confine",
            "off",
            "-m",
            str(self.point),
            "-b",
            "other",
            "--",
            "sh",
            "-c",
            f"echo '{SECRET}' > {self.point}/secret",
        )
        self._serve(str(self.base / "service"))
        self._serve("\0" + self.base.name)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for service in self._services:
            service.close()
        daemons = [record for record in self.records() if record.alive()]
        for mountpoint in (self.point, self.other_point):
            self.cli("umount", "--lazy", str(mountpoint), check=False)
        deadline = time.monotonic() + 10
        while any(record.alive() for record in daemons) and time.monotonic() < deadline:
            time.sleep(0.02)
        for path in self.registry.glob("*.json"):
            record = read_record(str(path))
            if record is not None and record.alive():
                os.kill(record.pid, signal.SIGKILL)
        if self._has_control:
            subprocess.run(["umount", "/sys/fs/fuse/connections"], check=True)
        for path in (self.point, self.other_point, self.alias, self.part, self.state_alias):
            subprocess.run(["umount", "-l", path], check=False, capture_output=True)
        with contextlib.suppress(OSError):
            os.rmdir(f"/tmp/agentfsd-{self.user}")
        os.close(self.master)
        os.close(self.terminal)
        self._remove()

    def _remove(self) -> None:
        """Remove the directory, unless something is mounted in it: a try that got out may have mounted the disk there."""
        for mounted in reversed(self._mounted_inside()):
            subprocess.run(["umount", "-l", mounted], check=False, capture_output=True)
        inside = self._mounted_inside()
        if inside:
            raise AssertionError(f"{self.base} stays: {inside} would be removed with it")
        shutil.rmtree(self.base)

    def _mounted_inside(self) -> list[str]:
        return [each.mountpoint for each in mount_table.mount_table() if mount_table.is_within(each.mountpoint, str(self.base))]

    def run(self, branch: str, script: str, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a shell script in a branch, which is made if there is none of that name."""
        if branch not in self._branches:
            self._branches.add(branch)
            self.cli("branch", "create", branch, "-m", str(self.point))
        words = ("run", "-m", str(self.point), "-b", branch, *options, "--", "sh", "-c", script)
        return self.cli(*words, cwd=self.point, check=check)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTFS", "XDG_"))}
        return {**kept, "HOME": str(self.home), "AGENTFS_RUNTIME_DIR": str(self.registry)}

    def cli(
        self, *words: str, check: bool = True, cwd: Path | None = None, pass_fds: tuple[int, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        become = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--inh-caps=-all", "--"]
        # The shell changes directory, as that user: root itself may not enter his mount.
        command = [*(become if self.user else []), "sh", "-c", 'cd "$0" && exec "$@"', str(cwd or self.home), *AGENTFSD, *words]
        done = subprocess.run(
            command, env=self.environment(), cwd="/", capture_output=True, text=True, timeout=180, check=False, pass_fds=pass_fds,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(f"agentfsd {' '.join(words)} exited with {done.returncode}: {done.stderr}{done.stdout}")
        return done

    def records(self) -> list[DaemonRecord]:
        found = [read_record(str(path)) for path in self.registry.glob("*.json")]
        return [record for record in found if record is not None]

    def state(self, lower: Path | None = None) -> DaemonRecord:
        return next(record for record in self.records() if record.lower == str(lower or self.lower))

    # -- what is tried

    def run_tries(self, *options: str) -> dict[str, dict[str, object]]:
        """All of them in the branch mine; what came of each."""
        with self._descriptors() as opened:
            world = json.dumps(self._described() | opened)
            command = ("env", f"PYTHONPATH={_ROOT}", AGENTFSD[0], "-P", "-m", tries.__name__, world)
            done = self.cli(
                "run", "-m", str(self.point), "-b", "mine", *options, "--", *command, cwd=self.point,
                pass_fds=(*opened.values(), self.terminal),
            )  # fmt: skip
        found: dict[str, dict[str, object]] = json.loads(done.stdout)
        return found

    @contextlib.contextmanager
    def _descriptors(self) -> Iterator[dict[str, int]]:
        opened = {
            "fd_of_lower": os.open(self.lower, os.O_RDONLY),
            "fd_of_home": os.open(self.home, os.O_RDONLY),
            "fd_of_file": os.open(self.lower / "victims" / "open_an_inherited_file_for_writing", os.O_RDONLY),
            "fd_of_path": os.open(self.lower / "victims" / "open_what_an_inherited_descriptor_names", os.O_PATH),
            "fd_of_mounts": os.open("/proc/self/ns/mnt", os.O_RDONLY),
        }
        try:
            yield opened
        finally:
            for fd in opened.values():
                os.close(fd)

    def _described(self) -> dict[str, object]:
        daemon, other = self.state(), self.state(self.other_lower)
        self.bystander = self._start("sleep", "1000")
        disk = os.stat(self.base).st_dev
        table = mount_table.mount_table()
        root = next(mounted for mounted in table if mounted.mountpoint == "/")
        cgroup = next((mounted.mountpoint for mounted in table if mounted.fstype.startswith("cgroup")), "/sys/fs/cgroup")
        return {
            "base": str(self.base), "home": str(self.home), "lower": str(self.lower), "point": str(self.point),
            "state": daemon.state, "outside": str(self.outside), "alias": str(self.alias), "alias_of_part": str(self.part),
            "alias_of_state": str(self.state_alias), "registry": str(self.registry), "other_point": str(self.other_point),
            "other_socket": other.socket, "other_record": os.path.basename(self._record_of(other)), "daemon": daemon.pid,
            "daemon_group": os.getpgid(daemon.pid), "bystander": self.bystander, "holder": self._child_of(daemon.pid),
            "terminal": self.terminal, "agentfsd": AGENTFSD,
            "service": str(self.base / "service"), "abstract": self.base.name,
            "disk": root.source, "disk_type": root.fstype, "disk_number": disk, "cgroup": cgroup,
            "tmp": str(self.base / "shared"),
        }  # fmt: skip

    def _record_of(self, wanted: DaemonRecord) -> str:
        return next(str(path) for path in self.registry.glob("*.json") if read_record(str(path)) == wanted)

    def _start(self, *words: str) -> int:
        become = {"user": self.user, "group": self.user, "extra_groups": []} if self.user else {}
        self._processes.append(subprocess.Popen(words, cwd=self.lower, **become))  # type: ignore[call-overload]
        return self._processes[-1].pid

    def _child_of(self, pid: int) -> int:
        return int("".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")).split()[0])

    def _serve(self, address: str) -> None:
        """A service that tells its secret to who connects."""
        service = socket.socket(socket.AF_UNIX)
        service.bind(address)
        if not address.startswith("\0"):
            os.chown(address, self.user, self.user)
        service.listen()
        self._services.append(service)

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = service.accept()
                    with contextlib.suppress(OSError), connection:
                        connection.send(SECRET.encode())

        threading.Thread(target=answer, daemon=True).start()

    # -- what came of it

    def escaped(self, found: dict[str, dict[str, object]]) -> dict[str, str]:
        """The tries that changed something outside, or learned what is only for who is outside; with what."""
        seen = {name: "was carried out" for name, result in found.items() if "got" in result and name not in tries.MARKING}
        for name, result in found.items():
            if SECRET in str(result.get("got", "")):
                seen[name] = "read it"
        for path in self._real_files():
            with contextlib.suppress(OSError, UnicodeDecodeError):
                text = path.read_text()
                if text.startswith("ESCAPED "):
                    seen[text.split()[1]] = f"wrote {path}"
        for name, pid in (("daemon", self.state().pid), ("bystander", self.bystander)):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] if Path(f"/proc/{pid}").exists() else "X"
            if state in "TtXZ":
                seen[f"kill or stop the {name}"] = f"it is in state {state}"
        for name in found:
            victim = self.lower / "victims" / name
            if not victim.is_file() or victim.read_text() != "as it was\n":
                seen[name] = "removed or changed the real file"
        victim = self.home / "victim"
        if not victim.is_file() or victim.read_text() != "as it was\n":
            seen["remove_from_the_home"] = "removed or changed the real file"
        return seen

    def _real_files(self) -> Iterator[Path]:
        places = (self.lower, self.home, self.outside, self.registry, self.other_lower, self.base / "shared", Path("/mnt"))
        for place in (*places, Path(f"/tmp/agentfsd-{self.user}")):
            for directory, names, files in os.walk(place):
                if os.path.samefile(directory, self.home):
                    names[:] = set(names) - {"work"}
                if os.path.samefile(directory, self.state().state):
                    names[:] = set(names) - {
                        "objects",
                        "homes",
                    }  # what the branch itself holds
                yield from (Path(directory, name) for name in files)
