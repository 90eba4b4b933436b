"""Every command counts the same changes of a branch in the same way, and tells git's commits beside the number."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from agentfs_client import locate
from agentfs_files import BranchFilesystem
from agentfs_files.integrations.mcp.mcp_history import DiffWithPatch
from agentfs_files.integrations.mcp.mcp_tool import Workspace
from agentfsd.cli.command_base import converse
from agentfsd.web.overlay_model import LiveOverlay
from tests.mounted import Mounted, agentfsd
from tests.repositories.agents import start
from tests.repositories.test_many_agents import IDENTITY

FILES = {f"file-{number}": "old" for number in range(8)} | {"dir/inside": "old", "dir/other": "old"}
WORK = """
git mv file-1 moved-1; echo new > file-2; git add -A; git commit -qm 'Fix parser'; echo x > made; git add made
git commit -qm 'Add test'; mv file-3 moved-3; rm file-4; mv dir renamed; mkdir -p deep/er; echo x > deep/er/file; chmod 600 file-5
"""
CHANGES = [
    "A\tdeep", "A\tdeep/er", "A\tdeep/er/file", "R\tfile-1 -> moved-1", "M\tfile-2", "R\tfile-3 -> moved-3", "D\tfile-4",
    "m\tfile-5", "M\tfile-6", "A\tmade", "R\tdir -> renamed",
]  # fmt: skip
GIT = re.compile(r"main: 2 commits ahead \([0-9a-f]{7} Add test; [0-9a-f]{7} Fix parser\), 6 uncommitted files")


def number(text: str, pattern: str) -> int:
    found = re.search(pattern, text, re.M)
    assert found, text
    return int(found[1])


def test_all_commands_say_the_same_number(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    lower = tmp_path / "lower"
    start(lower, dict(FILES))
    mounted = make_mount(lower)
    said = {}
    mounted.run("work", "sh", "-ec", IDENTITY + WORK, new=True)
    for text in ("one", "two", "three"):
        script = f"echo {text} > file-6; echo {text} > file-7"
        agentfsd("run", "-m", str(mounted.path), "-b", "work", "--snapshot", "--", "sh", "-ec", script, cwd=mounted.path)
    mounted.run("work", "sh", "-ec", "printf old > file-7; git status --porcelain")
    made_up = agentfsd("run", "-m", str(mounted.path), "--", "sh", "-ec", f"{IDENTITY}{WORK}echo x > file-6", cwd=mounted.path)
    said["run"] = number(made_up.stderr, r"(\d+) changes in branch")
    assert GIT.search(made_up.stderr)
    listed = mounted.cli("diff", "work")
    assert sorted(listed.stdout.splitlines()) == sorted(CHANGES)
    assert GIT.search(listed.stderr)
    assert mounted.cli("diff", "--own", "work").stdout == listed.stdout
    found = mounted.json("diff", "work")
    assert GIT.fullmatch(found["repositories"][0]["sentence"])
    said["diff --json"] = len(found["changes"])
    for command in ("status", "branch list", "branch show"):
        text = mounted.cli(command, *(["work"] if command == "branch show" else [])).stdout
        assert GIT.search(text)
        said[command] = number(text, r"^work +(\d+)")
    branch = mounted.json("branch show", "work")
    assert (branch["changed"], branch["counted"]) == (len(CHANGES), True)
    assert GIT.fullmatch(branch["repositories"][0]["sentence"])
    log = mounted.cli("log").stdout
    assert GIT.search(log)
    said["log"] = number(log, r"branch work: (\d+) changes")
    for options in (["merge", "work", "--into", "main", "--dry-run"], ["commit", "work", "--dry-run"]):
        text = mounted.cli(*options).stdout
        lines = [re.sub(r"\twork$", "", line) for line in text.splitlines() if "\t" in line]
        assert sorted(lines) == sorted(CHANGES), options
        said[" ".join(options)] = number(text, r"^(\d+) changes would go into")
        assert "work: 2 commits to main" in text
        whole = mounted.cli(*options, "--all").stdout
        assert ".git/objects" in whole
    with BranchFilesystem("work", mount=str(mounted.path)) as files:
        diff, git = files.diff_with_git()
        assert GIT.fullmatch(git[0])
        assert not [path for path in (*diff.added, *diff.modified, *diff.deleted) if ".git" in path]
        tool = DiffWithPatch().run(Workspace(files))
        assert (tool.git, tool.added, tool.modified, tool.deleted) == (git, diff.added, diff.modified, diff.deleted)
        assert not GIT.search(tool.content.partition("\n")[2])
        assert ".git/" in DiffWithPatch(all=True).run(Workspace(files)).content
    pages = LiveOverlay(lambda: converse(lambda: locate.find(str(mounted.path))))
    on_page = pages.changed("work")
    said["pages"] = on_page.added + on_page.modified + on_page.deleted
    row = next(row for row in pages.branches(quickly=False)[1] if row.branch.name == "work")
    assert GIT.fullmatch(row.git[0])
    merged = mounted.cli("merge", "work", "--into", "main").stdout
    said["merge"] = number(merged, r"merged work into main: (\d+) changes")
    said["status of main"] = number(mounted.cli("status").stdout, r"^main +(\d+)")
    assert sorted(mounted.cli("diff", "main").stdout.splitlines()) == sorted(CHANGES)
    committed = mounted.cli("commit", "main").stdout
    said["commit"] = number(committed, r"committed main into .*: (\d+) changes")
    assert said == dict.fromkeys(said, len(CHANGES)), json.dumps(said, indent=2)
    assert mounted.json("branch show", "main")["changed"] == 0
