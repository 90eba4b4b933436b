"""Notes about branches: who may read, answer and settle which, where they are after changes, and what they outlive."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentfs_client import AsyncControlClient, BranchFilesystem, ControlClient, wire
from agentfs_client.errors import AgentFSError
from tests.mounted import AGENTFSD, Mounted, agentfsd

_COMMAND = " ".join(AGENTFSD)
_LINES = [f"line {number}" for number in range(1, 31)]


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    lower = tmp_path / "lower"
    (lower / "src").mkdir(parents=True)
    (lower / "text").write_text("".join(f"{line}\n" for line in _LINES))
    (lower / "src/app.py").write_text("def one():\n    return 1\n\n\ndef two():\n    return 1\n")
    (lower / "secret").write_text("key 1\nkey 2\n")
    mounted = make_mount(lower)
    mounted.cli("branch create", "fix")
    mounted.cli("branch create", "other")
    return mounted


def listed(project: Mounted, branch: str, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.json("notes list", branch, *options)
    return found


def added(project: Mounted, *arguments: str) -> int:
    return int(project.json("notes add", *arguments)["id"])


def in_branch(project: Mounted, branch: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return project.run(branch, *AGENTFSD, *arguments, check=False, view="pid")


def test_a_review_goes_back_and_forth(project: Mounted) -> None:
    whole = added(project, "fix", "please add a test")
    line = added(project, "fix", "--path", str(project.path / "src/app.py"), "--line", "2", "why 1?")
    assert in_branch(project, "fix", "notes", "reply", str(line), "it was so").stdout == (
        f"answered note {line} about src/app.py:2 in fix\n"
    )
    said = in_branch(project, "fix", "notes").stdout
    assert "why 1?" in said and "please add a test" in said and "src/app.py:2" in said
    assert project.cli("notes", "fix").stdout == project.cli("notes list", "fix").stdout == said
    assert "Did you mean 'list'?" in agentfsd("notes", "lisst", "fix", check=False).stderr
    own = in_branch(project, "fix", "notes", "add", "--path", "src", "unsure about this")
    assert own.stdout.startswith("note ") and own.stdout.endswith(" about src in fix\n")
    project.cli("notes resolve", str(whole))
    found = listed(project, "fix")
    assert (found[0]["id"], found[0]["text"]) == (line, "why 1?")
    assert (found[0]["lines"], found[0]["place"], found[0]["file"]) == (["    return 1"], "same", "there")
    (answer,) = found[0]["answers"]
    assert (answer["text"], answer["by_agent"], answer["author"]) == ("it was so", True, "agent")
    assert (found[0]["by_agent"], found[1]["by_agent"]) == (False, True)
    assert [note["id"] for note in listed(project, "fix", "--all")][-1] == whole
    assert listed(project, "fix", "--all")[-1]["resolved_by"] == found[0]["author"]
    project.cli("notes reopen", str(whole))
    assert listed(project, "fix")[0]["id"] == whole
    full = project.cli("notes list", "fix", "--full").stdout
    assert f"#{line} src/app.py:2\n    >     return 1\n" in full and "    it was so\n" in full
    project.cli("notes remove", str(line))
    assert line not in [note["id"] for note in listed(project, "fix", "--all")]
    assert "there is no note" in project.cli("notes reply", str(line), "late", check=False).stderr
    done = subprocess.run(
        [*AGENTFSD, "notes", "add", "-m", str(project.path), "fix", "-"],
        input="two\nlines\n",
        text=True,
        capture_output=True,
        check=True,
    )
    assert done.stdout.endswith(" about branch fix\n")
    assert listed(project, "fix")[-1]["text"] == "two\nlines"
    assert "agentfsd notes list BRANCH` shows those of fix (3)" in project.cli("notes").stderr


def test_a_bound_agent_reaches_no_other_branch_and_settles_no_note_of_a_person(project: Mounted) -> None:
    mine, theirs = added(project, "fix", "to fix"), added(project, "other", "to other")
    project.cli("policy set", "audit.enabled", "yes")
    for words in (
        ("notes", "list", "other"), ("notes", "list", "main"), ("notes", "add", "other", "x"),
        ("notes", "reply", str(theirs), "x"),
        ("notes", "resolve", str(theirs)), ("notes", "reopen", str(theirs)), ("notes", "remove", str(theirs)),
        ("notes", "reply", "9999", "x"),
    ):  # fmt: skip
        done = in_branch(project, "fix", *words)
        assert (done.returncode, done.stdout) == (1, ""), words
        assert "bound" in done.stderr and "to other" not in done.stderr
    for words in (("notes", "resolve", str(mine)), ("notes", "remove", str(mine))):
        done = in_branch(project, "fix", *words)
        assert done.returncode == 1 and "a person's words" in done.stderr
    assert [note["text"] for note in listed(project, "other")] == ["to other"]
    assert [note["text"] for note in listed(project, "fix")] == ["to fix"]
    assert listed(project, "other")[0]["answers"] == []
    with ControlClient.connect(project.record().socket) as client:
        assert len(client.audit(kind="refused").entries) >= 8
    # what it wrote itself it may settle and remove
    own = int(in_branch(project, "fix", "notes", "add", "mine").stdout.split()[1])
    assert in_branch(project, "fix", "notes", "resolve", str(own)).returncode == 0
    assert in_branch(project, "fix", "notes", "reopen", str(own)).returncode == 0
    assert in_branch(project, "fix", "notes", "remove", str(own)).returncode == 0
    # unless a person has answered: those words are not the agent's
    answered = int(in_branch(project, "fix", "notes", "add", "mine").stdout.split()[1])
    project.cli("notes reply", str(answered), "a person's answer")
    for command in ("resolve", "remove"):
        assert "a person's words" in in_branch(project, "fix", "notes", command, str(answered)).stderr
    assert in_branch(project, "fix", "notes", "reply", str(mine), "yes").returncode == 0


def test_rules_keep_lines_and_paths_from_the_agent(project: Mounted) -> None:
    added(project, "fix", "--path", "secret", "--line", "1", "is it old?")
    hidden = added(project, "fix", "--path", "src/app.py", "--line", "1", "seen")
    project.cli("rules add", "deny secret")
    (first, second) = json.loads(in_branch(project, "fix", "notes", "--json").stdout)
    assert (first["text"], first["lines"], first["file"]) == ("is it old?", [], "unread")
    assert second["lines"] == ["def one():"]
    assert in_branch(project, "fix", "notes", "add", "--path", "secret", "--line", "1", "x").returncode == 1
    project.cli("rules add", "hide src")
    assert [note["text"] for note in json.loads(in_branch(project, "fix", "notes", "--json").stdout)] == ["is it old?"]
    assert "there is no note" in in_branch(project, "fix", "notes", "reply", str(hidden), "x").stderr
    assert listed(project, "fix")[0]["lines"] == ["key 1"]


def test_a_note_made_through_a_symlink_is_about_what_rules_are_about(project: Mounted) -> None:
    (project.lower / "kept").mkdir()
    (project.lower / "kept/key").write_text("key 1\n")
    (project.lower / "short").symlink_to("kept")
    (project.lower / "alias").symlink_to("text")
    through = added(project, "fix", "--path", "short/key", "--line", "1", "is it old?")
    itself = added(project, "fix", "--path", "alias", "why a symlink?")
    found = {note["id"]: note["path"] for note in listed(project, "fix")}
    assert found == {through: "kept/key", itself: "alias"}
    project.sh("fix", "rm kept/key")
    deleted = added(project, "fix", "--path", "short/key", "why was it deleted?")
    assert {note["id"]: note["path"] for note in listed(project, "fix")}[deleted] == "kept/key"
    project.cli("rules add", "hide kept")
    seen = in_branch(project, "fix", "notes", "--json").stdout
    assert [note["text"] for note in json.loads(seen)] == ["why a symlink?"]
    assert "key 1" not in seen


def test_an_answer_asks_nobody_about_a_path_and_is_added_once(project: Mounted) -> None:
    note = added(project, "fix", "--path", "src/app.py", "--line", "2", "why 1?")
    project.sh("fix", "mv src sources; ln -s sources src")
    project.cli("rules add", "ask src")
    assert in_branch(project, "fix", "notes", "reply", str(note), "because").returncode == 0
    with ControlClient.connect(project.record().socket) as client:
        assert client.list_asks() == []
    assert [answer["text"] for answer in listed(project, "fix")[0]["answers"]] == ["because"]


def test_a_client_that_goes_before_it_is_told_misses_nothing_and_two_at_once_are_told_once(project: Mounted) -> None:
    (project.lower / "many").mkdir()
    for number in range(1500):
        (project.lower / f"many/{number}").touch()
    place = project.record().socket
    with ControlClient.connect(place) as client:
        for number in range(1500):
            client.add_note(f"note {number}", "fix", path=f"many/{number}")
        project.sh("fix", "mv many elsewhere")  # which takes a while to find
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.connect(place)
            gone.sendall(wire.frame(wire.encode(wire.Hello(client="gone"), json=False)))
            assert gone.recv(1 << 16)
            os.kill(project.record().pid, signal.SIGSTOP)
            gone.sendall(wire.frame(wire.encode(wire.NoteTell(session="s", branch="fix", most=5), json=False)))
        os.kill(project.record().pid, signal.SIGCONT)

        def told() -> list[int]:
            with ControlClient.connect(place) as other:
                return [note.id for note in other.tell_notes("s", "fix", most=1500).notes]

        with ThreadPoolExecutor(3) as threads:
            answers = [each.result() for each in [threads.submit(told) for _ in range(3)]]
        assert sorted(map(len, answers)) == [0, 0, 1500]
        assert told() == []


def test_each_of_many_sessions_in_one_branch_is_told_once(project: Mounted) -> None:
    with ControlClient.connect(project.record().socket) as client:
        client.add_note("read me", "fix")
        for number in range(205):
            assert len(client.tell_notes(f"session {number:03}", "fix").notes) == 1
        for number in (100, 203, 204):
            assert client.tell_notes(f"session {number:03}", "fix").notes == []


def test_a_note_follows_its_lines(project: Mounted) -> None:
    line = added(project, "fix", "--path", "text", "--line", "10-11", "these two")
    blank = added(project, "fix", "--path", "src/app.py", "--line", "3", "a blank line")
    twin = added(project, "fix", "--path", "src/app.py", "--line", "6", "the second of two")

    def places() -> dict[int, tuple[str, int, int]]:
        return {note["id"]: (note["place"], note["now_line"], note["now_last_line"]) for note in listed(project, "fix")}

    assert places() == {line: ("same", 10, 11), blank: ("same", 3, 3), twin: ("same", 6, 6)}
    project.sh("fix", "sed -i '1i new 1\\nnew 2' text; sed -i '1i import os' src/app.py")
    assert places() == {line: ("moved", 12, 13), blank: ("moved", 4, 4), twin: ("moved", 7, 7)}
    project.sh("fix", "sed -i 's/^line 11$/eleven/' text; sed -i '/^$/d' src/app.py")
    assert places()[line] == ("outdated", 0, 0)
    assert places()[blank] == ("outdated", 0, 0)
    assert places()[twin] == ("moved", 5, 5)
    assert "outdated" in project.cli("notes list", "fix").stdout
    project.sh("fix", "sed -i 's/^eleven$/line 11/' text")
    assert places()[line] == ("moved", 12, 13)


def test_a_note_says_that_its_file_is_renamed_or_gone(project: Mounted) -> None:
    file, inner = added(project, "fix", "--path", "text", "--line", "5", "a"), added(project, "fix", "--path", "src/app.py", "b")
    project.sh("fix", "mv text 'new name'; mv src sources")
    found = {note["id"]: note for note in listed(project, "fix")}
    assert (found[file]["file"], found[file]["now_path"], found[file]["now_line"]) == ("renamed", "new name", 5)
    assert (found[inner]["file"], found[inner]["now_path"]) == ("renamed", "sources/app.py")
    assert "renamed, was text" in project.cli("notes list", "fix").stdout
    project.sh("fix", "rm 'new name'")
    assert {note["id"]: note for note in listed(project, "fix")}[file]["file"] == "gone"
    deleted = added(project, "fix", "--path", "text", "why was it deleted?")
    assert {note["id"]: note for note in listed(project, "fix")}[deleted]["file"] == "gone"


def test_a_note_follows_a_file_that_was_made_or_replaced_before_its_rename(project: Mounted) -> None:
    project.sh("fix", "seq 100 120 > made; sed -i s/10/ten/ text")
    made = added(project, "fix", "--path", "made", "a new file")
    before, after = (added(project, "fix", "--path", "text", "--line", "5", "x") for _ in range(2))
    project.sh("fix", "mv made elsewhere; mv text kept; cp src/app.py other; rm -r src")
    found = {note["id"]: note for note in listed(project, "fix")}
    assert (found[made]["file"], found[made]["now_path"]) == ("renamed", "elsewhere")
    assert (found[before]["file"], found[before]["now_path"], found[before]["place"]) == ("renamed", "kept", "same")
    project.sh("fix", "sed -i '1i first' kept; cp kept copy; rm kept")  # a new inode each time
    found = {note["id"]: note for note in listed(project, "fix")}
    assert (found[after]["file"], found[after]["now_path"], found[after]["now_line"]) == ("renamed", "copy", 6)
    project.sh("fix", "rm copy elsewhere")
    assert {note["file"] for note in listed(project, "fix")} == {"gone"}


def test_what_a_note_cannot_be_about_is_said(project: Mounted) -> None:
    (project.lower / "large").write_bytes(b"x\n" * (3 << 20))
    for arguments, words in (
        (("--path", "none", "x"), "there is no none in the branch"),
        (("--path", "text", "--line", "31", "x"), "has 30 lines, and no line 31"),
        (("--path", "text", "--line", "5-4", "x"), "cannot be about lines 5 to 4"),
        (("--path", "text", "--line", "1-51", "x"), "at most 50 lines"),
        (("--path", "text", "--line", "0", "x"), "is no line"),
        (("--line", "1", "x"), "--line needs --path"),
        (("--path", "src", "--line", "1", "x"), "has no lines"),
        (("--path", "large", "--line", "1", "x"), "too large for a note about a line"),
        (("--path", "/etc/passwd", "x"), "outside of the workspace"),
        (("a", "b"), "no branch named 'fix a'"),
        ((" \n",), "needs a text"),
        (("x" * (16 * 1024 + 1),), "16,385 bytes, and at most 16,384"),
        (("one", "two", "three"), "quotation marks"),
    ):
        named = "fix a" if arguments == ("a", "b") else "fix"
        done = project.cli("notes add", named, *(arguments[1:] if named != "fix" else arguments), check=False)
        assert words in " ".join(done.stderr.split()), (arguments, done.stderr)
        assert done.returncode in (1, 2)
    for command, words in (
        ("notes add", ("fix",)), ("notes reply", ("1", "two", "words")), ("notes --all list", ("fix",)),
    ):  # fmt: skip
        done = project.cli(command, *words, check=False)
        assert done.returncode == 2
        assert re.search("fix is a branch|quotation marks|options go after the word", done.stderr), done.stderr
    assert listed(project, "fix") == listed(project, "main") == []
    assert added(project, "fix", "x" * (16 * 1024))
    with ControlClient.connect(project.record().socket) as client:
        for path in ("../text", "/text", "src/../../x"):
            with pytest.raises(AgentFSError):
                client.add_note("x", "fix", path=path)
        for number in (0, -1, 1 << 63, 99):
            with pytest.raises(AgentFSError):
                client.reply_note(number, "x")


def test_notes_outlive_kill_discard_restore_and_commit_and_nothing_inherits_them(project: Mounted) -> None:
    first = added(project, "fix", "--path", "text", "--line", "3", "kept")
    project.cli("notes reply", str(first), "answer")
    project.kill()
    project.mount()
    assert [(note["text"], note["answers"][0]["text"]) for note in listed(project, "fix")] == [("kept", "answer")]
    project.cli("branch create", "child", "--from", "fix")
    assert listed(project, "child") == []
    project.sh("fix", "echo more >> text")
    project.cli("snapshot create", "before", "-b", "fix")
    project.cli("restore", "before", "-b", "fix")
    assert len(listed(project, "fix")) == 1
    project.cli("commit", "fix")
    assert len(listed(project, "fix")) == 1
    assert not any("note" in path.name for path in project.lower.rglob("*"))
    project.sh("fix", "echo again >> text")
    project.cli("discard", "fix")
    assert "there is no note" in project.cli("notes reply", str(first), "x", check=False).stderr
    project.cli("undo")
    assert [note["id"] for note in listed(project, "fix")] == [first]
    project.cli("branch rename", "fix", "renamed")
    assert [note["branch"] for note in listed(project, "renamed")] == ["renamed"]
    project.cli("branch create", "fix")
    assert listed(project, "fix") == []
    assert project.fsck() == []


def test_odd_texts_paths_and_files(project: Mounted) -> None:
    (project.lower / "crlf").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    (project.lower / "empty lines").write_bytes(b"\n" * 300_000)
    (project.lower / "long").write_bytes(b"x" * 100_000 + b"\n" + b"x" * 99_999 + b"y\n")
    odd = os.fsencode(project.lower) + b"/odd-\xff"
    with open(odd, "w") as file:
        file.write("a\nb\n")
    with ControlClient.connect(project.record().socket) as client:
        zero = client.add_note("a zero \0 in it", "fix")
        raw = client.add_note("raw", "fix", path=b"odd-\xff", line=2)
        assert (raw.path, raw.path_bytes, raw.lines, raw.now_path_bytes) == ("odd-\\xff", b"odd-\xff", ["b"], b"odd-\xff")
        with pytest.raises(AgentFSError, match="too large"):
            client.add_note("x", "fix", path="empty lines", line=5)
    crlf = added(project, "fix", "--path", "crlf", "--line", "2", "crlf")
    long = added(project, "fix", "--path", "long", "--line", "2", "the end of a long line")
    project.kill()
    project.mount()
    project.sh("fix", "printf 'one\\ntwo\\nthree\\n' > crlf; sed -i '1i first' long")
    found = {note["id"]: note for note in listed(project, "fix")}
    assert found[zero.id]["text"] == "a zero \0 in it"
    assert found[crlf]["place"] == "same"
    assert (found[long]["place"], found[long]["now_line"], len(found[long]["lines"][0])) == ("moved", 3, 200)
    project.sh("fix", "sed -i 's/y$/z/' long")
    assert {note["id"]: note for note in listed(project, "fix")}[long]["place"] == "outdated"
    assert "odd-\\377" in project.cli("notes list", "fix").stdout


def test_two_processes_add_at_the_same_time_and_a_kill_loses_nothing_acknowledged(project: Mounted) -> None:
    script = """
import sys
from agentfs_client import ControlClient
from agentfs_client.errors import AgentFSError
with ControlClient.connect(sys.argv[1]) as client:
    try:
        for number in range(10000):
            print(client.add_note(f"{sys.argv[2]} {number}", "fix").id, flush=True)
    except AgentFSError:
        pass
"""

    def writer(name: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", script, project.record().socket, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    writers = [writer("one"), writer("two")]
    heard: list[list[int]] = [[], []]

    def hear(at: int) -> None:
        assert writers[at].stdout is not None
        for line in writers[at].stdout:
            heard[at].append(int(line))

    with ThreadPoolExecutor(2) as threads:
        hearing = [threads.submit(hear, at) for at in (0, 1)]
        while min(map(len, heard)) < 100:
            pass
        project.kill()
        for one in hearing:
            one.result(30)
    for each in writers:
        each.wait(30)
        assert each.stdout is not None
        each.stdout.close()
    project.mount()
    ids = [note["id"] for note in listed(project, "fix")]
    assert len(ids) == len(set(ids))
    assert {*heard[0], *heard[1]} <= set(ids)
    assert not set(heard[0]) & set(heard[1])


def test_a_branch_has_room_for_people_when_the_agent_has_filled_its_own(project: Mounted) -> None:
    text = "x" * (16 << 10)
    fill = f"""
from agentfs_client import ControlClient
from agentfs_client.errors import AgentFSError
with ControlClient.connect({project.record().socket!r}) as client:
    try:
        for _ in range(2000):
            client.add_note({text!r})
    except AgentFSError as exc:
        print(exc.code, exc.message)
"""
    said = project.run("fix", sys.executable, "-c", fill, view="pid").stdout
    assert "too-many-notes the branch has all that may be" in said
    assert added(project, "fix", "still heard")
    assert added(project, "other", "others are not concerned")


def test_a_thousand_notes_are_listed_and_counted(project: Mounted) -> None:
    with ControlClient.connect(project.record().socket) as client:
        for number in range(1000):
            client.add_note(f"note {number}", "fix", path="text", line=number % 30 + 1)
        assert len(client.list_notes("fix")) == 1000
        assert client.show_branch("fix").notes == 1000
    assert len(project.cli("notes list", "fix").stdout.splitlines()) == 1001


def test_counts_are_shown_where_there_are_any(project: Mounted) -> None:
    commands = {"branch list": (), "status": (), "log": (), "compare": ("fix", "other")}

    def mentions() -> list[str]:
        outputs = {command: project.cli(command, *words).stdout for command, words in commands.items()}
        return [command for command, said in outputs.items() if re.search(r"^BRANCH .*NOTES|1 open note$", said, re.MULTILINE)]

    assert mentions() == []
    note = added(project, "fix", "x")
    assert mentions() == list(commands)
    assert project.json("compare", "fix", "other")[0]["notes"] == 1
    project.cli("notes resolve", str(note))
    assert mentions() == []


def test_what_others_wrote_commands_no_terminal(project: Mounted) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\u202eevil\r\nnext"
    done = project.run("fix", *AGENTFSD, "notes", "add", hostile, view="pid")
    project.cli("notes reply", done.stdout.split()[1], hostile)
    for said in (project.cli("notes list", "fix"), project.cli("notes list", "fix", "--full")):
        assert not any(not char.isprintable() and char != "\n" for char in said.stdout)
        assert "\\x1b" in said.stdout
    assert listed(project, "fix")[0]["text"] == hostile.replace("\r\n", "\n")


def test_events_tell_of_notes(project: Mounted) -> None:
    with ControlClient.connect(project.record().socket) as client, client.events("fix") as events:
        note = added(project, "fix", "--path", "text", "x")
        project.cli("notes reply", str(note), "y")
        for command in ("resolve", "reopen", "remove"):
            project.cli(f"notes {command}", str(note))
        added(project, "other", "unheard")
        added(project, "fix", "last")
        kinds = [next(events) for _ in range(6)]
    names = ["note-added", "note-answered", "note-resolved", "note-reopened", "note-removed", "note-added"]
    assert [event.kind for event in kinds] == names
    assert [(event.name, event.path) for event in kinds[:5]] == [(str(note), "text")] * 5
    with ControlClient.connect(project.record().socket) as client:
        noted = [entry.kind for entry in client.audit("fix").entries if entry.kind.startswith("note-")]
        assert noted == names
        assert client.show_branch("fix").changed_ns == 0


@pytest.mark.parametrize("way", ["mount", "socket"])
def test_the_branch_as_a_file_system_has_notes(project: Mounted, way: str) -> None:
    places: dict[str, Any] = {"mount": {"mount": project.path}, "socket": {"socket": project.record().socket}}
    with BranchFilesystem("fix", **places[way]) as filesystem:
        made = filesystem.add_note("two lines", path="src/app.py", line=1, last_line=2)
        assert (made.path, made.line, made.last_line, len(made.lines)) == ("src/app.py", 1, 2, 2)
        assert filesystem.reply_note(made.id, "yes").answers[0].text == "yes"
        assert filesystem.resolve_note(made.id).resolved_ns
        assert (filesystem.notes(), [note.id for note in filesystem.notes(resolved=True)]) == ([], [made.id])
        assert not filesystem.resolve_note(made.id, resolved=False).resolved_ns


def test_notes_can_be_awaited(project: Mounted) -> None:
    async def session() -> None:
        async with await AsyncControlClient.connect(project.record().socket) as client:
            made = await client.add_note("awaited", "fix")
            assert [note.id for note in await client.list_notes("fix")] == [made.id]
            await client.remove_note(made.id)
            assert await client.list_notes("fix") == []

    anyio.run(session)


def test_the_command_says_how_it_is_used() -> None:
    said = agentfsd("notes", "--help").stdout
    assert "Say what you think of a branch" in said and "agentfsd notes add fix-1" in said
