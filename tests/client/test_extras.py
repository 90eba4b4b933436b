"""Who lacks a package that only some need is told which extra brings it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

NEEDS = {  # extra: a package of it, and what cannot be done without
    "async": ("anyio", "from agentfs_client import AsyncFilesystem"),
    "daemon": ("click", "from agentfsd.cli.entry import main; main()"),
    "deepagents": ("deepagents", "import agentfs_files.integrations.deepagents"),
    "fsspec": ("fsspec", "import agentfs_files.integrations.fsspec"),
    "harbor": ("harbor", "import agentfs_files.integrations.harbor"),
    "mini-swe-agent": ("minisweagent", "import agentfs_files.integrations.mini_swe_agent"),
    "openai-agents": ("agents", "import agentfs_files.integrations.openai_agents"),
    "openhands": ("openhands", "import agentfs_files.integrations.openhands"),
    "git": ("pygit2", "HostFilesystem('.', snapshot_strategy=SnapshotStrategy.GIT).snapshot()"),
    "mcp": ("mcp", "from agentfs_files.integrations.mcp.server import make_server; make_server(InMemoryFilesystem())"),
    "podman": ("podman", "PodmanFilesystem('some-container')"),
    "pydantic-ai": ("pydantic_ai", "import agentfs_files.integrations.pydantic_ai"),
    "regex": ("regex", "InMemoryFilesystem().grep('(?=look-ahead)')"),
    "upath": ("upath", "import agentfs_files.integrations.upath"),
}
SAID_BY_COMMANDS = {
    "metrics": "agentfsd/state/daemon_config.py",
    "review": "agentfsd/cli/commands/cmd_review.py",
    "ui": "agentfsd/cli/commands/cmd_ui.py",
}  # where the sentence stands
PARTS = {"native"}  # of daemon, for who can do without pyfuse3
FOR_DEVELOPERS = {"bench", "build", "dev", "docs", "package"}

_SCRIPT = """
import json, sys
from agentfs_client import HostFilesystem, InMemoryFilesystem, PodmanFilesystem, SnapshotStrategy

said = {}
for extra, (package, statement) in json.loads(sys.argv[1]).items():
    before = set(sys.modules)
    sys.modules[package] = None
    try:
        exec(statement)
    except (ImportError, RuntimeError, ValueError, SystemExit) as exc:
        said[extra] = str(exc)
    for name in set(sys.modules) - before:
        del sys.modules[name]
print(json.dumps(said))
"""


def test_what_is_missing_names_its_extra(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SCRIPT, json.dumps(NEEDS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert {extra: said.get(extra) for extra in NEEDS if f"pip install 'agentfsd[{extra}]'" not in said.get(extra, "")} == {}


def test_taking_every_name_needs_no_extra() -> None:
    script = "import sys; sys.modules['anyio'] = None; from agentfs_client import *; InMemoryFilesystem"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_extra_is_named_by_something() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert NEEDS.keys() | SAID_BY_COMMANDS.keys() == project["optional-dependencies"].keys() - FOR_DEVELOPERS - PARTS
    for extra, path in SAID_BY_COMMANDS.items():
        assert f"pip install 'agentfsd[{extra}]'" in (ROOT / path).read_text()
