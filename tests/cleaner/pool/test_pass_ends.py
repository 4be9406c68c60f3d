"""The ends of passes: events, reports and quarantine."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.progress import PassProgress
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.pool.pass_ends import PassEnds
from cleaner.pool.runner import RunningPass
from cleaner.pool.status import Task
from cleaner.rules.fence import fence_around, reason_of
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from protocol.wire.numbers import Offset
from storage.files.errors import DiskError, LogOffline, SegmentRemoved, SwapRefused
from storage.formats.manifest import SegmentRow
from storage.formats.topic_partition import TopicPartition
from tests.cleaner.pool_house import SETTINGS, Recorder
from tests.cleaner.rules.test_report import REPORT
from tests.harness.compacted_log import CompactedLog
from tests.harness.topics_world import FixedClock

ORDERS = TopicPartition("orders", 3)


class MovedClock(FixedClock):
    """A clock that a test moves."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def probe() -> Recorder:
    return Recorder()


@pytest.fixture
def ends(probe: Recorder) -> PassEnds:
    return PassEnds(SETTINGS, clock=FixedClock(), probe=probe)


def test_a_failed_partition_rests_until_a_pass_completes(ends: PassEnds, probe: Recorder) -> None:
    ends.failed(ORDERS, CorruptBatch("its CRC differs"), "its CRC differs")
    (entry,) = ends.quarantined
    assert (entry.reason, ends.is_resting(ORDERS)) == ("its CRC differs", True)
    assert ends.next_retry_at() == entry.retry_at

    ends.completed(ORDERS, REPORT)

    assert (ends.quarantined, ends.is_resting(ORDERS)) == ((), False)
    assert ends.last_reports == {ORDERS: replace(REPORT, group_reports=())}
    assert probe.events == [
        "failed orders",
        "quarantined orders corrupt_batch",
        "released orders",
        "completed orders",
    ]


def test_a_partition_whose_pass_was_cancelled_rests_for_a_while_and_is_not_in_quarantine(
    probe: Recorder,
) -> None:
    clock = MovedClock()
    ends = PassEnds(SETTINGS, clock=clock, probe=probe)
    rest = SETTINGS.retry_backoff_ms / 1000

    ends.cancelled(ORDERS)

    assert (ends.is_resting(ORDERS), ends.quarantined) == (True, ())
    assert ends.next_retry_at() == clock.monotonic() + rest
    clock.seconds += rest
    assert not ends.is_resting(ORDERS)
    assert ends.next_retry_at() == math.inf


def test_a_pass_that_was_stopped_is_told_and_no_failure(ends: PassEnds, probe: Recorder) -> None:
    ends.stopped(ORDERS, "the broker stops")

    assert (ends.quarantined, ends.last_reports) == ((), {})
    assert probe.events == ["aborted orders"]


def test_a_damaged_segment_is_logged_when_it_is_found(
    ends: PassEnds, caplog: pytest.LogCaptureFixture
) -> None:
    row = SegmentRow(base_offset=Offset(5), end_offset=Offset(9), file_version=1, size=10)
    report = replace(REPORT, fences=(fence_around(row, CorruptBatch("CRC"), 0),))

    ends.completed(ORDERS, report)
    ends.completed(ORDERS, report)

    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert errors == [
        f"{ORDERS}: the damaged segment with offsets [5, 9) stays as it is: CRC",
    ]


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (CleaningAborted("the log changed"), "aborted orders"),
        (SwapRefused("the log changed"), "aborted orders"),
        (SegmentRemoved("0.log"), "aborted orders"),
        (LogOffline("orders-0", "the disk failed"), "aborted orders"),
        (CorruptBatch("its CRC differs"), "failed orders"),
        (DiskError("write", "0.log", 28, "no space"), "failed orders"),
        (VerificationFailed("its output differs"), "failed orders"),
        (RuntimeError("a bug"), "failed orders"),
    ],
)
async def test_a_pass_that_raises_was_stopped_or_has_failed(
    ends: PassEnds, probe: Recorder, error: Exception, event: str
) -> None:
    log = CompactedLog().log
    running = RunningPass(log, Task.CLEAN, "RATIO", PassProgress(lambda: 0.0))

    with pytest.raises(type(error)), ends.recorded(running):
        raise error

    assert probe.events[0] == event.replace("orders", log.topic_partition.topic)
    assert ends.is_resting(log.topic_partition) == event.startswith("failed")


def test_nothing_is_kept_of_a_partition_that_is_gone(ends: PassEnds, probe: Recorder) -> None:
    ends.completed(ORDERS, REPORT)
    ends.failed(ORDERS, CorruptBatch("bad"), "bad")

    ends.forget_all_but({})

    assert (ends.quarantined, ends.last_reports) == ((), {})
    assert probe.events[-1] == "released orders"


def test_the_reason_says_where_and_what_to_do() -> None:
    error = DecompressionTooLarge(10)
    error.add_note("record batch at position 7")

    assert reason_of(error) == (
        f"{DecompressionTooLarge(10)}; record batch at position 7;"
        " raise log.cleaner.decompressed.batch.bytes.max to clean them"
    )
