"""One mount with what several agents did, for all tests of a file."""

import os
from collections.abc import Iterator

import pytest

from tests.mounted import Mounted, needs_fuse
from tests.web.asking import Visitor
from tests.web.browser import Browser, needs_chromium, served

NASTY = "<img src=x onerror=document.title=1>"
AGENT_3 = f"""
sed -i s/one/three/ app.py
rm gone.txt
mv old.txt new.txt
printf 'x\\000y' > blob.bin
echo '<script>document.title = 1</script>' > '{NASTY}.html'
printf z > "$(printf 'stray-\\377')"
ln -s /etc/passwd outside
ln -s app.py inside
seq 250000 > large.log
"""


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    with pytest.MonkeyPatch.context() as patch:
        base = tmp_path_factory.mktemp("ui")
        patch.setenv("AGENTFS_STATE_HOME", str(base / "state-home"))
        patch.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        mounted = Mounted(base)
        lower = mounted.lower
        (lower / "big").mkdir()
        for number in range(5000):
            os.close(os.open(lower / f"big/entry-{number:04}", os.O_CREAT | os.O_WRONLY))
        (lower / "app.py").write_text("def one():\n    return 1\n")
        (lower / "gone.txt").write_text("gone\n")
        (lower / "old.txt").write_text("some lines\nthat stay\nas they are\n")
        mounted.mount()
        mounted.cli("branch create", "agent-3")
        mounted.cli("branch create", "agent-7")
        mounted.sh("agent-3", AGENT_3)
        mounted.cli("snapshot create", "-b", "agent-3", "good", "--tag", "tests pass")
        mounted.sh("agent-3", "sed -i s/three/four/ app.py")
        mounted.sh("agent-7", "sed -i s/one/seven/ app.py; mkdir docs; echo text > docs/a.md")
        yield mounted
        mounted.end()


@pytest.fixture(scope="module")
def address(mounted: Mounted) -> Iterator[str]:
    """Of pages that only look."""
    with served("-m", str(mounted.path)) as found:
        yield found


@pytest.fixture
def visitor(address: str) -> Visitor:
    return Visitor(address).enter()


@pytest.fixture(scope="session")
def empty_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    needs_chromium()
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def entered(empty_browser: Browser, address: str) -> Browser:
    """A browser with the first page."""
    empty_browser.go(address)
    return empty_browser


@pytest.fixture
def browser(entered: Browser) -> Iterator[Browser]:
    """It must come back without an error, and without having run a name or content as a script."""
    entered.problems.clear()
    entered.look(1280, 800)
    yield entered
    assert entered.problems == []
    assert entered.run("document.title") != "1", "a name or content was run as a script"
