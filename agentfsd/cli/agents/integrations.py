"""What each harness needs to call agentfsd: which files, which hooks, which MCP entry.

Sources: the settings and hooks references of Claude Code, Codex, Gemini CLI and opencode. tests/agents tries them with the real
clients; of Claude Code, whose licence does not let a test install it, it replays what the reference documents.
"""

import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfsd import __version__
from agentfsd.cli.agents import toml_blocks
from agentfsd.cli.agents.replaced_files import text_of
from agentfsd.cli.agents.settings_changes import JsonAdditions, JsonEntry, SettingsChange, TomlTables, WholeFile
from agentfsd.cli.command_base import Failure

_SECONDS = 15  # that a hook may take: then the harness goes on without it
_LAST_SECONDS = 3  # at the end of a session, where Codex permits no more
_NAME = "agentfsd"
_GUARD = (f"command -v {_NAME} >/dev/null 2>&1 && exec ", " || true")  # around a call in a project's settings
_WORD = re.compile("[a-z-]+")
_PLUGIN_HEADER = "// The opencode integration of agentfsd"

# The harness's name for each of our events, and the tools for which it is called ("": all).
_CLAUDE_TOOLS = "Bash|Edit|MultiEdit|Write|NotebookEdit|mcp__.*"
_GEMINI_TOOLS = "run_shell_command|write_file|replace|save_memory|mcp_.*"
_HOOKS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "claude-code": (
        ("SessionStart", "session-start", ""), ("UserPromptSubmit", "prompt", ""), ("PreToolUse", "before-tool", _CLAUDE_TOOLS),
        ("PostToolUse", "after-tool", _CLAUDE_TOOLS), ("PostToolUseFailure", "after-tool", _CLAUDE_TOOLS),
        ("SessionEnd", "session-end", ""),
    ),
    "codex": (
        ("SessionStart", "session-start", ""), ("UserPromptSubmit", "prompt", ""), ("PreToolUse", "before-tool", ""),
        ("PostToolUse", "after-tool", ""), ("SessionEnd", "session-end", ""),
    ),
    "gemini": (
        ("SessionStart", "session-start", ""), ("BeforeAgent", "prompt", ""), ("BeforeTool", "before-tool", _GEMINI_TOOLS),
        ("AfterTool", "after-tool", _GEMINI_TOOLS), ("SessionEnd", "session-end", ""),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class InstallPlace:
    """Where an integration is installed. ``project`` is the project's directory; None: for the user, everywhere."""

    project: str | None

    def file(self, user: str, project: str) -> str:
        """Return a path: in the home directory, or in the project."""
        return os.path.join(self.project, project) if self.project is not None else user

    @property
    def command(self) -> list[str]:
        """How agentfsd is called: for the user by its whole path, as a harness may have another PATH."""
        return [_NAME] if self.project is not None else [_own_path()]

    def hook(self, event: str, harness: str) -> str:
        """Return the command line of a hook. Others who work on the project may not have agentfsd."""
        call = f"{shlex.join(self.command)} hook {event} --for {harness}"
        return call.join(_GUARD) if self.project is not None else call


@dataclass(frozen=True, slots=True)
class Integration:
    """An integration for one harness.

    Attributes:
        harness: Its name.
        program: The harness's program.
        files: Makes the changes to its files for a place, with or without the MCP entry.
        remark: What the person has to do or know afterwards.
    """

    harness: str
    program: str
    files: Callable[[InstallPlace, bool], list[SettingsChange]]
    remark: str


def _own_path() -> str:
    beside = os.path.join(os.path.dirname(sys.executable), _NAME)
    called = os.path.abspath(sys.argv[0])
    return called if os.path.basename(called) == _NAME and os.access(called, os.X_OK) else beside


def _is_our_group(value: Any) -> bool:
    """Tell whether a matcher's group has our hook alone. A person may have added others to it."""
    hooks = value.get("hooks") if isinstance(value, dict) else None
    return isinstance(hooks, list) and bool(hooks) and all(map(_is_our_hook, hooks))


def _is_our_hook(value: Any) -> bool:
    return isinstance(value, dict) and _calls_us(value.get("command"))


def _calls_us(command: Any) -> bool:
    """Tell whether a command is one that we wrote, of any version. What a person wrote around a call of ours is the person's."""
    if not isinstance(command, str):
        return False
    before, after = _GUARD
    is_guarded = command.startswith(before) and command.endswith(after)
    try:
        words = shlex.split(command.removeprefix(before).removesuffix(after) if is_guarded else command)
    except ValueError:
        return False
    if len(words) != 5 or words[1] != "hook" or words[3] != "--for" or not all(map(_WORD.fullmatch, (words[2], words[4]))):
        return False
    return words[0] == _NAME if is_guarded else os.path.isabs(words[0]) and os.path.basename(words[0]) == _NAME


def _is_our_server(value: Any) -> bool:
    command = value.get("command") if isinstance(value, dict) else None
    words = (
        [*command, *value.get("args", [])] if isinstance(command, list) else [command, *value.get("args", [])] if command else []
    )
    return len(words) > 1 and os.path.basename(str(words[0])) == _NAME and words[1] == "mcp"


def hook_groups(harness: str, place: InstallPlace) -> list[tuple[str, dict[str, Any]]]:
    """Return (event, matcher group) of each hook, as the harness's settings have them."""
    groups = []
    for name, event, tools in _HOOKS[harness]:
        seconds = _LAST_SECONDS if event == "session-end" else _SECONDS
        call: dict[str, Any] = {"type": "command", "command": place.hook(event, harness)}
        call["timeout"] = seconds * 1000 if harness == "gemini" else seconds
        if harness == "gemini":
            call = {"name": f"{_NAME}-{event}", **call}
        groups.append((name, {**({"matcher": tools} if tools else {}), "hooks": [call]}))
    return groups


def _hooks(harness: str, place: InstallPlace) -> tuple[JsonEntry, ...]:
    return tuple(
        JsonEntry(("hooks", name), group, True, _is_our_group, ("hooks", _is_our_hook))
        for name, group in hook_groups(harness, place)
    )


def _server(place: InstallPlace) -> dict[str, Any]:
    return {"command": place.command[0], "args": ["mcp"]}


def _mcp(place: InstallPlace, above: str = "mcpServers") -> tuple[JsonEntry, ...]:
    return (JsonEntry((above, _NAME), _server(place), False, _is_our_server, by_record=True),)


def _home(*parts: str) -> str:
    return os.path.join(os.path.expanduser("~"), *parts)


def _claude(place: InstallPlace, mcp: bool) -> list[SettingsChange]:
    own = os.environ.get("CLAUDE_CONFIG_DIR")
    settings = place.file(os.path.join(own or _home(".claude"), "settings.json"), ".claude/settings.json")
    hooks = JsonAdditions(settings, _hooks("claude-code", place))
    state = place.file(os.path.join(own, ".claude.json") if own else _home(".claude.json"), ".mcp.json")
    return [hooks, *([JsonAdditions(state, _mcp(place))] if mcp else [])]


def _codex(place: InstallPlace, mcp: bool) -> list[SettingsChange]:
    home = os.environ.get("CODEX_HOME") or _home(".codex")
    hooks_file, config = (place.file(os.path.join(home, name), f".codex/{name}") for name in ("hooks.json", "config.toml"))
    servers = _mcp(place, "mcp_servers") if mcp else ()
    hooks = _hooks("codex", place)
    there = _hooks_in(config)
    has_ours = any(entry.is_ours(each) for entry in hooks for each in there.get(entry.keys[-1], ()))
    if has_ours or (there and not os.path.exists(hooks_file)):  # Codex wants all hooks of a directory in one form
        return [TomlTables(config, (*servers, *hooks))]
    return [JsonAdditions(hooks_file, hooks), *([TomlTables(config, servers)] if mcp else [])]


def _hooks_in(config: str) -> dict[str, list[Any]]:
    """Return the groups of hooks in Codex's config.toml, by event."""
    try:
        hooks = toml_blocks.parse(text_of(config) or "").get("hooks", {})
    except (OSError, ValueError, Failure):
        return {}
    return {name: groups for name, groups in hooks.items() if isinstance(groups, list)} if isinstance(hooks, dict) else {}


def _gemini(place: InstallPlace, mcp: bool) -> list[SettingsChange]:
    path = place.file(_home(".gemini", "settings.json"), ".gemini/settings.json")
    return [JsonAdditions(path, (*_hooks("gemini", place), *(_mcp(place) if mcp else ())))]


def _opencode(place: InstallPlace, mcp: bool) -> list[SettingsChange]:
    config = os.path.join(os.environ.get("XDG_CONFIG_HOME") or _home(".config"), "opencode")
    template = (Path(__file__).parent / "opencode_plugin.js").read_text()
    plugin = template.replace('"@COMMAND@"', ", ".join(f'"{word}"' for word in place.command))
    changes: list[SettingsChange] = [
        WholeFile(
            place.file(os.path.join(config, "plugins", "agentfsd.js"), ".opencode/plugins/agentfsd.js"), plugin, _PLUGIN_HEADER
        )
    ]
    if mcp:
        server = {"type": "local", "command": [*place.command, "mcp"], "enabled": True}
        path = place.file(_existing(config, "opencode.json", "opencode.jsonc"), "opencode.json")
        changes.append(JsonAdditions(path, (JsonEntry(("mcp", _NAME), server, False, _is_our_server, by_record=True),)))
    return changes


def _existing(directory: str, *names: str) -> str:
    paths = [os.path.join(directory, name) for name in names]
    return next((path for path in paths if os.path.exists(path)), paths[0])


INTEGRATIONS = {
    each.harness: each
    for each in (
        Integration("claude-code", "claude", _claude, "Claude Code reads it at its next start; /hooks shows it"),
        Integration("codex", "codex", _codex, "Codex asks you at its next start to trust these hooks; /hooks shows them"),
        Integration("gemini", "gemini", _gemini, "Gemini CLI reads it at its next start; /hooks panel shows it"),
        Integration("opencode", "opencode", _opencode, "opencode loads it at its next start"),
    )
}


# -- Claude Code's plugin

_COMMANDS = {
    "changes": (
        "What this session has changed",
        "Tell me what this session has changed in the workspace:\n\n!`agentfsd diff --stat`\n",
    ),
    "turns": ("The turns to which the files can go back", "Show me this list as it is:\n\n!`agentfsd rewind --list`\n"),
    "rewind": (
        "Put the files back to before a turn",
        "The files of this session's branch were put back to before a turn. Say so, and read again what you need.\n\n"
        "!`agentfsd rewind --to $ARGUMENTS`\n",
    ),
}


def claude_plugin(directory: str, mcp: bool) -> list[SettingsChange]:
    """Return the files of a plugin directory for Claude Code: hooks, commands, and the MCP entry if *mcp*."""
    place = InstallPlace(None)
    about = {
        "name": _NAME,
        "version": __version__,
        "description": "A branch for each session, a snapshot for each step, and a way back",
    }
    hooks: dict[str, list[Any]] = {}
    for name, group in hook_groups("claude-code", place):
        hooks.setdefault(name, []).append(group)
    contents: dict[str, Any] = {".claude-plugin/plugin.json": about, "hooks/hooks.json": {"hooks": hooks}}
    if mcp:
        contents[".mcp.json"] = {"mcpServers": {_NAME: _server(place)}}
    files = {path: _json(content) for path, content in contents.items()}
    for name, (description, text) in _COMMANDS.items():
        files[f"commands/{name}.md"] = f"---\ndescription: {description}\nallowed-tools: Bash(agentfsd:*)\n---\n\n{text}"
    return [WholeFile(os.path.join(directory, path), text) for path, text in files.items()]


def _json(content: Any) -> str:
    import json

    return json.dumps(content, indent=2) + "\n"
