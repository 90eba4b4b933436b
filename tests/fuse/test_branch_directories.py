"""`.agentfs/branches/NAME` by absolute path: what the kernel may keep of it, and what it must ask for each time."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_client import locate
from agentfs_client.control import ControlClient
from tests.mounted import Mounted, needs_namespaces, needs_root

_TIMES = 20


def requests_of(client: ControlClient, act: Callable[[], object]) -> float:
    """The kernel's requests for one call of *act*, once what may be cached is."""
    act()

    def count() -> int:
        return int(client.status().resources["requests"])

    idle = count()
    between = count() - idle  # by the question itself
    before = count()
    for _ in range(_TIMES):
        act()
    return (count() - before - between) / _TIMES


def read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def test_a_stat_takes_one_request_and_an_open_three(mounted: Mounted) -> None:
    mounted.cli("branch create", "one")
    file = mounted.subtree("one") / "sub" / "inner"
    with locate.find(str(mounted.path)).connect() as client:
        assert requests_of(client, lambda: os.stat(file)) == pytest.approx(1, abs=0.2)
        assert requests_of(client, lambda: read(file)) == pytest.approx(3, abs=0.2)


def test_what_happens_to_a_branch_shows_at_its_path_at_once(mounted: Mounted) -> None:
    mounted.cli("branch create", "one")
    one, two = mounted.subtree("one"), mounted.subtree("two")
    for _ in range(3):
        assert (one / "file").read_text() == "lower\n"
        assert not two.exists()
        mounted.sh("one", "echo changed > file", view="pid")
        assert (one / "file").read_text() == "changed\n"
        mounted.cli("branch rename", "one", "two")
        assert not one.exists()
        assert (two / "file").read_text() == "changed\n"
        mounted.cli("discard", "two")
        assert not two.exists()
        mounted.cli("branch create", "one")


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_a_bound_process_enters_no_branch_that_others_have_just_looked_at(mounted: Mounted, view: str) -> None:
    if view == "namespace":
        needs_namespaces()
    mounted.cli("branch create", "mine")
    mounted.sh("theirs", "echo secret > file; mkdir d; echo x > d/x", new=True, view="pid")
    for path in ("file", "d", "d/x"):
        (mounted.subtree("theirs") / path).stat()
    script = """
import errno, os
def refused(act, path):
    try:
        return act(path) and 'nothing'
    except OSError as exc:
        return errno.errorcode[exc.errno]
at = '.agentfs/branches'
print(*(refused(act, f'{at}/theirs/{path}') for path in ('', 'file', 'd', 'd/x') for act in (os.stat, os.listdir, open)),
      refused(os.listdir, at), refused(os.stat, f'{at}/missing/x'))
"""
    said = mounted.run("mine", sys.executable, "-c", script, view=view).stdout.split()
    assert said == ["EACCES"] * 13 + ["ENOENT"]
    assert read(mounted.subtree("theirs") / "file") == b"secret\n"


def test_others_who_may_enter_the_mount_find_no_control_directory_after_its_owner_did(
    make_mount: Callable[..., Mounted],
) -> None:
    needs_root()
    mounted = make_mount(None, "--allow-other")
    mounted.path.chmod(0o755)
    assert (mounted.subtree("main")).is_dir()
    script = "import os\nassert not any(os.path.lexists(name) for name in ('.agentfs', '.agentfs/branches/main'))"
    subprocess.run(["/usr/bin/python3", "-I", "-c", script], cwd=mounted.path, user=65534, extra_groups=[], check=True)
    assert (mounted.subtree("main")).is_dir()
