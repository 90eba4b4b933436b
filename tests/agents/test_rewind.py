"""`agentfsd rewind`: by option, as JSON, and on a terminal."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.harness import AGENTFSD, Harness
from tests.mounted import Mounted

_SESSION = "5e551011-0000-4000-8000-aaaaaaaaaaaa"
_BRANCH = "claude-aaaaaaaa"


@pytest.fixture
def session(mounted: Mounted) -> Iterator[Harness]:
    """A session that lives, after three turns with edits and deletions, some of them not by a tool."""
    with Harness(mounted.path, _SESSION) as harness:
        for prompt, script in [
            ("edit the file", "echo one >file; mkdir made; echo two >made/two"),
            ("clean up", "rm -r sub link"),
            ("begin again", "echo three >file"),
        ]:
            call = {"tool_name": "Bash", "tool_input": {"command": script}, "tool_use_id": script}
            harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt=prompt)
            harness.hook("before-tool", hook_event_name="PreToolUse", **call)
            harness.sh(script)
            harness.hook("after-tool", hook_event_name="PostToolUse", **call)
        (mounted.subtree(_BRANCH) / "by-a-person").write_text("x")
        yield harness


def _tree(harness: Harness) -> str:
    return harness.sh("find . -path ./.agentfs -prune -o -type f -print | sort; cat file")


def test_there_and_back_while_the_session_lives(mounted: Mounted, session: Harness) -> None:
    late = _tree(session)
    assert mounted.cli("rewind", "--to", "1").stdout.startswith(
        f"{_BRANCH} is as before turn 1 (edit the file); that took back: "
    )
    assert _tree(session) == "./file\n./sub/deep/leaf\n./sub/inner\nlower\n"
    assert mounted.cli("undo").stdout == f"undone: restore of {_BRANCH}\n"
    assert _tree(session) == late
    mounted.cli("rewind", "--to", "2.1", "--session", "5e55")
    assert _tree(session) == "./file\n./made/two\n./sub/deep/leaf\n./sub/inner\none\n"


def test_an_agent_is_told_who_may_undo(mounted: Mounted, session: Harness) -> None:
    told = session.sh(f"{AGENTFSD} rewind --to 1 2>&1; {AGENTFSD} undo 2>&1 || :")
    assert "outside the branch, `agentfsd undo` brings the later state back\n" in told
    assert "undone" not in told
    assert mounted.cli("rewind", "--to", "2").stderr == "agentfsd: `agentfsd undo` brings the later state back\n"


def test_a_new_branch_goes_on_from_a_turn(mounted: Mounted, session: Harness) -> None:
    late = _tree(session)
    assert "branch again is as before turn 3" in mounted.cli("rewind", "--to", "3", "--branch", "again").stdout
    assert _tree(session) == late
    assert (mounted.subtree("again") / "file").read_text() == "one\n"
    assert not (mounted.subtree("again") / "sub").exists()


def test_the_list(mounted: Mounted, session: Harness) -> None:
    lines = mounted.cli("rewind", "--list").stdout.splitlines()
    assert lines[0] == f"session {_SESSION} of claude-code, in branch {_BRANCH}"
    assert [line.split("  ")[0] for line in lines[1:]] == ["TURN", "1", "2", "3"]
    assert lines[2].endswith("5 deleted, 1 modified, 3 added") and lines[4].endswith("1 modified, 1 added")
    first, second, third = mounted.json("rewind", "--list")
    assert (first["turn"], first["title"], first["branch"], first["agent"]) == (1, "edit the file", _BRANCH, "claude-code")
    assert third["changed_since"] == {"M": 1, "A": 1}
    assert {each["snapshot"] for each in (first, second, third)} <= {each["name"] for each in mounted.json("snapshot list")}
    assert mounted.json("rewind", "--to", "2")["restored"]["turn"] == 2


def test_what_cannot_be_meant_is_said(mounted: Mounted, session: Harness) -> None:
    for arguments, said in [
        (("--to", "9"), f"session {_SESSION} has no turn 9\n  hint: there are turns 1 to 3"),
        (("--to", "x"), "has no turn x"),
        (("--to", "1", "--session", "none"), "there is no session none"),
        ((), "without a terminal a turn has to be named"),
    ]:
        done = mounted.cli("rewind", *arguments, check=False)
        assert done.returncode == 1 and said in done.stderr
    with Harness(mounted.path, "another-session") as other:
        other.hook("prompt", hook_event_name="UserPromptSubmit", prompt="p")
        done = mounted.cli("rewind", "--to", "1", check=False)
        assert done.returncode == 1 and "there are 2 sessions" in done.stderr and "another-session (branch claude-" in done.stderr


def test_steps_go_with_their_snapshots(mounted: Mounted, session: Harness) -> None:
    mounted.cli("policy set", "retention.step_count", "2")
    session.sh("echo 4 >file")
    session.hook("prompt", hook_event_name="UserPromptSubmit", prompt="fourth")
    assert [each["turn"] for each in mounted.json("rewind", "--list")] == [3, 4]
    assert len(mounted.json("snapshot list")) == 2
    mounted.cli("restart")
    assert [each["title"] for each in mounted.json("rewind", "--list")] == ["begin again", "fourth"]
    assert mounted.fsck() == []


def test_a_turn_of_a_branch_that_is_gone_can_still_be_had(mounted: Mounted, session: Harness) -> None:
    session.__exit__()
    mounted.cli("discard", _BRANCH)
    done = mounted.cli("rewind", "--to", "2", check=False)
    assert done.returncode == 1 and "--branch NAME makes a new branch" in done.stderr
    assert done.stderr.startswith(f"agentfsd: {_BRANCH}, the branch of that turn, is gone\n")
    mounted.cli("branch create", _BRANCH)  # another one
    lines = mounted.cli("rewind", "--list").stdout.splitlines()
    assert lines[0].endswith(f"in branch {_BRANCH}, which is gone")
    assert all(line.endswith("its branch is gone") for line in lines[2:])
    assert [turn["changed_since"] for turn in mounted.json("rewind", "--list")] == [None, None, None]
    mounted.cli("rewind", "--to", "2", "--branch", "back")
    assert (mounted.subtree("back") / "made/two").read_text() == "two\n"


def test_a_person_chooses_on_a_terminal(mounted: Mounted, session: Harness) -> None:
    shown = _on_terminal(mounted.path, ["2\r", "\r"])
    assert "edit the file" in shown and "CHANGED SINCE" in shown
    assert session.sh("cat file; ls sub") == "one\ndeep\ninner\n"
    _on_terminal(mounted.path, ["1\r", "chosen\r"])
    assert (mounted.subtree("chosen") / "file").read_text() == "lower\n"
    assert "is as before" not in _on_terminal(mounted.path, ["\r"])


def _on_terminal(directory: Path, answers: list[str]) -> str:
    main, side = pty.openpty()
    process = subprocess.Popen([AGENTFSD, "rewind"], cwd=directory, stdin=side, stdout=side, stderr=side)
    os.close(side)
    shown, deadline = "", time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            if select.select([main], [], [], 0.1)[0]:
                try:
                    part = os.read(main, 4096)
                except OSError:  # the terminal has gone with the process
                    break
                shown += part.decode()
            if answers and shown.rstrip(" ").endswith(":"):
                os.write(main, answers.pop(0).encode())
                shown += "\n"
    finally:
        process.wait(30)
        os.close(main)
    assert process.returncode == 0, shown
    return shown
