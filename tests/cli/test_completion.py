"""Tab, pressed in a real bash; and quiet where there is nothing to complete."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.cli import shell_completion
from tests.mounted import Mounted, agentfsd, needs_fuse

PROGRAM = Path(sys.executable).with_name("agentfsd")


class Bash:
    """An interactive one in a terminal, with the completion that `agentfsd completion bash` prints."""

    def __init__(self, directory: Path) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.environ |= {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "PS1": "$ ", "TERM": "dumb", "HISTFILE": ""}
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.type('eval "$(agentfsd completion bash)"; PS2=; echo rea""dy\n', until="ready")

    def type(self, keys: str, until: str) -> str:
        """What is shown from then on, until *until* is part of it."""
        os.write(self.terminal, keys.encode())
        shown, end = "", time.monotonic() + 20
        while until not in shown:
            assert select.select([self.terminal], [], [], max(end - time.monotonic(), 0))[0], f"{until!r} is not in {shown!r}"
            shown += os.read(self.terminal, 4096).decode()
        return shown

    def completed(self, line: str) -> str:
        """*line* after Tab: Ctrl-A and Ctrl-E put an echo around it, which shows what the shell has there now."""
        shown = self.type(f"{line}\t\x01echo '[\x05]'; echo d\"\"one\n", until="\ndone")
        return shown.rpartition("\n[")[2].partition("]")[0]

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def bash(mounted: Mounted) -> Iterator[Bash]:
    shell = Bash(mounted.path)
    yield shell
    shell.end()


def test_tab_completes_commands_branches_snapshots_and_mounts(bash: Bash, mounted: Mounted) -> None:
    mounted.cli("branch create", "fix-parser")
    mounted.cli("branch create", "later")
    mounted.cli("snapshot create", "-b", "later", "before-lunch")
    assert bash.completed("agentfsd umo") == "agentfsd umount "
    assert bash.completed("agentfsd branch show fi") == "agentfsd branch show fix-parser "
    assert bash.completed("agentfsd snapshot show be") == "agentfsd snapshot show before-lunch "
    assert bash.completed("agentfsd restore -b lat") == "agentfsd restore -b later "
    assert bash.completed("agentfsd diff be") == "agentfsd diff before-lunch "
    assert bash.completed(f"agentfsd umount {str(mounted.path)[:-1]}") == f"agentfsd umount {mounted.path} "


def complete(*words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """What bash asks when Tab is pressed behind the last word."""
    question = {"_AGENTFSD_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run([PROGRAM], env=os.environ | question, cwd=directory, capture_output=True, text=True, check=False)
    return done


def test_without_a_daemon_there_is_silence(tmp_path: Path) -> None:
    done = complete("agentfsd", "branch", "show", "f", directory=tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_tab_starts_no_daemon(tmp_path: Path) -> None:
    needs_fuse()
    project = tmp_path / "project"
    project.mkdir()
    agentfsd("run", "-b", "one-step", "--new", "--", "true", cwd=project)
    agentfsd("umount", str(project), check=False)
    assert complete("agentfsd", "branch", "show", "o", directory=project).stdout.strip() == ""
    assert agentfsd("status", "--json", cwd=tmp_path, check=False).stdout.strip() in ("[]", "")


def test_daemon_that_hangs_does_not_hold_the_shell(mounted: Mounted) -> None:
    os.kill(mounted.record().pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        done = complete("agentfsd", "branch", "show", "-m", str(mounted.path), "f", directory=Path("/"))
        assert time.monotonic() - begin < 5
        assert (done.stdout.strip(), done.stderr) == ("", "")
    finally:
        os.kill(mounted.record().pid, signal.SIGCONT)


@pytest.mark.parametrize("shell", sorted(shell_completion.SCRIPTS))
def test_scripts_are_of_their_shell(shell: str) -> None:
    script = agentfsd("completion", shell).stdout
    assert script == shell_completion.script(shell)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
