"""Archives of a live branch, through the mount and over the socket, and those that `agentfsd export` and `import` know."""

import os
from pathlib import Path

import pytest

from agentfs_files.archive.unpack import Archive
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_errors import ArchiveError
from agentfsd.state.state_directory import StateDirectory
from tests.client.archives import content
from tests.hostile_archives import HOSTILE, members
from tests.mounted import Mounted, agentfsd


def opened(mounted: Mounted, branch: str, *, over_socket: bool) -> BranchFilesystem:
    if over_socket:
        return BranchFilesystem(branch, socket=StateDirectory(str(mounted.state)).socket, create=True)
    return BranchFilesystem(branch, mount=mounted.path, create=True)


@pytest.mark.parametrize("over_socket", [False, True], ids=["mount", "socket"])
def test_import_changes_what_differs_and_is_undone_when_it_fails(mounted: Mounted, tmp_path: Path, over_socket: bool) -> None:
    path = tmp_path / "x.zip"
    InMemoryFilesystem({"file": "lower\n", "sub/inner": "theirs", "new": "1"}).export_archive(path)
    with opened(mounted, "work", over_socket=over_socket) as branch:
        before = branch.snapshot()
        assert branch.import_archive(path) == 3
        expected = {"file": b"lower\n", "new": b"1", "sub": None, "sub/inner": b"theirs"}
        assert content(branch) == expected
        changed = branch.diff(before)
        assert (changed.added, changed.modified) == (("new",), ("sub/inner",))
        assert "sub/deep/leaf" in changed.deleted
        assert [found.commit_ref for found in branch.log()] == [before.commit_ref]

        members(tmp_path / "ours.zip", ("files/.agentfs/branches/main/file", b"1")).close()
        with pytest.raises(ArchiveError, match="agentfsd's own"):
            branch.import_archive(tmp_path / "ours.zip")
        HOSTILE["wrong check sum"][0](path)
        with Archive(str(path), check_contents=False) as archive, pytest.raises(ArchiveError, match="damaged"):
            branch._replace_all(archive)
        assert content(branch) == expected


def test_archives_of_the_command_line_and_of_the_library_are_the_same(mounted: Mounted, tmp_path: Path) -> None:
    agentfsd("export", "-m", str(mounted.path), "main", str(tmp_path / "daemon.zip"))
    expected = {
        "file": b"lower\n",
        "link": b"lower\n",
        "sub": None,
        "sub/deep": None,
        "sub/deep/leaf": b"leaf\n",
        "sub/inner": b"inner\n",
    }
    (tmp_path / "root").mkdir()
    with opened(mounted, "one", over_socket=True) as one, opened(mounted, "two", over_socket=False) as two:
        for filesystem in (InMemoryFilesystem(), HostFilesystem(tmp_path / "root"), one, two):
            filesystem.write("goes", "")
            assert filesystem.import_archive(tmp_path / "daemon.zip") == 4
            assert content(filesystem) == expected
            filesystem.write("mine", "1")
            filesystem.export_archive(tmp_path / "client.zip")
    assert os.readlink(tmp_path / "root" / "link") == "file"
    agentfsd("import", "-m", str(mounted.path), str(tmp_path / "client.zip"), "-b", "three")
    with opened(mounted, "three", over_socket=False) as three:
        assert content(three) == expected | {"mine": b"1"}
        inside = mounted.path / ".agentfs" / "branches" / "three" / "x.zip"
        three.export_archive(inside)
        three.write("mine", "2")
        assert three.import_archive(inside) == 5
        assert inside.exists()
        assert three.read("mine").content == "1"
