"""Files and directories get other names, and nothing that is there already is replaced."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_client import HostFilesystem, InMemoryFilesystem
from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.filesystem.filesystem_protocol import MovableFilesystem


class _Copying(InMemoryFilesystem):
    """What a backend does that cannot rename."""

    _move = BaseFilesystem._move


@pytest.fixture(params=["host", "memory", "copying"])
def filesystem(request: pytest.FixtureRequest, tmp_path: Path) -> BaseFilesystem:
    makers: dict[str, Callable[[], BaseFilesystem]] = {
        "host": lambda: HostFilesystem(tmp_path),
        "memory": InMemoryFilesystem,
        "copying": _Copying,
    }
    made = makers[request.param]()
    made.write("src/a.txt", "a")
    made.write("src/deep/b.txt", "b")
    return made


def test_file_gets_another_name_in_a_directory_that_is_made(filesystem: BaseFilesystem) -> None:
    assert isinstance(filesystem, MovableFilesystem)
    filesystem.move("src/a.txt", "new/place/c.txt")
    assert filesystem.read("new/place/c.txt").content == "a"
    assert not filesystem.exists("src/a.txt")


def test_directory_moves_with_all_that_is_in_it(filesystem: BaseFilesystem) -> None:
    filesystem.move("src", "lib")
    assert [match.path for match in filesystem.glob("**")] == ["lib/a.txt", "lib/deep/b.txt"]
    assert not filesystem.exists("src")


@pytest.mark.parametrize(
    ("source", "destination", "error"),
    [
        ("src/a.txt", "src/deep/b.txt", FileExistsError),
        ("src/a.txt", "src/deep", FileExistsError),
        ("src/a.txt", "src/a.txt", FileExistsError),
        ("src/none", "c", FileNotFoundError),
        ("src", "src/deep/src", OSError),
        ("src/a.txt", "../c", PermissionError),
        ("", "c", PermissionError),
        ("src", "/", PermissionError),
        ("src/a.txt", "src/deep/b.txt/c", NotADirectoryError),
    ],
)
def test_what_cannot_be_moved_stays(filesystem: BaseFilesystem, source: str, destination: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        filesystem.move(source, destination)
    assert [match.path for match in filesystem.glob("**")] == ["src/a.txt", "src/deep/b.txt"]


def test_parents_are_made_only_on_request(filesystem: BaseFilesystem) -> None:
    with pytest.raises(FileNotFoundError):
        filesystem.move("src/a.txt", "new/a.txt", create_parents=False)


def test_snapshot_keeps_the_old_name() -> None:
    filesystem = InMemoryFilesystem({"src/deep/b.txt": "b"})
    before = filesystem.snapshot()
    filesystem.move("src/deep", "deep")
    filesystem.write("deep/b.txt", "changed")
    filesystem.restore(before)
    assert filesystem.read("src/deep/b.txt").content == "b"
    assert not filesystem.exists("deep")


def test_symlink_is_moved_itself_and_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("/nowhere")
    (tmp_path / "a.txt").write_text("a")
    filesystem = HostFilesystem(tmp_path)
    with pytest.raises(FileExistsError):
        filesystem.move("a.txt", "dangling")
    filesystem.move("dangling", "elsewhere")
    assert os.readlink(tmp_path / "elsewhere") == "/nowhere"


def test_failed_copy_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.txt").write_text("a")
    (tmp_path / "src/link").symlink_to("a.txt")

    class Copying(HostFilesystem):
        _move = BaseFilesystem._move

    with pytest.raises(OSError, match="only files and directories"):
        Copying(tmp_path).move("src", "lib")
    assert sorted(os.listdir(tmp_path)) == ["src"]
