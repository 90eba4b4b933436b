"""One place made ready for measuring: its lower directory with the data sets, the environment of commands, the C program."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmark.places import Place
from benchmark.settings import Settings
from benchmark.worker import COMMAND_TIMEOUT_S, BenchError

_SOURCES = (Path(__file__).parent / "ops.c", Path(__file__).parent / "blocks.c")
_SCRIPTS = Path(sys.executable).parent
AGENTFSD = str(_SCRIPTS / "agentfsd")


@dataclass(slots=True)
class Site:
    """``programs``: where those in C are, "" where there is no compiler. ``materials``: what measurements bring along (archives,
    wheels), outside of every lower."""

    place: Place
    settings: Settings
    environment: Mapping[str, str]
    programs: str
    materials: Path
    _built: dict[str, str] = field(default_factory=dict)

    @property
    def lower(self) -> Path:
        return self.place.path / "lower"

    @property
    def ops(self) -> str:
        return self._program("ops")

    @property
    def blocks(self) -> str:
        return self._program("blocks")

    def _program(self, name: str) -> str:
        if not self.programs:
            raise BenchError(f"there is no C compiler (cc) to build {name}.c with")
        return f"{self.programs}/{name}"

    def build(self, name: str, builder: Callable[[Path, "Site"], None]) -> str:
        """Makes a data set in the lower, once. Why it could not be made; "" when it is there."""
        if name not in self._built:
            path = self.lower / name
            path.mkdir(parents=True)
            try:
                builder(path, self)
                self._built[name] = ""
            except BenchError as exc:
                self._built[name] = str(exc)
            self.place.sync()
        return self._built[name]

    def command(self, *argv: str, cwd: Path | None = None) -> str:
        """Runs a command outside of every view; BenchError when it fails."""
        try:
            done = subprocess.run(
                argv, cwd=cwd, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                timeout=COMMAND_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise BenchError(f"{argv[0]}: {exc}") from exc
        if done.returncode != 0:
            said = " ".join((done.stderr or done.stdout).split())
            raise BenchError(f"{Path(argv[0]).name} {argv[1] if len(argv) > 1 else ''}: {said[-300:]}")
        return done.stdout


def environment(base: Path) -> dict[str, str]:
    """State and registry of our own, no settings of the user's, and this checkout's programs first."""
    (base / "tmp").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTFS_", "GIT_", "PYTEST_"))}
    return kept | {
        "PATH": f"{_SCRIPTS}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "LC_ALL": "C.UTF-8", "TMPDIR": str(base / "tmp"),
        "AGENTFS_STATE_HOME": str(base / "state"), "AGENTFS_RUNTIME_DIR": str(base / "run"),
        "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NO_UPDATE_NOTIFIER": "1",
    }  # fmt: skip


def compile_programs(directory: Path) -> str:
    """The directory in which the programs in C are; "" where there is no compiler."""
    try:
        for source in _SOURCES:
            subprocess.run(["cc", "-O2", "-o", str(directory / source.stem), str(source)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return str(directory)


def program(name: str) -> str:
    """The path of a program; BenchError where it is not installed."""
    found = shutil.which(name, path=f"{_SCRIPTS}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if found is None:
        raise BenchError(f"{name} is not installed")
    return found
