"""What harnesses tell a hook, and what they read of its answer. It imports nothing that takes long: a hook runs at every step.

Sources: the hooks reference of Claude Code (code.claude.com/docs/en/hooks), of Codex (developers.openai.com/codex/hooks, and the
schemas in its repository) and of Gemini CLI (geminicli.com/docs/hooks/reference). opencode has plugins in place of hooks; ours
sends what agentfsd/cli/agents/opencode_plugin.js says.
"""

import os
import zlib

from agentfsd.cli import quick_json

TYPE_CHECKING = False  # typing takes as long to load as an answer does; checkers know the name
if TYPE_CHECKING:
    from typing import Any

HARNESSES = ("claude-code", "codex", "gemini", "opencode")
EVENTS = ("session-start", "prompt", "before-tool", "after-tool", "session-end")

_TITLE_CHARACTERS = 100
_NAME_BYTES = 1000  # that a daemon takes for the name of a session or a call
_PATH_FIELDS = ("file_path", "notebook_path", "absolute_path", "filePath", "path")  # of the input of tools that change one file
_PATCH_MARKS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_EDITING = ("edit", "write", "replace", "patch", "notebook")  # in the names of tools that change the files that they name


class HookInput:
    """What a harness says, in one form for all of them.

    Args:
        harness: One of HARNESSES.
        event_name: The harness's name for the event, which the answer repeats.
        session: The harness's name for the session; "" if it gives none.
        key: A name for the call of a tool, the same before and after it; or for the prompt.
        title: What is asked, in a few words.
        paths: The files that a tool was asked to change; empty if that is not known.
    """

    def __init__(
        self, harness: str, event_name: str = "", session: str = "", key: str = "", title: str = "", paths: tuple[str, ...] = ()
    ) -> None:
        self.harness, self.event_name, self.session = harness, event_name, session
        self.key, self.title, self.paths = key, title, paths


def read(body: bytes, harness: str) -> HookInput:
    """Read the JSON that a harness sends to a hook.

    Args:
        body: The JSON.
        harness: One of HARNESSES; "" finds it by what the JSON has.

    Raises:
        ValueError: It is no JSON object.
    """
    said = quick_json.loads(body) if body.strip() else {}
    if not isinstance(said, dict):
        raise ValueError("the input is no JSON object")
    tool, asked = _text(said.get("tool_name")), said.get("tool_input")
    key = _name(said.get("tool_use_id") or said.get("call_id"))
    if tool and not key:  # Gemini CLI has no name for a call
        key = f"{tool[:_TITLE_CHARACTERS]}-{zlib.crc32(quick_json.dumps(asked, sort_keys=True).encode()):08x}"
    prompt = _text(said.get("prompt")) if "prompt" in said else None
    if prompt is not None:
        key = f"{_name(said.get('turn_id'))[:_TITLE_CHARACTERS]}-{zlib.crc32(prompt.encode()):08x}"
    title = _first_words(prompt) if prompt is not None else _tool_title(tool, asked)
    event = _text(said.get("hook_event_name"))
    session = _name(said.get("session_id"))
    return HookInput(harness or _guessed(said, event), event, session, key, title, _named_paths(tool, asked))


def answer(said: HookInput, context: str, message: str) -> bytes:
    """Return the JSON with which a hook answers.

    Args:
        said: What the hook was told.
        context: What the model is to read; "" for nothing.
        message: What the person is to read; "" for nothing.
    """
    reply: dict[str, object] = {}
    if said.harness == "opencode":
        reply = {"context": context, "message": message}
    else:
        if context:
            reply["hookSpecificOutput"] = {"hookEventName": said.event_name, "additionalContext": context}
        if message:
            reply["systemMessage"] = message
    return quick_json.dumps(reply).encode() + b"\n"


def _guessed(said: "dict[str, Any]", event: str) -> str:
    if event.startswith(("Before", "After")) or "timestamp" in said:
        return "gemini"
    return "codex" if "turn_id" in said or ("model" in said and "permission_mode" in said) else "claude-code"


def _text(value: object) -> str:
    """Return a text with a question mark for each lone surrogate, which is no character."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _name(value: object) -> str:
    text = _text(value)
    if len(text.encode()) <= _NAME_BYTES:
        return text
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def _path(value: object) -> str:
    """Return a path as os.fsencode() takes it, also one that is not UTF-8; "" for what cannot be one."""
    if not isinstance(value, str) or "\0" in value:
        return ""
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return _text(value)
    return value


def _first_words(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _TITLE_CHARACTERS else words[: _TITLE_CHARACTERS - 1].rstrip() + "…"


def _tool_title(tool: str, asked: object) -> str:
    if not isinstance(asked, dict):
        return _first_words(tool)
    command = asked.get("command")
    if isinstance(command, list):
        command = " ".join(map(str, command))
    what = _text(command) or next((_text(asked.get(field)) for field in _PATH_FIELDS if asked.get(field)), "")
    return _first_words(f"{tool}: {what}" if what else tool)


def _named_paths(tool: str, asked: object) -> tuple[str, ...]:
    if not isinstance(asked, dict) or not any(word in tool.lower() for word in _EDITING):
        return ()
    patch = asked.get("command") or asked.get("input") or asked.get("patchText") or asked.get("patch")
    lines = patch.splitlines() if isinstance(patch, str) else []
    marked = [line[len(mark) :].strip() for line in lines for mark in _PATCH_MARKS if line.startswith(mark)]
    return tuple(path for value in (*map(asked.get, _PATH_FIELDS), *marked) if (path := _path(value)))
