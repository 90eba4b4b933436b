"""A commit into a lower that cannot be written: it is refused with the reason, and leaves no trace."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentfsd.domain_errors import Refusal
from agentfsd.lower import commit_writer
from agentfsd.lower.commit_plan import Adjust, Remove
from agentfsd.lower.host_lower import HostLower
from tests.lower.commit_trees import exact
from tests.lower.workspaces import DIRECTORY, WHEN, Workspace, attributes, put
from tests.mounted import needs_open_checkout, needs_root


def test_a_full_disk_leaves_the_lower_as_it_was(tmp_path: Path) -> None:
    needs_root()
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
    try:
        made = Workspace(tmp_path)
        made.root = disk
        (disk / "file").write_text("old")
        os.utime(disk, ns=(WHEN, WHEN))
        made.open()
        before = exact(disk)
        with pytest.raises(Refusal) as caught:
            made.stage(*(put(f"f{number}", b"x" * 100_000) for number in range(20)))
        assert caught.value.errno == errno.ENOSPC
        assert exact(disk) == before
        made.check_no_trace()
        made.lower.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_what_is_mounted_in_the_lower_is_refused_by_name(workspace: Workspace) -> None:
    needs_root()
    sub = workspace.root / "dir" / "sub"
    before = exact(workspace.root)
    for options in (["-t", "tmpfs", "none"], ["--bind", str(workspace.root / "dir")]):
        subprocess.run(["mount", *options, sub], check=True)
        try:
            for step in (put("dir/sub/f"), Remove(b"dir"), Remove(b"dir/sub"), put("dir/sub")):
                with pytest.raises(Refusal, match="mounted at 'dir/sub'"):
                    workspace.stage(put("fine"), step)
        finally:
            subprocess.run(["umount", "-l", sub], check=True)
        assert exact(workspace.root) == before
        workspace.check_no_trace()


def test_below_our_own_mount_the_lower_is_written(workspace: Workspace) -> None:
    needs_root()
    workspace.lower.mask(b"dir")
    covered = workspace.root / "dir"
    subprocess.run(["mount", "-t", "tmpfs", "none", covered], check=True)
    try:
        workspace.commit(put("dir/new"), put("dir/sub/leaf"), Adjust(b"dir", attributes(DIRECTORY)))
        with pytest.raises(Refusal, match="mounted at 'dir'"):
            workspace.stage(Remove(b"dir"))
        assert os.listdir(covered) == []
    finally:
        subprocess.run(["umount", "-l", covered], check=True)
    assert (covered / "new").read_text() == (covered / "sub" / "leaf").read_text() == "new"
    assert covered.stat().st_mtime_ns == WHEN + 1


def test_a_read_only_lower_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    needs_root()
    view = tmp_path / "view"
    view.mkdir()
    subprocess.run(["mount", "-o", "bind,ro", workspace.root, view], check=True)
    lower = HostLower(str(view))
    try:
        with pytest.raises(Refusal, match="read-only") as caught:
            commit_writer.stage(lower, str(workspace.state), [put("dir/f")], note={})
        assert caught.value.errno == errno.EROFS
    finally:
        lower.close()
        subprocess.run(["umount", "-l", view], check=True)
    workspace.check_no_trace()


AS_NOBODY = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
from pathlib import Path
import pytest
from agentfsd.domain_errors import Refusal
from tests.lower.workspaces import Workspace, attributes, put, DIRECTORY
from agentfsd.lower.commit_plan import *
workspace = Workspace(Path(sys.argv[1]))
root = workspace.root
(root / "sub" / "deep").mkdir(parents=True)
workspace.open()
workspace.commit(
    Put(b"f", attributes(uid=0, gid=0), None), Put(b"d", attributes(0o40555), None), put("d/g"), Put(b"sub", attributes(0o40500)),
    Put(b"x", attributes(xattrs={b"trusted.x": b"1", b"user.x": b"2"})),
)
assert (root / "f").stat().st_uid == 65534
assert oct((root / "d").stat().st_mode) == "0o40555" and (root / "d" / "g").read_text() == "new"
assert os.listxattr(root / "x") == ["user.x"]
workspace.commit(put("shared/f"), Adjust(b"shared", attributes(0o40777, uid=0, gid=0)))
with pytest.raises(Refusal, match="'shared' belongs to somebody else"):
    workspace.stage(put("shared/g"), Adjust(b"shared", attributes(0o40755, uid=0, gid=0)))
(root / "shut" / "in").mkdir(parents=True)
(root / "shut").chmod(0o555)
for step in (put("shut/f"), Remove(b"shut/in"), Remove(b"shut")):
    with pytest.raises(Refusal) as caught:
        workspace.stage(put("fine"), step)
    assert caught.value.code == "lower-not-writable" and "'shut'" in caught.value.message
    workspace.check_no_trace()
(root / "open").mkdir()
root.chmod(0o555)
with pytest.raises(Refusal, match="the workspace may not"):
    workspace.stage(put("open/f"))
print("fine")
"""


def test_an_ordinary_user_keeps_the_owner_and_is_told_what_may_not_be_written(tmp_path: Path) -> None:
    needs_root()
    needs_open_checkout()
    base = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    try:
        (base / "root").mkdir()
        for path in (base, base / "root"):
            os.chown(path, 65534, 65534)
        (base / "root" / "shared").mkdir()
        (base / "root" / "shared").chmod(0o777)
        done = subprocess.run([sys.executable, "-c", AS_NOBODY, base], capture_output=True, text=True, check=False)
        assert done.stdout == "fine\n", done.stderr
    finally:
        shutil.rmtree(base)
