"""Conflicts that a merge has left, settled on the page of the branch: side by side in a real browser, and what is refused."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from agentfsd.domain_errors import Refusal
from agentfsd.web.marked_text import MarkedLines, TakenLines, as_ended, joined, split, written
from tests.mounted import Mounted
from tests.web.asking import Visitor
from tests.web.browser import Browser, served
from tests.web.test_pages import DOT

NAMES = ("main", "fix")
LINES = [f"line {number}" for number in range(1, 31)]
NASTY = "<img src=x onerror=document.title=1>"
STATE = "document.getElementById('conflicts-state').innerText"


@pytest.fixture
def mounted(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    """main and fix clash in two places of a text, a picture, a deleted file and a file with a name that looks like HTML."""
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "text").write_text("".join(f"{line}\n" for line in LINES))
    (lower / "gone").write_text("gone\n")
    (lower / "dot.png").write_bytes(DOT)
    found = make_mount(lower)
    found.run("other", "sh", "-c", "sed -i 's/^line 5$/five of other/' text", new=True, view="pid")
    for branch in reversed(NAMES):  # a new branch begins with what main is then
        found.run(branch, "sh", "-ec", f"""
            sed -i -e 's/^line 5$/five of {branch}/' -e 's/^line 25$/twenty-five of {branch}/' text
            echo {branch} > '{NASTY}'; printf {branch} >> dot.png
        """, new=branch != "main", view="pid")  # fmt: skip
    (found.subtree("main") / "gone").unlink()
    (found.subtree("fix") / "gone").write_text("kept\n")
    assert found.cli("merge", "fix", "--into", "main", "--conflicts", check=False).returncode == 1
    return found


@pytest.fixture
def address(mounted: Mounted) -> Iterator[str]:
    with served("-m", str(mounted.path), "--write") as found:
        yield found


@pytest.fixture
def browser(empty_browser: Browser, address: str) -> Iterator[Browser]:
    empty_browser.look(1280, 900)
    empty_browser.go(address)
    empty_browser.problems.clear()
    yield empty_browser
    assert empty_browser.problems == []
    assert empty_browser.run("document.title") != "1", "a name or content was run as a script"


def card(path: str) -> str:
    return f"[...document.querySelectorAll('.conflict')].find(card => card.ariaLabel === {json.dumps(path)})"


def settle(browser: Browser, address: str) -> None:
    browser.go(address.split("/?")[0] + "/review?branch=main")
    browser.until("document.querySelectorAll('.conflict').length === 4 && document.querySelectorAll('.clash').length === 3")


def test_person_settles_a_merge_side_by_side(browser: Browser, address: str, mounted: Mounted) -> None:
    settle(browser, address)
    assert browser.run(STATE) == "4 conflicts undecided of 4."
    assert browser.run("[document.getElementById('finish'), document.getElementById('commit')].every(each => each.disabled)")
    columns = f"[...{card('text')}.querySelectorAll('.clash[data-n=\"0\"] .lines')].map(column => column.innerText.trim())"
    assert browser.run(columns) == ["line 5", "five of main", "five of fix"]
    assert browser.run(f"{card('text')}.querySelector('.around').innerText").split("\n") == ["line 2", "line 3", "line 4"]
    browser.until(f"{card('dot.png')}.querySelector('.theirs img').naturalWidth === 1")
    assert browser.run(f"{card('gone')}.querySelector('.ours .what').innerText") == "It does not exist."
    browser.run(f"void {card('text')}.querySelector('.clash[data-n=\"0\"] input[value=theirs]').focus()")
    browser.press("b")
    browser.until(f"{card('text')}.querySelector('.decide').innerText === 'Decide (1 of 2 chosen)'")
    browser.run(f"void {card('text')}.querySelector('.clash[data-n=\"1\"] input[value=ours]').focus()")
    browser.press("e")
    browser.until("document.activeElement.matches('textarea')")
    browser.run("void document.activeElement.select()")
    browser.write("written\nby hand")
    settle(browser, address)  # loaded again: what was chosen and not decided is still there
    browser.until(f"{card('text')}.querySelector('textarea').value === 'written\\nby hand'")
    browser.run(f"void {card('text')}.querySelector('.decide').click()")
    browser.until(f"{STATE} === '3 conflicts undecided of 4.'")
    assert browser.run(f"{card('text')}.querySelector('.tag').innerText") == "decided: edited"
    text = "".join(f"{line}\n" for line in LINES)
    text = text.replace("line 5\n", "five of main\nfive of fix\n").replace("line 25\n", "written\nby hand\n")
    assert (mounted.subtree("main") / "text").read_text() == text
    browser.run(f"void {card(NASTY)}.querySelector('[data-how=theirs]').click()")
    browser.until(f"{STATE} === '2 conflicts undecided of 4.'")
    browser.run(f"void {card('dot.png')}.querySelector('[data-how=theirs]').click()")
    browser.until(f"{STATE} === '1 conflict undecided of 4.'")
    browser.run(f"void {card('gone')}.querySelector('[data-how=marked]').click()")
    browser.until(f"{STATE} === 'All conflicts are decided.'")
    browser.click("#finish")
    browser.until("document.querySelector('.said')?.innerText.includes('The merge of fix into main was finished.')")
    assert browser.run("document.getElementById('conflicts').hidden")
    main = mounted.subtree("main")
    assert ((main / NASTY).read_text(), (main / "dot.png").read_bytes(), (main / "gone").exists()) == (
        "fix\n",
        DOT + b"fix",
        False,
    )
    assert mounted.json("conflicts", "main")["state"] == "none"


def test_whole_file_is_edited_and_a_merge_taken_back(browser: Browser, address: str, mounted: Mounted) -> None:
    browser.look(400, 900)
    settle(browser, address)
    assert browser.run("document.documentElement.scrollWidth") <= 400
    tops = (
        f"[...{card('text')}.querySelectorAll('.clash[data-n=\"0\"] .column')].map(column => column.getBoundingClientRect().top)"
    )
    assert len(set(browser.run(tops))) == 3  # one above the other
    edit = f"[...{card('text')}.querySelectorAll('button')].find(button => button.innerText === 'Edit the whole file')"
    browser.run(f"void {edit}.click()")
    area = f"{card('text')}.querySelector('textarea.whole')"
    assert "<<<<<<< main" in browser.until(f"{area}?.value")
    browser.run(f"void {card('text')}.querySelector('.decide').click()")
    said = browser.until(f"{card('text')}.querySelector('[role=alert]')?.innerText")
    assert "text still has conflict markers" in said
    browser.run(f"void ({area}.focus(), {area}.select())")
    browser.write("all new")
    browser.run(f"void {card('text')}.querySelector('.decide').click()")
    browser.until(f"{STATE} === '3 conflicts undecided of 4.'")
    assert (mounted.subtree("main") / "text").read_text() == "all new\n"
    (mounted.subtree("main") / "other").write_text("since\n")
    browser.click("#take-merge-back")
    browser.click("#perform")
    browser.until("document.querySelector('#act p')?.innerText === 'These files were changed since the merge: other.'")
    browser.click("#perform")
    browser.until("document.querySelector('.said')?.innerText.includes('The merge of fix into main was taken back.')")
    main = mounted.subtree("main")
    assert ("five of main" in (main / "text").read_text(), (main / "other").exists()) == (True, False)
    browser.problems[:] = [each for each in browser.problems if "/api/conflicts/" not in each]  # the refusal


def test_two_pages_at_once_never_overwrite_each_other(browser: Browser, address: str, mounted: Mounted) -> None:
    settle(browser, address)
    browser.run(f"void {card('text')}.querySelector('.clash[data-n=\"0\"] input[value=ours]').click()")
    other = Visitor(address).enter()
    form = {**other.form("/review?branch=main"), "path": "text"}
    seen = other.get("/api/conflicts/path?branch=main&path=text").json()
    assert seen["version"] == other.get("/api/conflicts/path?branch=main&path=text").json()["version"]
    (mounted.subtree("main") / "text").write_text("changed by an agent\n" + (mounted.subtree("main") / "text").read_text())
    browser.until(f"{card('text')}.querySelector('[role=alert]')?.innerText.includes('It has changed in the branch')")
    for more in ({"how": "ours"}, {"how": "marked"}, {"choices": '[["ours"], ["ours"]]'}, {"text": "x"}):
        refused = other.post("/api/conflicts/decide", {**form, "version": seen["version"], **more})
        assert (refused.status, "was changed since this page showed it" in refused.text) == (409, True), more
    browser.run(f"void {card('text')}.querySelector('[data-how=ours]').click()")
    browser.until(f"{card('text')}.querySelector('[role=alert]').innerText.includes('Nothing was decided.')")
    assert "<<<<<<< main" in (mounted.subtree("main") / "text").read_text()
    seen = other.get("/api/conflicts/path?branch=main&path=text").json()
    decided = other.post("/api/conflicts/decide", {**form, "version": seen["version"], "choices": '[["theirs"], ["both"]]'})
    assert decided.json()["undecided"] == 3
    browser.until(f"{card('text')}.querySelector('.tag').innerText === 'decided: edited'")  # the other page sees it at once
    mounted.cli("undo")
    browser.until(f"{card('text')}.querySelector('.tag').innerText === 'undecided'")
    mounted.cli("merge", "--abort", "--force", "main")
    browser.until("document.getElementById('conflicts').hidden")
    gone = other.post("/api/conflicts/decide", {**form, "version": seen["version"], "how": "ours"})
    assert (gone.status, "Traceback" in gone.text) == (404, False)
    browser.problems[:] = [each for each in browser.problems if "/api/conflicts/" not in each]  # refused


def test_many_changes_of_a_conflict_are_read_together(browser: Browser, address: str, mounted: Mounted) -> None:
    settle(browser, address)
    browser.run("void (window.asked = 0, window.plain = fetch)")
    browser.run("void (window.fetch = (...given) => (asked += given[0].endsWith('path=text'), plain(...given)))")
    changed = "new CustomEvent('branch-event', { detail: { kind: 'modified', key: 'text' } })"
    browser.run(f"void Array.from({{ length: 20 }}, () => document.dispatchEvent({changed}))")
    (mounted.subtree("main") / "text").write_text("now\n" + (mounted.subtree("main") / "text").read_text())
    browser.until(f"{card('text')}.querySelector('legend').innerText === 'Line 6'")
    assert browser.run("asked") < 8


def test_of_many_conflicts_those_near_the_window_are_read(browser: Browser, address: str, mounted: Mounted) -> None:
    mounted.cli("merge", "--abort", "main")
    for branch in NAMES:
        mounted.run(branch, "sh", "-ec", f"mkdir many; for n in $(seq 60); do echo {branch} > many/$n; done", view="pid")
    mounted.cli("merge", "fix", "--into", "main", "--conflicts", check=False)
    browser.go(address.split("/?")[0] + "/review?branch=main")
    browser.until("document.querySelectorAll('.conflict').length === 64 && document.querySelectorAll('.clash').length > 3")
    browser.run(f"void {card('gone')}.querySelector('[data-how=marked]').click()")
    browser.until(f"{STATE} === '63 conflicts undecided of 64.'")
    assert browser.run("document.querySelectorAll('.clash').length") < 40
    browser.until("!document.getElementById('cards').inert")  # it has come back to where it was
    browser.run(f"void {card('many/9')}.scrollIntoView()")
    browser.until(f"{card('many/9')}.querySelector('.clash')")


def test_an_old_page_neither_decides_nor_ends_a_merge_that_it_never_showed(address: str, mounted: Mounted) -> None:
    """A picture has no markers: in both merges the branch shows the same one, so only the merge tells them apart."""
    mounted.cli("merge", "fix", "--into", "main", "--conflicts", check=False)
    visitor = Visitor(address).enter()
    form = visitor.form("/review?branch=main")
    shown = visitor.get("/api/conflicts?branch=main").json()
    picture = visitor.get("/api/conflicts/path?branch=main&path=dot.png").json()
    mounted.cli("merge", "--abort", "main")
    mounted.cli("branch create", "other-fix", "--from", "fix")
    (mounted.subtree("other-fix") / "dot.png").write_bytes(DOT + b"other")
    mounted.cli("merge", "other-fix", "--into", "main", "--conflicts", check=False)
    now = visitor.get("/api/conflicts?branch=main").json()
    assert (now["merge"] != shown["merge"], now["state"]) == (True, "unfinished")
    assert visitor.get("/api/conflicts/path?branch=main&path=dot.png").json()["version"] == picture["version"]
    old = {**form, "merge": str(shown["merge"])}
    decided = visitor.post("/api/conflicts/decide", {**old, "path": "dot.png", "version": picture["version"], "how": "theirs"})
    assert (decided.status, visitor.post("/api/conflicts/end", {**old, "abort": "1", "force": "1"}).status) == (409, 409)
    assert visitor.get("/api/conflicts?branch=main").json() == now
    seen = {**form, "merge": str(now["merge"]), "path": "dot.png", "version": picture["version"], "how": "theirs"}
    assert visitor.post("/api/conflicts/decide", seen).status == 200
    assert (mounted.subtree("main") / "dot.png").read_bytes() == DOT + b"other"
    mounted.cli("merge", "--abort", "--force", "main")
    mounted.cli("discard", "other-fix")


@pytest.mark.parametrize(("take", "made"), [
    (["ours"], b"a\nx"), (["theirs"], b"a\ny\n"), (["both"], b"a\nx\ny\n"), (["text", "z"], b"a\nz\n"),
])  # fmt: skip
def test_the_end_of_a_text_without_a_line_end_stays_so(take: list[str], made: bytes) -> None:
    parts = as_ended([b"a\n", MarkedLines(b"x\n", None, b"y\n", False), b""], b"a\nx", b"a\ny\n")
    assert joined(parts, msgspec.convert([take], list[TakenLines])) == made


def test_a_text_that_is_written_without_a_line_end_has_none_where_no_side_has() -> None:
    parts = as_ended([b"a\n", MarkedLines(b"x\n", None, b"y\n", False), b""], b"a\nx", b"a\ny")
    assert joined(parts, [TakenLines("text", "z")]) == b"a\nz"
    assert joined(parts, [TakenLines("text", "z\r\n")]) == b"a\nz\n"


def test_merge_that_conflicts_leaves_them_in_the_other_branch(browser: Browser, address: str, mounted: Mounted) -> None:
    other = mounted.json("branch show", "other")["id"]
    browser.go(address.split("/?")[0] + "/review?branch=fix")
    browser.until("document.querySelector('.file-card .hunk') && !document.getElementById('merge').disabled")
    browser.run(f"void (document.getElementById('into').value = {other!r})")
    browser.click("#merge")
    browser.until("document.querySelector('#act [data-way=leave]')")
    browser.click("#act [data-way=leave]")
    said = browser.until("document.getElementById('perform') && document.getElementById('act').innerText")
    assert "1 conflict would be left in other, to be decided there by you or by its agent: text." in said
    assert mounted.json("conflicts", "other")["state"] == "none"
    browser.click("#perform")
    browser.until("!document.querySelector('#done .on').hidden")
    browser.click("#done .on")
    browser.until("location.search === '?branch=other' && document.querySelectorAll('.clash').length === 1")
    assert mounted.json("conflicts", "other")["sources"] == ["fix"]
    browser.problems[:] = [
        each for each in browser.problems if "/api/lower-image" not in each
    ]  # now all branches have changed it


def test_only_our_own_form_decides(address: str, mounted: Mounted) -> None:
    with served("-m", str(mounted.path)) as looking:
        reading = Visitor(looking).enter()
        assert 'id="finish"' not in reading.get("/review?branch=main").text
        for path in ("decide", "end"):
            assert reading.post(f"/api/conflicts/{path}", {"branch": "main", "csrf": "x"}).status == 403
    writing = Visitor(address).enter()
    form = {**writing.form("/review?branch=main"), "path": "text"}
    seen = writing.get("/api/conflicts/path?branch=main&path=text").json()["version"]
    for more, status in (
        ({"csrf": ""}, 403), ({"choices": "[]"}, 400),
        ({"branch": ""}, 400), ({"choices": "\udcff"}, 400),
        ({"choices": '[["mine"], ["ours"]]'}, 400), ({"choices": "{"}, 400), ({}, 400),
        ({"path": "dot.png", "choices": "[]"}, 409), ({"path": "../x", "how": "ours"}, 400),
        ({"path": "nothing", "how": "ours"}, 404),
    ):  # fmt: skip
        found = writing.post("/api/conflicts/decide", {**form, "version": seen, **more})
        assert (found.status, "Traceback" in found.text) == (status, False), (more, found.text)
    for address_of in ("path?branch=main&path=nothing", "path?branch=nobody&path=text", "image?branch=main&path=text&side=ours",
                       "image?branch=main&path=text&side=../x"):  # fmt: skip
        found = writing.get(f"/api/conflicts/{address_of}")
        assert (found.status in (400, 404), "Traceback" in found.text) == (True, False), found.text
    assert mounted.json("conflicts", "main")["conflicts"][0]["decided"] == ""


def test_large_and_odd_files_are_told_of_and_not_edited(address: str, mounted: Mounted) -> None:
    mounted.cli("merge", "--abort", "main")
    name, far = "n" * 250, "x = 'some text'  # and more\n" * 9_000
    (mounted.lower / "far.py").write_text(f"first\n{far}last\n")
    (mounted.lower / "places").write_text("".join(f"{number}\nsame\n" for number in range(600)))
    for branch in NAMES:
        place = mounted.subtree(branch)
        (place / "large").write_text(f"{branch}\n" + "some text\n" * 500_000)
        (place / name).write_bytes(b"\xff " + branch.encode() + b"\n")
        (place / "far.py").write_text(f"{branch}\n{far}{branch}\n")
        (place / "crlf").write_bytes(f"{branch}\r\n".encode())
        (place / "mixed").write_bytes(f"as\r\nit was\n{branch}\n".encode())
        (place / "places").write_text("".join(f"{branch} {number}\nsame\n" for number in range(600)))
        (place / "own").write_text(f"<<<<<<< main\nx\n=======\ny\n>>>>>>> fix\n{branch}\n")
        with open(os.fsencode(place) + b"/stray-\xff", "w") as file:
            file.write(branch)
    mounted.cli("merge", "fix", "--into", "main", "--conflicts", check=False)
    visitor = Visitor(address).enter()
    found = {row["key"]: row for row in visitor.get("/api/conflicts?branch=main").json()["conflicts"]}
    assert {"large", name, "crlf", "stray-%FF"} <= found.keys()
    large = visitor.get("/api/conflicts/path?branch=main&path=large").json()
    assert "too large to be edited here" in large["notes"][0]
    latin = visitor.get(f"/api/conflicts/path?branch=main&path={name}").json()
    assert (latin["clashes"][0].get("text"), "text" in latin) == (None, False)  # a form would change its bytes
    took = []
    for _ in range(2):
        begun = time.monotonic()
        assert len(visitor.get("/api/conflicts/path?branch=main&path=far.py").json()["clashes"]) == 2
        took.append(time.monotonic() - begun)
    assert min(took) < 1  # what is not shown is not coloured either
    asked = (visitor.get(f"/api/conflicts/path?branch=main&path={path}") for path in ("mixed", "places", "own"))
    mixed, places, own = (answer.json() for answer in asked)
    assert ("text" in mixed, "clashes" in places, "clashes" in own) == (False, False, False)
    assert "600 places, too many" in places["notes"][0]
    assert "cannot be told from its text" in own["notes"][0]
    form = visitor.form("/review?branch=main")
    written_whole = {**form, "path": "mixed", "version": mixed["version"], "text": "as\nit was\nmine\n"}
    assert visitor.post("/api/conflicts/decide", written_whole).status == 400
    assert b"as\r\nit was\n" in (mounted.subtree("main") / "mixed").read_bytes()
    for path, choice, content in (
        ("crlf", ["text", "both\nof them"], b"both\r\nof them\r\n"), (name, ["both"], b"\xff main\n\xff fix\n"),
        ("stray-%FF", ["theirs"], b"fix"),
    ):  # fmt: skip
        seen = visitor.get(f"/api/conflicts/path?branch=main&path={path}").json()
        answer = visitor.post(
            "/api/conflicts/decide", {**form, "path": path, "version": seen["version"], "choices": json.dumps([choice])}
        )
        assert answer.status == 200, answer.text
        with open(os.fsencode(mounted.subtree("main")) + b"/" + path.encode().replace(b"%FF", b"\xff"), "rb") as file:
            assert file.read() == content


@pytest.mark.parametrize(("text", "found"), [
    (b"a\n<<<<<<< main\nx\n||||||| base\no\n=======\ny\n>>>>>>> fix\nb\n", [MarkedLines(b"x\n", b"o\n", b"y\n", ends=False)]),
    (b"<<<<<<< main\nx\n|||||||\n=======\n>>>>>>> fix\n", [MarkedLines(b"x\n", b"", b"", ends=False)]),
    (b"<<<<<<< HEAD\r\nx\r\n=======\r\ny\r\n>>>>>>> 0123abc\r\n", [MarkedLines(b"x\r\n", None, b"y\r\n", ends=True)]),
    (b"<<<<<<< main:old\n<<<<<<\n=======\n>>>>>>> fix:new\n", [MarkedLines(b"<<<<<<\n", None, b"", ends=False)]),
    (b"<<<<<<< else\nx\n=======\ny\n>>>>>>> whom\n", []), (b"", []), (b"none\n", []),
    (b"<<<<<<< main\nx\n=======\ny\n=======\nz\n>>>>>>> fix\n", None),
    (b"<<<<<<< main\nx\n=======\ny\n", None), (b">>>>>>> fix\n", None),
    (b"<<<<<<< main\n<<<<<<< main\n=======\n>>>>>>> fix\n", None), (b"<<<<<<<< main\n=======\n>>>>>>> fix\n", None),
])  # fmt: skip
def test_text_is_split_at_its_markers_only_where_they_are_certain(text: bytes, found: list[MarkedLines] | None) -> None:
    parts = split(text, NAMES)
    if found is None:
        assert parts is None
        return
    assert parts is not None
    assert [part for part in parts if isinstance(part, MarkedLines)] == found
    with pytest.raises(Refusal):
        joined(parts, [TakenLines("ours")] * (len(found) + 1))


def test_lines_end_as_in_the_file() -> None:
    assert written("a\r\nb", ends=False) == b"a\nb\n"
    assert written("a\nb\n", ends=True) == b"a\r\nb\r\n"
    assert written("", ends=True) == b""
