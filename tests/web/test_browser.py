"""The pages in a real browser, by keyboard and by mouse, wide and narrow: what a person sees, and that nothing complains."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounted import Mounted
from tests.web.browser import Browser, needs_chromium, served
from tests.web.conftest import NASTY

ROWS = "document.querySelectorAll('#list .row')"
CHOSEN = "document.querySelector('#list .row.chosen .name')?.innerText"
HEAD = "document.querySelector('.file-head h2')?.innerText"


@pytest.fixture(scope="module")
def address(mounted: Mounted) -> Iterator[str]:
    needs_chromium()
    with served("-m", str(mounted.path), "--write") as found:
        yield found


@pytest.fixture(scope="module")
def entered(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        browser.go(address)
        assert browser.run("location.href") == f"{address.split('?')[0]}"
        yield browser


def go(browser: Browser, address: str, path: str) -> None:
    browser.go(address.split("/?")[0] + path)


def test_person_finds_what_an_agent_changed_and_compares_it(browser: Browser, address: str) -> None:
    go(browser, address, "/")
    row = "document.querySelector('tr[data-branch=agent-3]')"
    assert "6 added" in browser.until(f"{row}.querySelector('.what').title")
    browser.until(f"{row}.querySelector('.what').innerText.includes(' changes')")
    browser.click("tr[data-branch='agent-3'] .row-link")
    browser.until("location.pathname === '/review' && document.querySelector('.diff .was .changed')?.innerText === 'one'")
    go(browser, address, "/compare?a=&b=agent-3")
    assert browser.until(f"{CHOSEN}") == "app.py"
    browser.until("document.querySelector('.diff .was .changed')?.innerText === 'one'")
    assert browser.until("document.querySelector('.diff td.text.now')?.innerText.trim()") == "def four():"
    go(browser, address, "/")
    assert browser.run("document.getElementById('compare-two').disabled")
    browser.click("input[value='agent-3']")
    browser.click("input[value='agent-7']")
    assert "agent-3" in browser.run("document.getElementById('chosen').innerText")
    browser.click("#compare-two")
    browser.until("location.pathname === '/compare'")
    assert browser.until("document.querySelector('.diff td.text.was')?.innerText.trim()").startswith("def ")
    data = "document.getElementById('compare').dataset"
    assert sorted(browser.run(f"[{data}.a, {data}.b]")) == ["agent-3", "agent-7"]


def test_pages_are_used_by_keyboard_alone(browser: Browser, address: str) -> None:
    go(browser, address, "/files?ref=agent-3")
    browser.until(f"{ROWS}.length > 5")
    browser.press("ArrowRight")
    browser.until("document.getElementById('sum').innerText === 'big/ holds 5,000 names'")
    assert browser.run(f"{ROWS}.length") < 100  # only what is in sight
    browser.press("ArrowDown")
    browser.press("ArrowDown")
    browser.press("Enter")
    assert browser.until(HEAD) == "big/entry-0001"
    browser.press("End")
    browser.until("document.querySelector('.row.active .name')?.innerText === 'stray-\\\\xff'")
    browser.press("Enter")
    browser.until(f"{HEAD} === 'stray-\\\\xff'")
    browser.until("document.querySelector('.code .line')?.innerText.trim().startsWith('1')")
    assert browser.run("document.querySelector('.code .line').innerText").split() == ["1", "z"]
    browser.press("/")
    browser.write("app")
    browser.press("Enter")
    browser.until("document.getElementById('sum').innerText.startsWith('1 file found')")
    browser.press("Enter")
    browser.until(f"{HEAD} === 'app.py'")
    browser.press("?")
    browser.until("document.getElementById('help').open")
    browser.press("Escape")
    browser.until("!document.getElementById('help').open")
    browser.press("g")
    browser.press("c")
    browser.until("location.pathname === '/compare' && document.querySelector('.file-head')")
    first = browser.until(HEAD)
    browser.press("n")
    browser.until(f"{HEAD} !== {first!r}")
    browser.press("p")
    browser.until(f"{HEAD} === {first!r}")


def test_comparison_shows_as_much_as_is_asked_for(browser: Browser, address: str, mounted: Mounted) -> None:
    mounted.cli("branch create", "looks")
    mounted.sh("looks", "mkdir new; seq 100 > numbers; seq 3 > new/file; seq 9 > 'dot.png'")
    mounted.cli("snapshot create", "-b", "looks", "counted")
    mounted.sh("looks", "sed -i 's/^50$/fifty/; s/^60$/  60/; s/^90$/ninety/' numbers")
    go(browser, address, "/compare?a=counted&b=looks")
    lines = "document.querySelectorAll('.diff td.text').length"
    browser.until("document.querySelectorAll('.grow').length === 4")  # before, between twice, after
    assert browser.run("document.querySelector('.grow').innerText") == "\u22ef 46 unchanged lines"
    before = browser.run(lines)
    browser.click(".grow")
    assert browser.until(f"{lines} > {before} && {lines}") == before + 2 * 46
    assert browser.run("document.querySelector('.diff tr .num').innerText") == "1"
    browser.press("j")
    browser.press("j")
    assert browser.until("document.querySelector('tr.at td.text.now')?.innerText").strip() == "60"
    browser.click("#blanks")
    browser.until("document.querySelector('.note')?.innerText === '1 line not marked: only their blanks differ.'")
    browser.press("j")
    browser.press("j")
    assert browser.until("document.querySelector('tr.at td.text.now')?.innerText").strip() == "ninety"
    browser.click("#layout")
    browser.until("document.querySelector('.diff.unified')")
    browser.click("#layout")
    browser.click("#blanks")
    mounted.cli("branch create", "renames")
    mounted.sh("renames", "mv old.txt renamed.txt; git init -q . || mkdir .git; echo x > .git/index")
    go(browser, address, "/compare?a=&b=renames")
    assert browser.until(HEAD) == "old.txt \u2192 renamed.txt"  # not a file of git's own
    go(browser, address, "/compare?a=&b=looks")
    browser.until(f"{ROWS}.length === 3")  # the new directory is not one of them
    browser.run(f"[...{ROWS}].find(row => row.innerText.includes('dot.png')).click()")
    browser.until("document.querySelector('.pictures')?.innerText.includes('cannot be shown as a picture')")
    browser.problems[:] = [problem for problem in browser.problems if "/api/image" not in problem]


def test_back_leads_from_a_file_to_the_list_in_a_narrow_window(browser: Browser, address: str) -> None:
    browser.look(360, 740)
    go(browser, address, "/compare?a=agent-7&b=agent-3")
    browser.until(f"{ROWS}.length > 1")
    browser.run(f"{ROWS}[1].click()")
    browser.until("document.querySelector('.file-head h2')?.offsetParent")
    address_of_file = browser.run("location.search")
    browser.run("void history.back()")
    browser.until("document.getElementById('list').offsetParent")
    assert browser.run("location.pathname") == "/compare"
    go(browser, address, f"/compare{address_of_file}")
    browser.until("document.querySelector('.file-head h2')?.offsetParent")
    browser.click(".back")
    browser.until("document.getElementById('list').offsetParent")


def test_names_and_contents_are_shown_and_not_run(browser: Browser, address: str) -> None:
    go(browser, address, "/compare?a=&b=agent-3")
    browser.until(f"{ROWS}.length > 8")
    texts = browser.run(f"[...{ROWS}].map(row => row.querySelector('.name').innerText)")
    assert f"{NASTY}.html" in texts
    browser.run(f"[...{ROWS}].find(row => row.innerText.includes('<img')).click()")
    browser.until(f"{HEAD} === '{NASTY}.html'")
    assert "<script>" in browser.run("document.querySelector('.diff').innerText")
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    go(browser, address, "/files?ref=agent-3&path=blob.bin")
    assert "78 00 79" in browser.until("document.querySelector('.hexes')?.innerText")
    go(browser, address, "/files?ref=agent-3&path=outside")
    assert "symlink to /etc/passwd" in browser.until("document.querySelector('.note')?.innerText")
    go(browser, address, "/files?ref=agent-3&path=large.log")
    lines = browser.until("document.querySelectorAll('.code .line').length")
    browser.click(".more button")
    browser.until(f"document.querySelectorAll('.code .line').length > {lines}")


@pytest.mark.sample(1)
@pytest.mark.parametrize("dark", [False, True])
def test_narrow_window_shows_everything_without_scrolling_sideways(
    browser: Browser, address: str, tmp_path: Path, dark: bool
) -> None:
    browser.look(360, 740, dark=dark)
    for path in ("/", "/compare?a=agent-7&b=agent-3", "/files?ref=agent-3&path=app.py", "/history", "/live", "/restore?ref=good",
                 "/discard?branch=agent-3", "/undo", "/review?branch=agent-3", "/nothing"):  # fmt: skip
        go(browser, address, path)
        assert browser.run("document.documentElement.scrollWidth") <= 360, path
        background = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") is not dark
    browser.problems[:] = [problem for problem in browser.problems if "/nothing" not in problem]
    go(browser, address, "/compare?a=agent-7&b=agent-3")
    browser.until(f"{ROWS}.length > 1")
    browser.run(f"[...{ROWS}].find(row => row.innerText.startsWith('M') && row.innerText.includes('app.py')).click()")
    browser.until("document.querySelector('.diff.unified')")
    assert not browser.run("document.getElementById('list').offsetParent")  # one of the two at a time
    browser.click(".back")
    browser.until("document.getElementById('list').offsetParent")


def test_first_page_follows_what_happens(browser: Browser, address: str, mounted: Mounted) -> None:
    go(browser, address, "/live")
    browser.until("document.getElementById('state').innerText === 'Listening'")
    mounted.cli("branch create", "late")
    assert "branch-created" in browser.until("document.querySelector('#events tbody tr')?.innerText")
    browser.look(400, 740)
    assert browser.run("document.querySelector('#events tbody td:nth-child(3)').offsetWidth") > 20  # who, in a narrow window too
    browser.look(1280, 800)
    go(browser, address, "/")
    browser.until("document.querySelector('tr[data-branch=late]')")
    browser.click("tr[data-branch=late] input")
    mounted.sh("late", "echo one > one; echo two > two")
    late = "document.querySelector('tr[data-branch=late]')"
    browser.until(f"{late}.innerText.includes('2 changes') && {late}.querySelector('.what').title === '2 added'")
    assert browser.run(f"{late}.querySelector('input').checked")


def test_snapshot_is_restored_and_undone_with_a_look_before(browser: Browser, address: str, mounted: Mounted) -> None:
    app = mounted.subtree("agent-3") / "app.py"
    before = app.read_text()
    go(browser, address, "/history")
    good = next(found["id"] for found in mounted.json("snapshot list") if found["name"] == "good")
    browser.run(f"document.querySelector('.history a[href=\"/restore?ref={good}\"]').click()")
    browser.until("location.pathname === '/restore' && document.querySelector('.buttons')")
    assert app.read_text() == before
    assert "1 change (1 modified)" in browser.text()
    browser.click(".buttons button")
    browser.until("location.pathname === '/compare' && document.querySelector('.said')")
    assert app.read_text() == "def three():\n    return 1\n"
    browser.click(".said a")
    browser.until("location.pathname === '/undo' && document.querySelector('.buttons')")
    browser.click(".buttons button")
    browser.until("location.pathname === '/' && document.querySelector('.said')")
    assert app.read_text() == before
