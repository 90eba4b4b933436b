"""The client is light: importing any of its modules is quick, and loads nothing that only some of its users need."""

import json
import pkgutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import agentfs_client

LIMIT_MS = 60
HEAVY = {
    "agentfsd", "trio", "pyfuse3", "click", "rich", "pygit2", "wcmatch", "bracex", "re2", "regex", "pathspec", "podman", "fsspec",
    "mcp", "asyncio", "pytest", "hypothesis",
}  # fmt: skip
APART = ("agentfs_files.testing.", "agentfs_files.integrations.")  # for those who have that anyway

# Each module in a child of an interpreter that has nothing but the path. What a quick one has loaded is quick as well. On a busy
# or slow machine everything takes longer; how much is seen by asyncio, which takes half as long as the limit on a good one.
_SCRIPT = """
import importlib, os, sys, time

def measure(name):
    ours, theirs = os.pipe()
    if os.fork() == 0:
        start = time.process_time()
        importlib.import_module(name)
        took = (time.process_time() - start) * 1000
        os.write(theirs, "\\n".join((str(took), *sys.modules)).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as said:
        took, *loaded = said.read().split("\\n")
    os.wait()
    return float(took), set(loaded)

sys.path[:0] = sys.argv[1:3]
limit, bad, quick = float(sys.argv[3]), {}, set()
for name in sys.argv[4].split(","):
    if name not in quick:
        for attempt in range(5):
            took, loaded = measure(name)
            is_quick = took < limit or took < 2 * measure("asyncio")[0]
            if is_quick:
                break
        heavy = sorted(loaded.intersection(sys.argv[5].split(",")))
        if is_quick and not heavy:
            quick |= loaded
        else:
            bad[name] = round(took), heavy
import json
print(json.dumps(bad))
"""


def test_no_module_is_slow_or_heavy_to_import() -> None:
    client = Path(agentfs_client.__path__[0])
    modules = [
        module
        for package in ("agentfs_client", "agentfs_files", "agentfs_host")
        for module in pkgutil.walk_packages([str(client.parent / package)], f"{package}.")
        if not module.name.startswith(APART) or module.name.endswith(".mock")
    ]
    imports = {module.name: imported(client.parent / module.name.replace(".", "/")) for module in modules}
    names = sorted(imports, key=lambda name: imports[name], reverse=True)
    places = [str(client.parent), sysconfig.get_path("platlib")]
    command = [sys.executable, "-I", "-S", "-c", _SCRIPT, *places, str(LIMIT_MS), ",".join(names), ",".join(HEAVY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {}


def imported(path: Path) -> int:
    """How much a module imports itself: those that import most come first, and spare the others."""
    source = path.with_suffix(".py")
    return source.read_text().count("import ") if source.exists() else 0


def test_rooms_that_moved_are_the_same_modules_by_their_former_names() -> None:
    script = (
        "import importlib\n"
        "for name in ('testing.mock', 'integrations.branch_commands', 'integrations.mcp.mcp_failures'):\n"
        "    former = importlib.import_module('agentfs_client.' + name)\n"
        "    assert former is importlib.import_module('agentfs_files.' + name)\n"
        "    assert former.__spec__.name == 'agentfs_files.' + name\n"
        "try:\n"
        "    import agentfs_client.testing.nothing\n"
        "except ModuleNotFoundError as exc:\n"
        "    assert exc.name == 'agentfs_client.testing.nothing', exc.name\n"
        "from agentfs_client.testing import MockFilesystem\n"
        "import agentfs_files.testing\n"
        "assert MockFilesystem is agentfs_files.testing.MockFilesystem\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
