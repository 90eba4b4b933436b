"""What `agentfsd agent` does to settings: nothing of a person's changes, and removing it leaves the file as it was."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agentfsd.cli.agents.json_splicing import Document
from tests.mounted import agentfsd

HARNESSES = ["claude-code", "codex", "gemini", "opencode"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with settings of a person's, in which the command works."""
    place = tmp_path / "home"
    for name, text in {
        ".claude/settings.json": '{"model": "opus",\n "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": []}]}}',
        ".claude.json": '{"numStartups": 3}',
        ".codex/hooks.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "bell"}]}]}}\n',
        ".codex/config.toml": '# mine\nmodel = "gpt" # the good one\n',
        ".gemini/settings.json": '{\n    // the theme\n    "ui": {"theme": "dark"}, // yes\n}\n',
        ".config/opencode/opencode.jsonc": '{\n  "share": "disabled" // of course\n}\n',
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (place / "project").mkdir()
    monkeypatch.chdir(place / "project")
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(place))
    return place


def _all_of(place: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(place)): path.read_bytes() if path.is_file() else None for path in sorted(place.rglob("*"))}


@pytest.mark.parametrize("harness", HARNESSES)
@pytest.mark.parametrize("options", [[], ["--mcp"], ["--project", "--mcp"]])
def test_removing_leaves_everything_as_it_was(home: Path, harness: str, options: list[str]) -> None:
    before = _all_of(home)
    said = agentfsd("agent", "install", harness, *options).stdout
    after = _all_of(home)
    changed = {name for name in after if after[name] != before.get(name) and after[name] is not None}
    assert changed == {os.path.relpath(line.removeprefix("added to "), home) for line in said.splitlines()}
    assert agentfsd("agent", "install", harness, *options).stdout.count("already in ") == len(changed)
    assert _all_of(home) == after
    listed = json.loads(agentfsd("agent", "list", "--json").stdout)
    scope = "project" if "--project" in options else "user"
    assert [each["agent"] for each in listed if each["state"] == "installed" and each["for"] == scope] == [harness]
    agentfsd("agent", "remove", harness, *[option for option in options if option == "--project"])
    assert _all_of(home) == before
    assert "nothing of agentfsd" in agentfsd("agent", "remove", harness).stderr


@pytest.mark.parametrize("harness", HARNESSES)
def test_a_file_that_was_edited_since_loses_only_what_is_ours(home: Path, harness: str) -> None:
    files = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}
    agentfsd("agent", "install", harness, "--mcp")
    if harness == "opencode":
        config = home / ".config/opencode/opencode.jsonc"
        config.write_text(config.read_text().replace("disabled", "manual"))
        agentfsd("agent", "remove", harness)
        assert config.read_text() == '{\n  "share": "manual" // of course\n}\n'
        return
    path = home / files[harness]
    before = {"claude-code": '"opus"', "codex": '"bell"', "gemini": '"dark"'}[harness]
    path.write_text(path.read_text().replace(before, '"changed"'))
    said = agentfsd("agent", "remove", harness).stdout
    assert "the rest stays as it was edited" in said
    assert "agentfsd" not in path.read_text()
    assert (
        Document(path.read_text()).root.value
        == {
            "claude-code": {"model": "changed", "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": []}]}},
            "codex": {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "changed"}]}]}},
            "gemini": {"ui": {"theme": "changed"}},
        }[harness]
    )


def test_codex_hooks_in_its_toml_stay_there(home: Path) -> None:
    (home / ".codex/hooks.json").unlink()
    config = home / ".codex/config.toml"
    config.write_text('model = "x"\n\n[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "bell"\n')
    before = _all_of(home)
    agentfsd("agent", "install", "codex")
    assert not (home / ".codex/hooks.json").exists()
    (group,) = tomllib.loads(config.read_text())["hooks"]["PreToolUse"]
    assert group["hooks"][0]["command"].endswith("agentfsd hook before-tool --for codex")
    agentfsd("agent", "remove", "codex")
    assert _all_of(home) == before


@pytest.mark.parametrize("harness", ["claude-code", "codex"])
def test_settings_that_never_had_hooks_of_ours_stay_as_they_are(home: Path, harness: str) -> None:
    path = home / {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json"}[harness]
    path.write_text('{"hooks": {"PreToolUse": []}}')
    listed = json.loads(agentfsd("agent", "list", "--json").stdout)
    assert [each["state"] for each in listed if each["file"] == str(path)] == ["absent"]
    agentfsd("agent", "doctor", harness)
    assert "nothing of agentfsd" in agentfsd("agent", "remove", harness).stderr
    assert path.read_text() == '{"hooks": {"PreToolUse": []}}'
    assert agentfsd("agent", "install", harness).stdout.startswith("added to ")
    agentfsd("agent", "remove", harness)
    assert path.read_text() == '{"hooks": {"PreToolUse": []}}'


_CODEX_HOOKS = '[[hooks.PreToolUse]]\nmatcher = "x"\n[[hooks.PreToolUse.hooks]]\ntype = "command"\ncommand = "bell"\n'


def test_codex_hooks_are_found_in_a_toml_that_was_edited_since(home: Path) -> None:
    (home / ".codex/hooks.json").unlink()
    config = home / ".codex/config.toml"
    config.write_text(_CODEX_HOOKS)
    agentfsd("agent", "install", "codex", "--mcp")
    later = '\n# about z\n[profiles.z]\nmodel = "q" # [[hooks.x]]\n'
    config.write_text("top = 1\n" + config.read_text() + later)
    agentfsd("agent", "remove", "codex")
    assert config.read_text() == "top = 1\n" + _CODEX_HOOKS + later


def test_codex_hooks_of_another_path_in_a_toml_are_replaced(home: Path) -> None:
    (home / ".codex/hooks.json").unlink()
    config = home / ".codex/config.toml"
    config.write_text(_CODEX_HOOKS)
    agentfsd("agent", "install", "codex")
    config.write_text(re.sub(r"/\S*/agentfsd hook", "/old/agentfsd hook", config.read_text()))
    (home / ".codex/hooks.json").write_text("{}")
    assert "outdated" in agentfsd("agent", "list").stdout
    assert agentfsd("agent", "install", "codex").stdout.startswith("brought up to date in ")
    assert "/old/" not in config.read_text() and config.read_text().count("agentfsd hook") == 5
    own = '[[hooks.SessionStart.hooks]]\ntype = "command"\ncommand = "mine"\n'
    config.write_text(config.read_text().replace("[[hooks.SessionStart.hooks]]\n", own + "[[hooks.SessionStart.hooks]]\n"))
    agentfsd("agent", "remove", "codex")
    assert "agentfsd" not in config.read_text()
    assert tomllib.loads(config.read_text())["hooks"].pop("SessionStart") == [{"hooks": [{"type": "command", "command": "mine"}]}]


def test_an_mcp_entry_of_a_person_stays(home: Path) -> None:
    path = home / ".claude.json"
    by_hand = '{"mcpServers": {"agentfsd": {"command":"agentfsd","args":["mcp"]},"o":{}}}'
    path.write_text(by_hand)
    for options in ([], ["--mcp"]):
        agentfsd("agent", "install", "claude-code", *options)
        agentfsd("agent", "remove", "claude-code")
        assert path.read_text() == by_hand
    path.write_text('{"mcpServers": {"agentfsd": {"command": "mine"}}}')
    assert "is there already" in agentfsd("agent", "install", "claude-code", "--mcp", check=False).stderr
    path.write_text("{}")
    agentfsd("agent", "install", "claude-code", "--mcp")
    path.write_text(path.read_text().replace("{", '{"a": 1, ', 1))
    agentfsd("agent", "remove", "claude-code")
    assert json.loads(path.read_text()) == {"a": 1}
    config = home / ".codex/config.toml"
    config.write_text('[mcp_servers.agentfsd]\nargs = ["mcp"]\ncommand = "/usr/bin/agentfsd"\n')
    before = _all_of(home)
    agentfsd("agent", "install", "codex", "--mcp")
    agentfsd("agent", "remove", "codex")
    assert _all_of(home) == before


def test_a_file_that_cannot_be_changed_does_not_keep_the_others(home: Path) -> None:
    agentfsd("agent", "install", "claude-code", "--mcp")
    (home / ".claude.json").write_text("{")
    done = agentfsd("agent", "remove", "claude-code", check=False)
    assert done.returncode == 1 and ".claude.json cannot be changed" in done.stderr
    assert "agentfsd" not in (home / ".claude/settings.json").read_text()


@pytest.mark.parametrize(
    "command", ["log-it && agentfsd hook before-tool --for claude-code", "/x/agentfsd hook before-tool --for claude-code; ls"]
)
def test_a_command_of_a_person_that_calls_agentfsd_stays(home: Path, command: str) -> None:
    path = home / ".claude/settings.json"
    text = json.dumps({"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": command}]}]}})
    path.write_text(text)
    for options in ([], ["--project"]):
        agentfsd("agent", "install", "claude-code", *options)
        agentfsd("agent", "remove", "claude-code", *options)
    assert path.read_text() == text
    agentfsd("agent", "install", "claude-code")
    path.write_text(path.read_text().replace("{", '{"a": 1, ', 1))
    agentfsd("agent", "remove", "claude-code")
    assert json.loads(path.read_text()) == {"a": 1, **json.loads(text)}


def test_mode_and_symlinks_stay(home: Path) -> None:
    path, kept = home / ".claude/settings.json", home / "dotfiles.json"
    path.rename(kept)
    kept.chmod(0o600)
    path.symlink_to(kept)
    agentfsd("agent", "install", "claude-code")
    assert path.is_symlink() and "agentfsd hook" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", [".claude/settings.json", ".codex/config.toml"])
def test_settings_that_are_no_regular_file_are_left_alone(home: Path, name: str) -> None:
    path, harness = home / name, "claude-code" if "claude" in name else "codex"
    path.unlink()
    for make in (lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/null"), path.mkdir):
        make()
        before = os.stat(path)
        assert agentfsd("agent", "list").stdout
        done = agentfsd("agent", "install", harness, "--mcp", check=False)
        assert done.returncode == 1 and "is no regular file" in done.stderr
        agentfsd("agent", "doctor", harness, check=False)
        assert os.stat(path).st_ino == before.st_ino and os.stat(path).st_mode == before.st_mode
        path.rmdir() if path.is_dir() else path.unlink()


def test_hard_links_and_attributes_stay(home: Path) -> None:
    path, other = home / ".gemini/settings.json", home / "other.json"
    os.setxattr(path, "user.mine", b"yes")
    agentfsd("agent", "install", "gemini")
    assert os.getxattr(path, "user.mine") == b"yes"
    before = path.read_text()
    os.link(path, other)
    agentfsd("agent", "remove", "gemini")
    assert os.path.samefile(path, other) and path.read_text() != before and "agentfsd" not in path.read_text()


def test_a_read_only_file_is_refused(home: Path) -> None:
    path = home / ".gemini/settings.json"
    before = path.read_text()
    path.chmod(0o444)
    done = agentfsd("agent", "install", "gemini", check=False)
    assert done.returncode == 1 and "is read-only" in done.stderr and path.read_text() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes files for others")
def test_what_root_makes_belongs_to_the_owner_of_the_directory(home: Path) -> None:
    os.chown(home / "project", 1234, 1235)
    agentfsd("agent", "install", "claude-code", "--project")
    for name in (".claude", ".claude/settings.json"):
        found = (home / "project" / name).stat()
        assert (found.st_uid, found.st_gid) == (1234, 1235)


_KILLED = """
import os, signal, sys
from agentfsd.cli import entry
left, real = int(sys.argv.pop(1)), os.replace
def replace(*paths):
    global left
    real(*paths)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = replace
entry.main()
"""


@pytest.mark.parametrize("writes", [1, 2])
@pytest.mark.parametrize("harness", ["claude-code", "opencode"])
def test_what_a_killed_install_left_is_removed_exactly(home: Path, harness: str, writes: int) -> None:
    file = home / {"claude-code": ".claude/settings.json", "opencode": ".config/opencode/plugins/agentfsd.js"}[harness]
    for content in (None, ""):
        file.unlink(missing_ok=True)
        if content is not None:
            file.parent.mkdir(exist_ok=True)
            file.write_text(content)
        before = _all_of(home)
        killed = subprocess.run([sys.executable, "-c", _KILLED, str(writes), "agent", "install", harness], check=False)
        assert killed.returncode == -signal.SIGKILL
        agentfsd("agent", "remove", harness)
        assert _all_of(home) == before


@pytest.mark.parametrize("harness", HARNESSES)
def test_a_file_that_was_made_goes_without_its_record(home: Path, harness: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (".claude/settings.json", ".codex/hooks.json", ".gemini/settings.json"):
        (home / path).unlink()
    before = [name for name, content in _all_of(home).items() if content is not None]
    agentfsd("agent", "install", harness)
    monkeypatch.setenv("AGENTFS_STATE_HOME", str(home.parent / "elsewhere"))
    agentfsd("agent", "remove", harness)
    assert [name for name, content in _all_of(home).items() if content is not None] == before


def test_settings_that_cannot_be_read_are_left_alone(home: Path) -> None:
    path = home / ".gemini/settings.json"
    path.write_text('{"ui": ')
    done = agentfsd("agent", "install", "gemini", check=False)
    assert done.returncode == 1 and "cannot be changed" in done.stderr and path.read_text() == '{"ui": '
    assert "unreadable" in agentfsd("agent", "list").stdout
    assert "cannot be read" in agentfsd("agent", "doctor", "gemini", check=False).stdout


def test_an_older_version_is_brought_up_to_date(home: Path) -> None:
    path = home / ".claude/settings.json"
    before = path.read_text()
    agentfsd("agent", "install", "claude-code")
    path.write_text(re.sub(r"/\S*/agentfsd hook", "/old/agentfsd hook", path.read_text()))
    assert "outdated" in agentfsd("agent", "list").stdout
    assert agentfsd("agent", "install", "claude-code").stdout.startswith("brought up to date in ")
    assert "/old/" not in path.read_text()
    agentfsd("agent", "remove", "claude-code")
    assert json.loads(path.read_text()) == json.loads(before)


def test_a_dry_run_changes_nothing(home: Path) -> None:
    before = _all_of(home)
    assert "added to " in agentfsd("agent", "install", "codex", "--mcp", "--dry-run").stdout
    assert _all_of(home) == before


def test_the_plugin_of_claude_code(home: Path) -> None:
    before = _all_of(home)
    agentfsd("agent", "install", "claude-code", "--plugin", str(home / "plugins/ours"), "--mcp")
    place = home / "plugins/ours"
    assert json.loads((place / ".claude-plugin/plugin.json").read_text())["name"] == "agentfsd"
    hooks = json.loads((place / "hooks/hooks.json").read_text())["hooks"]
    assert {"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SessionEnd"} <= hooks.keys()
    command = hooks["PreToolUse"][0]["hooks"][0]["command"]
    assert os.access(command.split()[0], os.X_OK) and command.endswith("hook before-tool --for claude-code")
    assert (place / "commands/rewind.md").read_text().startswith("---\ndescription: ")
    assert json.loads((place / ".mcp.json").read_text())["mcpServers"]["agentfsd"]["args"] == ["mcp"]
    agentfsd("agent", "remove", "claude-code", "--plugin", str(place))
    assert _all_of(home) == before
    done = agentfsd("agent", "install", "codex", "--plugin", str(place), check=False)
    assert done.returncode == 1 and "claude-code alone" in done.stderr


def test_files_of_a_person_that_mention_agentfsd_stay(home: Path) -> None:
    place = home / "plugin"
    files = {place / "commands/changes.md": "how agentfsd does it\n", place / "hooks/hooks.json": '{"a": "agentfsd"}'}
    plugin = home / ".config/opencode/plugins/agentfsd.js"
    files[plugin] = "// not The opencode integration of agentfsd\n"
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for arguments in (["claude-code", "--plugin", str(place)], ["opencode"]):
        done = agentfsd("agent", "install", *arguments, check=False)
        assert done.returncode == 1 and "there is a file of this name already" in done.stderr
        agentfsd("agent", "remove", *arguments)
    assert {path: path.read_text() for path in files} == files


def test_a_file_of_the_plugin_that_was_edited_stays(home: Path) -> None:
    place = home / "plugin"
    agentfsd("agent", "install", "claude-code", "--plugin", str(place))
    (place / "commands/turns.md").write_text("mine, with agentfsd\n")
    done = agentfsd("agent", "remove", "claude-code", "--plugin", str(place), check=False)
    assert done.returncode == 1 and "it was edited since" in done.stderr
    assert [path for path in place.rglob("*") if path.is_file()] == [place / "commands/turns.md"]


@pytest.mark.parametrize("harness", HARNESSES)
def test_hooks_for_the_user_and_the_project_are_warned_of(home: Path, harness: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "twice" not in agentfsd("agent", "install", harness).stderr
    assert "runs twice" in agentfsd("agent", "install", harness, "--project").stderr
    done = agentfsd("agent", "doctor", harness, check=False)
    assert done.returncode == 1 and "for you and for this project" in done.stdout
    agentfsd("agent", "remove", harness)
    assert "for you and" not in agentfsd("agent", "doctor", harness, check=False).stdout
    monkeypatch.chdir(home)  # where the user's file may be the project's
    assert "twice" not in agentfsd("agent", "install", harness).stderr


def test_a_project_without_agentfsd_notices_nothing(home: Path) -> None:
    agentfsd("agent", "install", "gemini", "--project")
    hooks = json.loads((home / "project/.gemini/settings.json").read_text())["hooks"]
    command = hooks["BeforeTool"][0]["hooks"][0]["command"]
    for shell in ("sh", "bash"):
        assert os.system(f"PATH=/usr/bin:/bin {shell} -c '{command}' </dev/null") == 0


def test_the_doctor(home: Path) -> None:
    agentfsd("agent", "install", "gemini")
    (home / "bin").mkdir()
    (home / "bin/gemini").write_text("#!/bin/sh\n")
    (home / "bin/gemini").chmod(0o755)
    path = os.environ["PATH"]
    done = agentfsd("agent", "doctor", "gemini", "--json", env={**os.environ, "PATH": f"{home}/bin:{path}"})
    found = json.loads(done.stdout)
    assert all(each["ok"] for each in found)
    assert any("a hook is answered in" in each["what"] for each in found)
    settings = home / ".gemini/settings.json"
    settings.write_text(settings.read_text().replace('"ui"', '"hooksConfig": {"enabled": false}, "ui"'))
    done = agentfsd("agent", "doctor", "gemini", check=False)
    assert done.returncode == 1 and "switched off" in done.stdout
