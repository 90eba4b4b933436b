"""Notes on the page that reviews a branch, in a real browser: written at a line, answered, settled, and never more than text."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from agentfs_client import ControlClient
from tests.mounted import AGENTFSD, Mounted, needs_fuse
from tests.web.asking import Visitor
from tests.web.browser import Browser, served
from tests.web.test_review import CONTRAST

_LINES = [f"    line {number}" for number in range(1, 61)]
_HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> \x1b[2J \u202e"
_AT_TEXT = "[...document.querySelectorAll('.file-card')].find(card => card.ariaLabel === 'text.py')"


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    with pytest.MonkeyPatch.context() as patch:
        base = tmp_path_factory.mktemp("notes")
        patch.setenv("AGENTFS_STATE_HOME", str(base / "state-home"))
        patch.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        mounted = Mounted(base)
        (mounted.lower / "text.py").write_text("".join(f"{line}\n" for line in _LINES))
        (mounted.lower / "gone").write_text("gone\n")
        mounted.mount()
        yield mounted
        mounted.end()


@pytest.fixture(scope="module")
def address(mounted: Mounted) -> Iterator[str]:
    with served("-m", str(mounted.path), "--write") as found:
        yield found


def branch(mounted: Mounted, name: str) -> str:
    mounted.cli("branch create", name)
    mounted.sh(name, "sed -i -e 's/line 12$/line twelve/' -e 's/line 40$/line forty/' text.py; rm gone; echo x > 'new file'")
    return str(mounted.json("branch show", name)["id"])


def review(browser: Browser, address: str, name: str, file: str = "text.py") -> None:
    browser.go(address.split("/?")[0] + f"/review?branch={name}")
    browser.until(f"{_AT_TEXT.replace('text.py', file)}?.querySelector('.hunk')")


def row(line: int, card: str = _AT_TEXT) -> str:
    """The row of a line of text.py, or of another card, in the new version, in either layout."""
    return (
        f"[...{card}.querySelectorAll('table.diff tbody tr')].find(row => row.cells.length >= 3 && "
        f"parseInt(row.cells[row.cells.length - 2].innerText) === {line} && !row.matches('.remark-row'))"
    )


def write_at(browser: Browser, line: int, text: str) -> None:
    browser.run(f"void {row(line)}.dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))")
    browser.until(f"{row(line)}.querySelector('.remark-plus')")
    assert browser.run(f"{row(line)}.querySelector('.remark-plus').ariaLabel") == f"Add a note on line {line}"
    browser.run(f"void {row(line)}.querySelector('.remark-plus').click()")
    browser.until("document.activeElement.matches('#note-form textarea')")
    browser.write(text)
    browser.run("void document.querySelector('#note-form').requestSubmit()")
    browser.until("!document.getElementById('note-form')")


def test_a_note_is_written_at_a_line_answered_and_settled(browser: Browser, address: str, mounted: Mounted) -> None:
    branch(mounted, "fix")
    review(browser, address, "fix")
    write_at(browser, 12, "why twelve?")
    below = f"{row(12)}.nextElementSibling"
    assert "why twelve?" in browser.until(f"{below}.matches('.remark-row') && {below}.innerText")
    (note,) = mounted.json("notes list", "fix")
    assert (note["text"], note["now_path"], note["line"], note["lines"]) == ("why twelve?", "text.py", 12, ["    line twelve"])
    assert browser.until("document.querySelector('#notes h2').innerText") == "1 open note"
    assert "text.py:12" in browser.run("document.querySelector('#notes .remark-place').innerText")
    mounted.run("fix", *AGENTFSD, "notes", "reply", str(note["id"]), "it is a dozen", view="pid")  # the page hears of it
    assert "agent" in browser.until(f"{below}.innerText.includes('it is a dozen') && {below}.innerText")
    browser.run(f"void {below}.querySelector('.remark-reply').click()")
    browser.until("document.activeElement.matches('.remark-row textarea')")
    for letter in "jnvxcr?g":  # which are keys of the page elsewhere
        browser.press(letter)
    assert browser.run("document.activeElement.value") == "jnvxcr?g"
    mounted.cli("notes resolve", str(note["id"]))  # by somebody else: what is being written stays
    browser.until("document.querySelector('#notes h2').innerText === 'Notes'")
    assert browser.run(f"{below}.querySelector('textarea').value") == "jnvxcr?g"
    mounted.cli("notes reopen", str(note["id"]))
    browser.until("document.querySelector('#notes h2').innerText === '1 open note'")
    browser.run(f"void {below}.querySelector('textarea').focus()")
    browser.run("void document.activeElement.closest('form').requestSubmit()")
    browser.until(f"{below}.querySelectorAll('.remark-said').length === 3")
    browser.run(f"void {below}.querySelector('.remark-resolve').click()")
    browser.until("!document.querySelector('.remark-row')")
    assert browser.until("document.querySelector('#notes-past')?.innerText") == "Show 1 resolved note"
    browser.click("#notes-past")
    assert "Resolved by" in browser.until(f"{below}.innerText")
    browser.run(f"void {below}.querySelector('.remark-resolve').click()")
    browser.until("document.querySelector('#notes h2').innerText === '1 open note'")
    assert [each["resolved_ns"] for each in mounted.json("notes list", "fix")] == [0]


def test_a_note_is_written_by_keyboard_and_stays_when_the_page_is_drawn_again(
    browser: Browser, address: str, mounted: Mounted
) -> None:
    branch(mounted, "keys")
    review(browser, address, "keys")
    browser.press("r")
    browser.until("document.activeElement.matches('#notes textarea')")
    browser.write("about all of it")
    browser.press("Escape")
    browser.until("!document.getElementById('note-form')")
    browser.run("void document.querySelector('#list').focus()")
    browser.press("/")
    browser.write("text.py")
    browser.press("Enter")
    browser.until("document.querySelector('.hunk.at')?.closest('.file-card').ariaLabel === 'text.py'")
    browser.press("r")
    browser.until("document.activeElement.getAttribute('aria-label') === 'Note on line 12'")
    browser.write("half of")
    browser.click("#layout")  # draws all lines again
    browser.until(f"{_AT_TEXT}.querySelector('.diff.unified') && {_AT_TEXT}.querySelector('#note-form')")
    assert browser.run("document.querySelector('#note-form textarea').value") == "half of"
    mounted.cli("notes add", "keys", "meanwhile")
    browser.until("document.querySelector('#notes').innerText.includes('meanwhile')")
    assert browser.run("document.querySelector('#note-form textarea').value") == "half of"
    browser.run("void document.querySelector('#note-form textarea').focus()")
    browser.write(" it")
    browser.run("void document.querySelector('#note-form').requestSubmit()")
    browser.until(f"{_AT_TEXT}.querySelector('.remark-row')?.innerText.includes('half of it')")
    assert [note["text"] for note in mounted.json("notes list", "keys")] == ["meanwhile", "half of it"]
    browser.click("#layout")
    browser.until(f"{row(12)}?.nextElementSibling.innerText.includes('half of it')")
    browser.click(".remark-file")
    browser.until("document.activeElement.getAttribute('aria-label') === 'Note on this file'")


def test_notes_elsewhere_are_listed_with_what_became_of_their_place(browser: Browser, address: str, mounted: Mounted) -> None:
    branch(mounted, "places")
    for arguments in (
        ("--path", "text.py", "--line", "12", "at twelve"), ("--path", "text.py", "--line", "25", "far from any change"),
        ("--path", "gone", "why was it deleted?"), ("about the branch",),
    ):  # fmt: skip
        mounted.cli("notes add", "places", *arguments)
    review(browser, address, "places")
    browser.until("document.querySelectorAll('#notes .remark').length === 4")
    said = browser.run("document.querySelector('#notes').innerText")
    assert "gone, which is gone" in said and "the branch" in said and "text.py:25" in said
    assert "far from any change" in browser.until(
        f"{_AT_TEXT}.querySelector('.remark-rest')?.innerText"
    )  # that line is not shown
    browser.run(f"void {_AT_TEXT}.querySelectorAll('.grow')[1].click()")
    browser.until(f"{row(25)}?.nextElementSibling.innerText.includes('far from any change')")
    browser.run(f"void {_AT_TEXT}.querySelector('.fold').click()")
    browser.run("void document.querySelector('#notes .remark-place a').click()")
    browser.until(f"!{_AT_TEXT}.classList.contains('folded')")
    mounted.sh("places", "sed -i '1i first' text.py; sed -i 's/line twelve/line 12/' text.py")
    browser.until("document.querySelector('#notes').innerText.includes('outdated: the line has changed')")
    assert "line twelve" in browser.run("document.querySelector('#notes .remark-lines').textContent")
    assert "text.py:26, which was line 25" in browser.run("document.querySelector('#notes').innerText")


def test_a_line_of_any_bytes_can_have_a_note(browser: Browser, address: str, mounted: Mounted) -> None:
    mounted.cli("branch create", "odd")
    odd = [
        r"cr\r", r"tab\there\t", r"latin \344", r"feed\f next", r"sep \342\200\250 next", r"one \001", r"cr\r in it", "   ",
        "x" * 3000,
    ]  # fmt: skip
    mounted.sh("odd", "printf '" + "".join(f"{line}\\n" for line in odd) + "' > odd.py")
    review(browser, address, "odd", "odd.py")
    card = _AT_TEXT.replace("text.py", "odd.py")
    for line in range(1, len(odd) + 1):
        browser.run(f"void {row(line, card)}.dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))")
        browser.run(f"void {row(line, card)}.querySelector('.remark-plus').click()")
        browser.until(f"document.activeElement.getAttribute('aria-label') === 'Note on line {line}'")
        browser.write(f"about {line}")
        browser.run("void document.querySelector('#note-form').requestSubmit()")
        browser.until("!document.getElementById('note-form') || document.querySelector('#note-form [role=alert]')")
        assert browser.run("document.querySelector('#note-form [role=alert]')?.innerText") is None, odd[line - 1]
        browser.until(f"{row(line, card)}.nextElementSibling.innerText.includes('about {line}')")
    assert [note["now_line"] for note in mounted.json("notes list", "odd")] == list(range(1, len(odd) + 1))


def test_a_line_that_has_changed_since_the_page_was_loaded_gets_no_note(browser: Browser, address: str, mounted: Mounted) -> None:
    branch(mounted, "stale")
    review(browser, address, "stale")
    browser.run(f"void {row(12)}.dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))")
    browser.run(f"void {row(12)}.querySelector('.remark-plus').click()")
    browser.write("about that line")
    mounted.sh("stale", "sed -i '1i another' text.py")
    browser.run("void document.querySelector('#note-form').requestSubmit()")
    said = browser.until("document.querySelector('#note-form [role=alert]')?.innerText")
    assert "line 12 of text.py was changed since this page showed it" in said
    assert mounted.json("notes list", "stale") == []
    browser.problems[:] = [problem for problem in browser.problems if "/api/notes/add" not in problem]  # the answer 409


def test_hostile_texts_are_shown_as_texts_and_a_thousand_notes_are_bearable(
    browser: Browser, address: str, mounted: Mounted
) -> None:
    branch(mounted, "many")
    with ControlClient.connect(mounted.record().socket) as client:
        hostile = client.add_note(_HOSTILE, "many", path="text.py", line=12)
        client.reply_note(hostile.id, _HOSTILE)
        for number in range(999):
            client.add_note(f"note {number}", "many", path="text.py", line=number % 60 + 1)
    review(browser, address, "many")
    browser.until("document.querySelector('#notes h2').innerText === '1,000 open notes'")
    assert browser.run("document.querySelectorAll('#notes .remark').length") == 20
    browser.run(f"void {_AT_TEXT}.scrollIntoView()")
    shown = browser.until(f"{_AT_TEXT}.querySelector('.remark-row [data-note=\"{hostile.id}\"] .remark-text')?.textContent")
    assert shown.startswith("<script>document.title") and "\u202e" not in shown and "\x1b" not in shown
    assert browser.run("document.title").startswith("many")
    assert browser.run("document.querySelectorAll('#notes script, #notes img, #cards script').length") == 0
    browser.click("#notes-all")
    browser.until("document.querySelectorAll('#notes .remark').length === 1000")
    assert not browser.run("document.querySelector('#notes .remark-item').open")
    browser.run("void document.querySelector('#notes summary .remark-words').click()")
    browser.until("document.querySelector('#notes .remark-item').open")
    with ControlClient.connect(mounted.record().socket) as client:
        client.reply_note(hostile.id, "again")
    browser.until("document.querySelector('#notes .remark-item').innerText.includes('again')")  # drawn again, and still unfolded


@pytest.mark.parametrize("dark", [False, True])
def test_notes_are_readable_at_every_width(browser: Browser, address: str, mounted: Mounted, dark: bool) -> None:
    if "wide" not in {each["name"] for each in mounted.json("branch list")}:
        branch(mounted, "wide")
        mounted.cli("notes add", "wide", "--path", "text.py", "--line", "12", "x" * 400)
        mounted.cli("notes add", "wide", "y" * 400)
    for width in (400, 1280, 2560):
        browser.look(width, 900, dark=dark)
        review(browser, address, "wide")
        browser.until("document.querySelector('.remark-row') && document.querySelector('#notes .remark')")
        browser.press("r")
        browser.until("document.activeElement.matches('textarea')")
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run(CONTRAST) == []
        browser.press("Escape")


def test_a_note_that_is_sent_again_is_the_same_note(address: str, mounted: Mounted) -> None:
    """Also if the daemon has died in between, after it stored the note."""
    found = branch(mounted, "again")
    visitor = Visitor(address).enter()
    form = {"branch": found, "text": "twice\r\n", "csrf": visitor.csrf("/review?branch=again")}
    made = visitor.post("/api/notes/add", {**form, "path": "text.py", "line": "12", "once": "1-a"}).json()
    os.kill(mounted.record().pid, signal.SIGKILL)
    again = {
        visitor.post("/api/notes/add", {**form, "path": "text.py", "line": "12", "once": "1-a"}).json()["id"] for _ in range(2)
    }
    assert again == {made["id"]}
    for _ in range(2):
        visitor.post("/api/notes/answer", {**form, "id": str(made["id"]), "once": "2-b"})
    assert [len(each["answers"]) for each in visitor.get(f"/api/notes?branch={found}").json()] == [1]
    assert visitor.post("/api/notes/add", {**form, "path": "text.py", "line": "12", "once": "3-c"}).json()["id"] != made["id"]


def test_only_our_own_form_writes_notes(address: str, mounted: Mounted) -> None:
    of_branch = branch(mounted, "kept")
    number = mounted.json("notes add", "kept", "x")["id"]
    writing = Visitor(address).enter()
    with served("-m", str(mounted.path)) as looking:
        reading = Visitor(looking).enter()
        assert [note["text"] for note in reading.get(f"/api/notes?branch={of_branch}").json()] == ["x"]
        for path in ("add", "answer", "resolve"):
            form = {"branch": of_branch, "id": str(number), "text": "y", "csrf": "x"}
            assert reading.post(f"/api/notes/{path}", form).status == 403
            assert writing.get(f"/api/notes/{path}").status == 405
    form = {**writing.form("/review?branch=kept"), "text": "y", "id": str(number)}
    for path in ("add", "answer", "resolve"):
        for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "same-site"}):
            assert writing.post(f"/api/notes/{path}", form, headers).status == 403
        assert writing.post(f"/api/notes/{path}", {**form, "csrf": ""}).status == 403
        assert Visitor(address).post(f"/api/notes/{path}", form).status == 403
    assert len(mounted.json("notes list", "kept", "--all")) == 1
    for path, wrong, status in (
        ("add", {"path": "../x"}, 400), ("add", {"path": "none"}, 404), ("add", {"path": "text.py", "line": "999"}, 400),
        ("add", {"line": "x"}, 400), ("add", {"text": ""}, 400), ("add", {"text": "z" * 20_000}, 400),
        ("answer", {"id": "0"}, 404), ("answer", {"id": "9" * 30}, 400), ("resolve", {"id": ""}, 400),
    ):  # fmt: skip
        found = writing.post(f"/api/notes/{path}", {**form, **wrong})
        assert (found.status, "Traceback" in found.text) == (status, False), (path, wrong, found.text)
    assert json.loads(writing.post("/api/notes/resolve", form).body)["resolved"]
    mounted.cli("discard", "kept")
    assert writing.post("/api/notes/add", form).status == 404
    assert writing.post("/api/notes/answer", form).status == 404
