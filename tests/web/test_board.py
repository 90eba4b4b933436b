"""The first page as a board: it follows what happens, whatever the names, also when the daemon is killed or a branch goes."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from agentfsd.web.generated_files import GeneratedFiles, is_minified
from agentfsd.web.word_marks import marked_words
from tests.mounted import Mounted
from tests.web.asking import Visitor
from tests.web.browser import Browser, served

NASTY = "<script>document.title=1</script>"
ROWS = "[...document.querySelectorAll('tbody tr:not([hidden])')].map(row => row.dataset.branch)"


@pytest.fixture
def mounted(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "text").write_text("text\n")
    return make_mount(lower)


@pytest.fixture
def address(mounted: Mounted) -> Iterator[str]:
    with served("-m", str(mounted.path), "--write") as found:
        yield found


@pytest.fixture
def browser(empty_browser: Browser, address: str) -> Browser:
    empty_browser.look(1280, 900)
    empty_browser.go(address)
    empty_browser.problems.clear()
    return empty_browser


def row(branch: str) -> str:
    return f"document.querySelector('tr[data-branch={branch}]')"


def test_board_follows_what_happens(browser: Browser, mounted: Mounted) -> None:
    assert "No agent has begun yet" in browser.text()
    mounted.cli("branch create", "late")
    browser.until(f"{row('late')} && !document.getElementById('first')")
    agent = mounted.start("late", "sh", "-c", "echo x > working; read answer; exit 3", stdin=subprocess.PIPE)
    browser.until(f"{row('late')}.querySelector('.busy') && {row('late')}.innerText.includes('working')")
    browser.press("2")
    browser.until(f"{ROWS}.join() === 'late'")
    assert agent.stdin is not None
    agent.stdin.close()
    agent.wait(10)
    browser.until(f"{ROWS}.length === 0 && !document.getElementById('none').hidden")
    browser.press("4")
    browser.until(f"{ROWS}.join() === 'late' && {row('late')}.innerText.includes('failed, exit code 3')")
    assert browser.run("location.search") == "?show=failed"
    browser.press("1")
    browser.press("s")
    assert browser.run("document.getElementById('order').value") == "changed"
    mounted.run("late", "sh", "-c", "kill -9 $$", check=False)
    browser.until(f"{row('late')}.innerText.includes('killed by SIGKILL')")
    mounted.cli("discard", "late")
    browser.until(f"!{row('late')}")
    assert browser.problems == []


def test_names_and_commands_are_shown_and_not_run(browser: Browser, mounted: Mounted) -> None:
    long = "n" * 250
    mounted.run("odd", "sh", "-ec", f"echo x > '{long}'; echo '{NASTY}' > 'a{NASTY[:8]}'; : {NASTY!r} {'y' * 300}", new=True)
    browser.until(f"{row('odd')}?.querySelector('.result.passed')")
    assert NASTY in browser.run(f"{row('odd')}.querySelector('code').innerText")
    for width in (400, 800, 1280, 2560):
        browser.look(width, 900)
        assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.title") != "1"
    assert browser.problems == []


def test_run_before_the_last_change_is_said_to_be_one(mounted: Mounted, address: str) -> None:
    mounted.run("stale", "true", new=True)
    visitor = Visitor(address).enter()
    assert "changed since" not in visitor.get("/").text
    with ControlClient.connect(mounted.record().socket) as client:  # a run that has ended some time ago
        run = client.list_runs("stale")[-1]
        ended_ns = run.ended_ns - 60_000_000_000
        client.record_run("make test", 0, ended_ns - 1, ended_ns, "stale")
    (mounted.subtree("stale") / "text").write_text("later\n")
    text = visitor.get("/").text
    assert re.search(r"make test</code>", text)
    assert "changed since" in text
    assert "changed since" in visitor.get("/review?branch=stale").text


def test_board_shows_how_tests_ended_whatever_was_run_later(mounted: Mounted, address: str) -> None:
    mounted.run("one", "sh", "-c", ": make test; exit 3", new=True, check=False)
    mounted.run("one", "pwd")
    text = next(each for each in Visitor(address).enter().get("/").text.split("<tr")[1:] if 'data-branch="one"' in each)
    assert 'data-result="failed"' in text
    assert "tests failed, exit code 3" in text
    assert "then pwd: ended, exit code 0" in text
    assert ">: make test; exit 3</code>" in text


def test_overlaps_name_the_other_branches(mounted: Mounted, address: str) -> None:
    for branch in ("one", "two", "three"):
        mounted.run(branch, "sh", "-c", f"echo {branch} > text", new=True)
    text = next(each for each in Visitor(address).enter().get("/").text.split("<tr")[1:] if 'data-branch="one"' in each)
    assert '<span class="bad">1 conflict</span> in 1 path' in text
    assert sorted(re.findall(r'/compare\?a=(\w+)&amp;b=one"', text)) == ["three", "two"]


def test_page_goes_on_after_the_daemon_was_killed(browser: Browser, address: str, mounted: Mounted) -> None:
    mounted.run("alive", "sh", "-c", "echo one > one", new=True)
    browser.until(f"{row('alive')}?.querySelector('.lines').innerText === '+1'")
    os.kill(mounted.record().pid, signal.SIGKILL)
    (mounted.subtree("alive") / "two").write_text("two\n")  # the next daemon answers
    browser.until(f"{row('alive')}.innerText.includes('2 changes') && document.getElementById('state').innerText === 'Live'")
    browser.go(address.split("/?")[0] + "/review?branch=alive")
    browser.until("document.querySelectorAll('.file-card .hunk').length === 2")
    browser.click(".file-card .hunk input")
    os.kill(mounted.record().pid, signal.SIGKILL)
    browser.click("#commit")
    browser.until("document.getElementById('perform')")
    browser.click("#perform")
    browser.until("document.querySelector('#done span').innerText.includes('committed into the real directory: 1 change')")
    assert sorted(os.listdir(mounted.lower)) == ["one", "text"]


def test_page_of_a_branch_that_is_discarded_says_so(browser: Browser, address: str, mounted: Mounted) -> None:
    mounted.run("going", "sh", "-c", "echo one > one", new=True)
    browser.go(address.split("/?")[0] + "/review?branch=going")
    browser.until("document.querySelector('.file-card .hunk') && !document.getElementById('commit').disabled")
    mounted.cli("discard", "going")
    browser.until("document.querySelector('#moved span').innerText.includes('The branch was deleted')")
    browser.click("#commit")
    said = browser.until("document.querySelector('#act [role=alert]')?.innerText")
    assert "there is no branch named 'going'" in said
    assert "nothing was changed" in said
    assert sorted(os.listdir(mounted.lower)) == ["text"]


def test_generated_files_are_those_that_the_attributes_say() -> None:
    rules = (
        "*.gen linguist-generated\nsub/** linguist-generated=true\nyarn.lock -linguist-generated\n# x\n[[ linguist-generated\n"
    )
    files = GeneratedFiles([("", rules), ("sub", "keep.py linguist-generated=false\n")])
    said = {path: files.has(path) for path in ("a.gen", "x/a.gen", "sub/a/b", "sub/keep.py", "yarn.lock", "go.sum", "a.py")}
    assert said == {
        "a.gen": True, "x/a.gen": True, "sub/a/b": True, "sub/keep.py": False, "yarn.lock": False, "go.sum": True, "a.py": False,
    }  # fmt: skip
    assert not GeneratedFiles([("", f"{'*a' * 30}b linguist-generated\n")]).has("a" * 250)  # in linear time
    assert is_minified("a.js", b"+" + b"x" * 900, 1)
    assert not is_minified("a.js", b"+x\n" * 9, 9)
    assert not is_minified("a.py", b"+" + b"x" * 900, 1)


def test_words_that_differ_are_marked() -> None:
    was, now = marked_words([("", "foo(a, b) + 1")], [("", "bar(a, c) + 1")])
    assert was == [("*", "foo"), ("", "(a, "), ("*", "b"), ("", ") + 1")]
    assert now == [("*", "bar"), ("", "(a, "), ("*", "c"), ("", ") + 1")]
    assert marked_words([("k", "same")], [("k", "same")]) == ([("k", "same")], [("k", "same")])


def test_pulse_is_another_once_branches_share_a_path(mounted: Mounted, address: str) -> None:
    for branch in ("one", "two"):
        mounted.cli("branch create", branch)
    visitor = Visitor(address).enter()
    before = visitor.get("/api/pulse").json()
    for branch in ("one", "two"):
        (mounted.subtree(branch) / "text").write_text(f"{branch}\n")
    deadline = time.monotonic() + 30
    while visitor.get("/api/pulse").json() == before:
        assert time.monotonic() < deadline, "it never changed"
        time.sleep(0.1)
    assert "1 conflict" in visitor.get("/").text


def test_board_names_what_was_changed_last(mounted: Mounted, address: str) -> None:
    mounted.cli("branch create", "one")
    (mounted.subtree("one") / "newest").write_text("x")
    assert "<bdi>newest</bdi>" in Visitor(address).enter().get("/").text
