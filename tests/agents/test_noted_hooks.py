"""Hooks tell an agent of notes about its branch: each once, in a few lines, and without a request more while there are none."""

from typing import Any

import pytest

from agentfs_client import ControlClient
from agentfsd.cli import quick_daemon
from agentfsd.cli.agents import quick_hook
from tests.agents.harness import AGENTFSD, Harness
from tests.mounted import Mounted

_SESSION = "8c35adc1-77aa-4c1e-9d2b-0123456789ab"
_BRANCH = "claude-456789ab"
_CALL = {"tool_name": "Bash", "tool_input": {"command": "true"}, "tool_use_id": "toolu_01"}


def told(answer: dict[str, Any]) -> str:
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


def prompt(harness: Harness, text: str) -> str:
    return told(harness.hook("prompt", hook_event_name="UserPromptSubmit", prompt=text))


def call(harness: Harness, key: str) -> str:
    said = _CALL | {"tool_use_id": key}
    harness.hook("before-tool", hook_event_name="PreToolUse", **said)
    return told(harness.hook("after-tool", hook_event_name="PostToolUse", tool_response={}, **said))


def added(mounted: Mounted, *arguments: str) -> int:
    return int(mounted.json("notes add", *arguments)["id"])


def test_each_note_is_told_once_and_again_when_a_person_says_more(mounted: Mounted) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        prompt(harness, "begin")
        assert call(harness, "1") == ""
        first = added(mounted, _BRANCH, "--path", "file", "--line", "1", "why  this\nword?")
        said = call(harness, "2")
        assert f"#{first} file:1: why this word?" in said and "agentfsd: 1 note about this branch" in said
        assert call(harness, "3") == prompt(harness, "go on") == ""
        added(mounted, "main", "not for you")
        assert call(harness, "4") == ""
        second = added(mounted, _BRANCH, "about all of it")
        assert f"#{second} the branch: about all of it" in prompt(harness, "again")
        harness.sh(f"{AGENTFSD} notes reply {first} 'because'; {AGENTFSD} notes add 'my own note'")
        assert call(harness, "5") == ""
        mounted.cli("notes reply", str(first), "no, why?")
        assert f"#{first} file:1: no, why?" in call(harness, "6")
        mounted.cli("notes resolve", str(first))
        assert call(harness, "7") == ""
        mounted.cli("notes reopen", str(first))
        assert f"#{first} file:1: no, why?" in call(harness, "8")
        mounted.kill()
        mounted.mount()
    with Harness(mounted.path, _SESSION) as harness:
        assert "agentfsd: " not in prompt(harness, "after a restart").partition("told what it changed.")[2]


def test_another_session_in_the_branch_is_told_too(mounted: Mounted) -> None:
    mounted.cli("branch create", "shared")
    added(mounted, "shared", "read me")
    for name in ("one", "two"):
        with Harness(mounted.path, name, prefix=(AGENTFSD, "run", "-b", "shared", "--no-namespace", "--")) as harness:
            assert "read me" in prompt(harness, "begin")
            assert prompt(harness, "go on") == ""


def test_many_long_and_hostile_notes_take_few_lines(mounted: Mounted) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        prompt(harness, "begin")
        with ControlClient.connect(mounted.record().socket) as client:
            for number in range(1000):
                client.add_note(f"{number} \x1b[2J\u202e " + "x" * 5_000, _BRANCH, path="file")
        said = call(harness, "1")
        assert "agentfsd: 1000 notes about this branch" in said and "and 995 more: `agentfsd notes`" in said
        assert len(said) < 3000 and len(said.splitlines()) == 7
        assert all(line.isprintable() for line in said.splitlines()) and "\\x1b[2J" in said
        assert call(harness, "2") == ""


def test_a_hook_tells_what_changed_also_when_notes_cannot_be_had(mounted: Mounted) -> None:
    with Harness(mounted.path, _SESSION) as harness:
        prompt(harness, "begin")
        added(mounted, _BRANCH, "--path", "file", "--line", "1", "about a line")
        harness.hook("before-tool", hook_event_name="PreToolUse", **_CALL)
        harness.sh("rm file; echo x > new")
        said = told(harness.hook("after-tool", hook_event_name="PostToolUse", tool_response={}, **_CALL))
        assert "DELETED: file" in said and "file:1 (gone): about a line" in said


def test_without_notes_a_hook_asks_nothing_more(mounted: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    ask = quick_daemon.ask

    def counting(place: str, request: dict[str, object], *rest: Any) -> Any:
        asked.append(request["op"])
        return ask(place, request, *rest)

    monkeypatch.setattr(quick_daemon, "ask", counting)
    with ControlClient.connect(mounted.record().socket) as client:
        client.create_branch("fix")
        client.take_step(_SESSION, "fix", prompt=True, key="k")
        reply = quick_daemon.ask(
            mounted.record().socket, {"op": "step.changes", "session": _SESSION, "branch": "fix", "key": "k"}, 5.0
        )
        assert reply is not None and reply.notes == 0
        said = quick_hook.HookInput("claude-code", session=_SESSION)
        assert quick_hook._notes(mounted.record().socket, said, reply, "fix") == ""
        assert asked == ["step.changes"]
        client.add_note("news", "fix")
        reply = quick_daemon.ask(
            mounted.record().socket, {"op": "step.changes", "session": _SESSION, "branch": "fix", "key": "k"}, 5.0
        )
        assert reply is not None and "news" in quick_hook._notes(mounted.record().socket, said, reply, "fix")
        assert asked == ["step.changes", "step.changes", "note.tell"]
