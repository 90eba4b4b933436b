"""axe-core, the usual checker of accessibility, finds nothing on any page: light and dark, narrow and wide."""

import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mounted import Mounted
from tests.web.browser import Browser, needs_chromium, served

_INSTALL_S = 60
PAGES = {  # what is to be there before a page is looked at
    "/": "document.querySelectorAll('.lines span').length > 1",
    "/?show=passed": "!document.querySelector('tbody tr:not([hidden]) .failed')",
    "/?q=nothing-is-like-that": "!document.getElementById('none').hidden",
    "/review?branch=agent-3": "document.querySelector('.file-card .hunk') && document.querySelectorAll('[data-note]').length > 1",
    "/review?branch=left-2": "document.querySelector('.clash') && document.querySelector('.file-card .hunk')",
    "/review?branch=empty": "document.querySelector('.empty h2')",
    "/compare?a=&b=agent-3": "document.querySelector('.rows .row')",
    "/compare?a=&b=empty": "document.querySelector('.empty h2')",
    "/files?ref=agent-3&path=app.py": "document.querySelector('.code .line')",
    "/history": "document.querySelector('.history')",
    "/live": "document.getElementById('state').innerText === 'Listening'",
    "/restore?ref=good": "document.querySelector('.buttons')",
    "/discard?branch=agent-3": "document.querySelector('.buttons')",
    "/undo": "document.querySelector('.confirm')",
    "/asks": "document.querySelector('.confirm')",
    "/nothing": "document.querySelector('.empty h1')",
}
FOUND = """axe.run(document).then(all => all.violations.flatMap(
    rule => rule.nodes.map(node => `${rule.id} ${node.target}: ${node.failureSummary}`)))"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script; skips where npm cannot have it."""
    npm = shutil.which("npm", path=f"{sysconfig.get_path('scripts')}:{sysconfig.get_config_var('PREFIX')}/bin") or shutil.which(
        "npm"
    )
    if npm is None:
        pytest.skip("npm is missing")
    place = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "axe-core@4"]
    try:
        subprocess.run(command, cwd=place, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"npm cannot install axe-core: {exc.stderr.strip().splitlines()[-1:]}")
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm has not installed axe-core within {_INSTALL_S} s")
    return (place / "node_modules/axe-core/axe.min.js").read_text()


@pytest.fixture(scope="module")
def address(mounted: Mounted) -> Iterator[str]:
    needs_chromium()
    mounted.run("agent-7", "sh", "-c", "exit 3", check=False)
    for branch in ("left-1", "left-2"):
        mounted.run(branch, "sh", "-ec", f"sed -i 's/def one/def {branch[-1]}/' app.py; seq 5 > {branch}", new=True, view="pid")
    mounted.cli("merge", "left-1", "left-2", "--conflicts", check=False)
    mounted.cli("branch create", "empty")
    mounted.cli("notes add", "agent-3", "--path", "app.py", "--line", "1", "why?")
    with served("-m", str(mounted.path), "--write") as found:
        yield found


@pytest.fixture(scope="module")
def browser(address: str, axe: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        browser.go(address)
        yield browser


def check(browser: Browser, axe: str) -> Any:
    browser.run("document.getAnimations().forEach(each => each.finish())")  # a colour on its way is none
    if not browser.run("Boolean(window.axe)"):
        browser.call("Runtime.evaluate", expression=axe)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    return browser.run(FOUND)


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing(browser: Browser, address: str, axe: str, width: int, dark: bool) -> None:
    browser.look(width, 900, dark=dark)
    for path, ready in PAGES.items():
        browser.go(address.split("/?")[0] + path)
        browser.until(ready)
        assert check(browser, axe) == [], path
        if path in ("/", "/review?branch=agent-3", "/review?branch=left-2"):
            browser.press("?")
            browser.until("document.getElementById('help').open")
            assert check(browser, axe) == [], f"the help of {path}"
            browser.press("Escape")
    browser.go(address.split("/?")[0] + "/review?branch=left-2")
    browser.until("document.querySelector('.clash')")
    browser.click(".clash input[value=text]")
    browser.until("document.querySelector('.clash textarea')")
    assert check(browser, axe) == [], "a conflict that is edited"
    browser.go(address.split("/?")[0] + "/review?branch=agent-7")
    browser.until("document.querySelector('.file-card .hunk input') && !document.getElementById('commit').disabled")
    browser.click(".file-card .hunk input")
    browser.click("#commit")
    browser.until("document.getElementById('perform')")
    assert check(browser, axe) == [], "a question"


def test_axe_would_find_something(browser: Browser, address: str, axe: str) -> None:
    browser.go(address.split("/?")[0] + "/undo")
    browser.run("void document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=/static/icon.svg>')")
    assert any(found.startswith("image-alt") for found in check(browser, axe))
