"""The settings file of a mount: all of it is in force, or none."""

import logging
from pathlib import Path

import pytest

from agentfsd.daemon import settings_file
from agentfsd.handoff.descriptor_forwarding import Forwarding
from tests.overlays import Opened


async def nothing() -> None:
    """There is no kernel here that keeps anything back."""


@pytest.mark.parametrize("refused", ["policy.retention.max_age", "interpose.min_read_bytes"])
def test_settings_that_cannot_all_be_stored_stay_as_they_were(refused: str, tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    forwarding = Forwarding(opened.overlay, nothing, lambda *_: True, "", 1000)
    before = (
        opened.overlay.settings.values(),
        forwarding.settings,
        opened.overlay.parts.copyup_settings.rules,
        logging.getLogger().level,
    )
    opened.store.db.execute(
        f"CREATE TEMP TRIGGER full BEFORE INSERT ON fact WHEN NEW.key = '{refused}' BEGIN SELECT RAISE(FAIL, 'no room'); END"
    )
    settings = tmp_path / "settings"
    settings.write_text(
        "log.level = error\nretention.max_count = 3\ncopyup.mode_strategy = fixed\ninterpose.enabled = on\n"
        "retention.max_age = 30d\ninterpose.min_read_bytes = 2M\nretention.keep_tagged = no\n"
    )
    with pytest.raises(OSError):
        settings_file.apply(settings_file.read(str(settings)), opened.overlay, forwarding)
    assert before == (
        opened.overlay.settings.values(), forwarding.settings, opened.overlay.parts.copyup_settings.rules,
        logging.getLogger().level,
    )  # fmt: skip
    opened.close()
