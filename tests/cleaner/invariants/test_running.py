"""Invariants of running passes: failures and the throttle."""

from __future__ import annotations

import asyncio
import errno
import time
from dataclasses import replace

import pytest

from cleaner.pacing.meter import CleaningAborted, PassMeter
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.throttle import IoRates, Throttle
from cleaner.passes.clean import clean
from cleaner.pool.pool import CleanerPool
from storage.files.paths import LOG
from tests.cleaner.invariants.scenes import EACH_SEGMENT_ITS_GROUP
from tests.harness.compacted_log import SETTINGS, CompactedLog


class WallClock:
    """Real time."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


async def test_invariant_21_a_failure_rests_one_partition_with_its_reason_and_no_worker_dies() -> (
    None
):
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    # The disk fails this often; then it works again.
    log.fs.faults.fail("read", errno.EIO, path=LOG, times=2)
    settings = replace(SETTINGS, backoff_ms=5, retry_backoff_ms=20, retry_backoff_max_ms=20)
    reasons = set()

    pool = CleanerPool(lambda: [log.log], settings, clock=WallClock(), probe=SilentProbe())
    pool.start()
    try:
        async with asyncio.timeout(20):
            while log.log.clean_offset < 2:
                reasons |= {each.reason for each in pool.status().quarantined}
                await asyncio.sleep(0.001)
            while pool.status().quarantined:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    finally:
        await pool.stop()

    assert len(reasons) == 1
    assert "errno 5" in reasons.pop()
    assert log.pairs() == [(1, b"a", b"2")]


def test_invariant_23_the_throttle_counts_both_ways_and_its_sleep_holds_no_lock() -> None:
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    for number in range(4):
        log.append_segment((b"a", b"%d" % number), (b"%d" % number, b"1"))
    plan = log.plan()
    seconds = 0.0

    def sleep(nap: float) -> bool:
        """While the pass sleeps, the log accepts appends, rolls, commits and reads of its state."""
        nonlocal seconds
        if nap:
            seconds += nap
            log.append((b"new", b"1"))
            log.roll()
            log.log.wait_for_commit()
            log.log.cleaning_view()
        return False

    meter = PassMeter(
        throttle=Throttle(IoRates(total=1000.0), clock=lambda: seconds),
        probe=SilentProbe(),
        sleep=sleep,
        is_stale=lambda: False,
    )
    clean(log.log.cleaning, plan, log.settings, meter=meter, monotonic=lambda: 0.0)

    assert meter.bytes_written > 0
    assert meter.bytes_read + meter.bytes_written == pytest.approx(1000 * seconds, rel=0.3)


def test_invariant_23_an_abort_does_not_wait_for_the_throttle() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    naps: list[float] = []

    def stop_during_the_first_nap(nap: float) -> bool:
        naps.append(nap)
        return nap > 0

    meter = PassMeter(
        throttle=Throttle(IoRates(total=1e-6), clock=lambda: 0.0),
        probe=SilentProbe(),
        sleep=stop_during_the_first_nap,
        is_stale=lambda: len(naps) > 1,
    )
    with pytest.raises(CleaningAborted):
        clean(log.log.cleaning, log.plan(), log.settings, meter=meter, monotonic=lambda: 0.0)

    assert len([nap for nap in naps if nap]) == 1
