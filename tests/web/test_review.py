"""The page that reviews a branch, in a real browser: hunks are chosen, committed, merged, taken back and undone."""

import json
import os
from collections.abc import Iterator

import pytest

from tests.mounted import Mounted, needs_fuse
from tests.web.asking import Visitor
from tests.web.browser import Browser, served

LINES = [f"    line {number}" for number in range(1, 41)]
LINES[0] = "def reviewed():"
CHANGE = """
sed -i -e 's/^    line 12$/    twelve/' -e 's/^    line 25$/    twenty-five/' -e '/^    line 38$/d' text.py
mv 'old name' 'new name'; chmod 755 tool; rm gone; printf 'x\\000y' > blob; seq 600 > numbers; seq 5 > package-lock.json
printf z > "$(printf 'stray-\\377')"; chmod 700 directory; touch directory/other
"""
ACT, DONE = "document.getElementById('act').innerText", "document.querySelector('#done span').innerText"
CONTRAST = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = (color) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, index) => sum + weight * linear(color[index] / 255), 0);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = parts(getComputedStyle(element).backgroundColor);
      if (color[3] === undefined || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  for (const element of document.querySelectorAll('body *')) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) || !element.checkVisibility()) continue;
    if (element.disabled || element.closest('option, dialog:not([open])')) continue;
    const style = getComputedStyle(element);
    const [one, other] = [light(parts(style.color)), light(behind(element))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) poor.add(`${element.className}: ${element.textContent.slice(0, 30)}`);
  }
  return [...poor];
})()"""


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    with pytest.MonkeyPatch.context() as patch:
        base = tmp_path_factory.mktemp("review")
        patch.setenv("AGENTFS_STATE_HOME", str(base / "state-home"))
        patch.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        mounted = Mounted(base)
        (mounted.lower / "text.py").write_text("\n".join(LINES) + "\n")
        (mounted.lower / "old name").write_text("\n".join(LINES) + "\n")
        (mounted.lower / "gone").write_text("gone\n")
        (mounted.lower / "tool").write_text("#!/bin/sh\n")
        (mounted.lower / "directory").mkdir()
        (mounted.lower / "directory/file").write_text("inside\n")
        mounted.mount()
        yield mounted
        mounted.end()


@pytest.fixture(scope="module")
def address(mounted: Mounted) -> Iterator[str]:
    with served("-m", str(mounted.path), "--write") as found:
        yield found


def text(**changed: str | None) -> str:
    """The reviewed file, with lines replaced by number, as in l12="    twelve"; None: the line is missing."""
    wanted = {int(name[1:]): line for name, line in changed.items()}
    lines = [wanted.get(number, line) for number, line in enumerate(LINES, 1)]
    return "".join(f"{line}\n" for line in lines if line is not None)


def branch(mounted: Mounted, name: str, script: str) -> str:
    mounted.cli("branch create", name)
    mounted.sh(name, script)
    return str(mounted.json("branch show", name)["id"])


def review(browser: Browser, address: str, name: str) -> None:
    browser.go(address.split("/?")[0] + f"/review?branch={name}")
    browser.until("document.querySelector('.file-card .hunk')")


def card(path: str) -> str:
    return f"[...document.querySelectorAll('.file-card')].find(card => card.ariaLabel === {json.dumps(path)})"


def choose(browser: Browser, path: str, number: int) -> None:
    box = f"{card(path)}?.querySelector('.hunk[data-n=\"{number}\"] input')"
    browser.until(box)
    browser.run(f"void {box}.click()")


def perform(browser: Browser, button: str) -> str:
    """Press a button of the bar, then the one of the dialog; what the page says then."""
    browser.until(f"!document.querySelector('{button}').disabled")
    browser.click(button)
    browser.click("#perform")
    browser.until("!document.getElementById('act').open && !document.getElementById('done').hidden")
    browser.until("!document.getElementById('cards').inert && document.querySelector('.file-card .hunk, .empty')")
    return str(browser.run(DONE))


def test_hunks_are_chosen_by_keyboard_and_committed(browser: Browser, address: str, mounted: Mounted) -> None:
    branch(mounted, "fix", CHANGE)
    review(browser, address, "fix")
    names = browser.run("[...document.querySelectorAll('.file-card h2')].map(name => name.innerText)")
    assert "old name \u2192 new name" in names
    assert "stray-\\xff" in names
    shown = browser.until(f"{card('package-lock.json')}.innerText.includes('A generated file') && {card('numbers')}.innerText")
    assert "A long difference: 600 changed lines." in shown
    assert browser.run(f"{card('numbers')}.querySelectorAll('.diff').length") == 0
    browser.run(f"void {card('numbers')}.querySelector('.folded-note button').click()")
    browser.until(f"{card('numbers')}.querySelectorAll('.diff tr').length > 600")
    assert (
        browser.run(f"{card('directory')}.querySelectorAll('input.pick').length") == 0
    )  # its path would mean what is in it, too
    heads = browser.run(f"[...{card('text.py')}.querySelectorAll('tr.hunk')].map(row => row.textContent.trim())")
    assert [head.endswith("def reviewed():") for head in heads] == [True, True, True]
    assert "\u2423" not in browser.text()
    lines = f"{card('text.py')}.querySelectorAll('td.num').length"
    before = browser.run(lines)
    browser.run(f"void {card('text.py')}.querySelector('.grow').click()")
    browser.until(f"{lines} > {before}")
    browser.run("void document.querySelector('#list').focus()")
    browser.press("/")
    browser.write("text.py")
    browser.press("Enter")
    browser.until("document.querySelector('.hunk.at')?.closest('.file-card').ariaLabel === 'text.py'")
    browser.press("j")
    browser.until("document.querySelector('.hunk.at').dataset.n === '1'")
    browser.press("x")
    browser.until("document.getElementById('commit').innerText === 'Commit 1 hunk\u2026'")
    browser.press("c")
    assert "1 change would go into the real directory." in browser.until(f"document.getElementById('perform') && {ACT}")
    assert (mounted.lower / "text.py").read_text() == text()
    browser.press("Enter")
    browser.until(f"{DONE}.includes('fix was committed into the real directory: 1 change.')")
    assert (mounted.lower / "text.py").read_text() == text(l25="    twenty-five")
    assert browser.run("document.querySelector('#done .undo').hidden")  # a commit into the real directory is not undone
    browser.until(f"{card('text.py')}?.querySelectorAll('tr.hunk').length === 2")
    assert browser.run("document.getElementById('commit').innerText") == "Commit all\u2026"
    assert (mounted.subtree("fix") / "text.py").read_text() == text(l12="    twelve", l25="    twenty-five", l38=None)


def test_files_are_chosen_whole_and_everything_is_committed(browser: Browser, address: str, mounted: Mounted) -> None:
    script = "chmod 700 tool; echo more >> tool; rm gone; mkdir fresh; echo x > fresh/a; printf z > $(printf 'b-\\377')"
    branch(mounted, "whole", script)
    review(browser, address, "whole")
    assert browser.until(f"{card('tool')}?.querySelector('.hunk')?.innerText") == "Mode 100644 \u2192 100755"
    for path in ("gone", "b-\\xff"):
        browser.run(f"void {card(path)}.querySelector('.all').click()")
    choose(browser, "tool", 1)
    browser.until("document.getElementById('chosen').innerText === '3 hunks of 3 files'")
    assert browser.run(f"{card('tool')}.querySelector('.all').indeterminate")
    assert "3 changes" in perform(browser, "#commit")
    assert (mounted.lower / "tool").read_text() == "#!/bin/sh\nmore\n"
    assert not os.access(mounted.lower / "tool", os.X_OK) or os.stat(mounted.lower / "tool").st_mode & 0o111 == 0
    assert not (mounted.lower / "gone").exists()
    with open(os.fsencode(mounted.lower) + b"/b-\xff") as file:
        assert file.read() == "z"
    assert "committed" in perform(browser, "#commit")
    assert (mounted.lower / "fresh/a").read_text() == "x\n"
    assert os.stat(mounted.lower / "tool").st_mode & 0o777 == 0o700
    browser.until("document.querySelector('.empty h2')?.innerText === 'Nothing to review'")


def test_conflict_says_what_to_do_next(browser: Browser, address: str, mounted: Mounted) -> None:
    (mounted.lower / "both").write_text("".join(f"{line}\n" for line in LINES))
    branch(mounted, "late", "sed -i 's/line 20$/twenty/' both")
    (mounted.lower / "both").write_text("".join(f"{line}\n" for line in LINES).replace("line 2\n", "two\n"))
    review(browser, address, "late")
    browser.click("#commit")
    said = browser.until("document.querySelector('#act [data-way]') && " + ACT)
    assert "1 conflict between late and the real directory: nothing was changed." in said
    assert "Merge both: lines that only one side changed are joined." in said
    browser.click("#act [data-way=merge]")
    browser.click("#perform")
    browser.until("!document.getElementById('done').hidden")
    both = (mounted.lower / "both").read_text()
    assert ("twenty\n" in both, "two\n" in both) == (True, True)


def test_file_that_runs_on_the_users_side_is_taken_only_when_told(browser: Browser, address: str, mounted: Mounted) -> None:
    branch(mounted, "settings", "mkdir .vscode; echo '{}' > .vscode/settings.json")
    review(browser, address, "settings")
    assert "runs on your side" in browser.until(f"{card('.vscode/settings.json')}?.innerText")
    browser.click("#commit")
    assert "Your own programs would run files in this list" in browser.until(f"document.querySelector('[data-way]') && {ACT}")
    assert not browser.run("document.getElementById('perform')")
    assert not (mounted.lower / ".vscode").exists()
    browser.click("[data-way='1']")
    browser.click("#perform")
    browser.until("!document.getElementById('done').hidden")
    assert (mounted.lower / ".vscode/settings.json").read_text() == "{}\n"


def test_file_that_changed_since_is_refused_and_looked_at_again(browser: Browser, address: str, mounted: Mounted) -> None:
    branch(mounted, "moving", "sed -i 's/line 7$/seven/' 'directory/file' text.py; echo one > directory/file")
    review(browser, address, "moving")
    choose(browser, "directory/file", 0)
    mounted.sh("moving", "echo two > directory/file")
    browser.until("!document.getElementById('moved').hidden")  # the page says so by itself
    browser.click("#commit")
    said = browser.until("document.getElementById('load-again') && " + ACT)
    assert "directory/file was changed since this page showed it. Nothing was changed. Load the page again" in said
    browser.problems[:] = [problem for problem in browser.problems if "/api/review/commit" not in problem]  # the answer 409
    browser.click("#load-again")
    browser.until(f"{card('directory/file')}?.innerText.includes('two')")
    assert (mounted.lower / "directory/file").read_text() == "inside\n"


def test_everything_is_committed_only_as_the_page_shows_it(browser: Browser, address: str, mounted: Mounted) -> None:
    branch(mounted, "busy", "echo one > directory/busy")
    for script in ("touch unseen", "echo two > directory/busy"):  # another file, and one of the same size
        review(browser, address, "busy")
        browser.until("!document.getElementById('commit').disabled")
        mounted.sh("busy", script)
        browser.click("#commit")
        said = browser.until("document.getElementById('load-again') && " + ACT)
        assert "was changed since this page showed it. Nothing was changed." in said
        browser.problems.clear()  # the answer 409
        browser.click("#load-again")
        browser.until("!document.getElementById('cards').inert && document.querySelector('.file-card .hunk')")
    browser.until("!document.getElementById('commit').disabled")
    browser.click("#commit")
    browser.until("document.getElementById('perform')")
    mounted.sh("busy", "echo late > late")  # after it was said what would be done
    browser.click("#perform")
    browser.until("document.getElementById('load-again')")
    browser.problems.clear()
    assert not {"unseen", "late"} & set(os.listdir(mounted.lower))


def test_files_with_long_names_are_asked_for_in_short_addresses(browser: Browser, address: str, mounted: Mounted) -> None:
    place = "/".join(["\u0436" * 120] * 4)
    branch(mounted, "long", f"mkdir -p {place}; for n in $(seq 26); do echo $n > {place}/$n; done")
    browser.look(1280, 3000)
    review(browser, address, "long")
    for _ in range(2):
        browser.run("void scrollTo(0, 0)")
        browser.run("void scrollTo(0, document.body.scrollHeight)")
    browser.until("document.querySelectorAll('.file-card .hunk').length > 12")
    asked = browser.run("performance.getEntriesByType('resource').map(each => each.name)")
    assert max(map(len, asked)) < 20_000


def test_hunks_are_merged_taken_back_and_undone(browser: Browser, address: str, mounted: Mounted) -> None:
    mounted.cli("branch create", "aside")
    branch(mounted, "source", "sed -i -e 's/line 5$/five/' -e 's/line 30$/thirty/' text.py")
    before = (mounted.subtree("aside") / "text.py").read_text()
    review(browser, address, "source")
    aside = mounted.json("branch show", "aside")["id"]
    browser.run(f"void (document.getElementById('into').value = {aside!r})")
    choose(browser, "text.py", 1)
    assert "source was merged into aside: 1 change." in perform(browser, "#merge")
    assert (mounted.subtree("aside") / "text.py").read_text() == before.replace("line 30\n", "thirty\n")
    choose(browser, "text.py", 0)
    perform(browser, "#take-back")
    assert (mounted.subtree("source") / "text.py").read_text() == before.replace("line 30\n", "thirty\n")
    browser.click("#done .undo")
    browser.until("location.pathname === '/undo' && document.querySelector('.buttons')")
    browser.click(".buttons button")
    browser.until("location.pathname === '/review' && document.querySelector('.said')")
    after = (mounted.subtree("source") / "text.py").read_text()
    assert after == before.replace("line 30\n", "thirty\n").replace("line 5\n", "five\n")


def test_viewed_marks_stay_until_the_file_changes(browser: Browser, address: str, mounted: Mounted) -> None:
    branch(mounted, "seen", "echo one > first; echo one > second")
    review(browser, address, "seen")
    browser.press("j")
    browser.press("v")
    browser.until("document.getElementById('viewed').innerText === '1 of 2 viewed'")
    browser.until("document.querySelector('.hunk.at')?.closest('.file-card').ariaLabel === 'second'")
    review(browser, address, "seen")
    browser.until(f"{card('first')}.classList.contains('folded') && {card('first')}.querySelector('.hunk')")
    mounted.sh("seen", "echo two > first")
    review(browser, address, "seen")
    browser.until(f"{card('first')}.innerText.includes('It has changed since you viewed it.')")
    assert browser.run("document.getElementById('viewed').innerText") == "0 of 2 viewed"


@pytest.mark.parametrize("option", ["--write", ""])
def test_viewed_marks_outlive_the_server(mounted: Mounted, option: str) -> None:
    branch(mounted, f"outliving{option}", "echo one > first")
    found = next(each for each in mounted.json("branch list") if each["name"] == f"outliving{option}")
    options = ["-m", str(mounted.path), *([option] if option else [])]
    with served(*options) as place:
        visitor = Visitor(place).enter()
        csrf = visitor.get(f"/review?branch={found['id']}").text.partition('data-csrf="')[2].partition('"')[0]
        form = {"branch": found["id"], "path": "first", "version": "abc"}
        assert visitor.post("/api/viewed", {**form, "csrf": "wrong"}).status == 403
        assert visitor.post("/api/viewed", {**form, "csrf": csrf}).status == 200
        assert visitor.post("/api/viewed", {**form, "csrf": csrf, "path": ""}).status == 400
        for number in range(60):  # only the branches that were marked last are kept
            visitor.post("/api/viewed", {"branch": f"other-{number}", "path": "x", "version": "y", "csrf": csrf})
        assert visitor.get(f"/api/viewed?branch={found['id']}").json() == {}
        visitor.post("/api/viewed", {**form, "csrf": csrf})
    with served(*options) as place:
        visitor = Visitor(place).enter()
        assert visitor.get(f"/api/viewed?branch={found['id']}").json() == {"first": "abc"}


@pytest.mark.parametrize("dark", [False, True])
def test_every_width_and_scheme_is_readable(browser: Browser, address: str, mounted: Mounted, dark: bool) -> None:
    if "wide" not in {each["name"] for each in mounted.json("branch list")}:
        long = "seq -s x 300 > 'a long name that has no end and goes on until it is over'"
        branch(mounted, "wide", CHANGE.replace("rm gone;", "") + long)
    for width in (400, 1280, 2560):
        browser.look(width, 900, dark=dark)
        review(browser, address, "wide")
        browser.until("document.querySelectorAll('.file-card .hunk').length > 8")
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run(CONTRAST) == []
        choose(browser, "text.py", 0)
        browser.press("?")
        browser.until("document.querySelector('#help[open]')?.innerText.includes('Choose the hunk')")
        assert browser.run(CONTRAST) == []
        browser.press("Escape")


def test_only_our_own_form_changes_anything(address: str, mounted: Mounted) -> None:
    of_branch = branch(mounted, "kept", "echo new > added")
    writing = Visitor(address).enter()
    with served("-m", str(mounted.path)) as looking:
        reading = Visitor(looking).enter()
        page = reading.get("/review?branch=kept").text
        assert ("only looks" in page, "data-writable" in page, 'name="csrf"' in page) == (True, False, False)
        for path in ("commit", "merge", "take-back"):
            assert reading.post(f"/api/review/{path}", {"branch": of_branch, "all": "1", "csrf": "x"}).status == 403
            assert writing.get(f"/api/review/{path}").status == 405
    form = {**writing.form("/review?branch=kept"), "all": "1"}
    assert form["branch"] == of_branch
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "same-site"}):
        assert writing.post("/api/review/commit", form, headers).status == 403
    assert writing.post("/api/review/commit", {**form, "csrf": ""}).status == 403
    assert Visitor(address).post("/api/review/commit", form).status == 403
    assert not (mounted.lower / "added").exists()
    del form["all"]
    for picks, status, words in (
        ("[]", 400, "nothing was chosen"),
        ('[["added", "0", [0]]]', 409, "was changed since this page showed it"),
        ('[["../x", "0", [0]]]', 400, ""),
        ('{"a": 1}', 400, "what the form says in picks makes no sense"),
        ("\udcff", 400, "what the form says in picks makes no sense"),
    ):
        found = writing.post("/api/review/commit", {**form, "picks": picks})
        assert (found.status, words in found.text, "Traceback" in found.text) == (status, True, False), found.text
    (shown,) = writing.get(f"/api/review/files?branch={of_branch}&path=added").json()
    picks = json.dumps([["added", shown["version"], [7]]])
    assert "has 1 hunk" in writing.post("/api/review/commit", {**form, "picks": picks}).text
    listed = writing.get(f"/api/review?branch={of_branch}").json()
    everything = {**form, "all": "1", "version": listed["version"], "seen": "[]"}
    assert len(writing.post("/api/review/commit", {**everything, "dry": "1"}).json()["said"]) == 1
    for path, wrong, words in (
        ("commit", {"branch": ""}, "the form says no branch"), ("merge", {"into": ""}, "the form says no into"),
        ("commit", {"seen": "[[7, \"\"]]"}, "not in the list"), ("commit", {"seen": "[[-1, \"\"]]"}, "not in the list"),
        ("commit", {"version": ""}, "was changed since this page showed it"), ("commit", {"seen": "x"}, "makes no sense"),
    ):  # fmt: skip
        found = writing.post(f"/api/review/{path}", {**everything, **wrong})
        assert (found.status in (400, 409), words in found.text) == (True, True), (wrong, found.text)
    assert not (mounted.lower / "added").exists()
    mounted.cli("discard", "kept")
    found = writing.post("/api/review/commit", {**form, "all": "1"})
    assert (found.status, "nothing was changed" in found.text) == (404, True)
