"""A binding outlives the daemon: kill -9, a new mount, and the processes that lived through it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_client.facts import IN_DOUBT
from tests.mounted import AGENTFSD, Mounted, needs_namespaces

# Goes on writing lines to a file of the mount, by its full path; a line of its own file says how each went.
WRITER = """
import os, sys, time
place, told = sys.argv[1:3]
for number in range(10_000):
    try:
        with open(place, "a") as file:
            file.write(f"{number}\\n")
        outcome = "written"
    except OSError as exc:
        outcome = str(exc.errno)
    with open(told, "a") as file:
        file.write(outcome + "\\n")
    time.sleep(0.02)
"""

# Once the file exists, starts such a writer as an orphan; then the process itself ends.
ORPHAN_MAKER = """
import os, sys, time
writer, gate, place, told, asked = sys.argv[1:6]
while not os.path.exists(gate):
    time.sleep(0.01)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, writer, place, told])
    os._exit(0)
os.wait()
"""


@pytest.fixture
def project(make_mount: Callable[..., Mounted]) -> Iterator[Mounted]:
    yield make_mount()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def last_line(path: Path) -> str:
    lines = path.read_text().splitlines() if path.exists() else []
    return lines[-1] if lines else ""


def test_a_bound_writer_goes_on_in_its_branch(project: Mounted, tmp_path: Path) -> None:
    writer, told = tmp_path / "writer.py", tmp_path / "told"
    writer.write_text(WRITER)
    project.cli("branch create", "one")
    project.start("one", sys.executable, str(writer), str(project.path / "log"), str(told))
    wait_for(lambda: last_line(told) == "written", "the writer began")
    project.kill()
    wait_for(lambda: last_line(told) not in ("written", ""), "the writer notices")
    project.mount()
    wait_for(lambda: last_line(told) == "written", "the writer goes on")
    for _ in range(20):  # what others look up in main is not cached for the writer
        assert not (project.path / "log").exists()
        time.sleep(0.02)
    size = (project.subtree("one") / "log").stat().st_size
    wait_for(lambda: (project.subtree("one") / "log").stat().st_size > size, "the writer still writes to its branch")
    assert last_line(told) == "written"
    assert not (project.path / "log").exists()
    assert "one" in [binding["branch"] for binding in project.json("bindings")]


def test_whoever_may_have_escaped_while_the_daemon_was_dead_is_refused(project: Mounted, tmp_path: Path) -> None:
    writer, maker, gate, told = (tmp_path / name for name in ("writer.py", "maker.py", "gate", "told"))
    writer.write_text(WRITER)
    maker.write_text(ORPHAN_MAKER)
    project.cli("branch create", "one")
    run = project.start("one", sys.executable, str(maker), str(writer), str(gate), str(project.path / "log"), str(told), "")
    wait_for(lambda: any(found["explicit"] for found in project.json("bindings")), "the command is bound")
    project.kill()
    run.kill()
    run.wait()
    gate.touch()
    wait_for(told.exists, "the orphan writes")
    project.mount()
    orphan = next(found["pid"] for found in project.json("bindings") if found["branch"] == IN_DOUBT)
    try:
        wait_for(lambda: last_line(told) == "13", "EACCES")
        assert not (project.path / "log").exists()
        assert not (project.subtree("one") / "log").exists()
        project.cli("bind", str(orphan), "one")
        wait_for(lambda: last_line(told) == "written", "it is bound, and goes on")
        assert not (project.path / "log").exists()
        assert (project.subtree("one") / "log").exists()
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_a_run_that_lost_its_mount_may_not_ask_for_other_branches(project: Mounted, tmp_path: Path) -> None:
    needs_namespaces()
    project.cli("branch create", "one")
    project.cli("branch create", "other")
    ask = (
        "import sys; from agentfs_client.control import ControlClient\n"
        "with ControlClient.connect(sys.argv[1]) as client: client.discard('other')"
    )
    script = f'cd /; while ! [ -e {tmp_path}/gate ]; do sleep 0.05; done; {sys.executable} -c "$1" "$2" >{tmp_path}/said 2>&1'
    script += f"; echo $? >{tmp_path}/code"
    command = ["run", "-m", str(project.path), "-b", "one", "--confine", "off", "--", "sh", "-c", script, "sh", ask]
    project.started.append(subprocess.Popen([*AGENTFSD, *command, project.record().socket], text=True, cwd=project.path))
    wait_for(lambda: any(found["explicit"] for found in project.json("bindings")), "the command is bound")
    project.kill()
    project.mount()
    (tmp_path / "gate").touch()
    wait_for(lambda: last_line(tmp_path / "code") != "", "it asked")
    assert last_line(tmp_path / "code") == "1"
    assert "bound to a branch" in (tmp_path / "said").read_text()
    assert "other" in [branch["name"] for branch in project.json("branch list")]
