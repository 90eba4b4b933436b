"""Which mode and access list a file or directory of the lower has after a branch has changed it, by the settings copyup.*."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounted import Mounted

ACL = "user:12:rw-,group:34:r-x,mask::rwx"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lower that no test changes."""
    if shutil.which("setfacl") is None:
        pytest.skip("setfacl is not installed: apt-get install acl")
    root = tmp_path_factory.mktemp("source") / "lower"
    (root / "dir" / "inner").mkdir(parents=True)
    for name in ("tool", "listed", "narrow", "dir/file", "special"):
        (root / name).write_text(name)
    (root / "tool").chmod(0o777)
    (root / "special").chmod(0o6777)
    (root / "dir").chmod(0o3777)
    (root / "dir" / "file").chmod(0o606)
    (root / "listed").chmod(0o640)
    (root / "link").symlink_to("tool")
    os.mkfifo(root / "pipe", 0o666)
    os.chmod(root / "pipe", 0o666)
    for path, entries in (("listed", ACL), ("narrow", "user:12:rw-,group::rwx,mask::r--"), ("dir/inner", ACL)):
        subprocess.run(["setfacl", "-m", entries, root / path], check=True)
    subprocess.run(["setfacl", "-d", "-m", "user:12:rwx", root / "dir" / "inner"], check=True)
    for path in ("listed", "dir/inner"):
        os.setxattr(root / path, b"user.note", b"stays")
    return root


@pytest.fixture
def mount(make_mount: Callable[..., Mounted], source: Path) -> Iterator[Mounted]:
    before = facl(source, "-R", ".")
    yield make_mount(source)
    assert facl(source, "-R", ".") == before


@pytest.fixture
def settings(mount: Mounted) -> Callable[..., Path]:
    """Changes copyup.* settings, and returns the tree of a new branch, in which nothing was looked up yet."""
    count = iter(range(100))

    def set_all(**chosen: str) -> Path:
        for name, value in chosen.items():
            mount.cli("policy set", f"copyup.{name}", value)
        name = f"b{next(count)}"
        mount.cli("branch create", name)
        return mount.subtree(name)

    return set_all


def facl(at: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["getfacl", "-cpnE", *arguments], cwd=at, capture_output=True, text=True, check=True)
    return done.stdout.split()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


def test_a_copied_up_file_has_the_lowers_mode_and_list_unless_told_otherwise(settings: Callable[..., Path], source: Path) -> None:
    tree = settings()
    for name in ("tool", "listed", "narrow"):
        append(tree / name)
        assert mode(tree / name) == mode(source / name)
        assert facl(tree, name) == facl(source, name)


def test_the_umask_takes_bits_from_whatever_is_changed(settings: Callable[..., Path]) -> None:
    tree = settings(mode_strategy="clone&umask", umask="27")
    append(tree / "tool")
    assert mode(tree / "tool") == 0o750
    os.utime(tree / "dir", (1, 1))
    assert mode(tree / "dir") == 0o3750
    append(tree / "listed")
    assert facl(tree, "listed") == ["user::rw-", "user:12:rw-", "group::r--", "group:34:r-x", "mask::r-x", "other::---"]


def test_fixed_gives_files_and_directories_a_mode_each(settings: Callable[..., Path]) -> None:
    tree = settings(mode_strategy="fixed", file_mode="0o640")
    for name in ("tool", "special"):
        append(tree / name)
        assert mode(tree / name) == 0o640
    os.setxattr(tree / "dir", b"user.note", b"set")
    assert mode(tree / "dir") == 0o3755  # whose the files in it are, and who may remove them, stays
    (tree / "dir" / "file").rename(tree / "moved")
    assert mode(tree / "moved") == 0o640
    os.utime(tree / "pipe", (1, 1))
    os.lchown(tree / "link", 12, 12)
    assert mode(tree / "pipe") == 0o666
    assert mode(tree / "link") == 0o777


def test_a_directory_in_which_names_change_keeps_its_mode_and_list(settings: Callable[..., Path], source: Path) -> None:
    tree = settings(mode_strategy="fixed", acl_strategy="drop")
    append(tree / "dir" / "file")
    (tree / "dir" / "inner" / "new").write_text("")
    assert mode(tree / "dir" / "file") == 0o644
    assert mode(tree / "dir") == mode(source / "dir")
    assert facl(tree, "dir/inner") == facl(source, "dir/inner")
    assert "user:12:rwx" in facl(tree, "dir/inner/new")


def test_what_is_asked_for_wins(settings: Callable[..., Path]) -> None:
    tree = settings(mode_strategy="fixed", acl_strategy="drop")
    (tree / "tool").chmod(0o711)
    (tree / "dir").chmod(0o1700)
    assert (mode(tree / "tool"), mode(tree / "dir")) == (0o711, 0o1700)
    subprocess.run(["setfacl", "-m", "user:99:r--", tree / "listed"], check=True)
    assert {"user:99:r--", "user:12:rw-", "user::rw-"} < set(facl(tree, "listed"))
    append(tree / "tool")
    assert mode(tree / "tool") == 0o711
    os.removexattr(tree / "dir" / "inner", b"system.posix_acl_default")
    assert not [entry for entry in facl(tree, "dir/inner") if entry.startswith("default:")]


def test_dropping_a_list_is_what_setfacl_makes_of_it(settings: Callable[..., Path], source: Path, tmp_path: Path) -> None:
    tree = settings(acl_strategy="drop")
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", source, copy], check=True)
    for name in ("listed", "narrow", "dir/inner"):
        subprocess.run(["setfacl", "-b", copy / name], check=True)
        assert facl(tree, name) == facl(source, name)  # seen, and kept by the kernel, before it is changed
        os.utime(tree / name, (1, 1))
        assert facl(tree, name) == facl(copy, name)
        assert mode(tree / name) == mode(copy / name)
    for name in ("listed", "dir/inner"):
        assert os.getxattr(tree / name, b"user.note") == b"stays"


def test_a_list_becomes_the_rights_that_its_entries_gave(settings: Callable[..., Path]) -> None:
    tree = settings(acl_strategy="map-basic")
    for name, expected in (("listed", 0o670), ("narrow", 0o644)):
        append(tree / name)
        assert mode(tree / name) == expected
        assert len(facl(tree, name)) == 3
    os.utime(tree / "dir" / "inner", (1, 1))
    assert mode(tree / "dir" / "inner") == 0o775
    assert len(facl(tree, "dir/inner")) == 3


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_whoever_changes_a_file_sees_that_at_once(mount: Mounted, settings: Callable[..., Path], view: str) -> None:
    settings(mode_strategy="clone&umask", umask="077", acl_strategy="drop")
    script = """
        cd $0; stat -c %a listed dir/inner; getfacl -c listed >/dev/null
        echo >> listed; setfattr -n user.x -v y dir/inner
        stat -c %a listed dir/inner; getfacl -cE listed
        mv tool other; stat -c %a other
    """
    said = mount.run("b0", "sh", "-ec", script, str(mount.path), view=view).stdout.split()
    assert said == ["670", "775", "600", "700", "user::rw-", "group::---", "other::---", "700"]


def test_a_mode_that_the_setting_gave_is_a_change_like_any_other(mount: Mounted, settings: Callable[..., Path]) -> None:
    tree = settings(mode_strategy="fixed", file_mode="600")
    os.utime(tree / "tool", ns=((tree / "tool").stat().st_atime_ns, (tree / "tool").stat().st_mtime_ns))
    assert [(change["status"], change["path"]) for change in mount.json("diff", "b0")["changes"]] == [("m", "tool")]
    said = mount.json("commit", "b0", "--dry-run")
    assert [found["path"] for found in said["changed"]] == ["tool"]


def test_a_setting_outlives_the_daemon_and_a_wrong_one_changes_nothing(mount: Mounted, settings: Callable[..., Path]) -> None:
    settings(mode_strategy="fixed", file_mode="0600")
    before = mount.json("policy show")
    assert (before["copyup.mode_strategy"], before["copyup.file_mode"], before["copyup.dir_mode"]) == ("fixed", "600", "755")
    mount.kill()
    mount.mount()
    tree = mount.subtree("b0")
    append(tree / "tool")
    assert mode(tree / "tool") == 0o600
    wrong = (
        ("copyup.mode_strategy", "copy"), ("copyup.acl_strategy", "fixed"), ("copyup.umask", "888"), ("copyup.umask", "1777"),
        ("copyup.file_mode", "rw-r--r--"), ("copyup.file_mode", ""), ("copyup.dir_mode", "-1"), ("copyup.mode", "644"),
    )  # fmt: skip
    for name, value in wrong:
        said = mount.cli("policy set", "--", name, value, check=False)
        assert (said.returncode, said.stdout) == (1, "")
        assert len(said.stderr.splitlines()) <= 2
        assert "Traceback" not in said.stderr
    assert mount.json("policy show") == before
