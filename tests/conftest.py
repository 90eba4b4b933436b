"""Every test has a state home and a registry of its own; mounts are ended with the test that made them."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounted import Mounted, needs_fuse
from tests.overlays import Opened

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where we were started in the background, which ignores both
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _own_places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path_factory.mktemp("places")
    monkeypatch.setenv("AGENTFS_STATE_HOME", str(base / "state"))
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
    monkeypatch.delenv("AGENTFS_MOUNT", raising=False)
    monkeypatch.delenv("AGENTFS_BRANCH", raising=False)


@pytest.fixture
def make_mount(tmp_path: Path) -> Iterator[Callable[..., Mounted]]:
    """A factory of mounts: lower directory (None: an empty one) and options of `agentfsd mount`."""
    needs_fuse()
    made: list[Mounted] = []

    def make(lower: Path | None = None, *options: str) -> Mounted:
        base = tmp_path / f"m{len(made)}"
        base.mkdir()
        made.append(Mounted(base, lower, *options))
        return made[-1].mount()

    yield make
    for mounted in made:
        mounted.end()


@pytest.fixture
def mounted(tmp_path: Path, make_mount: Callable[..., Mounted]) -> Mounted:
    """A mount over a small lower with a file, a directory and a symlink."""
    lower = tmp_path / "lower"
    (lower / "sub" / "deep").mkdir(parents=True)
    (lower / "file").write_text("lower\n")
    (lower / "sub" / "inner").write_text("inner\n")
    (lower / "sub" / "deep" / "leaf").write_text("leaf\n")
    (lower / "link").symlink_to("file")
    return make_mount(lower)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """An overlay without a mount; the lower is tmp_path / "lower"."""
    made = Opened(tmp_path)
    yield made
    made.close()
