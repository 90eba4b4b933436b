"""Every Python example of the two READMEs runs as it stands there, on a real mount, a real directory and a real container."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.containers import IMAGE, podman_service
from tests.mounted import Mounted

ROOT = Path(__file__).parents[2]


def _examples() -> dict[str, str]:
    """Code by the heading above it, and a number."""
    found: dict[str, str] = {}
    heading = ""
    text = "".join((ROOT / name).read_text() for name in ("README.md", "client/README.md"))
    for part in re.finditer(r"^#+ (?P<heading>[^\n]*)$|^```python\n(?P<code>.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if part["code"] is None:
            heading = part["heading"]
        else:
            found[f"{heading} {len(found) + 1}"] = part["code"]
    return found


EXAMPLES = _examples()


@pytest.mark.parametrize("title", EXAMPLES)
def test_example(title: str, tmp_path: Path, make_mount: Callable[..., Mounted], monkeypatch: pytest.MonkeyPatch) -> None:
    code = EXAMPLES[title]
    for name in ("project/src", "scratch"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project" / "src" / "main.py").write_text("print('hello')\n")
    monkeypatch.chdir(tmp_path)
    if "/home/me/work" in code:
        code = code.replace("/home/me/work", str(make_mount(tmp_path / "project").path))
    code = code.replace("/home/me", str(tmp_path))
    if "Podman" not in code:
        run_example(code)
        return
    with podman_service() as service, service.client() as client:
        container = service.run(client)
        run_example(code, container=container, image=IMAGE, uri=service.uri)


def run_example(code: str, **names: object) -> dict[str, Any]:
    """The names that it leaves behind."""
    left: dict[str, Any] = {"__name__": "example", **names}
    exec(compile(code, "README.md", "exec"), left)
    return left
