"""A mount whose daemon and keeper were killed hides the directory beneath until the next daemon has mounted."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_host import mount_table
from tests.mounted import Mounted, agentfsd, needs_root

# Writes to a file by its full path as often as it can, whatever comes of it.
EAGER_WRITER = """
import sys
print("begins", flush=True)
while True:
    try:
        with open(sys.argv[1], "a") as file:
            file.write("line\\n")
    except OSError:
        pass
"""


def eager_writer(mounted: Mounted) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", EAGER_WRITER, str(mounted.path / "written")]
    mounted.started.append(subprocess.Popen(command, text=True, stdout=subprocess.PIPE))
    assert (stream := mounted.started[-1].stdout) is not None and stream.readline() == "begins\n"
    return mounted.started[-1]


def killed_and_mounted_again(mounted: Mounted) -> None:
    mounted.kill()
    assert mount_table.is_dead(mount_table.mount_at(str(mounted.path)))  # type: ignore[arg-type]
    mounted.mount()


@pytest.mark.parametrize("times", [1, 3])
def test_nobody_writes_beneath_a_mount_that_is_replaced(make_mount: Callable[..., Mounted], times: int) -> None:
    needs_root()  # an ordinary user's fusermount3 cannot replace a mount in one step
    mounted = make_mount()
    writer = eager_writer(mounted)
    for _ in range(times):
        killed_and_mounted_again(mounted)
    writer.kill()
    writer.wait()
    agentfsd("umount", str(mounted.path))
    assert list(mounted.path.iterdir()) == []
    assert list(mounted.lower.iterdir()) == []


def test_a_mount_over_the_workspace_itself_is_replaced(make_mount: Callable[..., Mounted], tmp_path: Path) -> None:
    mounted = make_mount(tmp_path / "m0" / "mnt")
    (mounted.path / "in-main").write_text("kept")
    killed_and_mounted_again(mounted)
    assert (mounted.path / "in-main").read_text() == "kept"
    assert len([each for each in mount_table.mount_table() if each.mountpoint == str(mounted.path)]) == 1
    agentfsd("umount", str(mounted.path))
    assert list(mounted.path.iterdir()) == []


def test_a_mount_that_cannot_be_replaced_stays_dead(make_mount: Callable[..., Mounted]) -> None:
    mounted = make_mount()
    mounted.kill()
    (mounted.state / "meta.db").write_bytes(b"no database" * 1000)
    refused = agentfsd("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state), check=False)
    assert refused.returncode == 1
    with pytest.raises(OSError, match="not connected"):
        (mounted.path / "written").write_text("")
