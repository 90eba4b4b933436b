"""Every test has a state home and a registry of its own; mounts are ended with the test that made them."""

import compileall
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs_client import registry
from tests import rounds, tiers
from tests.mounted import Mounted, needs_fuse
from tests.overlays import Opened

_ROOT = Path(__file__).parent.parent

sys.dont_write_bytecode = False  # also where scripts/test says so for programs: the next run need not rewrite each `assert` again

# No test may find what it starts by PATH: a checkout's environment is not on a reader's.
os.environ["PATH"] = os.pathsep.join(
    place for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(place) != Path(sys.executable).parent
)

# Also where we were started in the background or by nohup, which ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("agentfsd")
    group.addoption("--long", action="store_true", help="everything in its long form: an hour or two")
    group.addoption("--rounds", action="append", default=[], metavar="NAME=N", help="how often one test repeats what it does")
    group.addoption("--seed", type=int, default=1, metavar="N", help="what random tests begin with")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        _compile()
        config.option.loadscopereorder = False  # or pytest-xdist begins with the files of most tests, not as tests/tiers.py says
    try:
        rounds.configure(config.getoption("--long"), config.getoption("--rounds"), config.getoption("--seed"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Tells scripts/test where the tests' mounts lie."""
    told = os.environ.get("AGENTFSD_TEST_BASE")
    if told and not hasattr(session.config, "workerinput"):
        factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        Path(told).write_text(str(factory.getbasetemp()))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What collecting makes stays: no collection of garbage looks through it again, which took half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # what is imported now may want to see who refers to what


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker gets a piece at a time (tests/tiers.py), which is mostly a file."""
    from xdist.scheduler import LoadFileScheduling

    class Pieces(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return tiers.piece(nodeid)

    return Pieces(config, log) if config.getoption("dist") == "loadfile" else None


def _compile() -> None:
    """Compile what the tests start, also where Python itself is told to leave no bytecode: a start takes a third of the time."""
    for directory in ("agentfsd", "client", "tests"):
        compileall.compile_dir(_ROOT / directory, quiet=2)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick tier does not even import what it leaves out, which takes longer than many of its tests."""
    is_left_out = (
        config.getoption("markexpr") == "not slow" and collection_path.suffix == ".py" and tiers.is_slow_file(collection_path)
    )
    return True if is_left_out else None


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Says which tests mount, and lets the files that take longest begin first, so that no worker ends long after the other."""
    if names := rounds.unknown():
        known = "\n".join(f"  {name}: {short}, with --long {long}" for name, (short, long) in sorted(rounds.known().items()))
        raise pytest.UsageError(f"--rounds: nothing that was collected is called {', '.join(names)}; there are\n{known}")
    for item in items:
        if tiers.is_slow(item):
            item.add_marker(pytest.mark.slow)
    if not rounds.is_long() and (out := tiers.left_out(items, rounds.seed())):
        config.hook.pytest_deselected(items=list(out))
        items[:] = [item for item in items if item not in out]
    items.sort(key=tiers.weight)


@pytest.fixture(autouse=True)
def _own_places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    base = tmp_path_factory.mktemp("places")
    monkeypatch.setenv("AGENTFS_STATE_HOME", str(base / "state"))
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
    monkeypatch.delenv("AGENTFS_MOUNT", raising=False)
    monkeypatch.delenv("AGENTFS_BRANCH", raising=False)
    yield
    if (base / "run").is_dir():
        monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        _end_hidden_daemons()


def _end_hidden_daemons() -> None:
    """Ends the daemons of runs without a mount at once, which would otherwise wait half a minute for the next run."""
    asked: set[int] = set()
    deadline = time.monotonic() + 15
    while left := [record for record in registry.live_daemons() if record.hidden]:
        late = time.monotonic() > deadline
        for pid in [record.keeper for record in left if late and record.keeper] + [record.pid for record in left]:
            if late or pid not in asked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                asked.add(pid)
        time.sleep(0.01)


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
