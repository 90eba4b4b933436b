"""A command gets out of sight of its daemon, which is stopped until the kernel has dropped the events of its forks.

The command itself may not stop the daemon or kill its runner, where Landlock has scopes. Here somebody outside does it for it.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.binding.test_table import needs_fork_watch
from tests.confinement.world import World
from tests.rounds import is_long

ATTACK = """
import json, os, signal, sys, time
daemon, socket, place, point = int(sys.argv[1]), *sys.argv[2:]
told = {}
def attempt(name, work):
    try:
        work()
        told[name] = "done"
    except OSError as exc:
        told[name] = getattr(exc, "code", exc.errno)
def ask(request):
    from agentfs_client.control import ControlClient  # late: forks of a small process are faster
    with ControlClient.connect(socket) as client:
        request(client)
def tell(name, text=""):
    with open(f"{place}/{name}.new", "w") as file:
        file.write(text)
    os.rename(f"{place}/{name}.new", f"{place}/{name}")
def wait(name):
    while not os.path.exists(f"{place}/{name}"):
        time.sleep(0.01)
attempt("stop", lambda: os.kill(daemon, signal.SIGSTOP))
attempt("kill", lambda: os.kill(os.getppid(), signal.SIGKILL))
tell("ready", str(os.getppid()))
wait("stopped")
for _ in range(8000):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
tell("forked")
wait("killed")
if os.fork() == 0:
    os.setsid()
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            time.sleep(0.01)
        tell("orphaned", str(os.getpid()))
        wait("continued")
        attempt("discard", lambda: ask(lambda client: client.discard("other")))
        attempt("commit", lambda: ask(lambda client: client.commit("lost")))
        attempt("bind", lambda: ask(lambda client: client.bind(os.getpid(), "other")))
        attempt("policy", lambda: ask(lambda client: client.set_policy("confine", "off")))
        attempt("read", lambda: open(f"{point}/.agentfs/branches/other/secret").read())
        tell("ended", json.dumps(told))
    os._exit(0)
"""


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not happen"
        time.sleep(0.01)
    return path.read_text()


@pytest.mark.parametrize("view", [(), ("--no-namespace",)], ids=["namespace", "pid"])
def test_an_orphan_that_nobody_saw_is_not_taken_for_free(world: World, view: tuple[str, ...]) -> None:
    needs_fork_watch()
    if not is_long() and (world.user == 0) != bool(view):
        pytest.skip("needs --long: root is tried without a namespace, an ordinary user with one")
    daemon, place = world.state(), world.base / "shared" / ("lost" + "".join(view))
    place.mkdir()
    os.chown(place, world.user, world.user)
    world.run("lost", "echo x > mine")
    words = ["run", "-m", str(world.point), "-b", "lost", *view, "--", sys.executable, "-c", ATTACK]
    arguments = [str(daemon.pid), daemon.socket, str(place), str(world.point)]
    running = threading.Thread(target=world.cli, args=(*words, *arguments), kwargs={"cwd": world.point, "check": False})
    running.start()
    try:
        runner = int(wait_for(place / "ready"))
        os.kill(daemon.pid, signal.SIGSTOP)
        (place / "stopped").touch()
        wait_for(place / "forked")
        os.kill(runner, signal.SIGKILL)
        (place / "killed").touch()
        wait_for(place / "orphaned")
        os.kill(daemon.pid, signal.SIGCONT)
        (place / "continued").touch()
        told = json.loads(wait_for(place / "ended"))
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
        running.join()
    assert told == {"stop": 1, "kill": 1} | dict.fromkeys(("discard", "commit", "bind", "policy"), "in-doubt") | {"read": 13}
    assert not (world.lower / "mine").exists()
    assert "other" in world.cli("branch", "list", "-m", str(world.point)).stdout
    world.cli("discard", "lost", "-m", str(world.point))
    world.cli("branch", "create", "lost", "-m", str(world.point))
