"""What users and agents have named or said is shown on its line, and nothing in it that a terminal obeys: on a pipe, too."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentfsd.escape import quoted
from agentfsd.process import journald
from tests.mounted import AGENTFSD, Mounted, agentfsd

EVIL = "x\x1b[2J\nFORGED line\r\x9b31m\u202e\t"  # clears the screen, forges a line, turns the writing around
COMMAND = "\x1b[7mx\nFORGED"  # 15 bytes at most


@pytest.fixture
def evil(mounted: Mounted) -> Mounted:
    """A branch with such a tag, such names, and such a command in it."""
    mounted.cli("branch create", "b")
    top = mounted.subtree("b")
    (top / EVIL).write_text("content\n")
    (top / "plain").write_text("content\n")
    (top / "sub" / "inner").rename(top / f"{EVIL}moved")
    mounted.cli("snapshot create", "-b", "b", "--tag", EVIL)
    return mounted


def clean(text: str) -> bool:
    """Each line can be shown, and nobody has forged one."""
    return all(line.replace("\t", "").isprintable() for line in text.split("\n")) and "\nFORGED" not in text


COMMANDS = [
    ["snapshot list"], ["snapshot show", "b-1"], ["log"], ["log", "b"], ["diff", "b"], ["diff", "b", "--stat"], ["audit"],
    ["status"], ["bindings"], ["top", "--once", "--interval", "0.3"], ["merge", "b", "--into", "main", "--dry-run"],
    ["commit", "b", "--dry-run"], ["fsck"], ["diff", f"{EVIL}nowhere"], ["policy set", EVIL, EVIL], ["commit", "b", "--", EVIL],
    ["export", EVIL, f"/nowhere/{EVIL}"], ["branch create", EVIL], ["restore", "-b", "b", EVIL], ["undo", "--list"],
    ["restore", "-b", "b", "b-1", EVIL], ["prune", "--max-age", "0.001s"], [EVIL],
]  # fmt: skip


def test_every_command_shows_it_escaped(evil: Mounted) -> None:
    said = {" ".join(command): evil.cli(*command, check=False) for command in COMMANDS}
    assert [command for command, done in said.items() if not clean(done.stdout) or not clean(done.stderr)] == []
    assert [command for command, done in said.items() if not done.stdout and not done.stderr] == []


def test_names_of_processes_are_escaped(evil: Mounted) -> None:
    """Where a user of the mount is named, in the tables, in the status files and in the log."""
    script = "import ctypes, sys; "
    script += f"ctypes.CDLL(None).prctl(15, {COMMAND.encode()!r}, 0, 0, 0); print('in', flush=True); sys.stdin.read()"
    user = subprocess.Popen(["python3", "-c", script], cwd=evil.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert user.stdin is not None
    assert user.stdout is not None
    assert user.stdout.readline() == "in\n"
    try:
        evil.cli("bind", str(user.pid), "b")
        shown = [evil.cli(command).stdout for command in ("bindings", "status")]
        shown += [agentfsd("umount", str(evil.path), check=False).stderr, (evil.path / ".agentfs" / "status").read_text()]
        for text in shown:
            assert "7mx" in text
            assert clean(text), text
        assert COMMAND in [found["command"] for found in evil.json("bindings")]
    finally:
        user.stdin.close()
        user.wait()
        user.stdout.close()


def test_a_message_of_the_log_is_one_line() -> None:
    record = logging.LogRecord("agentfsd", logging.WARNING, "", 0, "in use by %s", (EVIL,), None)
    assert clean(journald.OneLine("%(levelname)s: %(message)s").format(record))
    try:
        raise OSError(EVIL)
    except OSError:
        record.exc_info = sys.exc_info()
    assert "FORGED" in journald.OneLine().format(record)
    assert clean(journald.OneLine().format(record))


def test_json_is_exact(evil: Mounted) -> None:
    assert [found["tag"] for found in evil.json("snapshot list")] == [EVIL]
    assert {found["path"] for found in evil.json("diff", "b")["changes"]} == {EVIL, f"{EVIL}moved", "plain"}
    assert json.loads((evil.path / ".agentfs" / "status.json").read_text())["branches"]


def test_watch_shows_it_escaped(evil: Mounted) -> None:
    command = [*AGENTFSD, "watch", "b", "-m", str(evil.path)]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watcher.stderr is not None
    assert watcher.stdout is not None
    try:
        watcher.stderr.readline()
        (evil.subtree("b") / f"{EVIL}new").mkdir()
        line = watcher.stdout.readline()
        assert "FORGED" in line
        assert clean(line)
    finally:
        watcher.kill()
        watcher.communicate()


def test_a_list_of_names_is_as_gits(evil: Mounted, tmp_path: Path) -> None:
    """Names that need no quotes are as they are; others as git quotes them with core.quotePath=false."""
    names = ["plain", "caf\u00e9", "with blank", 'a"b', "back\\slash", "tab\there", "new\nline", "\x01\x7f"]
    repository = tmp_path / "repository"
    repository.mkdir()
    for directory in (evil.subtree("b"), repository):
        for name in names:
            (directory / name).write_text("x")
    git = ["git", "-c", "core.quotePath=false", "-C", str(repository)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    listed = subprocess.run([*git, "ls-files"], capture_output=True, check=True).stdout.decode().splitlines()
    assert sorted(quoted(os.fsencode(name)) for name in names) == sorted(listed)
    ours = [line.partition("\t")[2] for line in evil.cli("diff", "b").stdout.splitlines()]
    assert set(listed) <= set(ours)
    assert quoted(b"raw\xff \xe2\x80\xae") == '"raw\\377 \\342\\200\\256"'  # which git would leave as they are


def test_headers_of_a_patch_are_quoted_and_contents_are_not(evil: Mounted) -> None:
    (evil.subtree("b") / "plain").write_text("\x1b[1m raw\n")
    patch = evil.cli("diff", "--patch", "b").stdout
    assert "\x1b[1m raw" in patch
    headers = [line for line in patch.split("\n") if not line.startswith("+")]
    assert any("\\033[2J\\nFORGED" in line for line in headers)
    assert clean("\n".join(headers)), headers
