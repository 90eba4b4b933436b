"""One mount for all tests of a file here, and branches of it, opened in either way."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_files.backends.branch import BranchFilesystem
from tests.mounted import Mounted, needs_fuse

Open = Callable[..., BranchFilesystem]


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="agentfsd-branch-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def place(base: Path) -> Iterator[Mounted]:
    needs_fuse()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        (base / "lower" / "sub" / "deep").mkdir(parents=True)
        (base / "lower" / "file").write_text("lower\n")
        (base / "lower" / "sub" / "inner").write_text("inner\n")
        (base / "lower" / "sub" / "deep" / "leaf").write_text("leaf\n")
        (base / "lower" / "link").symlink_to("file")
        (base / "lower" / "out").symlink_to("/etc")
        mounted = Mounted(base)
        try:
            yield mounted.mount()
        finally:
            mounted.end()


@pytest.fixture(autouse=True)
def _same_registry(_own_places: None, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))


@pytest.fixture(params=["mount", "socket"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


_numbers = iter(range(1000))


@pytest.fixture
def open_branch(place: Mounted, way: str) -> Iterator[Open]:
    """Opens a branch in the way that the test is about; a new one where none is named."""
    opened: list[BranchFilesystem] = []

    def make(branch: str = "", **options: object) -> BranchFilesystem:
        where = {"mount": place.path} if way == "mount" else {"socket": place.record().socket}
        name = branch or f"b{next(_numbers)}"
        made = BranchFilesystem(name, **where, create=not branch, **options)  # type: ignore[arg-type]
        opened.append(made)
        return made

    yield make
    for found in opened:
        found.close()


@pytest.fixture
def fs(open_branch: Open) -> BranchFilesystem:
    return open_branch()
