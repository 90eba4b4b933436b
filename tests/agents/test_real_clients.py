"""Install, three turns with shell commands, rewind while the client runs, remove: with real clients and a scripted model.

opencode was tried by hand: at its first start it fetches packages of its own for a minute. Claude Code's licence does not let a
test install it: test_hooks.py replays what its reference documents.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.real_clients import Codex, Terminal, installed
from tests.agents.scripted_model import CLOSING, ScriptedModel
from tests.mounted import Mounted, agentfsd

_SCRIPT = {
    "number-one": ["echo edited >file; rm -r sub"],
    "number-two": ["rm link .env; mkdir made; echo >made/new"],
    "number-three": ["echo three >file"],
    "number-four": ["cat file"],
}
_TURNS = ["turn number-one, please", "turn number-two, please", "turn number-three, please"]


@pytest.fixture
def workspace(tmp_path: Path, make_mount: Callable[..., Mounted]) -> Mounted:
    lower = tmp_path / "project"
    (lower / "sub").mkdir(parents=True)
    (lower / "file").write_text("lower\n")
    (lower / "sub/inner").write_text("inner\n")
    (lower / "link").symlink_to("file")
    (lower / ".env").write_text("secret\n")
    return make_mount(lower)


def _check_turns(workspace: Mounted, agent: str) -> str:
    """All three turns are in the list, and nothing has reached main. Returns the branch."""
    turns = workspace.json("rewind", "--list")
    assert [(turn["turn"], turn["title"], turn["agent"]) for turn in turns] == [
        (number, title, agent) for number, title in enumerate(_TURNS, 1)
    ]
    branch = str(turns[0]["branch"])
    place = workspace.subtree(branch)
    assert (place / "file").read_text() == "three\n" and (place / "made/new").exists()
    assert not any((place / name).exists() for name in ("sub", "link", ".env"))
    assert sorted(path.name for path in workspace.path.iterdir()) == [".env", "file", "link", "sub"]
    return branch


def _check_rewound(workspace: Mounted, branch: str) -> None:
    workspace.cli("rewind", "--to", "1")
    place = workspace.subtree(branch)
    assert sorted(path.name for path in place.iterdir()) == [".env", "file", "link", "sub"]
    assert (place / "file").read_text() == "lower\n" and (place / "sub/inner").read_text() == "inner\n"


def _check_told(told: str) -> None:
    """What the model has read: the branch, what was deleted, and that the files were put back."""
    assert "of an agentfsd overlay" in told
    assert "DELETED: sub, sub/inner" in told
    assert "DELETED: .env, link" in told
    assert "put back" in told
    assert "lower\\n" in told.rpartition("put back")[2], "the tool of the fourth turn did not see the files as they had been"


def test_codex(workspace: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = installed("@openai/codex", "0.171.0")
    program = next(found.glob("@openai/codex-linux-*/vendor/*/bin/codex"))
    home = tmp_path / "home"
    (home / ".codex").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    hooks = home / ".codex/hooks.json"
    before = '{"hooks": {"Stop": [{"hooks": [\n  {"type": "command",   "command": "true"}]}]}}'
    hooks.write_text(before)
    with ScriptedModel(_SCRIPT) as model:
        (home / ".codex/config.toml").write_text(
            'model = "gpt-5"\nmodel_provider = "scripted"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
            "check_for_update_on_startup = false\n[analytics]\nenabled = false\n[model_providers.scripted]\nname = 'scripted'\n"
            f'base_url = "{model.url}/v1"\nenv_key = "SCRIPTED_KEY"\nwire_api = "responses"\n'
        )
        agentfsd("agent", "install", "codex")
        client = Codex(program, home, workspace.path)
        try:
            assert client.trust_hooks() == 6
            client.begin()
            for text in _TURNS:
                client.prompt(text)
            branch = _check_turns(workspace, "codex")
            _check_rewound(workspace, branch)
            client.prompt("turn number-four, please")
        finally:
            client.end()
        told = model.told()
    _check_told(told)
    agentfsd("agent", "remove", "codex")
    assert hooks.read_text() == before


def test_gemini_cli(workspace: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = installed("@google/gemini-cli", "0.61.0")
    node = shutil.which("node")
    home = tmp_path / "home"
    (home / ".gemini").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    settings = home / ".gemini/settings.json"
    settings.write_text(
        '{\n    // chosen at the first start\n    "security": {"auth": {"selectedType": "gemini-api-key"},\n'
        '        "folderTrust": {"enabled": false}},\n    "general": {"enableAutoUpdate": false}, /* offline */\n'
        '    "privacy": {"usageStatisticsEnabled": false},\n    "ui": {"hideTips": true, "hideBanner": true}\n}\n'
    )
    before = settings.read_bytes()
    with ScriptedModel(_SCRIPT) as model:
        agentfsd("agent", "install", "gemini")
        after = settings.read_bytes()
        command = [
            str(node),
            str(found / "@google/gemini-cli/bundle/gemini.js"),
            "--yolo",
            "--skip-trust",
            "-m",
            "gemini-2.5-flash",
        ]
        environment = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model.url, "GEMINI_CLI_NO_RELAUNCH": "true"}
        client = Terminal(command, workspace.path, environment)
        try:
            client.wait_for("this session is in branch")
            for text in _TURNS:
                client.type(text, lambda text=text: text in model.told())
                client.wait_for(CLOSING)
                client.look(0.5)
            branch = _check_turns(workspace, "gemini")
            _check_rewound(workspace, branch)
            client.type("turn number-four, please", lambda: "turn number-four" in model.told())
            client.wait_for(CLOSING)
        finally:
            client.end()
        _check_told(model.told())
    assert settings.read_bytes() == after, "Gemini CLI has changed its settings"
    agentfsd("agent", "remove", "gemini")
    assert settings.read_bytes() == before


def test_clients_are_those_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/agents.md").read_text()
    for name in ("Gemini CLI 0.61", "Codex 0.171"):
        assert name in page, os.linesep.join([name, "the page says with which versions this was tried"])
