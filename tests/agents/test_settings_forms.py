"""What is added to a settings file leaves the rest of it byte for byte: JSON with comments, and TOML."""

import json
import time
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfsd.cli.agents.json_splicing import Document, NotJson
from agentfsd.cli.agents.settings_changes import JsonAdditions, JsonEntry, TomlTables
from agentfsd.cli.agents.toml_blocks import NotToml

_FORMS = [
    "", "\ufeff", "// mine", "/* all */\n", "{}", "{\n}\n", "{ }", '{"a": 1}', '{\n  "a": 1 // yes\n}\n', '\ufeff{"a": []}',
    '{\r\n    "hooks": {},\r\n    "b": {"c": {}}\r\n}\r\n',
    '{\n\t"hooks": {\n\t\t"One": [\n\t\t\t{"x": 1}, // mine\n\t\t],\n\t}, /* all */\n}\n',
    '// first\n{"hooks": {"One": [ {"x": 1} ] } // end\n}',
    '{\n  "hooks": {\n    "One": [\n      {"x": [1, 2]}\n    ]\n  },\n  "mcpServers": {"other": {"command": "agentfsd.py"}}\n}',
    '{"a": "// no comment, \\" {", "b": [1, 2.5e3, null, true]}',
]  # fmt: skip
_COMMENTS = ["// yes", "// mine", "/* all */", "// first", "// end"]
_OURS = {"hooks": [{"type": "command", "command": "agentfsd hook x"}]}


def _additions(path: str = "") -> JsonAdditions:
    def is_ours(value: Any) -> bool:
        return bool(value == _OURS) or bool(value == {"command": "agentfsd"})

    hooks = [JsonEntry(("hooks", name), _OURS, True, is_ours) for name in ("One", "Two")]
    return JsonAdditions(path, (*hooks, JsonEntry(("mcpServers", "agentfsd"), {"command": "agentfsd"}, False, is_ours)))


@pytest.mark.parametrize("text", _FORMS)
def test_json_keeps_its_form(text: str) -> None:
    before = Document(text).root.value
    made = _additions().added(text)
    after = Document(made.text).root.value
    assert made.taken_back() == text
    assert [note for note in _COMMENTS if (note in text) != (note in made.text)] == []
    assert after["hooks"]["One"] == [*before.get("hooks", {}).get("One", []), _OURS]
    assert {key: value for key, value in after.items() if key not in ("hooks", "mcpServers")} == {
        key: value for key, value in before.items() if key not in ("hooks", "mcpServers")
    }
    assert _additions().added(made.text).text == made.text
    edited = Document(_additions().without(made.text)).root.value
    empty = ({}, [])
    assert edited == {key: value for key, value in before.items() if not (key in ("hooks", "mcpServers") and value in empty)}
    assert _additions().without(text) == text


@pytest.mark.parametrize(
    "text",
    [
        '{"hooks": {}}', '{"hooks": []}', '{"hooks": {"One": {}}}', '{"hooks": {"One": []}, "b": 1}', '{"mcpServers": {}}',
        '{"hooks": {"One": [{"x": 1}]}, "hooks": {"One": []}}', '{\n  "hooks": { // add hooks here\n  }\n}\n',
    ],
)  # fmt: skip
def test_empty_containers_and_comments_of_a_person_stay(text: str) -> None:
    assert _additions().without(text) == text
    if "// add" in text:
        edited = _additions().without(_additions().added(text).text)
        assert "{ // add hooks here" in edited and Document(edited).root.value == {"hooks": {}}
    if text.count('"hooks"') == 2:
        assert Document(_additions().without(_additions().added(text).text)).root.value["hooks"] != {"One": [{"x": 1}]}


def test_removing_takes_no_longer_than_reading() -> None:
    text = json.dumps({str(number): number for number in range(5000)}, indent=1)
    began = time.process_time()
    document = Document(text)
    reading = time.process_time() - began
    left = document.without(document.root.members["4999"], document.root)
    assert time.process_time() - began < 3 * reading
    assert list(json.loads(left)) == list(map(str, range(4999)))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), _JSON, max_size=4), st.sampled_from([None, 1, 2, "\t"]))
def test_any_json_keeps_its_form(content: dict[str, Any], indent: int | str | None) -> None:
    text = json.dumps(content, indent=indent)
    made = _additions().added(text)
    assert made.taken_back() == text
    assert json.loads(made.text).items() >= content.items()
    assert json.loads(_additions().without(made.text)) == content


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"a" 1}',
        '{"a": }',
        '{"a": 1} {}',
        "{'a': 1}",
        '{"hooks": []}',
        '{"a": 1 "b": 2}',
        '{"a": [1,, 2]}',
        '{, "a": 1}',
        '{"a": [,]}',
        '{"a": NaN}',
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"hooks": {"One": 3}}',
    ],
)
def test_what_is_no_json_is_left_alone(text: str) -> None:
    with pytest.raises(NotJson):
        _additions().added(text)


def _tables(content: dict[str, dict[str, Any]]) -> TomlTables:
    entries = []
    for above, inner in content.items():
        for name, value in inner.items():
            entry = value[0] if isinstance(value, list) else value
            entries.append(
                JsonEntry((above, name), entry, isinstance(value, list), lambda found, wanted=entry: bool(found == wanted))
            )
    return TomlTables("", tuple(entries))


@pytest.mark.parametrize(
    "text", ["", "# mine\nmodel = 'x'\n", '[mcp_servers.other]\ncommand = "q" # yes', "[[hooks.Stop]]\nx = 1\n"]
)
def test_toml_keeps_its_form(text: str) -> None:
    content = {"mcp_servers": {"agentfsd": {"command": "a b", "args": ["mcp"]}}, "hooks": {"Stop": [{"hooks": [{"timeout": 3}]}]}}
    ours = _tables(content)
    made = ours.added(text)
    assert made.taken_back() == text and made.text.startswith(text)
    after = tomllib.loads(made.text)
    assert after["mcp_servers"]["agentfsd"] == content["mcp_servers"]["agentfsd"]
    assert after["hooks"]["Stop"][-1] == {"hooks": [{"timeout": 3}]}
    assert ours.is_in(made.text) and not ours.is_in(text) and ours.without(text) == text
    assert ours.without(made.text + "\n[later]\n").strip() == (text.rstrip() + "\n\n[later]\n").strip()


@pytest.mark.parametrize("text", ["mcp_servers = {}\n", 'mcp_servers.agentfsd = "mine"\n', "x = [\n"])
def test_toml_that_cannot_be_extended_is_left_alone(text: str) -> None:
    with pytest.raises(NotToml):
        _tables({"mcp_servers": {"agentfsd": {"command": "a"}}}).added(text)


# -- the command
