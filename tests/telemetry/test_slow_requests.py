"""SlowOperation requests are counted all, logged up to a number, and kept for status."""

import logging

import pytest

from agentfsd.telemetry.slow_requests import NEVER_NS, SlowOperation, SlowOperationLog

SLOW = SlowOperation(1, 2_500_000_000, "write", "src/big", "one", "id", 42, "cp")


def test_a_line_says_what_where_who_and_how_long(caplog: pytest.LogCaptureFixture) -> None:
    log = SlowOperationLog()
    log.note(SLOW)
    assert caplog.messages == ["slow: write src/big took 2.500 s in branch one, for process 42 cp"]
    assert caplog.records[0].levelno == logging.WARNING
    assert (vars(caplog.records[0])["op"], vars(caplog.records[0])["duration"]) == ("write", 2.5)


def test_there_are_only_so_many_lines(caplog: pytest.LogCaptureFixture) -> None:
    log = SlowOperationLog()
    for _ in range(1000):
        log.note(SLOW)
    assert len(caplog.messages) == 20
    assert (log.count, len(log.recent)) == (1000, 20)
    log._span_began_s -= 61
    log.note(SLOW)
    assert caplog.messages[20:] == ["980 slow requests more were not logged one by one", caplog.messages[0]]


def test_zero_is_off() -> None:
    log = SlowOperationLog()
    log.set_limit(250)
    assert log.limit_ns == 250_000_000
    log.set_limit(0)
    assert log.limit_ns == NEVER_NS
