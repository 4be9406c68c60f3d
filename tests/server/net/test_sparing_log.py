from __future__ import annotations

import logging

import pytest

from server.net.sparing_log import TEXTS_MAX, SparingLog


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> SparingLog:
    return SparingLog(logging.getLogger("sparing"), clock)


def test_what_repeats_itself_is_said_once_a_minute_with_its_number(
    log: SparingLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(120):
        clock.seconds = 1000.0 + second
        log.say(f"client {second}", "orders-0 is offline")
    clock.seconds += 1
    log.say("client", "orders-0 is offline")

    assert [record.getMessage() for record in caplog.records] == [
        "client 0: orders-0 is offline",
        "client 60: orders-0 is offline (and 59 times more since it was last logged)",
        "client: orders-0 is offline (and 59 times more since it was last logged)",
    ]


def test_what_is_new_is_said_at_once(log: SparingLog, caplog: pytest.LogCaptureFixture) -> None:
    log.say("client", "orders-0 is offline")
    log.say("client", "orders-1 is offline")
    assert len(caplog.records) == 2


def test_memory_is_bounded(log: SparingLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(TEXTS_MAX + 1):
        log.say("client", str(number))
    log.say("client", "1")
    log.say("client", "0")
    assert len(caplog.records) == TEXTS_MAX + 2


def test_cases_that_differ_in_their_detail_are_the_same(
    log: SparingLog, caplog: pytest.LogCaptureFixture
) -> None:
    for size in range(5):
        log.say("client", "closed, FrameTooLarge", f": {size} bytes")

    assert [record.getMessage() for record in caplog.records] == [
        "client: closed, FrameTooLarge: 0 bytes"
    ]


def test_mistake_of_ours_is_an_error_with_its_traceback_once_a_minute(
    log: SparingLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        log.say("client", "FETCH failed unexpectedly: KeyError", mistake=KeyError("orders"))

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "KeyError: 'orders'" in (caplog.text)
