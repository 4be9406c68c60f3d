"""The latency watch: what it counts, when it decides, and what it does when it is off."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.pacing.latency_guard import START
from metrics.cleaner_probe import CleanerCounts
from metrics.histogram import FINE_SECONDS, Histogram, quantile
from metrics.server_probe import ServerProbe
from server.admin import latency_watch
from server.admin.latency_watch import LatencyWatch
from tests.harness.served_broker import serving_broker


class House:
    """A broker's counts, and the rates that the guard has set."""

    def __init__(self) -> None:
        self.probe = ServerProbe()
        self.counts = CleanerCounts()
        self.rates: list[float] = []
        self.is_late = False

    def watch(self, *, is_enabled: bool = True) -> LatencyWatch:
        return LatencyWatch(
            self.probe,
            self.counts,
            set_rate=self.rates.append,
            is_enabled=is_enabled,
            is_late=lambda: self.is_late,
        )

    def produce(self, seconds: float, times: int = latency_watch.WINDOW_PRODUCES) -> None:
        for _ in range(times):
            self.probe.request_completed("Produce", seconds)


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(latency_watch, "TICK_SECONDS", 0.001)
    return House()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a rate sets no event
            await asyncio.sleep(0.001)


async def test_produces_in_quiet_time_set_the_rate_that_a_pass_begins_with(house: House) -> None:
    watch = house.watch()
    house.produce(0.001)
    await until(lambda: house.rates == [START])
    assert house.counts.guard_bytes_per_second == START
    assert house.counts.guard_quiet_p99 == pytest.approx(0.001, rel=0.15)
    await watch.stop()


async def test_slow_produces_beside_a_pass_halve_the_rate(house: House) -> None:
    watch = house.watch()
    house.produce(0.001)
    await until(lambda: house.rates == [START])

    house.produce(0.01)
    house.counts.bytes_read(1 << 20)

    await until(lambda: house.rates == [START, START / 2])
    await watch.stop()


async def test_a_late_backlog_goes_faster_though_produces_are_slow(house: House) -> None:
    watch = house.watch()
    house.produce(0.001)
    await until(lambda: house.rates == [START])
    house.is_late = True
    house.counts.bytes_read(1 << 30)
    house.produce(1.0)
    await until(lambda: house.rates == [START, 2 * START])
    await watch.stop()


async def test_switching_the_guard_off_removes_its_limit_at_once(house: House) -> None:
    watch = house.watch()
    house.produce(0.001)
    await until(lambda: house.rates == [START])

    watch.enable(False)
    house.produce(0.001)
    await asyncio.sleep(0.02)

    assert house.rates == [START, math.inf]
    assert house.counts.guard_bytes_per_second == math.inf
    await watch.stop()


async def test_the_first_produce_after_a_quiet_time_ends_the_full_speed_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency_watch, "WINDOW_SECONDS_MAX", 3600)
    watch = house.watch()
    house.counts.bytes_read(1 << 20)
    house.produce(0.001, times=1)
    await until(lambda: house.rates == [START])
    await watch.stop()


async def test_other_requests_are_not_counted(house: House) -> None:
    house.probe.request_completed("Fetch", 1.0)
    assert sum(house.probe.produce_seconds.counts) == 0


@pytest.mark.parametrize("seconds", [0.00001, 0.0003, 0.02, 1.5, 60.0])
def test_a_quantile_is_right_within_a_bucket(seconds: float) -> None:
    histogram = Histogram(FINE_SECONDS)
    for _ in range(98):
        histogram.observe(0.00001)
    histogram.observe(seconds)
    histogram.observe(seconds)

    found = quantile(histogram.bounds, histogram.counts, 0.99)

    assert found == pytest.approx(min(max(seconds, 0.00002), FINE_SECONDS[-1]), rel=0.15)


def test_an_empty_histogram_has_no_quantile() -> None:
    histogram = Histogram(FINE_SECONDS)
    assert quantile(histogram.bounds, histogram.counts, 0.99) == 0.0


async def test_a_broker_guards_its_producers_by_default(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, log_cleaner_enable="true") as served:
        await served.create("orders")
        for _ in range(60):
            await served.produce("orders")
        await until(lambda: served.broker.cleaner_counts.guard_bytes_per_second == START)
