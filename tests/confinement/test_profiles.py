"""The profiles and the options of `run` by which somebody says what else a command may reach."""

import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agentfs_host.mount_table import Mounted as MountEntry
from agentfs_host.mount_table import mount_table
from agentfsd.cli.sandbox.aliases import aliases
from agentfsd.cli.sandbox.profiles import Asked, decide, profile_of
from agentfsd.core import declared_settings
from agentfsd.domain_errors import Refusal
from tests.confinement.world import ORDINARY, SECRET, World
from tests.mounted import AGENTFSD, needs_fuse, needs_namespaces, needs_open_checkout, needs_root

pytestmark = pytest.mark.sample(1)


def run(world: World, script: str, *options: str, check: bool = True) -> str:
    words = ("run", "-m", str(world.point), "-b", "mine", *options, "--", "sh", "-c", script)
    done = world.cli(*words, cwd=world.point, check=check)
    return done.stdout if check else done.stderr


def fingerprint(place: Path, without: Sequence[Path] = ()) -> dict[str, str]:
    found = {}
    for directory, names, files in os.walk(place):
        names[:] = [name for name in names if Path(directory, name) not in without]
        for name in (*names, *files):
            path = Path(directory, name)
            with contextlib.suppress(FileNotFoundError):  # the daemon replaces its records
                info = path.lstat()
                content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
                found[str(path)] = f"{info.st_mode} {info.st_mtime_ns if path.is_file() else ''} {content}"
    return found


@pytest.fixture
def shared_files() -> Iterator[list[Path]]:
    """A file of the ordinary user's in each place where everybody may write."""
    places = [Path(place, f"agentfsd-shared-{os.getpid()}") for place in ("/tmp", "/var/tmp", "/dev/shm")]
    for place in places:
        place.write_text("as it was\n")
        os.chown(place, ORDINARY, ORDINARY)
    yield places
    for place in places:
        place.unlink()


def test_removing_everything_removes_the_branch_alone(shared_files: list[Path]) -> None:
    """All that the user could write to, in a home directory that is no part of a private /tmp."""
    needs_root()
    needs_fuse()
    needs_namespaces()
    needs_open_checkout()
    with World(ORDINARY, "/var") as world:
        state, mounts = Path(world.state().state), (world.point, world.other_point, world.state_alias)
        changing = {str(path) for path in state.parent.glob("*/*") if path.is_file()}  # databases, logs and records of daemons
        before = fingerprint(world.base, without=mounts)
        assert str(world.home / ".ssh" / "id") in before and any(path.startswith(f"{state}/objects/") for path in before)
        run(world, "rm -rf --no-preserve-root / 2>/dev/null; true", "--confine", "strict")
        after = fingerprint(world.base, without=mounts)
        assert {path for path, told in before.items() if after.get(path) != told} <= changing
        assert [place.read_text() for place in shared_files] == ["as it was\n"] * 3
        assert run(world, "ls -A", "--confine", "off") == ""
        assert world.state().alive()
        assert world.run("other", f"cat {world.point}/secret").stdout == f"{SECRET}\n"
        world.cli("umount", str(world.point))
        world.cli("fsck", "--state", str(state))


def test_a_command_in_a_run_asks_about_its_own_branch(world: World) -> None:
    program = " ".join(AGENTFSD)
    for profile in ("workspace", "strict"):
        said = run(
            world, f"echo {profile} > asked; {program} snapshot create s-{profile}; {program} diff; {program} status --json",
            "--confine", profile,
        )  # fmt: skip
        assert f"snapshot s-{profile} of mine" in said
        assert "asked" in said


def test_strict_needs_a_namespace(world: World) -> None:
    said = run(world, "true", "--no-namespace", "--confine", "strict", check=False)
    assert "cannot be confined as asked" in said


def test_a_home_that_is_hidden_is_empty_and_can_be_used(world: World) -> None:
    said = run(world, "cd; ls -A; echo x > new; cat new", "--home", "hide")
    assert ".bashrc" not in said
    assert said.endswith("x\n")
    assert not (world.home / "new").exists()


def test_a_home_to_read_has_places_to_write(world: World) -> None:
    script = "cat ~/.bashrc; echo x > ~/dir/new; echo x > ~/new || echo refused; cat ~/.ssh/id || echo hidden"
    said = run(world, script, "--home", "ro", "--write", str(world.home / "dir"), "--hide", str(world.home / ".ssh"))
    assert said == "as it was\nrefused\nhidden\n"
    assert (world.home / "dir" / "new").read_text() == "x\n"


def test_a_file_can_be_hidden_or_kept_as_it_is(world: World) -> None:
    script = "cat ~/.ssh/id; echo x > ~/.bashrc || echo refused"
    assert run(world, script, "--hide", str(world.home / ".ssh" / "id"), "--read", str(world.home / ".bashrc")) == "refused\n"


def test_what_is_not_there_cannot_be_hidden(world: World) -> None:
    assert "there is no" in run(world, "true", "--hide", str(world.home / "nothing"), check=False)
    assert "workspace" in run(world, "true", "--hide", str(world.lower / "victims"), check=False)


def test_a_network_of_its_own(world: World) -> None:
    assert run(world, "tail -n +3 /proc/net/dev | cut -d: -f1", "--net", "none").split() == ["lo"]


def test_tmp_of_its_own(world: World) -> None:
    name = f"agentfsd-tmp-{os.getpid()}"
    assert run(world, f"echo x > /tmp/{name}; cat /tmp/{name}", "--tmp", "private") == "x\n"
    assert not Path("/tmp", name).exists()


def test_an_inherited_file_is_read_from_where_it_was(world: World) -> None:
    place = world.outside / "input"
    place.write_text("one\ntwo\n")
    fd = os.open(place, os.O_RDONLY)
    os.lseek(fd, 4, os.SEEK_SET)
    script = f"import os; print(os.read({fd}, 9), flush=True); open('/proc/self/fd/{fd}', 'w')"
    words = ("run", "-m", str(world.point), "-b", "mine", "--", sys.executable, "-c", script)
    done = world.cli(*words, cwd=world.point, pass_fds=(fd,), check=False)
    os.close(fd)
    assert done.stdout == "b'two\\n'\n"
    assert "Read-only file system" in done.stderr
    assert place.read_text() == "one\ntwo\n"
    place.unlink()


def test_a_command_makes_no_state_directory_where_there_is_none_yet(world: World) -> None:
    home = world.outside / "new-home"
    home.mkdir()
    os.chown(home, world.user, world.user)
    environment = world.environment
    world.environment = lambda: {**environment(), "HOME": str(home)}  # type: ignore[method-assign]
    try:
        world.run("new-home", "mkdir -p ~/.local/state/agentfsd/forged ~/.local/state/other", check=False)
    finally:
        world.environment = environment  # type: ignore[method-assign]
    assert os.listdir(home / ".local" / "state" / "agentfsd") == []
    shutil.rmtree(home)


def test_home_of_all_opens_nothing(world: World) -> None:
    environment = world.environment
    try:
        world.environment = lambda: {**environment(), "HOME": "/"}  # type: ignore[method-assign]
        world.run("all-home", "echo x > /usr/agentfsd-x", "--confine", "strict", check=False)
    finally:
        world.environment = environment  # type: ignore[method-assign]
    assert not Path("/usr/agentfsd-x").exists()


def test_a_setting_names_the_profile_of_branches(world: World) -> None:
    world.cli("policy", "set", "confine.branches", "mi*=strict *=off", "-m", str(world.point))
    try:
        assert run(world, f"echo x > {world.outside}/new || echo refused") == "refused\n"
        assert run(world, f"echo x > {world.outside}/new", "--confine", "off") == ""
    finally:
        world.cli("policy", "set", "confine.branches", "", "-m", str(world.point))


def test_the_command_line_wins() -> None:
    settings = {"confine": "strict", "confine.branches": "a*=off", "confine.home": "hide"}
    assert profile_of(settings, "abc") == "off"
    assert profile_of(settings, "b") == "strict"
    assert decide(Asked(), settings, "b").home == "hide"
    assert decide(Asked(profile="workspace"), settings, "b").home == "rw"
    assert decide(Asked(home="ro"), settings, "abc").is_asked
    assert decide(Asked(), {}, "b").profile == "workspace"


@pytest.mark.parametrize("value", ["strict", "a=b", "=strict"])
def test_senseless_profiles_of_branches_are_refused(value: str) -> None:
    with pytest.raises(Refusal):
        declared_settings.check("confine.branches", value)


def test_aliases_are_found_in_the_mount_table(tmp_path: Path) -> None:
    """Of what cannot be told apart from a mount that hides it, nothing is said."""
    (tmp_path / "low" / "part").mkdir(parents=True)
    root = next(entry for entry in mount_table() if entry.mountpoint == "/")
    elsewhere = MountEntry(str(tmp_path / "low" / "part"), root.fstype, root.device + 1, "/", frozenset())
    assert aliases(str(tmp_path / "low"), [root, elsewhere]) == []
