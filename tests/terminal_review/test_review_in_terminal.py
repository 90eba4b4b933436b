"""The review in a real terminal: tmux is the terminal, and presses the keys."""

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.forty_lines import LINES, changed
from tests.mounted import AGENTFSD, Mounted, agentfsd

_PATIENCE_S = 40


class Terminal:
    """A terminal with one program in a shell."""

    def __init__(self, base: Path) -> None:
        self._tmux = ["tmux", "-S", str(base / "tmux"), "-f", "/dev/null"]
        self._is_on = False

    def _do(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True, timeout=60).stdout

    def start(self, project: Mounted, *arguments: str, size: str = "120x40", **environment: str) -> None:
        command = shlex.join([*AGENTFSD, "review", "-m", str(project.path), *arguments])
        base = project.path.parent
        script = f"stty -a >{base}/before; {command}; echo ended with $?; stty -a >{base}/after; exec cat"
        width, height = size.split("x")
        settings = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        root = str(Path(__file__).parent.parent.parent)
        self._do("new-session", "-d", "-x", width, "-y", height, "-c", root, *settings, "sh", "-c", script)
        self._is_on = True

    def keys(self, *keys: str) -> None:
        self._do("send-keys", *keys)

    def type(self, text: str) -> None:
        self._do("send-keys", "-l", text)

    def text(self, *, raw: bool = False) -> str:
        return self._do("capture-pane", "-p", *["-e"] * raw)

    def resize(self, width: int, height: int) -> None:
        self._do("resize-window", "-x", str(width), "-y", str(height))

    def until(self, *wanted: str) -> str:
        deadline, text = time.monotonic() + _PATIENCE_S, self.text()
        while not all(each in text for each in wanted):
            assert time.monotonic() < deadline, f"{wanted} is not on the screen:\n{text}"
            time.sleep(0.05)
            text = self.text()
        return text

    def confirm(self, key: str, *said: str) -> str:
        """Answers a window, and leaves the next one, which tells what was done."""
        self.until(*said)
        self.keys(key)
        text = self.until("[o] OK")
        self.keys("o")
        self.gone("[o] OK")
        return text

    def gone(self, unwanted: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while unwanted in (text := self.text()):
            assert time.monotonic() < deadline, f"{unwanted} stays on the screen:\n{text}"
            time.sleep(0.05)

    def open_first(self) -> None:
        """Leaves the filter, and opens the branch."""
        self.keys("Enter")
        time.sleep(0.5)
        self.keys("Enter")

    def end(self) -> None:
        if self._is_on:
            self._do("kill-server")
            self._is_on = False


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is missing: apt-get install tmux")
    made = Terminal(tmp_path)
    yield made
    made.end()


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "text").write_text("".join(LINES))
    (lower / "other").write_text("".join(LINES))
    return make_mount(lower)


def test_of_ten_branches_three_pass_and_two_are_kept(project: Mounted, terminal: Terminal) -> None:
    """Find those three, compare them, commit two hunks of one, merge and commit all of another, settle a conflict, undo."""
    for number in range(1, 11):
        passes = number in (2, 5, 9)
        script = f"""
            sed -i -e s/^line.3$/three-{number}/ -e s/^line.20$/twenty-{number}/ -e s/^line.38$/end-{number}/ text
            exit {int(not passes)}
        """
        project.run(f"agent-{number}", "sh", "-c", script, new=True, check=False)
    project.sh("agent-9", "echo nine > nine; sed -i s/^line.10$/ten-9/ text; true")
    terminal.start(project)
    terminal.until("11 of 11 branches", "+3 -3")
    terminal.keys("p")
    text = terminal.until("3 of 11 branches")
    assert re.findall(r"agent-\d+", text) == ["agent-9", "agent-5", "agent-2"]
    terminal.keys("c")
    terminal.until("3 branches compared", "PATH THAT SEVERAL CHANGED")
    terminal.keys("q")
    terminal.until("3 of 11 branches")

    terminal.type("/agent-5")  # two hunks of one into the real directory
    terminal.until("1 of 11 branches")
    terminal.open_first()
    terminal.until("0 of 3 hunks chosen")
    for key in ("Space", "j", "j", "Space", "c"):
        terminal.keys(key)
    terminal.confirm("y", "Commit 2 hunks in 1 file of agent-5?")
    assert (project.lower / "text").read_text() == changed(l3="three-5\n", l38="end-5\n")
    terminal.until("0 of 1 hunk chosen")

    terminal.keys("m")  # what is left of it into main
    terminal.until("into which branch?")
    terminal.keys("Enter")
    terminal.confirm("y", "Merge everything of agent-5 into main?")
    terminal.keys("q")
    terminal.until("1 of 11 branches")
    terminal.keys("Escape")
    terminal.until("11 of 11 branches")
    terminal.type("/agent-9")
    terminal.until("1 of 11 branches")
    terminal.open_first()
    terminal.until("0 of 4 hunks chosen")
    terminal.keys("m")  # all of another
    terminal.until("into which branch?")
    terminal.keys("Enter")
    terminal.until("Leave them in main")
    terminal.keys("1")
    terminal.until("would be left in main")
    terminal.keys("y")
    terminal.until("Settle them now")
    terminal.keys("s")
    terminal.until("undecided", "block 1 of")
    for _ in range(terminal.text().count("block 1 of") * 5):
        if "Write text" in terminal.text():
            break
        terminal.keys("t")
        time.sleep(0.3)
    terminal.until("Write text with these decisions?")
    terminal.keys("y")
    terminal.until("all is decided")
    terminal.keys("f")
    terminal.confirm("y", "Finish the merge?")
    merged = (project.subtree("main") / "text").read_text()
    assert "twenty-9\n" in merged
    assert "ten-9\n" in merged
    terminal.until("0 of 4 hunks chosen")
    terminal.keys("q")
    terminal.until("branches")
    terminal.keys("Escape")
    terminal.until("11 of 11 branches")
    terminal.type("/main")
    terminal.until("1 of 11 branches")
    terminal.open_first()
    terminal.until("hunks chosen")
    terminal.keys("c")
    terminal.until("text: changed in the real directory since the branch changed it", "[2] Overwrite")  # the two hunks
    terminal.keys("2")
    terminal.confirm("y", "would go into the real directory")
    assert (project.lower / "text").read_text() == merged
    assert (project.lower / "nine").read_text() == "nine\n"
    terminal.keys("q")
    terminal.until("1 of 11 branches")
    terminal.keys("Escape")
    terminal.until("11 of 11 branches")

    terminal.type("/agent-1")  # undo brings back what was discarded
    terminal.until("with 'agent-1'")
    terminal.keys("Enter")
    time.sleep(0.5)
    terminal.keys("D")
    terminal.until("Discard agent-1")
    discarded = re.findall(r"Discard (agent-\d+)\?", terminal.text())[0]
    terminal.confirm("y")
    assert discarded not in {branch["name"] for branch in project.json("branch list")}
    terminal.keys("u")
    terminal.confirm("y", f"Undo the discard of {discarded}?")
    assert discarded in {branch["name"] for branch in project.json("branch list")}
    terminal.keys("q")
    terminal.until("ended with 0")
    assert project.fsck() == []


def _sane(project: Mounted) -> None:
    deadline = time.monotonic() + 10
    while not (project.path.parent / "after").exists() or not (project.path.parent / "after").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (project.path.parent / "after").read_text() == (project.path.parent / "before").read_text()


def test_control_c_leaves_the_terminal_as_it_was(project: Mounted, terminal: Terminal) -> None:
    project.run("fix", "sh", "-c", "echo new > new", new=True)
    terminal.start(project, "fix")
    terminal.until("0 of 1 hunk chosen")
    terminal.keys("c")
    terminal.until("Commit everything of fix?")
    terminal.keys("C-c")
    terminal.until("ended with 0")
    _sane(project)
    assert not (project.lower / "new").exists()


def test_it_ends_with_its_terminal(project: Mounted, terminal: Terminal) -> None:
    project.run("fix", "sh", "-c", "echo new > new", new=True)
    terminal.start(project, "fix")
    terminal.until("0 of 1 hunk chosen")
    terminal.end()
    deadline = time.monotonic() + 10
    while _reviewing(project):
        assert time.monotonic() < deadline, "it goes on without a terminal"
        time.sleep(0.05)


def _reviewing(project: Mounted) -> list[str]:
    """The processes that review this mount."""
    wanted = f"review\0-m\0{project.path}\0".encode()
    found = []
    for number in filter(str.isdecimal, os.listdir("/proc")):
        try:
            found += [number] if wanted in Path("/proc", number, "cmdline").read_bytes() else []
        except OSError:  # it has ended
            continue
    return found


def test_the_daemon_is_killed_and_the_next_one_goes_on(project: Mounted, terminal: Terminal) -> None:
    project.run("fix", "sh", "-c", "echo new > new", new=True)
    terminal.start(project, "fix")
    terminal.until("0 of 1 hunk chosen")
    project.kill()
    terminal.until("trying again")
    terminal.keys("c")
    terminal.until("[o] OK")
    terminal.keys("o")
    agentfsd("mount", str(project.lower), str(project.path), "--state", str(project.state))
    terminal.gone("trying again")
    terminal.keys("c")
    terminal.confirm("y", "Commit everything of fix?")
    assert (project.lower / "new").read_text() == "new\n"


def test_colours_of_few_terminals_and_none(project: Mounted, terminal: Terminal) -> None:
    project.run("fix", "sh", "-ec", "sed -i s/^line.3$/three/ text", new=True)
    terminal.start(project, "fix", NO_COLOR="1")
    terminal.until("+three")
    codes = {code for found in re.findall(r"\x1b\[([\d;]*)m", terminal.text(raw=True)) for code in found.split(";")}
    assert codes <= {"", "0", "1", "2", "3", "4", "7", "39", "49"}, "NO_COLOR is not heeded"
    assert "7" in codes  # what differs, and where one is, shows without colours
    terminal.keys("q")
    terminal.until("ended with 0")
    terminal.end()
    time.sleep(0.3)
    terminal.start(project, "fix", TERM="screen", COLORTERM="")
    terminal.until("+three")
    found = re.findall(r"\x1b\[([\d;]*)m", terminal.text(raw=True))
    assert {"32", "31"} <= {code for each in found for code in each.split(";")}
    assert not [each for each in found if re.search(r"[34]8;", each)], "more than 16 colours"


def test_a_terminal_that_is_resized_is_filled(project: Mounted, terminal: Terminal) -> None:
    project.run("fix", "sh", "-ec", "sed -i s/^line.3$/three/ text", new=True)
    terminal.start(project, "fix", size="80x24")
    terminal.until("+three")
    terminal.resize(150, 50)
    deadline = time.monotonic() + _PATIENCE_S
    while max(len(line) for line in terminal.text().splitlines()) < 145:
        assert time.monotonic() < deadline, terminal.text()
        time.sleep(0.05)
    terminal.resize(40, 10)
    terminal.until("+three")


def test_a_conflict_is_edited_in_the_persons_editor(project: Mounted, terminal: Terminal, tmp_path: Path) -> None:
    for name in ("one", "two"):
        project.run(name, "sh", "-ec", f"sed -i s/^line.3$/{name}/ text", new=True)
    project.cli("merge", "one", "--into", "main")
    project.cli("merge", "--conflicts", "two", "main", check=False)
    editor = tmp_path / "editor"
    editor.write_text(
        '#!/bin/sh\nstty -a | grep -q " icanon" && echo the editor has the terminal\n'
        'read answer\nsed -i "/^[<|=>]\\{7\\}/d" "$1"\n'
    )
    editor.chmod(0o755)
    terminal.start(project, "main", VISUAL=str(editor))
    terminal.until("1 conflict left: x")
    terminal.keys("x")
    terminal.until("block 1 of 1")
    terminal.keys("e")
    terminal.until("the editor has the terminal")
    terminal.keys("Enter")
    terminal.until("all is decided", "edited")
    terminal.keys("f")
    terminal.confirm("y", "Finish the merge?")
    assert (project.subtree("main") / "text").read_text() == changed(l3="one\nline 3\ntwo\n")


def test_without_a_terminal_it_says_what_to_use(project: Mounted) -> None:
    done = project.cli("review", check=False)
    assert done.returncode == 1
    assert "needs a terminal" in done.stderr
    assert "agentfsd compare" in done.stderr
    assert "agentfsd commit -p" in done.stderr


def test_without_textual_it_says_how_to_install_it(project: Mounted) -> None:
    code = "import sys; sys.modules['textual'] = None; from agentfsd.cli.main import main; main()"
    reading, writing = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, "review", "-m", str(project.path)], stdin=writing, stdout=writing,
            stderr=subprocess.PIPE, text=True, check=False, timeout=60,
        )  # fmt: skip
    finally:
        os.close(reading)
        os.close(writing)
    assert done.returncode == 1
    assert "the package textual is missing" in done.stderr
    assert "pip install 'agentfsd[review]'" in done.stderr


def test_other_commands_do_not_load_it() -> None:
    code = "import sys; sys.argv = ['agentfsd', 'compare', '--help']\nfrom agentfsd.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print('textual' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("False\n")


def test_a_terminal_without_utf_8_is_told_what_to_do(project: Mounted, terminal: Terminal) -> None:
    terminal.start(project, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="latin-1")
    terminal.until("the locale's encoding is", "LC_ALL=C.UTF-8 agentfsd review", "ended with 1")


def test_a_dumb_terminal_and_the_c_locale_show_it(project: Mounted, terminal: Terminal) -> None:
    project.run("fix", "sh", "-c", "echo new > new", new=True)
    terminal.start(project, "fix", TERM="dumb", LC_ALL="C")
    terminal.until("+new", "0 of 1 hunk chosen")
    terminal.keys("c")
    terminal.confirm("y", "Commit everything of fix?")
    assert (project.lower / "new").read_text() == "new\n"
