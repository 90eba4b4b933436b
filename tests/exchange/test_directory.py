"""A directory made equal to another: nothing is lost on the way, and only what differs is written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentfs_files.trees.directory_tree import Directory
from agentfs_files.trees.equal_trees import make_equal
from agentfs_host.tree_removal import remove_tree
from agentfsd.domain_errors import Refusal
from agentfsd.exchange.place import new_directory, new_file
from tests.exchange.trees import copy_tree, unlike


def test_everything_arrives_in_an_empty_directory(source: Path, target: Path) -> None:
    assert copy_tree(source, target) == []
    assert unlike(source, target) == []
    assert (target / "holes").stat().st_blocks * 512 < 1 << 20
    assert source.stat().st_mtime_ns == target.stat().st_mtime_ns


def test_what_differs_is_replaced_and_the_rest_not_touched(source: Path, target: Path) -> None:
    copy_tree(source, target)
    kept = (target / "binary").stat()
    (target / "more").mkdir()
    (target / "more" / "inner").write_text("goes")
    (target / "sub" / "symlink").unlink()
    (target / "sub" / "symlink").mkdir()
    (target / "empty").rmdir()
    (target / "empty").write_text("a file where a directory belongs")
    (target / "dangling").unlink()
    (target / "dangling").symlink_to("elsewhere")
    os.removexattr(target / "text", "user.note")
    copy_tree(source, target)
    assert unlike(source, target) == []
    after = (target / "binary").stat()
    assert (after.st_ino, after.st_ctime_ns) == (kept.st_ino, kept.st_ctime_ns)


@pytest.mark.parametrize("linked", ["in the source", "in the target"])
def test_hard_links_are_made_and_broken(source: Path, target: Path, linked: str) -> None:
    for root, is_linked in ((source, linked == "in the source"), (target, linked == "in the target")):
        (root / "a").write_text("same")
        if is_linked:
            os.link(root / "a", root / "b")
        else:
            (root / "b").write_text("same")
            (root / "a").write_text("other")
    copy_tree(source, target)
    assert unlike(source, target) == []


def test_two_files_alike_are_two(source: Path, target: Path) -> None:
    (source / "a").write_text("same")
    (source / "b").write_text("same")
    os.utime(source / "a", ns=(1, 1_000_000_001))
    (target / "a").write_text("same")
    os.link(target / "a", target / "b")
    copy_tree(source, target)
    assert unlike(source, target) == []


def test_content_is_compared_where_size_and_a_time_of_whole_seconds_are_the_same(source: Path, target: Path) -> None:
    for root, content in ((source, "right"), (target, "wrong")):
        (root / "built").write_text(content)
        os.utime(root / "built", (1, 1))
    copy_tree(source, target)
    assert (target / "built").read_text() == "right"


def test_holes_are_compared_as_zeros(source: Path, target: Path) -> None:
    (source / "z").write_bytes(b"a" + bytes(1 << 20) + b"b")
    with open(target / "z", "wb") as file:
        file.write(b"a")
        file.truncate((1 << 20) + 2)
    copy_tree(source, target)
    assert (target / "z").read_bytes() == (source / "z").read_bytes()


def test_a_symlink_in_the_target_is_replaced_and_never_followed(source: Path, target: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "program").write_text("mine")
    (target / "sub").symlink_to(outside)
    (target / "text").symlink_to(outside / "program")
    copy_tree(source, target)
    assert unlike(source, target) == []
    assert (outside / "program").read_text() == "mine"
    assert os.listdir(outside) == ["program"]


def test_kept_names_stay(source: Path, target: Path) -> None:
    (target / "gone" / "kept").mkdir(parents=True)
    (target / "gone" / "other").write_text("goes")
    (target / "kept").write_text("stays")
    with Directory(str(source)) as tree:
        make_equal(str(target), tree, keep=lambda path: path in (b"kept", b"gone/kept"))
    assert (target / "kept").read_text() == "stays"
    assert os.listdir(target / "gone") == ["kept"]


def test_directory_appears_whole_or_not_at_all(tmp_path: Path, source: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_directory(str(tmp_path / "new"), replace=False) as directory:
        copy_tree(source, Path(directory))
        raise KeyboardInterrupt
    assert sorted(os.listdir(tmp_path)) == ["source"]
    with new_directory(str(tmp_path / "new"), replace=False) as directory:
        copy_tree(source, Path(directory))
    assert unlike(source, tmp_path / "new") == []


def test_what_a_killed_export_has_left_goes_with_the_next_one(tmp_path: Path, source: Path) -> None:
    code = (
        "import sys, time\nfrom agentfsd.exchange.place import new_directory\n"
        "with new_directory(sys.argv[1], replace=False) as found:\n"
        "    open(found + '/half', 'w').close()\n    print(found, flush=True)\n    time.sleep(60)\n"
    )
    kept = tmp_path / ".new.0123abcd.part"  # somebody's file, though it is called so
    kept.touch()
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path / "new"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    with pytest.raises(ZeroDivisionError), new_directory(str(tmp_path / "new"), replace=False):
        assert (left / "half").exists()  # it is at work
        raise ZeroDivisionError
    process.kill()
    process.communicate()
    assert left.exists()
    with new_directory(str(tmp_path / "new"), replace=False) as directory:
        copy_tree(source, Path(directory))
    assert sorted(os.listdir(tmp_path)) == [kept.name, "new", "source"]


def test_full_directory_is_replaced_on_request_only(tmp_path: Path, source: Path, target: Path) -> None:
    (target / "precious").write_text("mine")
    with pytest.raises(Refusal, match="not empty"), new_directory(str(target), replace=False):
        pass
    assert os.listdir(target) == ["precious"]
    with new_directory(str(target), replace=True) as directory:
        copy_tree(source, Path(directory))
    assert unlike(source, target) == []
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]


def test_ctrl_c_right_after_the_directory_was_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def make_and_interrupt(path: str, mode: int) -> None:
        make(path, mode)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkdir", make_and_interrupt)
    with pytest.raises(KeyboardInterrupt), new_directory(str(tmp_path / "target"), replace=False):
        pass
    assert os.listdir(tmp_path) == []


def test_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(KeyboardInterrupt), new_file(str(path), replace=False) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []
    path.write_text("mine")
    with pytest.raises(Refusal, match="already"), new_file(str(path), replace=False):
        pass
    assert path.read_text() == "mine"


def test_a_tree_that_is_deep_and_one_that_nobody_may_write_go(tmp_path: Path) -> None:
    deep = tmp_path / "deep" / "/".join(["d"] * 500)
    deep.mkdir(parents=True)
    (tmp_path / "deep").chmod(0o500)
    copy = tmp_path / "copy"
    copy.mkdir()
    copy_tree(tmp_path / "deep", copy)
    assert (copy / "/".join(["d"] * 500)).is_dir()
    remove_tree(str(tmp_path / "deep"))
    remove_tree(str(tmp_path / "deep"))
    assert os.listdir(tmp_path) == ["copy"]
