"""A mount whose daemon may be killed as often as one likes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import Mounted


@pytest.fixture
def mounted(tmp_path: Path, make_mount: Callable[..., Mounted], monkeypatch: pytest.MonkeyPatch) -> Mounted:
    monkeypatch.setenv("AGENTFS_RESTARTS_PER_MINUTE", "1000")
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "lower").write_text("of the lower\n")
    (lower / "file").write_text("lower\n")
    return make_mount(lower)
