"""Who asks for overlaps may wait for what is still compared, or not at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from agentfsd.control.overlap_watch import OverlapWatch
from tests.overlays import Opened


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    yield made
    made.close()


def waited(opened: Opened, patience_s: float) -> tuple[bool, bool]:
    """Whether the answer is complete, and whether it took any time, while nothing is compared."""
    watch = OverlapWatch(opened.overlay)
    opened.write("file", b"x")

    async def catch_up() -> tuple[bool, bool]:
        before = trio.current_time()
        return await watch.catch_up(patience_s), trio.current_time() > before

    return trio.run(catch_up, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_patient_question_waits(opened: Opened) -> None:
    assert waited(opened, 0.5) == (False, True)


def test_the_first_page_waits_for_no_comparison(opened: Opened) -> None:
    assert waited(opened, 0) == (False, False)
