"""What `agentfsd agent doctor` looks at: programs, settings that switch hooks off, and a hook that is really called."""

import importlib.util
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from agentfsd.cli import quick_daemon
from agentfsd.cli.agents import quick_hook, settings_files, toml_blocks
from agentfsd.cli.agents.integrations import InstallPlace, Integration
from agentfsd.cli.agents.json_splicing import Document, NotJson
from agentfsd.cli.agents.replaced_files import text_of
from agentfsd.cli.agents.toml_blocks import NotToml
from agentfsd.cli.command_base import Failure

_PATIENCE_S = 20
_SLOW_MS = 500
_FRESH_S = 86400


@dataclass(frozen=True, slots=True)
class HarnessFinding:
    """Something that was looked at. ``hint``: what to do or know."""

    is_ok: bool
    what: str
    hint: str = ""


def has_mcp() -> bool:
    """Return whether `agentfsd mcp` can run."""
    return importlib.util.find_spec("mcp") is not None


def look(wanted: Iterable[Integration], directory: str) -> list[HarnessFinding]:
    """Check the integrations of these harnesses, for the user and for the project in *directory*."""
    found = [finding for each in wanted for finding in _of(each, directory)]
    return [*found, _called(), *_place(directory), *_failures()]


def has_hooks_twice(integration: Integration, directory: str) -> bool:
    """Return whether a harness in *directory* calls our hooks twice: those for the user, and those of the project."""
    places = [
        {
            os.path.realpath(change.path)
            for change in integration.files(place, False)
            if settings_files.state(change) in ("installed", "outdated")
        }
        for place in (InstallPlace(None), InstallPlace(directory))
    ]
    return all(places) and places[0] != places[1]  # in the home directory both are one file


def _of(integration: Integration, directory: str) -> Iterator[HarnessFinding]:
    name = integration.harness
    states = []
    for scope, place in (("you", InstallPlace(None)), ("this project", InstallPlace(directory))):
        for change in integration.files(place, False):
            state = settings_files.state(change)
            states.append(state)
            if state == "outdated":
                yield HarnessFinding(
                    False, f"{name}: the hooks for {scope} are of another version", f"agentfsd agent install {name}"
                )
            elif state == "unreadable":
                yield HarnessFinding(False, f"{name}: {change.path} cannot be read", "mend it: the harness cannot read it either")
    if has_hooks_twice(integration, directory):
        hint = f"each of them runs twice; `agentfsd agent remove {name}` removes yours, with --project those of the project"
        yield HarnessFinding(False, f"{name}: hooks are installed for you and for this project", hint)
    if "installed" not in states:
        if shutil.which(integration.program):
            yield HarnessFinding(True, f"{name}: no hooks", f"agentfsd agent install {name}")
        return
    program = shutil.which(integration.program)
    yield HarnessFinding(program is not None, f"{name}: hooks are installed; the program is {program or 'not on the PATH'}")
    yield from (HarnessFinding(False, f"{name}: {why}", hint) for why, hint in _switched_off(name))


def _switched_off(harness: str) -> Iterator[tuple[str, str]]:
    home = os.path.expanduser("~")
    if harness == "claude-code" and _json(os.path.join(home, ".claude", "settings.json")).get("disableAllHooks") is True:
        yield "all hooks are switched off (disableAllHooks in ~/.claude/settings.json)", "remove that setting"
    if harness == "gemini":
        enabled = _json(os.path.join(home, ".gemini", "settings.json")).get("hooksConfig", {})
        if isinstance(enabled, dict) and enabled.get("enabled") is False:
            yield "all hooks are switched off (hooksConfig.enabled in ~/.gemini/settings.json)", "/hooks enable-all in Gemini CLI"
    if harness == "codex":
        features = _toml(os.path.join(os.environ.get("CODEX_HOME") or os.path.join(home, ".codex"), "config.toml")).get(
            "features"
        )
        if isinstance(features, dict) and features.get("hooks") is False:
            yield "hooks are switched off (features.hooks in config.toml)", "set it to true, or remove it"


def _called() -> HarnessFinding:
    """Call a hook as a harness does, in a directory without a mount."""
    command = [*InstallPlace(None).command, "hook", "before-tool", "--for", "claude-code"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, input=b'{"session_id": "doctor"}', capture_output=True, timeout=_PATIENCE_S, cwd="/", check=False
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as exc:
        return HarnessFinding(False, f"a hook cannot be called: {exc}", "install agentfsd anew, then the hooks")
    took_ms = (time.monotonic() - began) * 1000
    if done.returncode or done.stdout.strip() != b"{}":
        return HarnessFinding(False, f"a hook answers {done.stdout[:80]!r}, exit code {done.returncode}")
    hint = "that is slow: this machine is busy, or its disk is" if took_ms > _SLOW_MS else ""
    return HarnessFinding(True, f"a hook is answered in {took_ms:.0f} ms", hint)


def _place(directory: str) -> Iterator[HarnessFinding]:
    try:
        shown = quick_daemon.shown_here(directory)
    except (OSError, ValueError, KeyError):
        shown = None
    if shown is None:
        hint = "start the agent with `agentfsd run -- COMMAND`, or in a mount (`agentfsd mount`): elsewhere the hooks do nothing"
        yield HarnessFinding(True, f"{directory} is in no mount", hint)
    else:
        yield HarnessFinding(True, f"{directory} is in the mount {shown[1]}: a session that starts here gets a branch")


def _failures() -> Iterator[HarnessFinding]:
    path = quick_hook.log_path()
    try:
        is_fresh = os.stat(path).st_mtime > time.time() - _FRESH_S
        with open(path, encoding="utf-8", errors="replace") as file:
            last = file.read().splitlines()[-1:]
    except OSError:
        return
    if is_fresh and last:
        yield HarnessFinding(True, f"the last failure of a hook: {last[0]}", f"all of them: {path}")


def _json(path: str) -> dict[str, Any]:
    try:
        return dict(Document(text_of(path) or "").root.value)
    except (OSError, NotJson, Failure):
        return {}


def _toml(path: str) -> dict[str, Any]:
    try:
        return toml_blocks.parse(text_of(path) or "")
    except (OSError, NotToml, Failure):
        return {}
