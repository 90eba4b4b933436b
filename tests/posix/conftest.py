"""The places in which the behaviour suite runs: tmpfs and ext4 say what is right, then the mount must do the same.

Each test is given ``d``, a directory that holds the seed below. On a plain file system the seed was made there; in the
overlay it is the lower's, an older branch's, or from before a snapshot, so that every test meets copy-up as well.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounted import Mounted, needs_fuse
from tests.posix.places import EXT4_MAGIC, filesystem_type, seed
from tests.rounds import is_long

PLAIN = ["tmpfs", "ext4"]
SESSIONS = ["native", "pyfuse3"]
VIEWS = ["empty-lower", "full-lower", "subtree", "nested-branch", "after-snapshot"]
ALWAYS = {"native": ["empty-lower", "subtree", "after-snapshot"], "pyfuse3": ["after-snapshot"]}  # the rest: --long
OVERLAY = [
    f"{session}-{view}" for session in SESSIONS for view in VIEWS
    if view in ALWAYS[session] or is_long()
]  # fmt: skip

# A directory that is already there, in the place of all these: how the suite runs inside an `agentfsd run`.
HERE = os.environ.get("AGENTFSD_POSIX_HERE", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Remembers which directories the mounts must hold before they are made."""
    _names.extend(_directory_name(item) for item in items if "d" in getattr(item, "fixturenames", ()))


_names: list[str] = []


def _directory_name(item: pytest.Item) -> str:
    """Of the same test in every place the same."""
    return f"{item.path.stem}-{getattr(item, 'originalname', item.name)}"


@pytest.fixture(scope="session")
def base() -> Iterator[Path]:
    """A directory that other users may enter."""
    made = Path(tempfile.mkdtemp(prefix="agentfsd-posix-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def tmpfs() -> Iterator[Path]:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no tmpfs to compare with: /dev/shm cannot be written")
    made = Path(tempfile.mkdtemp(prefix="agentfsd-posix-", dir="/dev/shm"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def ext4(base: Path) -> Iterator[Path]:
    """The temporary directory itself where that is ext4, else a loop mount."""
    where = base / "ext4"
    where.mkdir()
    if filesystem_type(where) == EXT4_MAGIC:
        yield where
        return
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip(
            "there is no ext4 to compare with: the temporary directory has none, and a loop mount needs root and mkfs.ext4"
        )
    image = base / "ext4.img"
    with image.open("wb") as file:
        file.truncate(1 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-N", "200000", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, where], check=True)
    where.chmod(0o755)
    yield where
    subprocess.run(["umount", "-l", where], check=True)


@pytest.fixture(scope="session")
def overlays(base: Path) -> Iterator[dict[str, Path]]:
    """For each session two mounts, over a lower that holds every test's seed and over an empty one, and branches of them.

    Only those are made in which tests run.
    """
    needs_fuse()
    with pytest.MonkeyPatch.context() as environment:
        for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
            environment.setenv(name, str(base / name))
        mounts: list[Mounted] = []
        found: dict[str, Path] = {}
        try:
            for session in SESSIONS:
                (base / session).mkdir()
                for make in (_over_a_full_lower, _over_an_empty_lower):
                    views = {view for view in _VIEWS_OF[make] if f"{session}-{view}" in OVERLAY}
                    if views:
                        mounts.append(_mount(base / session / make.__name__, session))
                        found |= {f"{session}-{view}": path for view, path in make(mounts[-1], views)}
            yield found
        finally:
            for mounted in mounts:
                mounted.end()


def _mount(base: Path, session: str) -> Mounted:
    base.mkdir()
    options = ["--session", session, *(["--allow-other", "-o", "suid,dev"] if os.geteuid() == 0 else [])]
    return Mounted(base, None, *options)


def _seed_all(where: Path) -> None:
    for name in sorted(set(_names)):
        seed(where / name)


def _over_a_full_lower(mounted: Mounted, views: set[str]) -> Iterator[tuple[str, Path]]:
    _seed_all(mounted.lower)
    mounted.mount()
    yield "full-lower", mounted.path
    if "subtree" in views:
        mounted.cli("branch create", "other")
        yield "subtree", mounted.subtree("other")


def _over_an_empty_lower(mounted: Mounted, views: set[str]) -> Iterator[tuple[str, Path]]:
    """``nested-branch``: the seed is from the grandparent; ``after-snapshot``: from before a snapshot of the very branch."""
    mounted.mount()
    yield "empty-lower", mounted.path
    if "nested-branch" in views:
        mounted.cli("branch create", "grandparent")
        _seed_all(mounted.subtree("grandparent"))
        mounted.cli("branch create", "parent", "--from", "grandparent")
        (mounted.subtree("parent") / "of-the-parent").touch()
        mounted.cli("branch create", "nested", "--from", "parent")
        yield "nested-branch", mounted.subtree("nested")
    if "after-snapshot" in views:
        mounted.cli("branch create", "kept")
        _seed_all(mounted.subtree("kept"))
        mounted.cli("snapshot create", "-b", "kept", "point")
        yield "after-snapshot", mounted.subtree("kept")


_VIEWS_OF: dict[Callable[[Mounted, set[str]], Iterator[tuple[str, Path]]], tuple[str, ...]] = {
    _over_a_full_lower: ("full-lower", "subtree"),
    _over_an_empty_lower: ("empty-lower", "nested-branch", "after-snapshot"),
}


@pytest.fixture(params=[HERE] if HERE else PLAIN + OVERLAY)
def place(request: pytest.FixtureRequest) -> str:
    """Where the test runs, by name."""
    name: str = request.param
    return name


@pytest.fixture
def d(place: str, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory of the test's own, with the seed in it; made now where no older layer has it."""
    name = _directory_name(request.node)
    if place == HERE:
        root = Path(HERE)
    else:
        root = request.getfixturevalue(place) if place in PLAIN else request.getfixturevalue("overlays")[place]
    where = root / name
    if not where.exists():
        seed(where)
    yield where
    shutil.rmtree(where, ignore_errors=True)


@pytest.fixture
def by_pyfuse3(place: str) -> bool:
    """Where a few requests cannot be expressed."""
    return place.startswith("pyfuse3")


@pytest.fixture
def keeps_atime() -> bool:
    """Whether reading moves access times here; not where it asks nobody."""
    return os.environ.get("AGENTFSD_POSIX_NOATIME") != "1"


@pytest.fixture
def tmp_umask() -> Iterator[None]:
    """022, whatever the tester's shell says."""
    old = os.umask(0o022)
    yield
    os.umask(old)
