"""What an editor that looks at a branch hears of changes by inotify, which docs/how-to/editors.md has in a table."""

import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentfs_host import syscalls
from tests.mounted import Mounted, needs_namespaces

_MASK = 0x2 | 0x100 | 0x200 | 0x40 | 0x80  # modified, created, deleted, moved from and to
_HEADER = struct.Struct("iIII")
_SOON_S = 0.5
_FOLLOWER = """
import sys
from pathlib import Path
from tests.cli.test_editors import heard, watching
with watching(Path(".")) as queue:
    print("ready", flush=True)
    for line in sys.stdin:
        print(*sorted(heard(queue)), flush=True)
"""


@contextmanager
def watching(directory: Path) -> Iterator[int]:
    """A queue of what happens in a directory."""
    queue = syscalls.inotify_init()
    try:
        syscalls.inotify_add_watch(queue, os.fsencode(directory), _MASK)
        for name in os.listdir(directory):
            os.stat(directory / name)
        yield queue
    finally:
        os.close(queue)


def heard(queue: int) -> set[str]:
    """The names of which the queue tells within a while."""
    names, deadline = set[str](), time.monotonic() + _SOON_S
    while (left := deadline - time.monotonic()) > 0:
        if select.select([queue], [], [], left)[0]:
            events, at = os.read(queue, 1 << 16), 0
            while at < len(events):
                length = _HEADER.unpack_from(events, at)[3]
                at += _HEADER.size
                names.add(os.fsdecode(events[at : at + length].rstrip(b"\0")))
                at += length
    return names


@pytest.fixture
def branch(mounted: Mounted) -> Mounted:
    mounted.cli("branch create", "one")
    mounted.cli("snapshot create", "-b", "one", "first")
    return mounted


def test_at_the_folder_an_editor_hears_what_happens_below_it_only(branch: Mounted) -> None:
    folder = branch.subtree("one")
    with watching(folder) as queue:
        subprocess.run(["sh", "-c", "echo >>file; echo >new"], cwd=folder, check=True)
        assert heard(queue) == {"file", "new"}
        branch.sh("one", "echo >>file; echo >by-a-run")
        branch.run("one", "sh", "-c", "echo >>file; echo >by-a-bound-process", view="pid")
        branch.cli("restore", "first", "-b", "one")
        assert heard(queue) == set()
        assert sorted(os.listdir(folder)) == sorted(os.listdir(branch.lower))


def test_in_a_run_an_editor_hears_what_happens_in_every_run_of_the_branch(branch: Mounted) -> None:
    needs_namespaces()
    root = str(Path(__file__).parent.parent.parent)
    editor = branch.start(
        "one", sys.executable, "-c", _FOLLOWER, view="namespace", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert editor.stdin is not None
    assert editor.stdout is not None
    assert editor.stdout.readline() == "ready\n"

    def told() -> str:
        assert editor.stdin is not None
        assert editor.stdout is not None
        editor.stdin.write("\n")
        editor.stdin.flush()
        return editor.stdout.readline().strip()

    branch.sh("one", "echo >>file; echo >by-a-run")
    assert told() == "by-a-run file"
    (branch.subtree("one") / "at-the-folder").write_text("")
    assert told() == ""
    branch.cli("restore", "first", "-b", "one")
    assert told() == ""
