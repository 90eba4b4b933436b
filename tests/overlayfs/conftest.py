from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.overlayfs import workspaces
from tests.overlayfs.workspaces import Workspace


@pytest.fixture
def workspace(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    """A workspace over a lower that the script LOWER of the test's module fills."""
    with workspaces.opened(tmp_path, request.module.LOWER) as workspace:
        yield workspace
