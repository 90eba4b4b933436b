"""What people read: short pages, links that lead somewhere, and a site that can be built."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md"))
TEXTS = [
    *PAGES,
    *(path.relative_to(ROOT) for path in ROOT.glob("*.md")),
    *(path.relative_to(ROOT) for path in ROOT.glob("[ac]*/**/*.md")),
]
MOST_LINES = 150
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_page_is_short(page: Path) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("text", TEXTS, ids=str)
def test_links_lead_somewhere(text: Path) -> None:
    links = [link for link, _ in LINK.findall((ROOT / text).read_text()) if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in links if not (ROOT / text.parent / link).exists()] == []


def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: scripts/install --docs")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        "scripts/site/mkdocs.yml",
        "--site-dir",
        tmp_path / "site",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "site" / "reference" / "commands" / "index.html").read_text()
    assert "agentfsd snapshot create" in commands or 'id="create"' in commands


NAMED = re.compile(r"`((?:[a-z0-9_]+/)+[a-z0-9_]+\.py)`")


@pytest.mark.parametrize("text", TEXTS, ids=str)
def test_files_that_are_named_are_there(text: Path) -> None:
    places = [ROOT, ROOT / "agentfsd", ROOT / "client", ROOT / "client/agentfs_client", ROOT / "client/agentfs_files"]
    named = NAMED.findall((ROOT / text).read_text()) if text.name != "CHANGELOG.md" else []
    assert [name for name in named if not any((place / name).exists() for place in places)] == []
