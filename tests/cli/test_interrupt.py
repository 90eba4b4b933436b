"""Long commands on a terminal: a bar that goes away again, and Ctrl-C, after which all is as it was, or done."""

import contextlib
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentfsd.cli.commands import cmd_export
from agentfsd.cli.main import main
from agentfsd.state import state_directory
from tests.mounted import Mounted, needs_namespaces

FILES = 1000
WAIT_S = 20
INTERRUPTED = 130
BAR = "━"
CTRL_C = b"\x03"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
AT_ONCE = """
import rich.console, rich.progress  # or the bar comes when short work is over
from agentfsd.cli import entry
from agentfsd.cli.output import progress_bar
progress_bar._AFTER_S = 0
entry.main()
"""
CHANGE = f"import sys; [open(f'many/{{n}}', 'w').write(sys.argv[1]) for n in range({FILES})]"


class Terminal:
    """A command that has a terminal of its own as standard input and error, and shows its bar without waiting for it."""

    def __init__(self, mounted: Mounted, command: str, *arguments: str) -> None:
        self._screen, slave = pty.openpty()
        argv = [sys.executable, "-c", AT_ONCE, *command.split(), "-m", str(mounted.path), *arguments]
        self.process = subprocess.Popen(["setsid", "--ctty", *argv], stdin=slave, stderr=slave, stdout=subprocess.PIPE, text=True)
        os.close(slave)
        self.shown = ""

    def until(self, word: str) -> "Terminal":
        """Waits for a word on the screen; it must come before the command has ended."""
        while word not in self.shown:
            assert self._read(), f"ended without {word!r}: {self.shown!r}"
        return self

    def interrupt(self) -> int:
        os.write(self._screen, CTRL_C)
        return self.end()

    def end(self) -> int:
        """Waits for the exit code; ``lines`` is then what stays on the screen."""
        while self._read():
            pass
        code = self.process.wait(WAIT_S)
        return 128 - code if code < 0 else code  # as a shell has it

    def output(self) -> str:
        """What it has written to standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.read()

    @property
    def lines(self) -> list[str]:
        left = ESCAPES.sub("", self.shown.rpartition("\x1b[2K")[2]).replace("^C", "")
        return [line for line in left.splitlines() if line.strip()]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self._screen)

    def _read(self) -> bool:
        assert select.select([self._screen], [], [], WAIT_S)[0], f"nothing more came: {self.shown!r}"
        try:
            part = os.read(self._screen, 1 << 16)
        except OSError:  # EIO: nobody has the other end any more
            return False
        self.shown += part.decode(errors="replace")
        return True


Start = Callable[..., Terminal]


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    """FILES files; a branch that has all of them changed, and one with a single new file."""
    needs_namespaces()
    real = tmp_path / "lower" / "many"
    real.mkdir(parents=True)
    for number in range(FILES):
        (real / str(number)).write_text("old")
    made = make_mount(real.parent)
    made.run("many", sys.executable, "-c", CHANGE, "new", new=True)
    made.cli("branch create", "few")
    (made.subtree("few") / "few").write_text("few\n")
    return made


@pytest.fixture
def start(project: Mounted) -> Iterator[Start]:
    started: list[Terminal] = []

    def begin(command: str, *arguments: str) -> Terminal:
        started.append(Terminal(project, command, *arguments))
        return started[-1]

    yield begin
    for terminal in started:
        terminal.close()


def free_all(project: Mounted) -> dict[str, int]:
    """What is held when everything that may go has gone."""
    project.cli("gc", "--forget-undo")
    usage: dict[str, int] = project.json("status")["usage"]
    return usage


def loose_layers(project: Mounted) -> list[tuple[int]]:
    """Layers that no branch, snapshot or other layer refers to. Ends the mount: then all of it is in the database."""
    project.end()
    held = "SELECT head FROM branch UNION SELECT layer FROM snapshot UNION SELECT parent FROM layer"
    with contextlib.closing(sqlite3.connect(state_directory.StateDirectory(str(project.state)).metadata)) as database:
        return database.execute(f"SELECT id FROM layer WHERE id NOT IN ({held})").fetchall()


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def wait_until_over(project: Mounted) -> None:
    """The daemon ends by itself what it has begun to write."""
    wait_for(lambda: not [*project.state.glob("commit.*"), *project.lower.glob(".agentfs")])


def contents(directory: Path) -> set[str]:
    """The different contents of its files, all of which are there."""
    found = [path.read_text() for path in directory.iterdir()]
    assert len(found) == FILES
    return set(found)


def test_ctrl_c_leaves_everything_as_it_was(project: Mounted, start: Start) -> None:
    before = free_all(project)
    assert project.cli("merge", "many", "few", "--dry-run").stderr == ""
    for command in (["merge", "many", "few"], ["restore", "-b", "few", "many", "--", "many"]):
        terminal = start(*command).until("applying")
        assert terminal.interrupt() == INTERRUPTED, command
        assert (terminal.lines, terminal.output()) == ([], ""), command
        assert free_all(project) == before
        assert contents(project.subtree("few") / "many") == {"old"}
    assert project.json("undo", "--list") == []
    terminal = start("fsck").until(BAR)
    assert (terminal.interrupt(), terminal.lines) == (INTERRUPTED, [])
    assert project.fsck() == []
    assert loose_layers(project) == []


def test_ctrl_c_in_gc_leaves_the_rest_to_the_next(project: Mounted, start: Start) -> None:
    project.cli("discard", "many")
    terminal = start("gc", "--forget-undo").until(BAR)
    assert terminal.interrupt() in (INTERRUPTED, 0)  # 0: it was done by then
    assert terminal.lines == []
    assert free_all(project)["objects"] == 1
    assert project.fsck() == []


def test_ctrl_c_in_a_commit_leaves_all_of_it_in_the_real_directory_or_none(project: Mounted, start: Start) -> None:
    for phase, allowed in (("staging", ["old", "staging"]), ("applying", ["applying"])):
        project.run("many", sys.executable, "-c", CHANGE, phase)
        terminal = start("commit", "many")
        wait_for((project.state / f"commit.{phase}").exists)
        assert terminal.interrupt() == INTERRUPTED, phase
        assert (terminal.lines, terminal.output()) == ([], ""), phase
        wait_until_over(project)
        assert contents(project.lower / "many") in [{content} for content in allowed]
    assert contents(project.path / "many") == {"applying"}
    assert project.fsck() == []
    project.run("many", "sh", "-c", "echo newer > many/0")
    terminal = start("commit", "many")
    assert (terminal.end(), terminal.lines) == (0, [])
    assert terminal.output().endswith(": 1 change\n")


def test_ctrl_c_in_a_resume_does_not_stop_it(project: Mounted, start: Start) -> None:
    start("commit", "many")
    wait_for((project.state / "commit.applying").exists)
    project.kill()
    project.mount()
    terminal = start("commit", "--resume").until(BAR)
    assert terminal.interrupt() == INTERRUPTED
    assert (terminal.lines, terminal.output()) == ([], "")
    wait_until_over(project)
    assert contents(project.lower / "many") == {"new"}
    assert project.fsck() == []


def test_warnings_of_an_export_come_after_its_progress_bar(
    mounted: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    @contextlib.contextmanager
    def bar(what: str) -> Iterator[object]:
        yield lambda done, total: None
        steps.append("end of the bar")

    monkeypatch.setattr(cmd_export, "progress", bar)
    monkeypatch.setattr(cmd_export, "report_lost", lambda lacking: steps.append("warnings"))
    done = CliRunner().invoke(main, ["export", "-m", str(mounted.path), "main", str(tmp_path / "exported")])
    assert done.exit_code == 0, done.stderr
    assert steps == ["end of the bar", "warnings"]


def test_ctrl_c_while_the_program_starts_ends_it_without_a_word() -> None:
    """When the commands begin to be imported, it gets the signal."""
    script = """
import os, signal, sys
sys.addaudithook(lambda event, told: event == "import" and told[0] == "agentfsd.cli.main" and os.kill(os.getpid(), signal.SIGINT))
from agentfsd.cli.entry import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
