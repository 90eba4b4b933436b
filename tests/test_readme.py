"""Every command of the README and the how-to pages, each section on a machine of its own, which nothing outlives."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import throwaway
from tests.booted import Machine, needs_systemd
from tests.containers import configured, podman_service, root_file_system
from tests.mounted import needs_fuse
from tests.rounds import is_long

ROOT = Path(__file__).parent.parent
PAGES = [(ROOT / "README.md").read_text(), *(page.read_text() for page in sorted((ROOT / "docs/how-to").glob("*.md")))]
BIN = Path(sys.executable).parent

# What a reader has: a project under git, and an agent, which is any program that changes files. What waits for a key or for
# Ctrl-C is given a terminal, and Ctrl-C after a while.
_READER = rf"""
cat >/usr/local/bin/my-agent <<'AGENT'
#!/bin/sh
mkdir -p src docs && echo "$*" >"src/$(basename "$PWD")-$$.txt"
AGENT
chmod +x /usr/local/bin/my-agent
git config --global user.name me && git config --global user.email me@localhost && git config --global init.defaultBranch main
mkdir -p project/src project/docs && cd project && git init -q
printf 'all:\n\t@echo built >built\n\ntest:\n\t@echo tested\n\nclean:\n\trm -f built\n' >Makefile
echo 'print("hello")' >src/main.py; echo '# Project' >README.md; echo text >docs/index.md; echo built >.gitignore
git add -A && git commit -q -m first && cd ..
PATH={shlex.quote(str(BIN))}:/usr/local/bin:$PATH
agentfsd() {{
    case "$1" in
        top | watch | ui | review)
            interrupted="timeout --foreground --preserve-status -s INT 3"
            BROWSER=true script -qec "$interrupted agentfsd $*" /dev/null </dev/null || [ $? = 130 ]
            ;;
        *) command agentfsd "$@" ;;
    esac
}}
set -eu
"""
_TWO_BRANCHES = "for n in 1 2; do agentfsd run -b fix-$n --new -- my-agent; done\n"
_MOUNTED = "mkdir ~/work && agentfsd mount ~/project ~/work && cd ~/work\n"


def blocks(language: str) -> dict[str, list[str]]:
    """What stands in fences of that language, by the heading above it."""
    found: dict[str, list[str]] = {}
    heading = ""
    for part in re.finditer(r"^#+ ([^\n]*)$|^```(\w*)\n(.*?)^```$", "\n".join(PAGES), re.MULTILINE | re.DOTALL):
        if part[1] is not None:
            heading = part[1]
        elif part[2] == language:
            found.setdefault(heading, []).append(part[3])
    return found


COMMANDS = blocks("sh")

# The heading; what is there before; what is to be seen.
SECTIONS = {
    "agentfsd": ("", ["committed fix-2 into /home/me/project", "discarded fix-1"]),
    "First steps": (  # a reader has typed the first block, too
        COMMANDS["agentfsd"][0], ["D docs/index.md", "committed fix into /home/me/project", "discarded other", "task-2"],
    ),
    "Ten agents in parallel on one repository": (
        _MOUNTED,
        [
            "agent-10", "merged agent-3, agent-7 into main", "committed main into /home/me/project", "task 7",
            "agent-11 is based on the real directory as it is now",
        ],
    ),
    "Keep a branch still": (_MOUNTED, ["fix-2 made from the lower as it was at 20", ", frozen"]),
    "Bring a branch up to date": (
        _MOUNTED + "agentfsd run -b fix-1 --new --frozen -- my-agent; echo more >>~/project/README.md\n",
        ["A\tsrc/work-", "fix-1 is based on the real directory as it is now, and changes 1 path of it"],
    ),
    "A snapshot around each tool call": (_MOUNTED, ["before-refactoring", "undone: restore of agent-1"]),
    "Some of it": (
        _MOUNTED + "agentfsd run -b agent-1 --new -- my-agent; agentfsd snapshot create -b agent-1 before-refactoring\n",
        ["Commit this ", "Merge this ", "there is nothing to restore", "Discard this ", "nothing was taken: nothing has changed"],
    ),
    "Try three fixes and keep one": (
        _MOUNTED, ["try-2 passes", "committed try-2 into /home/me/project", "discarded try-1", "discarded try-3"],
    ),
    "At home in your agent": (_MOUNTED, ["added to /home/me/.claude/settings.json"]),
    "Claude Code, Codex, Gemini CLI, opencode": (
        _MOUNTED, ["a hook is answered in", "removed from /home/me/.gemini/settings.json"],
    ),
    "Go back to a turn": (
        _MOUNTED,
        ["rewrite it", "session is as before turn 2", "branch second-try is as before turn 1", "undone: restore of session"],
    ),
    "Browse yesterday": (_MOUNTED, ["Files .agentfs/snapshots/20", "M\tREADME.md"]),
    "Review in the browser": (_MOUNTED + "mkdir sessions; touch sessions/4f1c.jsonl\n", [".localhost:"]),
    "Review on the terminal": (_MOUNTED + "agentfsd run -b fix-1 --new -- my-agent\n", ["hunk chosen"]),
    "Notes": (_MOUNTED, ["note 1 about README.md:1 in fix-1", "answered note 1", "    it says so now", "(1)"]),
    "See what happens, and who did it": (_MOUNTED + "agentfsd run -b fix-1 --new -- my-agent\n", ["create", "hostfs"]),
    "Who collides": (_MOUNTED, ["content", "way-1, way-2  README.md"]),
    "Leave conflicts and settle them": (
        _MOUNTED, ["2 conflicts undecided", "1 conflict undecided", "finished the merge of way-2 into main"],
    ),
    "Make and remove worktrees": ("cd ~/project\n", ["fix the tests", "feature/login", "removed worktree fix-1"]),
    "Other harnesses": ("", ["## task-7", "removed worktree task-7"]),
    "Open a branch as a folder": ("", ["## fix-1"]),
    "Run the editor in the branch": ("", ["src/project-"]),
    "Bind running processes, open a shell": (_MOUNTED + _TWO_BRANCHES, ["tested"]),
    "Export, import, and move histories": (_MOUNTED + _TWO_BRANCHES, ["from-mail"]),
    "Move much data at full speed": (_MOUNTED + _TWO_BRANCHES, ["enabled"]),
    "Confine a run": (_MOUNTED, ["2 changes would go into /home/me/project"]),
    "The home directory": (_MOUNTED + _TWO_BRANCHES, ["D\t.gitconfig", "which belong to the branch", "0 requests refused"]),
    "Keep agents from paths": (_MOUNTED + _TWO_BRANCHES, ["deny", "hide scratch/**", "ro .git/hooks/**", "allow deploy/README"]),
    "Files outside the workspace": (_MOUNTED + _TWO_BRANCHES, ["deny ~/.ssh/id_*"]),
    "Choose where contents are kept": (_MOUNTED, ["/home/me/ram", "/home/me/watched"]),
}  # fmt: skip
UNREACHABLE = 77
ELSEWHERE = {"Install", "Run agentfsd as a service", "Give a container a branch", "Answering"}  # the last in system/test_rules.py


def test_each_section_with_commands_is_tried() -> None:
    assert set(SECTIONS) | ELSEWHERE == set(COMMANDS)


@pytest.mark.parametrize("heading", SECTIONS)
def test_commands_of_section(heading: str) -> None:
    needs_fuse()
    before, seen = SECTIONS[heading]
    said = spoiling(_READER + before + "set -x\n" + "".join(COMMANDS[heading]))
    assert [sentence for sentence in seen if sentence not in said] == [], said


def test_systemd(tmp_path_factory: pytest.TempPathFactory) -> None:
    needs_fuse()
    needs_systemd()
    machine = Machine(tmp_path_factory.mktemp("readme"))
    shutil.copy(ROOT / "systemd" / "system" / "agentfsd@.service", machine.units)
    (machine.boot / "usr/local/bin").mkdir(parents=True)
    (machine.boot / "usr/local/bin/agentfsd").symlink_to(BIN / "agentfsd")
    try:
        machine.start().sh("mkdir -p /srv/project /etc/agentfsd/srv; echo STATE=/run/state >/etc/agentfsd/srv/project.conf")
        said = machine.sh("".join(COMMANDS["Run agentfsd as a service"]))
        assert "/srv/project is mounted on /srv/project" in said
        deadline = time.monotonic() + 20  # the journal may have it a moment later
        while "settings read: /etc/agentfsd/srv/project.settings" not in said and time.monotonic() < deadline:
            said = machine.sh("journalctl --no-pager -u agentfsd@srv-project")
        assert "settings read: /etc/agentfsd/srv/project.settings" in said
    finally:
        machine.end()


def test_container(tmp_path: Path) -> None:
    """Podman's storage is on a tmpfs, and it leaves control groups alone."""
    needs_fuse()
    with podman_service():  # skips where containers do not run
        pass
    (tmp_path / "image.tar").write_bytes(root_file_system())
    told = "".join(f"export {name}={value}\n" for name, value in configured(tmp_path, "/run/containers", "vfs").items())
    podman = f"{told}for place in /var/lib /sys/fs/cgroup; do mount -t tmpfs none $place; done\n"
    with_agent = f"mkdir image && tar -xf {tmp_path}/image.tar -C image && cp /usr/local/bin/my-agent image/bin/\n"
    import_ = "tar -c -C image . | podman import -q - my-image\n"
    said = spoiling(_READER + podman + with_agent + import_ + _MOUNTED + "".join(COMMANDS["Give a container a branch"]), tmp_path)
    assert "src/workspace-" in said


def test_snapshots_that_an_agent_takes_itself() -> None:
    (settings,) = blocks("json")["A snapshot around each tool call"]
    (asked,) = json.loads(settings)["hooks"]["PreToolUse"]
    command = asked["hooks"][0]["command"]
    script = f"{_MOUNTED}agentfsd run -b agent-1 --new -- sh -c {shlex.quote(f'{command}; echo >new; {command}')}"
    assert spoiling(f"{_READER}{script}; agentfsd snapshot list -b agent-1").count("before-tool") == 2


def test_mcp_client() -> None:
    """The official client, told what the page says."""
    (configured,) = blocks("json")["Connect an MCP client"]
    server = json.loads(configured)["mcpServers"]["work"]
    client = f"""
import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

async def main():
    async with Client(StdioServerParameters(**{server})) as client:
        await client.call_tool("write_file", {{"path": "/home/me/work/new.txt", "content": "by the client"}})

anyio.run(main)
"""
    run = f"{shlex.quote(sys.executable)} -c {shlex.quote(client)}\n"
    said = spoiling(_READER + _MOUNTED + run + "cat .agentfs/branches/agent-3/new.txt; agentfsd snapshot list")
    assert "by the client" in said
    assert "agent-3" in said.partition("by the client")[2]


# `python -m benchmark` for each list of arguments, in one process: what takes long is to import it.
_EACH = """
import json, runpy, sys
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        runpy.run_module("benchmark", run_name="__main__", alter_sys=True)
    except SystemExit as exc:
        if exc.code:
            raise
"""


def test_measurements_that_are_named_are_there() -> None:
    """They take their time: what is asked here is what they would measure."""
    lines = set(re.findall(r"^    scripts/bench(?: .*\\\n.*|.*)$", "\n".join(PAGES), re.MULTILINE))
    assert len(lines) > 5
    subprocess.run([ROOT / "scripts/bench", "--list"], stdout=subprocess.DEVNULL, check=True)
    asked = [[*shlex.split(line.partition("#")[0].replace("\\\n", " "))[1:], "--list"] for line in lines]
    done = subprocess.run(
        [BIN / "python", "-c", _EACH, json.dumps(asked)], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("target bare\n") == len(lines)


def spoiling(script: str, *directories: Path, timeout_s: float = 120) -> str:
    done = throwaway.run(script, ROOT, *directories, timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_install() -> None:
    """The README's way; with --long all others, after each other. `apt` asks nothing.

    Three things only cost time: pip takes what it compiled when the tests were installed, and compiles no Python that nobody
    uses; the Debian package is not compressed.
    """
    needs_fuse()
    cache = Path(subprocess.run([BIN / "pip", "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip())
    prelude = f"""
        set -eu
        export PIP_CACHE_DIR={shlex.quote(str(cache))} DPKG_DEB_COMPRESSOR_TYPE=none PIP_NO_COMPILE=1
        quietly() {{ "$@" >/tmp/said 2>&1 || (cat /tmp/said; false); }}
        apt() {{ DEBIAN_FRONTEND=noninteractive quietly apt-get -qq -y --no-install-recommends "$@"; }}
        {"apt update || exit " + str(UNREACHABLE) + "; apt install man-db" if is_long() else ""}
        export PATH=~/.local/bin:$PATH
        python3 -m venv --without-pip /tmp/uv; quietly {BIN}/pip --python /tmp/uv/bin/python install uv
        ln -s /tmp/uv/bin/uv /usr/local/bin
        cd {shlex.quote(str(ROOT))}
        {"quietly scripts/package" if is_long() else ""}
        set -x
    """
    last = "; complete -p agentfsd" if is_long() else ""
    script = prelude + "\n".join(COMMANDS["Install"][: None if is_long() else 1]) + "\ncommand -v agentfsd" + last
    done = throwaway.run(script, ROOT, *[cache] * cache.is_dir(), timeout_s=400)
    if done.returncode == UNREACHABLE:
        pytest.skip("Debian's packages cannot be fetched")
    assert done.returncode == 0, done.stdout
    assert ("/home/me/agentfsd/bin/agentfsd" if is_long() else "/home/me/.local/bin/agentfsd") in done.stdout
    assert ("AGENTFSD-RUN(1)" in done.stdout) == is_long()
