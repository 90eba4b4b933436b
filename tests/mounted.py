"""A real mount for tests: started, used and ended through the command line, as a user would."""

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentfs_client import interpose, registry
from agentfs_host import mount_table
from agentfsd.cli.sandbox import namespace_trial
from agentfsd.linux import mounts
from agentfsd.state import state_directory
from tests.forked_commands import ForkedCommands

AGENTFSD = [sys.executable, "-m", "agentfsd.cli.main"]
_TIMEOUT_S = 120
_forked = ForkedCommands()


def needs_fuse() -> None:
    """Skips where nothing can be mounted, and says what is missing."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("/dev/fuse is missing: modprobe fuse")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse may not be opened by this user")


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


def needs_open_checkout() -> None:
    """Skips where others than root cannot run this checkout's Python."""
    for place in (Path(__file__), Path(sys.executable)):
        for directory in place.absolute().parents:
            if not directory.stat().st_mode & stat.S_IXOTH:
                pytest.skip(f"an ordinary user cannot enter {directory}, where this checkout lies")


def needs_checkout_outside_tmp() -> None:
    """Skips where a run with a private /tmp could not run this checkout's Python."""
    if Path(__file__).is_relative_to("/tmp") or Path(__file__).is_relative_to("/var/tmp"):
        pytest.skip("this checkout lies in /tmp, which a strict run does not see: clone it elsewhere")


def needs_namespaces() -> None:
    reason = namespace_trial.probe_error()
    if reason:
        pytest.skip(f"no private mount namespaces here: {reason}")


def agentfsd(*arguments: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command; with *check* a failure shows what it said."""
    done = _forked.run(arguments, _TIMEOUT_S, **options)
    if done is None:
        done = subprocess.run([*AGENTFSD, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"agentfsd {' '.join(arguments)} exited with {done.returncode}: {done.stderr}{done.stdout}")
    return done


def started(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Starts the command; *options* are those of subprocess.Popen()."""
    process = _forked.start(arguments, **options)
    return process or subprocess.Popen([*AGENTFSD, *arguments], text=True, **options)


def needs_interposing(mounted: "Mounted") -> None:
    """Switches forwarding on; skips where there is no compiler for the preloaded library."""
    if interpose.library() is None:
        pytest.skip("the preloaded library is not there: gcc is missing")
    mounted.cli("interpose set", "enabled=on", "min_read_bytes=1")


def kill_for_good(record: registry.DaemonRecord) -> None:
    """SIGKILL for a daemon and for what would start the next one, which is stopped before: each would replace the other."""
    keeper, daemon = (record.keeper, record.keeper_ticks), (record.pid, record.start_ticks)
    for (number, ticks), code in ((keeper, signal.SIGSTOP), (daemon, signal.SIGKILL), (keeper, signal.SIGKILL)):
        if number and registry.process_start_ticks(number) == ticks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, code)


class Mounted:
    """One overlay. ``path`` is the mount point as an unbound process sees it: the branch main."""

    def __init__(self, base: Path, lower: Path | None = None, *options: str) -> None:
        self.lower = lower or base / "lower"
        self.path, self.state, self.options = base / "mnt", base / "state", options
        self.started: list[subprocess.Popen[str]] = []
        self.lower.mkdir(exist_ok=True)
        self.path.mkdir(exist_ok=True)

    def mount(self) -> "Mounted":
        agentfsd("mount", str(self.lower), str(self.path), "--state", str(self.state), *self.options)
        return self

    def cli(self, command: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command about this mount; a command of two words (``branch create``) as one string."""
        return agentfsd(*command.split(), "-m", str(self.path), *arguments, check=check)

    def answered(self, answers: str, command: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command that asks, with answers on its standard input: words, one for each question."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        asking = started(command, "-m", str(self.path), *arguments, env=os.environ | environment, **streams)
        with asking:
            out, errors = asking.communicate(answers.replace(" ", "\n") + "\n", timeout=_TIMEOUT_S)
        return subprocess.CompletedProcess(arguments, asking.returncode, out, errors)

    def json(self, command: str, *arguments: str) -> Any:
        return json.loads(self.cli(command, *arguments, "--json").stdout)

    def run(
        self, branch: str, *command: str, new: bool = False, view: str = "namespace", check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """A command in a branch, standing in the mount; ``view``: namespace or pid."""
        arguments = ["run", "-m", str(self.path), "-b", branch]
        arguments += ["--new"] * new + ["--no-namespace"] * (view == "pid")
        return agentfsd(*arguments, "--", *command, check=check, cwd=self.path, **options)

    def sh(self, branch: str, script: str, **options: Any) -> str:
        return self.run(branch, "sh", "-ec", script, **options).stdout

    def start(
        self, branch: str, *command: str, view: str = "pid", interposed: bool = False, **options: Any
    ) -> subprocess.Popen[str]:
        """Like run, without waiting for its end. *interposed*: with the preloaded library, whose settings are to be on."""
        arguments = ["run", "-m", str(self.path), "-b", branch, *["--no-namespace"] * (view == "pid")]
        arguments += [*["--interpose"] * interposed, "--", *command]
        self.started.append(started(*arguments, cwd=self.path, **options))
        return self.started[-1]

    def subtree(self, branch: str) -> Path:
        return self.path / ".agentfs" / "branches" / branch

    def record(self) -> registry.DaemonRecord:
        found = state_directory.StateDirectory(str(self.state)).last_record()
        assert found is not None
        return found

    def kill(self) -> None:
        """SIGKILL, as the kernel's OOM killer would."""
        deadline = time.monotonic() + 5  # a keeper that is just being started would start the next daemon
        while not (record := self.record()).keeper and record.serves() and time.monotonic() < deadline:
            if not {"--no-restart", "--foreground", "memory", "pyfuse3"}.isdisjoint(self.options):
                break
            time.sleep(0.01)
        kill_for_good(record)
        deadline = time.monotonic() + 30
        while record.alive():
            assert time.monotonic() < deadline, "the killed daemon does not end"
            time.sleep(0.005)

    def fsck(self) -> list[str]:
        found: list[str] = json.loads(self.cli("fsck", "--json", check=False).stdout)
        return found

    def end(self) -> None:
        """Unmounts whatever the test left, and lets no process live."""
        for process in self.started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        record = state_directory.StateDirectory(str(self.state)).last_record()
        if record is not None and record.alive():
            agentfsd("umount", "--lazy", str(self.path), check=False)
            kill_for_good(record)
        while mount_table.mount_at(os.path.realpath(self.path)) is not None:
            mounts.unmount(os.path.realpath(self.path), lazy=True)
