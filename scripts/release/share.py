"""Writes what an installation has below share/: man pages, and completion for bash, zsh and fish. `share.py DIRECTORY`"""

import re
import sys
from pathlib import Path

import agentfsd
from agentfsd.cli.main import main as command
from agentfsd.cli.shell_completion import SCRIPTS, script
from release import manpages

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def write(share: Path) -> None:
    pages = manpages.pages("agentfsd", command, agentfsd.__version__, release_date(agentfsd.__version__))
    for place, text in [
        *((f"man/man1/{name}", text) for name, text in pages.items()),
        *((SCRIPTS[shell], script(shell)) for shell in SCRIPTS),
    ]:
        target = share / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def release_date(version: str) -> str:
    """YYYY-MM-DD, from the changelog: the same for everybody who builds it."""
    found = re.search(rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)$", CHANGELOG.read_text(), re.M)
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no line '## {version} (YYYY-MM-DD)'")
    return found[1]


if __name__ == "__main__":
    write(Path(sys.argv[1]))
