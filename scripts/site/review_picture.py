#!/usr/bin/env python3
"""Make docs/images/review.svg: a branch with a note in `agentfsd review`. It mounts a small workspace in a temporary directory.

Run it in the checkout's virtual environment, which needs the tests' packages: .venv/bin/python scripts/site/review_picture.py
"""

import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mounted import Mounted  # noqa: E402
from tests.terminal_review.piloted import Reader, review  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "review.svg"
SIZE = (100, 27)  # columns and rows
APP = """import sys


# greeting

def greet(name: str) -> str:
    # say hello
    return "hello " + name


def total(numbers: list[int]) -> int:
    result = 0
    for number in numbers:
        result += number
    return result
"""
CHANGED = (
    APP.replace("# say hello", "# say hello politely").replace('"hello "', '"good day, "').replace("result = 0", "result = 0.0")
)


def _workspace(base: Path) -> Mounted:
    lower = base / "lower"
    (lower / "src").mkdir(parents=True)
    (lower / "src" / "app.py").write_text(APP)
    (lower / "notes.txt").write_text("".join(f"line {number}\n" for number in range(1, 6)))
    mounted = Mounted(base, lower).mount()
    mounted.cli("branch create", "agent-2")
    branch = mounted.subtree("agent-2")
    (branch / "src" / "app.py").write_text(CHANGED)
    (branch / "notes.txt").write_text("line 1\nLINE 2\nline 3\nline 4\nline 5\n")
    mounted.cli("notes", "add", "agent-2", "--path", str(mounted.path / "src" / "app.py"), "--line", "12", "why a float?")
    return mounted


async def _walk(reader: Reader) -> None:
    await reader.press("n")
    await reader.press("space")
    await reader.until("1 of 2 hunks chosen", "why a float?")
    svg = reader.app.export_screenshot(title="agentfsd review")
    fonts = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")
    fonts = re.sub(r"\w+(?=,&#160;20\d\d-)", "ann", fonts)  # whoever makes it
    PICTURE.write_text("\n".join(line.rstrip() for line in fonts.splitlines()) + "\n")


def main() -> None:
    """Make the picture."""
    with tempfile.TemporaryDirectory(prefix="agentfsd-picture-") as directory:
        base = Path(directory)
        os.environ.update(AGENTFS_STATE_HOME=str(base / "state-home"), AGENTFS_RUNTIME_DIR=str(base / "run"))
        mounted = _workspace(base)
        try:
            review(mounted, "agent-2", _walk, SIZE)
        finally:
            mounted.end()


if __name__ == "__main__":
    main()
