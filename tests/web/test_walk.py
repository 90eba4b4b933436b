"""A person with ten finished agents: what passed is found, compared, merged by hunks and whole, settled, committed, undone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounted import Mounted
from tests.ten_agents import CHANGES, changed, ten_agents
from tests.web.browser import Browser, Page, served
from tests.web.firefox import Firefox

ROWS = "[...document.querySelectorAll('tbody tr:not([hidden])')].map(row => row.dataset.branch)"
ACT, DONE = "document.getElementById('act').innerText", "document.querySelector('#done span').innerText"


@pytest.fixture
def mounted(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    return ten_agents(make_mount, tmp_path)


@pytest.fixture
def address(mounted: Mounted) -> Iterator[str]:
    with served("-m", str(mounted.path), "--write") as found:
        yield found


@pytest.fixture(params=[Browser, Firefox], ids=["chromium", "firefox"])
def browser(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    (tmp_path / "profile").mkdir()
    with request.param(tmp_path / "profile") as page:
        page.look(1280, 900)
        yield page
        assert page.problems == []


def review(browser: Page, name: str) -> None:
    browser.until(f"document.querySelector('h1')?.innerText === {name!r} && document.querySelector('.file-card .hunk')")
    browser.until("!document.getElementById('commit').disabled")


def test_ten_agents_are_reviewed(browser: Page, address: str, mounted: Mounted) -> None:
    # the board: those whose last run passed
    browser.go(address)
    browser.until(f"{ROWS}.length === 12")
    assert browser.run("document.querySelector('#filters [data-of=failed]').innerText") == "7"
    assert "failed, exit code 7" in browser.run("document.querySelector('tr[data-branch=agent-7]').innerText")
    browser.press("3")
    browser.until(f"{ROWS}.length === 3")
    assert sorted(browser.run(ROWS)) == ["agent-2", "agent-5", "agent-9"]
    browser.run("void (document.getElementById('order').value = 'name')")
    browser.run("void document.getElementById('order').dispatchEvent(new Event('input'))")
    assert browser.run(ROWS) == ["agent-2", "agent-5", "agent-9"]
    browser.until("document.querySelector('tr[data-branch=agent-2] .lines').innerText.startsWith('+4')")
    # two of them compared
    for key in ("j", "x", "j", "x"):
        browser.press(key)
    browser.until("!document.getElementById('compare-two').disabled")
    browser.press("c")
    browser.until("location.pathname === '/compare' && document.querySelector('.diff .was .changed')")
    browser.run("void history.back()")
    browser.until(f"location.pathname === '/' && {ROWS}.length === 3")  # it shows what it showed
    # two hunks of one
    browser.run("void document.querySelector('tr[data-branch=agent-2] .row-link').focus()")
    browser.press("Enter")
    review(browser, "agent-2")
    assert "ended, exit code 0" in browser.run("document.querySelector('.review-title').innerText")
    browser.press("/")
    browser.write("text")
    browser.press("Enter")
    browser.until("document.querySelector('.hunk.at')?.closest('.file-card').ariaLabel === 'text'")
    for key in ("x", "j", "x"):
        browser.press(key)
    browser.until("document.getElementById('merge').innerText === 'Merge 2 hunks into…'")
    browser.click("#merge")
    browser.until("document.getElementById('perform')")
    browser.press("Enter")
    browser.until(f"{DONE}.includes('agent-2 was merged into main: 1 change.')")
    main = mounted.subtree("main")
    assert (main / "text").read_text() == changed({5: "five by 2", 25: "twenty-five by 2"})
    # all of another, which conflicts
    browser.go(address.split("/?")[0] + "/review?branch=agent-5")
    review(browser, "agent-5")
    browser.click("#merge")
    browser.click("#act [data-way=leave]")
    browser.until(f"document.getElementById('perform') && {ACT}.includes('1 conflict would be left in main')")
    browser.click("#perform")
    browser.until("!document.querySelector('#done .on').hidden")
    browser.click("#done .on")
    # the conflict, side by side
    browser.until("document.querySelector('h1')?.innerText === 'main' && document.querySelectorAll('.clash').length === 1")
    browser.run("void document.querySelector('.clash input').focus()")
    browser.press("t")
    browser.until("document.querySelector('.decide').innerText === 'Decide'")
    browser.press("m")
    browser.until("!document.getElementById('finish').disabled")
    browser.click("#finish")
    browser.until("document.querySelector('.said')?.innerText.includes('The merge of agent-5 into main was finished.')")
    settled = changed({5: "five by 2"}, CHANGES[5])
    assert ((main / "text").read_text(), (main / "of-5").read_text()) == (settled, "5\n")
    # commit
    review(browser, "main")
    browser.press("c")
    browser.until(f"document.getElementById('perform') && {ACT}.includes('2 changes would go into the real directory.')")
    browser.press("Enter")
    browser.until(f"{DONE}.includes('main was committed into the real directory: 2 changes.')")
    assert (mounted.lower / "text").read_text() == settled
    # and another one committed to the branch that it was made from, which is undone
    browser.go(address.split("/?")[0] + "/review?branch=agent-9")
    review(browser, "agent-9")
    browser.press("c")
    browser.until("document.getElementById('perform')")
    browser.press("Enter")
    browser.until(f"{DONE}.includes('agent-9 was committed into team: 1 change.')")
    assert (mounted.subtree("team") / "of-9").exists()
    browser.click("#done .undo")
    browser.until("location.pathname === '/undo' && document.querySelector('.buttons')")
    browser.click(".buttons button")
    browser.until("location.pathname === '/review' && document.querySelector('.said')?.innerText.includes('Undone')")
    assert not (mounted.subtree("team") / "of-9").exists()
    browser.go(address.split("/?")[0] + "/")
    browser.until("document.querySelector('tr[data-branch=main]')?.innerText.includes('committed')")
