"""The workspace of most tests of the review."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forty_lines import LINES
from tests.mounted import Mounted


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "text").write_text("".join(LINES))
    (lower / "other").write_text("".join(LINES))
    (lower / "old name").write_text("".join(LINES))
    (lower / "logo").write_bytes(b"\0one")
    (lower / "tool").write_text("#!/bin/sh\n")
    return make_mount(lower)
