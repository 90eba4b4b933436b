"""Hooks, called as each harness documents it, on a real mount. Real clients are in test_real_clients.py.

Claude Code's input and output are replayed from its reference: its licence does not let a test install it.
"""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentfs_client import registry
from tests.agents.harness import AGENTFSD, Harness
from tests.mounted import Mounted, agentfsd, needs_namespaces

_SESSION = "8c35adc1-77aa-4c1e-9d2b-0123456789ab"
_BRANCH = "claude-456789ab"
_CALL = {"tool_name": "Bash", "tool_input": {"command": "rm -r sub"}, "tool_use_id": "toolu_01"}

# The events of each harness in the form that it documents: a name, the fields of a call, and where the answer has the context.
_DIALECTS: dict[str, tuple[dict[str, str], dict[str, Any], Callable[[dict[str, Any]], str]]] = {
    "claude-code": (
        {"session-start": "SessionStart", "prompt": "UserPromptSubmit", "before-tool": "PreToolUse", "after-tool": "PostToolUse"},
        {**_CALL, "permission_mode": "default"}, lambda answer: str(answer["hookSpecificOutput"]["additionalContext"]),
    ),
    "codex": (
        {"session-start": "SessionStart", "prompt": "UserPromptSubmit", "before-tool": "PreToolUse", "after-tool": "PostToolUse"},
        {**_CALL, "turn_id": "t1", "model": "m", "permission_mode": "default"},
        lambda answer: str(answer["hookSpecificOutput"]["additionalContext"]),
    ),
    "gemini": (
        {"session-start": "SessionStart", "prompt": "BeforeAgent", "before-tool": "BeforeTool", "after-tool": "AfterTool"},
        {"tool_name": "run_shell_command", "tool_input": {"command": "rm -r sub"}, "timestamp": "2026-11-27T00:00:00Z"},
        lambda answer: str(answer["hookSpecificOutput"]["additionalContext"]),
    ),
    "opencode": (
        {"session-start": "session-start", "prompt": "prompt", "before-tool": "before-tool", "after-tool": "after-tool"},
        {**_CALL, "tool_name": "bash"}, lambda answer: str(answer["context"]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dialect", _DIALECTS)
@pytest.mark.parametrize("named", [True, False])
def test_a_session_in_each_harness_format(mounted: Mounted, dialect: str, named: bool) -> None:
    if dialect == "opencode" and not named:
        return  # the plugin is ours, and names itself
    names, call, context_of = _DIALECTS[dialect]
    with Harness(mounted.path, _SESSION, dialect if named else "") as harness:
        extra = {key: value for key, value in call.items() if key in ("turn_id", "model", "permission_mode", "timestamp")}

        def hook(event: str, **fields: Any) -> dict[str, Any]:
            answer = harness.hook(event, hook_event_name=names[event], **extra, **fields)
            if "hookSpecificOutput" in answer:
                assert answer["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}
                assert answer["hookSpecificOutput"]["hookEventName"] == names[event]
            return answer

        assert "overlay" in context_of(hook("session-start", source="startup"))
        assert hook("prompt", prompt="remove  the\ndirectory") in ({}, {"context": "", "message": ""})
        hook("before-tool", **{key: value for key, value in call.items() if key not in extra})
        harness.sh("rm -r sub; echo x >new")
        told = context_of(hook("after-tool", tool_response={}, **{k: v for k, v in call.items() if k not in extra}))
    assert "DELETED: sub, sub/deep, sub/deep/leaf, sub/inner" in told
    assert "added: new" in told
    assert not (mounted.path / "new").exists() and (mounted.path / "sub").exists(), "main was changed"
    (turn,) = mounted.json("rewind", "--list")
    assert (turn["title"], turn["turn"], turn["agent"]) == ("remove the directory", 1, dialect)


def test_a_harness_that_runs_gets_a_branch_with_its_children(mounted: Mounted) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        harness.begin("sleep", "60")  # such as a server that the harness has started before
        harness.hook("session-start", hook_event_name="SessionStart")
        bound = {each["command"]: each["branch"] for each in mounted.json("bindings")}
        assert bound.keys() >= {"sleep"} and set(bound.values()) == {_BRANCH}
        harness.sh("echo in the branch >file")
        assert (mounted.path / "file").read_text() == "lower\n"
        assert (mounted.subtree(_BRANCH) / "file").read_text() == "in the branch\n"
        assert harness.hook("session-start", hook_event_name="SessionStart", source="clear")["systemMessage"].endswith(
            f"{_BRANCH} of {mounted.path}"
        )
        end = harness.hook("session-end", hook_event_name="SessionEnd", reason="exit")["systemMessage"]
    assert "1 path changed" in end and f"agentfsd commit {_BRANCH}" in end
    assert [each["name"] for each in mounted.json("branch list")] == ["main", _BRANCH]


def test_a_session_that_is_resumed_goes_on_in_its_branch_and_no_other_gets_it(mounted: Mounted) -> None:
    for name, expected in [(_SESSION, _BRANCH), (_SESSION, _BRANCH), ("other-" + _SESSION[-8:], "claude-other456789ab")]:
        with Harness(mounted.path, name) as harness:
            harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="go on")
            harness.sh("echo >>file")
        assert expected in {each["name"] for each in mounted.json("branch list")}
    assert (mounted.subtree(_BRANCH) / "file").read_text() == "lower\n\n\n"
    assert (mounted.subtree("claude-other456789ab") / "file").read_text() == "lower\n\n"


def test_an_agent_that_knows_the_name_of_another_session_does_not_get_it_into_its_branch(mounted: Mounted) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="mine")
    with Harness(mounted.path, "intruder") as intruder:
        intruder.hook("prompt", hook_event_name="UserPromptSubmit", prompt="begin")
        forged = json.dumps({"session_id": _SESSION, "prompt": "forged"})
        intruder.sh(f"echo '{forged}' | {AGENTFSD} hook prompt --for claude-code")
        turns = mounted.json("rewind", "--list", "--session", _SESSION)
        assert [turn["branch"] for turn in turns] == [_BRANCH, "claude-intruder"]
    with Harness(mounted.path, _SESSION) as harness:
        assert f"in branch {_BRANCH} of" in harness.hook("session-start", hook_event_name="SessionStart")["systemMessage"]
        harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="again mine")
        assert mounted.json("rewind", "--list", "--session", _SESSION)[-1]["branch"] == _BRANCH


def test_a_session_whose_branch_is_gone_goes_on_in_its_new_one(mounted: Mounted) -> None:
    for text in ("first", "second", "third"):
        with Harness(mounted.path, _SESSION) as harness:
            said = harness.hook("session-start", hook_event_name="SessionStart")["systemMessage"]
            harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt=text)
            harness.sh(f"echo {text} >>file")
        if text == "first":
            mounted.cli("discard", _BRANCH)
    assert f"in branch {_BRANCH} of" in said
    assert (mounted.subtree(_BRANCH) / "file").read_text() == "lower\nsecond\nthird\n"


def test_hooks_that_are_installed_twice_make_one_step_of_an_event(mounted: Mounted) -> None:
    twice = f"{AGENTFSD} hook %s --for claude-code <&3 & {AGENTFSD} hook %s --for claude-code <&4; wait"
    with Harness(mounted.path, _SESSION) as harness:

        def both(event: str, **fields: Any) -> None:
            said = json.dumps({"session_id": _SESSION, **fields})
            harness.sh(f"exec 3<<'A' 4<<'B'\n{said}\nA\n{said}\nB\n{twice % (event, event)}")

        both("session-start")
        for _ in range(2):
            both("prompt", prompt="go on")
            both("before-tool", **_CALL)
            harness.sh("echo >>file")
            harness.hook("after-tool", **_CALL)
    assert [branch["name"] for branch in mounted.json("branch list")] == ["main", _BRANCH]
    assert [(step["turn"], step["title"]) for step in mounted.json("rewind", "--list")] == [(1, "go on"), (2, "go on")]
    assert [step["tag"] for step in mounted.json("snapshot list")] == ["turn 1", "turn 2"]


def test_a_session_goes_on_in_its_branch_after_a_rename(mounted: Mounted) -> None:
    for text in ("first", "second"):
        with Harness(mounted.path, _SESSION) as harness:
            said = harness.hook("session-start", hook_event_name="SessionStart")["systemMessage"]
            harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt=text)
            harness.sh(f"echo {text} >>file")
        if text == "first":
            mounted.cli("branch rename", _BRANCH, "renamed")
            mounted.cli("branch create", _BRANCH)  # somebody else's, of the same name
    assert "in branch renamed of" in said
    assert (mounted.subtree("renamed") / "file").read_text() == "lower\nfirst\nsecond\n"


@pytest.mark.parametrize("names", [("aaaa-12345678", "bbbb-12345678"), ("жжж", "ééé")])
def test_two_sessions_with_one_ending_get_two_branches(mounted: Mounted, names: tuple[str, str]) -> None:
    with Harness(mounted.path, names[0]) as first, Harness(mounted.path, names[1]) as second:
        for harness in (first, second):
            harness.hook("session-start", hook_event_name="SessionStart")
            harness.sh("echo >>file")
        assert second.sh("wc -l <file").strip() == "2"
    assert len(mounted.json("branch list")) == 3


def test_many_sessions_without_a_letter(mounted: Mounted) -> None:
    for session in ("ж", "é", "…"):
        with Harness(mounted.path, session) as harness:
            harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="p")
    assert len(mounted.json("branch list")) == 4


@pytest.mark.parametrize("odd", ["\ud800", "x" * 2000, "ж" * 600, "\0"])
def test_odd_names_cost_no_snapshot(mounted: Mounted, odd: str) -> None:
    call = {"tool_name": "Edit", "tool_input": {"file_path": odd}, "tool_use_id": f"toolu_{odd}"}
    with Harness(mounted.path, f"{_SESSION}{odd}") as harness:
        harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt=odd)
        harness.hook("before-tool", hook_event_name="PreToolUse", **call)
        harness.sh("rm file")
        told = harness.hook("after-tool", hook_event_name="PostToolUse", **call)
    assert "DELETED: file" in told["hookSpecificOutput"]["additionalContext"]
    assert [turn["turn"] for turn in mounted.json("rewind", "--list")] == [1]


@pytest.mark.parametrize("record", ["{", "[]", "3", "{}", '{"mountpoint": 3}'])
def test_an_unreadable_record_of_another_mount_changes_nothing(mounted: Mounted, record: str) -> None:
    directory = Path(registry.runtime_dir())
    broken, vanished = directory / "unreadable.json", directory / "vanished.json"
    broken.write_text(record)
    vanished.symlink_to("nothing")
    try:
        with Harness(mounted.path, _SESSION) as harness:
            harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="p")
    finally:
        broken.unlink()
        vanished.unlink()
    assert len(mounted.json("rewind", "--list")) == 1


def test_a_run_uses_its_own_branch(mounted: Mounted) -> None:
    needs_namespaces()
    prefix = (AGENTFSD, "run", "-m", str(mounted.path), "-b", "mine", "--new", "--")
    with Harness(mounted.path, _SESSION, prefix=prefix) as harness:
        assert "branch mine" in harness.hook("session-start", hook_event_name="SessionStart")["systemMessage"]
        harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="p")
        harness.hook("before-tool", hook_event_name="PreToolUse", **_CALL)
        harness.sh("rm file")
        told = harness.hook("after-tool", hook_event_name="PostToolUse", **_CALL)
        assert "DELETED: file" in told["hookSpecificOutput"]["additionalContext"]
        assert harness.sh(f"{AGENTFSD} rewind --to 1; cat file").endswith("lower\n")
    assert [each["name"] for each in mounted.json("branch list")] == ["main", "mine"]


def test_nothing_new_no_snapshot(mounted: Mounted) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        for turn in range(3):
            harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt=f"turn {turn}")
            harness.hook("before-tool", hook_event_name="PreToolUse", **_CALL)
            assert harness.hook("after-tool", hook_event_name="PostToolUse", **_CALL) == {}
        assert len(mounted.json("snapshot list")) == 1
        harness.sh("echo >>file")
        harness.hook("before-tool", hook_event_name="PreToolUse", **{**_CALL, "tool_use_id": "toolu_02"})
        harness.sh("echo >>file")
    shown = [(each["tag"], each["kind"]) for each in mounted.json("snapshot list")]
    assert shown == [("turn 1", "step"), ("turn 3, call 2", "step")]
    assert [turn["turn"] for turn in mounted.json("rewind", "--list")] == [1, 2, 3]
    assert mounted.fsck() == []


def test_what_was_not_asked_for_is_told_loudly(mounted: Mounted) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        harness.hook("session-start", hook_event_name="SessionStart")
        harness.sh("git init -q; printf '.env\\nbuild/\\n' >.gitignore; echo secret >.env; mkdir build")
        edit = {"tool_name": "Edit", "tool_input": {"file_path": str(mounted.path / "file")}, "tool_use_id": "toolu_03"}
        harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="p")
        harness.hook("before-tool", hook_event_name="PreToolUse", **edit)
        harness.sh("rm .env; echo >>file; echo >>sub/inner; for n in 1 2 3 4 5 6 7 8 9; do echo >build/$n; done")
        lines = harness.hook("after-tool", hook_event_name="PostToolUse", **edit)["hookSpecificOutput"]["additionalContext"]
        outside = {**edit, "tool_input": {"file_path": "/etc/motd"}, "tool_use_id": "toolu_04"}
        harness.hook("before-tool", hook_event_name="PreToolUse", **outside)
        beyond = harness.hook("after-tool", hook_event_name="PostToolUse", **outside)
    told = lines.splitlines()
    assert told[0] == "agentfsd: 12 paths changed while this ran: 9 added, 1 deleted, 2 modified."
    assert told[1] == "DELETED, and git has no copy (it ignores them): .env"
    assert told[2].startswith("NOT NAMED in this call, but changed: ") and "sub/inner" in told[2] and " file" not in told[2]
    assert "modified: file" in told
    (name,) = re.findall(r"`agentfsd restore (\S+) PATH`", told[-1])
    assert name in {each["name"] for each in mounted.json("snapshot list")}
    assert beyond["hookSpecificOutput"]["additionalContext"].startswith("OUTSIDE the workspace")


def test_git_is_asked_about_paths_of_every_kind(mounted: Mounted) -> None:
    odd = [":(x)y.o", ":!z.o", "-n.o", "a b.o", "new\nline.o", os.fsdecode(b"\xff.o")]
    with Harness(mounted.path, _SESSION) as harness:
        harness.hook("session-start", hook_event_name="SessionStart")
        harness.sh("git init -q; echo '*.o' >.gitignore; mkdir dir; touch dir/a dir/b.o")
        harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="p")
        harness.hook("before-tool", hook_event_name="PreToolUse", **_CALL)
        for name in odd:
            (mounted.subtree(_BRANCH) / name).touch()
        harness.sh("rm -r dir; ln -s sub dir; touch ':(x)plain'")  # git takes what was in dir to be behind a symlink
        told = harness.hook("after-tool", hook_event_name="PostToolUse", **_CALL)["hookSpecificOutput"]["additionalContext"]
    ignored = next(line for line in told.splitlines() if line.startswith("Changed, and ignored by git: "))
    assert ignored.count(".o") == len(odd) and ":(x)y.o" in ignored
    assert "added: :(x)plain" in told


def test_a_model_is_told_both_names_of_what_was_renamed(mounted: Mounted) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        harness.hook("session-start", hook_event_name="SessionStart")
        harness.hook("before-tool", hook_event_name="PreToolUse", **_CALL)
        harness.sh("mv file 'a new name'; mv sub moved")
        told = harness.hook("after-tool", hook_event_name="PostToolUse", **_CALL)["hookSpecificOutput"]["additionalContext"]
    assert "renamed: file -> a new name, sub -> moved" in told


def test_many_changes_are_counted_truly(mounted: Mounted) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        harness.hook("session-start", hook_event_name="SessionStart")
        told = []
        for key, script in [
            ("1", "mkdir nm; cd nm; seq 600 | xargs touch"),
            ("2", "rm nm/[1-4]*; echo >>file"),
            ("3", "rm nm/5? nm/5??; echo >>file"),
        ]:
            call = {"tool_name": "Bash", "tool_input": {"command": script}, "tool_use_id": key}
            harness.hook("before-tool", hook_event_name="PreToolUse", **call)
            harness.sh(script)
            answer = harness.hook("after-tool", hook_event_name="PostToolUse", **call)
            told.append(answer["hookSpecificOutput"]["additionalContext"].splitlines())
    assert told[0] == [
        "agentfsd: 601 paths changed while this ran: 601 added.",
        "added: nm, nm/ (at least 399)",
        "201 of these paths are not described here: `agentfsd diff` shows all.",
    ]
    assert told[1][0] == "agentfsd: 445 paths changed while this ran: 444 deleted, 1 modified."
    assert told[1][1].startswith("DELETED: nm/1, nm/10, ") and told[1][1].endswith(" and at least 392 more")
    assert told[1][2].startswith("45 of these paths are not described here")
    assert told[2][1].endswith(" and 102 more") and told[2][2] == "modified: file"


def test_a_model_is_told_once_that_the_files_were_put_back(mounted: Mounted) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="first")
        harness.sh("rm file")
        harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="second")
        mounted.cli("rewind", "--to", "1")
        assert harness.sh("cat file") == "lower\n"
        told = harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="third")
        assert "put back" in told["hookSpecificOutput"]["additionalContext"]
        assert harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="fourth") == {}
        mounted.cli("undo")
        assert harness.sh("ls") == "link\nsub\n"
        told = harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="fifth")
        assert "put back" in told["hookSpecificOutput"]["additionalContext"]
        harness.hook("before-tool", hook_event_name="PreToolUse", **_CALL)
        mounted.cli("rewind", "--to", "1")
        told = harness.hook("after-tool", hook_event_name="PostToolUse", **_CALL)
        assert "put back" in told["hookSpecificOutput"]["additionalContext"]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "body", ["", "{", "[]", "null", '{"session_id": 7}', '{"prompt": {"a": 1}}', "\x00", '{"tool_input": 3}']
)
def test_a_hook_that_fails_never_blocks(mounted: Mounted, body: str) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        for event in ("session-start", "prompt", "before-tool", "after-tool", "session-end"):
            code, said, complaint = harness.raw(event, body)
            assert (code, json.loads(said)) == (0, {}), complaint
            assert complaint.count("\n") <= 1
    log = Path(os.environ["AGENTFS_STATE_HOME"], "hooks.log").read_text()
    assert "agentfsd hook before-tool: " in log
    assert [each["name"] for each in mounted.json("branch list")] == ["main"]


def test_a_silent_daemon_does_not_stop_the_agent(mounted: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted.kill()
    with Harness(Path("/"), _SESSION) as harness:  # nobody can work in a mount whose daemon is gone
        assert harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt="p") == {}


@pytest.mark.parametrize(("stopped_s", "turns", "said"), [(60, 0, b"the daemon does not answer"), (0.5, 1, b"")])
def test_a_stopped_daemon_costs_a_hook_two_seconds_at_most(mounted: Mounted, stopped_s: float, turns: int, said: bytes) -> None:
    (daemon,) = registry.live_daemons()
    process = subprocess.Popen([AGENTFSD, "hook", "prompt"], cwd=mounted.path, stdin=-1, stdout=-1, stderr=-1)
    time.sleep(1)  # it waits for its input
    os.kill(daemon.pid, signal.SIGSTOP)
    goes_on = threading.Timer(stopped_s, os.kill, (daemon.pid, signal.SIGCONT))
    goes_on.start()
    try:
        began = time.monotonic()
        answer, complaint = process.communicate(json.dumps({"session_id": _SESSION, "prompt": "p"}).encode(), timeout=30)
        took_s = time.monotonic() - began
    finally:
        goes_on.cancel()
        os.kill(daemon.pid, signal.SIGCONT)
    assert process.returncode == 0 and isinstance(json.loads(answer), dict)
    assert said in complaint and bool(said) == bool(complaint)
    assert took_s < 2
    assert len(mounted.json("rewind", "--list")) == turns


def test_outside_a_mount_hooks_do_nothing(mounted: Mounted, tmp_path: Path) -> None:
    with Harness(tmp_path, _SESSION) as harness:
        for event in ("session-start", "prompt", "before-tool", "after-tool", "session-end"):
            assert harness.hook(event, hook_event_name="SessionStart", prompt="p") == {}
    with Harness(mounted.lower / "sub", _SESSION) as harness:
        told = harness.hook("session-start", hook_event_name="SessionStart")["systemMessage"]
    assert "real files" in told and str(mounted.path) in told
    assert mounted.json("snapshot list") == []


def test_by_hand() -> None:
    main, side = pty.openpty()
    try:
        done = agentfsd("hook", "no-such-event", check=False, stdin=side)
    finally:
        os.close(main)
        os.close(side)
    assert done.returncode == 2 and "No such command" in done.stderr
    assert "before-tool" in agentfsd("hook", "--help").stdout
    assert subprocess.run([AGENTFSD, "hook", "before-tool"], input=b"{}", stdout=-1, check=True).stdout == b"{}\n"


@pytest.mark.parametrize("arguments", ["foo", "prompt --for cursor", "prompt --for codex --extra", "prompt --for", "prompt more"])
def test_an_event_of_another_version_does_not_block(arguments: str) -> None:
    done = subprocess.run([AGENTFSD, "hook", *arguments.split()], input=b"{}", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"{}\n")
    assert f"does not know {arguments}\n" in Path(os.environ["AGENTFS_STATE_HOME"], "hooks.log").read_text()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("body", ["{}", "[", "[" * 100_000])
def test_no_input_ends_a_hook_with_an_error(closed: str, body: str) -> None:
    command = f"exec {AGENTFSD} hook prompt {closed}"
    done = subprocess.run(["sh", "-c", command], input=body.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"" if closed.startswith(">") else b"{}\n")
    assert b"Traceback" not in done.stderr


def test_a_hook_loads_no_library(mounted: Mounted, tmp_path: Path) -> None:
    libraries = ("click", "msgspec", "rich", "trio", "subprocess", "typing", "selectors", "json", "re", "enum", "collections")
    program = tmp_path / "hook.py"
    program.write_text(f"""
import sys
from agentfsd.cli import entry
try:
    entry.main()
finally:
    print(*(name for name in {libraries} if name in sys.modules), file=sys.stderr)
""")
    root = Path(__file__).parents[2]
    said = json.dumps({"session_id": _SESSION, **_CALL})
    with Harness(mounted.path, _SESSION) as harness:
        harness.sh("git init -q")
        for event in ("session-start", "prompt", "before-tool", "after-tool", "session-end"):
            harness.sh("date >>file")
            command = f"PYTHONPATH={root}:{root / 'client'} {sys.executable} -S {program} hook {event} 2>&1"
            answer, loaded = harness.sh(f"echo '{said}' | {command}").splitlines()
            assert isinstance(json.loads(answer), dict) and loaded == ""
            assert event != "after-tool" or "modified: file" in answer


def test_the_installed_program_begins_without_re() -> None:
    command = [sys.executable, "-X", "importtime", AGENTFSD, "--version"]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "agentfsd.cli.entry" in imported
    assert not re.search(r"\| +(re|enum|typing)$", imported, re.MULTILINE)
