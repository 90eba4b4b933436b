"""A running `agentfsd ui` over a real mount: what it shows, what it refuses, what it changes when asked to."""

import base64
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from agentfs_client.control import ControlClient
from tests.mounted import Mounted
from tests.web.asking import Visitor, listening
from tests.web.browser import served
from tests.web.conftest import NASTY

DOT = base64.b64decode(  # one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FILE = "/api/filesystem/file?ref=agent-3&path="


# -- what it shows


def test_first_page_tells_who_works_where(mounted: Mounted, visitor: Visitor) -> None:
    agent = mounted.start("agent-7", "sh", "-c", "echo ready; read answer", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdout is not None
    assert agent.stdin is not None
    agent.stdout.readline()
    row = next(row for row in visitor.get("/").text.split("<tr")[1:] if 'data-branch="agent-7"' in row)
    assert re.search(r"</span>sh\b", row)
    assert "/compare?a=&amp;b=agent-7" in row
    assert '<span class="bad">1 conflict</span> in 1 path' in row
    assert 'with <a href="/compare?a=agent-3&amp;b=agent-7"' in row
    agent.stdin.close()
    agent.wait(10)
    assert visitor.get("/api/changed?ref=gone").json() is None
    found = visitor.get("/api/changed?ref=agent-7").json()
    lines = {"lines_added": 2, "lines_removed": 1}
    assert found == {"added": 2, "modified": 1, "deleted": 0, **lines, "when": found["when"]}
    assert found["when"].endswith(("ago", "just now"))


def test_specified_routes_tell_of_a_branch_or_snapshot(mounted: Mounted, visitor: Visitor) -> None:
    meta = visitor.get("/api/filesystem/meta?ref=agent-7").json()
    with ControlClient.connect(mounted.record().socket) as client:
        created_ns = client.show_branch("agent-7").created_ns
    assert meta["file_count"] == 5004
    assert meta["total_bytes"] == sum(each["size_bytes"] for each in visitor.get("/api/filesystem/tree?ref=agent-7").json())
    assert meta["created_at"].startswith(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created_ns / 1e9)))
    assert visitor.get("/api/filesystem/meta?ref=good").json()["ref"] == "good"
    tree = visitor.get("/api/filesystem/tree?ref=agent-7").json()
    assert {"path": "docs/a.md", "size_bytes": 5} in tree
    assert [each["path"] for each in tree] == sorted(each["path"] for each in tree)
    assert visitor.get("/api/filesystem/file?ref=agent-7&path=docs/a.md").body == b"text\n"
    assert visitor.get("/api/filesystem/file?ref=good&path=app.py").body == b"def three():\n    return 1\n"
    assert visitor.get("/api/filesystem/file?path=app.py").body == b"def one():\n    return 1\n"


def test_directory_is_listed_with_names_of_any_bytes(visitor: Visitor) -> None:
    entries = {row[0]: row for row in visitor.get("/api/filesystem/tree?ref=agent-3&path=").json()["entries"]}
    assert entries["stray-%FF"] == ["stray-%FF", "stray-\\xff", "f", 1]
    assert entries[quote(f"{NASTY}.html")][1:3] == [f"{NASTY}.html", "f"]
    assert entries["outside"][2] == "ll"
    assert entries["inside"][2] == "fl"
    assert visitor.get(FILE + "stray-%FF").body == b"z"
    assert visitor.get("/api/view?ref=agent-3&path=stray-%FF").json()["name"] == "stray-\\xff"
    big = visitor.get("/api/filesystem/tree?ref=agent-3&path=big").json()["entries"]
    assert (len(big), big[0]) == (5000, ["entry-0000", "", "f", -1])


def test_contents_are_never_pages(visitor: Visitor) -> None:
    found = visitor.get(FILE + quote(f"{NASTY}.html"))
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    assert found.headers["x-content-type-options"] == "nosniff"
    binary = visitor.get(FILE + "blob.bin")
    assert binary.headers["content-type"] == "application/octet-stream"
    assert binary.headers["content-disposition"] == "attachment; filename*=UTF-8''blob.bin"
    assert binary.body == b"x\0y"
    assert "attachment" in visitor.get(FILE + "app.py&download=1").headers["content-disposition"]


def test_parts_of_a_large_file_are_to_be_had(visitor: Visitor) -> None:
    whole = "".join(f"{number}\n" for number in range(1, 250001)).encode()
    for asked, status, body in (
        ("bytes=0-3", 206, b"1\n2\n"), ("bytes=2-", 206, whole[2:]), ("bytes=-7", 206, b"250000\n"), ("bytes=9-2", 200, whole),
        ("lines=1-2", 200, whole), ("bytes=999999999-", 416, b""), ("bytes=-0", 416, b""),
    ):  # fmt: skip
        found = visitor.get(FILE + "large.log", {"range": asked})
        assert (found.status, found.body == body) == (status, True), asked
    first = visitor.get("/api/view?ref=agent-3&path=large.log").json()
    assert 0 < len(first["lines"]) < 250000
    assert "large file" in first["notes"][0]
    second = visitor.get(f"/api/view?ref=agent-3&path=large.log&offset={first['next']}").json()
    assert second["lines"][0] == [["", str(len(first["lines"]) + 1)]]


def test_symlinks_are_told_of_and_lead_nowhere_outside(visitor: Visitor) -> None:
    assert "symlink to app.py" in visitor.get("/api/view?ref=agent-3&path=inside").json()["notes"][0]
    found = visitor.get("/api/view?ref=agent-3&path=outside").json()
    assert "/etc/passwd, which is nothing, or out of the tree" in found["notes"][0]
    assert "lines" not in found
    for path in ("outside", "outside/x", "../../etc/passwd", "/../etc/passwd", ".."):
        refused = visitor.get(FILE + path)
        assert refused.status in (403, 404), path
        assert b"root:" not in refused.body
    assert "escapes root" in visitor.get(FILE + "../x").json()["error"]
    assert visitor.get(FILE + "/etc/passwd").status == 404  # from the root of the tree
    assert visitor.get("/api/filesystem/tree?ref=agent-3&path=.agentfs").status == 404


def test_any_two_states_are_compared(visitor: Visitor) -> None:
    changes = {row["path"]: row for row in visitor.get("/api/changes?b=agent-3").json()["changes"]}
    statuses = {path: row["status"] for path, row in changes.items()}
    assert statuses["app.py"] == "M"
    assert statuses["gone.txt"] == "D"
    assert (statuses["new.txt"], changes["new.txt"]["was"]) == ("R", "old.txt")
    assert statuses["stray-\\xff"] == "A"
    (diff,) = visitor.get("/api/diff?a=agent-7&b=agent-3&path=app.py").json()
    (row,) = [row for row in diff["hunks"][0]["rows"] if not row.get("same")]
    assert "".join(text for _, text in row["was"]) == "def seven():"
    assert "".join(text for _, text in row["now"]) == "def four():"
    (since,) = visitor.get("/api/changes?a=good&b=agent-3").json()["changes"]
    assert since["path"] == "app.py"
    assert visitor.get("/api/counts?a=good&b=agent-3").json() == {"app.py": [1, 1]}
    assert visitor.get("/compare?ref=agent-3&ref=agent-7").headers["location"] == "/compare?a=agent-3&b=agent-7"


def test_history_shows_snapshots_in_line_with_their_branch(visitor: Visitor) -> None:
    text = visitor.get("/history").text
    rows = text.split("<li>")[1:]
    for row, name in zip(rows, ("agent-3", "good", "main", "agent-7", "the real directory"), strict=True):
        assert f">{name}<" in row
    assert "tests pass" in rows[1]
    assert "Restore" not in text


def test_history_of_one_branch_is_its_own(visitor: Visitor) -> None:
    rows = visitor.get("/history?branch=agent-3").text.split("<li>")[1:]
    for row, name in zip(rows, ("agent-3", "good", "the real directory"), strict=True):
        assert f">{name}<" in row
    assert "No snapshots yet of agent-7" in visitor.get("/history?branch=agent-7").text


def test_pictures_are_pictures_by_what_is_in_them(mounted: Mounted, visitor: Visitor) -> None:
    mounted.cli("branch create", "pictures")
    mounted.subtree("pictures").joinpath("dot.txt").write_bytes(DOT)
    mounted.subtree("pictures").joinpath("page.png").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>"
    )
    found = visitor.get("/api/image?ref=pictures&path=dot.txt")
    assert (found.status, found.headers["content-type"], found.body) == (200, "image/png", DOT)
    assert found.headers["content-security-policy"] == "default-src 'none'; sandbox"
    for path in ("page.png", "app.py", "outside", "../dot.txt"):
        assert visitor.get(f"/api/image?ref=pictures&path={path}").status in (400, 403, 404), path
    mounted.cli("discard", "pictures")


def test_directory_with_many_changes_is_not_compared_at_once(mounted: Mounted, visitor: Visitor) -> None:
    mounted.cli("branch create", "many")
    mounted.sh("many", "mkdir n few; seq 400 | split -l 1 -a 3 - n/; echo 1 > few/one; echo 2 > few/two")
    refused = visitor.get("/api/diff?b=many&path=n")
    assert (refused.status, refused.json()["error"]) == (400, "401 changes in it; choose one of them.")
    assert [diff["path"] for diff in visitor.get("/api/diff?b=many&path=few/one").json()] == ["few/one"]
    assert visitor.get("/api/diff?b=many&path=few").status == 200
    (one,) = visitor.get("/api/diff?b=many&path=n/aaa").json()
    assert one["added"] == 1
    assert visitor.get("/api/diff?a=many&b=agent-7&path=n").status == 400  # all gone


def test_files_are_found_by_name(visitor: Visitor) -> None:
    assert visitor.get("/api/find?ref=agent-3&q=ENTRY-4321").json() == {"found": [["big/entry-4321"] * 2], "more": False}
    many = visitor.get("/api/find?ref=agent-3&q=entry").json()
    assert (len(many["found"]), many["more"]) == (500, True)


def test_what_happens_is_told_as_it_happens(mounted: Mounted, visitor: Visitor) -> None:
    with listening(visitor, "branch=agent-7") as stream:
        mounted.sh("agent-7", "echo more > fresh; rm fresh")
        kinds = []
        while "deleted" not in kinds:
            line = stream.readline()
            assert line, f"the stream ended after {kinds}"
            if line.startswith(b'data: {"kind"') and json.loads(line[6:])["path"] == "fresh":
                kinds.append(json.loads(line[6:])["kind"])
    assert kinds[0] == "created"


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/changes?b=nobody", 404, "there is no"),
        ("/files?ref=nobody", 200, ""),
        ("/api/filesystem/tree?ref=nobody&path=", 404, "there is no"),
        ("/api/filesystem/file?ref=agent-3", 400, "the address says no path="),
        ("/api/filesystem/file?ref=agent-3&path=none", 404, "No such file"),
        ("/api/filesystem/file?ref=agent-3&path=big", 400, "Is a directory"),
        ("/api/filesystem/file?ref=agent-3&path=a%00b", 400, "zero byte"),
        ("/api/view?ref=agent-3&path=app.py&offset=-1", 400, "takes a number"),
        ("/api/filesystem/tree?ref=agent-3&path=app.py", 404, "Not a directory"),
        ("/nothing", 404, "There is no such page."),
        ("/discard?branch=agent-3", 403, "only looks"),
    ],
)
def test_errors_are_sentences(visitor: Visitor, path: str, status: int, words: str) -> None:
    found = visitor.get(path)
    assert found.status == status
    assert words in found.text
    assert "Traceback" not in found.text


# -- what it changes


@pytest.fixture(scope="module")
def writing(mounted: Mounted) -> Iterator[Visitor]:
    with served("-m", str(mounted.path), "--write") as found:
        yield Visitor(found).enter()


def test_nothing_is_changed_by_pages_that_only_look(visitor: Visitor, mounted: Mounted) -> None:
    for path in ("/discard", "/restore", "/undo", "/"):
        assert visitor.post(path, {"branch": "agent-3", "ref": "good", "csrf": "x"}).status == 403
    assert mounted.subtree("agent-3").joinpath("app.py").read_text() == "def four():\n    return 1\n"


def test_a_change_needs_a_form_of_ours(writing: Visitor, mounted: Mounted) -> None:
    form = writing.form("/discard?branch=agent-7")
    assert writing.post("/discard", form, {"origin": "http://evil.example"}).status == 403
    assert writing.post("/discard", form, {"origin": "http://127.0.0.1:9"}).status == 403
    for origin in ("null", "http://[", "http://[::1]:99999999", f"http://x@{writing.address.netloc}"):
        assert writing.post("/discard", form, {"origin": origin}).status == 403, origin
    assert writing.post("/discard", form, {"sec-fetch-site": "same-site"}).status == 403
    assert writing.post("/discard", {**form, "csrf": ""}).status == 403
    assert writing.post("/discard", {**form, "x": "y" * 2_000_000}).status == 413
    stranger = Visitor(writing.address.geturl())
    bearer = {"authorization": f"Bearer {stranger.token}"}
    assert stranger.post("/discard", form, bearer).status == 403
    assert writing.get("/discard?branch=agent-7", method="DELETE").status == 405
    assert mounted.subtree("agent-7").joinpath("docs/a.md").exists()


def test_snapshot_is_restored_after_a_look_and_undone(writing: Visitor, mounted: Mounted) -> None:
    app = mounted.subtree("agent-3") / "app.py"
    page = writing.get("/restore?ref=good").text
    assert "1 change (1 modified)" in page
    assert "app.py" in page
    form = writing.form("/restore?ref=good")
    assert writing.post("/restore", form).headers["location"] == "/compare?a=&b=agent-3"
    assert app.read_text() == "def three():\n    return 1\n"
    assert 'role="status"' in writing.get("/").text
    assert "restore of agent-3" in writing.get("/undo").text
    writing.post("/undo", writing.form("/undo"))
    assert app.read_text() == "def four():\n    return 1\n"


def test_one_file_of_any_name_is_restored(writing: Visitor, mounted: Mounted) -> None:
    directory = os.fsencode(mounted.subtree("agent-3"))
    stray, app = os.path.join(directory, b"stray-\xff"), mounted.subtree("agent-3") / "app.py"
    with open(stray, "w") as file:
        file.write("changed")
    page = "/restore?ref=good&branch=agent-3&path=stray-%FF"
    text = writing.get(page).text
    assert "Restore stray-\\xff to good?" in text
    writing.post("/restore", writing.form(page))
    with open(stray) as file:
        assert file.read() == "z"
    assert app.read_text() == "def four():\n    return 1\n"


def test_branch_is_discarded_after_a_look(writing: Visitor, mounted: Mounted) -> None:
    mounted.cli("branch create", "short", "--from", "agent-7")
    form = writing.form("/discard?branch=short")
    assert writing.post("/discard", form).status == 303
    assert "short" not in {branch["name"] for branch in mounted.json("branch list")}
    assert Visitor(writing.address.geturl()).get("/").status == 403
    writing.get("/", {"sec-fetch-mode": "cors", "sec-fetch-site": "same-origin"})  # a page that renews itself
    assert "short was discarded." in writing.get("/").text
    assert "short was discarded." not in writing.get("/").text
    assert writing.post("/discard", form).status == 404
    assert "the form says no id" in writing.post("/discard", {"csrf": form["csrf"]}).text


def test_page_that_was_left_open_changes_only_what_it_showed(writing: Visitor, mounted: Mounted) -> None:
    mounted.cli("branch create", "first", "--from", "agent-7")
    mounted.cli("branch create", "second", "--from", "agent-7")
    of_first = writing.form("/discard?branch=first")
    mounted.cli("discard", "first")
    assert "It comes back as it was." in writing.get("/undo").text
    to_undo = writing.form("/undo")
    mounted.cli("branch create", "first", "--from", "agent-7")
    refused = writing.post("/discard", of_first)
    assert (refused.status, "there is no branch named &#39;first&#39;" in refused.text) == (404, True)
    assert "nothing was discarded" in refused.text
    mounted.cli("snapshot create", "-b", "second", "seen")
    (mounted.subtree("second") / "later").write_text("later\n")
    to_restore = writing.form("/restore?ref=seen")
    mounted.cli("branch rename", "second", "third")
    mounted.cli("branch create", "second", "--from", "agent-7")
    (mounted.subtree("second") / "other").write_text("other\n")
    assert writing.post("/restore", to_restore).status == 303
    assert (mounted.subtree("second") / "other").exists()
    assert not (mounted.subtree("third") / "later").exists()
    mounted.cli("discard", "third")
    refused = writing.post("/restore", to_restore)
    assert (refused.status, "nothing was restored" in refused.text) == (404, True)
    mounted.cli("discard", "second")
    refused = writing.post("/undo", to_undo)
    assert (refused.status, "the last is the discard of second" in refused.text) == (409, True)
    names = {branch["name"] for branch in mounted.json("branch list")}
    assert ("first" in names, "second" in names) == (True, False)
    assert writing.post("/undo", writing.form("/undo")).status == 303
    assert "second" in {branch["name"] for branch in mounted.json("branch list")}
    mounted.cli("discard", "first")
    mounted.cli("discard", "second")


def test_a_process_that_waits_is_answered_on_a_page(writing: Visitor, visitor: Visitor, mounted: Mounted) -> None:
    mounted.cli("rules add", "-b", "agent-7", "ask app.py")
    process = mounted.start("agent-7", "cat", "app.py", view="namespace", stdout=subprocess.PIPE)
    with ControlClient.connect(str(mounted.record().socket)) as client:
        client.list_asks(wait=True)
    assert "cat" in visitor.get("/asks").text
    assert '<form method="post"' not in visitor.get("/asks").text
    form = writing.form("/asks")
    for wrong in ({"answer": "sometimes"}, {"answer": "allow", "id": "9" * 30}, {"answer": "allow", "id": "-1"}):
        assert writing.post("/asks", {**form, **wrong}).status == 400, wrong
    assert writing.post("/asks", {**form, "answer": "allow"}).status == 303
    assert "seven" in process.communicate(timeout=60)[0]
    assert "No process waits" in writing.get("/asks").text
    mounted.cli("rules remove", "-b", "agent-7", "ask app.py")


def test_first_page_tells_of_conflicts_that_a_merge_has_left(mounted: Mounted, visitor: Visitor) -> None:
    for branch in ("left-1", "left-2"):
        mounted.run(branch, "sh", "-ec", f"echo {branch} > both", new=True, view="pid")
    mounted.cli("merge", "left-1", "left-2", "--conflicts", check=False)
    row = next(row for row in visitor.get("/").text.split("<tr")[1:] if 'data-branch="left-2"' in row)
    assert "merge of left-1 not finished:" in row
    assert '/review?branch=left-2#conflicts">1 conflict undecided' in row
    mounted.cli("merge", "--abort", "left-2")
    for branch in ("left-1", "left-2"):
        mounted.cli("discard", branch)


def test_a_picture_that_every_branch_has_changed_is_shown_as_a_snapshot_has_it(
    make_mount: Callable[..., Mounted], tmp_path: Path
) -> None:
    lower = tmp_path / "pictures"
    lower.mkdir()
    (lower / "dot.png").write_bytes(DOT)
    mounted = make_mount(lower)
    mounted.cli("snapshot create", "before")
    (mounted.path / "dot.png").write_bytes(DOT + b"changed")
    with served("-m", str(mounted.path)) as place:
        visitor = Visitor(place).enter()
        assert visitor.get("/api/lower-image?path=dot.png").body == DOT
        mounted.cli("snapshot delete", "before")
        assert "no snapshot is older" in visitor.get("/api/lower-image?path=dot.png").text
