"""A link copies no faster than its budget, on a fake clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.pacing.budget import BURST_SECONDS
from cleaner.pacing.throttle import NAP_SECONDS_MAX
from server.replication.fetch_pace import FetchPace
from server.replication.requests import FetchBounds

BOUNDS = FetchBounds(wait_ms=500, min_bytes=1, max_bytes=10 << 20, partition_max_bytes=1 << 20)


class Copier:
    """Pays for answers; its sleeps move the clock."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self.now_s = 0.0
        self.naps: list[float] = []
        self.rates: list[int | None] = []
        """The rates that an operator sets, one at each nap."""
        self.pace = FetchPace(bytes_per_second, clock=lambda: self.now_s, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now_s += seconds
        if self.rates:
            self.pace.set_rate(self.rates.pop(0))


async def test_without_a_limit_it_never_waits() -> None:
    copier = Copier(None)
    await copier.pace.pay(1 << 40)
    assert copier.naps == []
    assert copier.pace.bounds(BOUNDS) == BOUNDS


async def test_it_waits_until_the_budget_allows_what_was_copied() -> None:
    copier = Copier(1_000_000)
    for _ in range(10):
        await copier.pace.pay(500_000)
    assert copier.now_s == pytest.approx(5 - BURST_SECONDS, abs=0.01)


async def test_an_answer_is_at_most_what_the_budget_gives_in_a_second() -> None:
    bounds = Copier(65_536).pace.bounds(BOUNDS)
    assert (bounds.max_bytes, bounds.partition_max_bytes) == (65_536, 65_536)
    assert bounds.min_bytes <= bounds.max_bytes
    assert bounds.wait_ms == BOUNDS.wait_ms
    assert Copier(1 << 30).pace.bounds(BOUNDS) == BOUNDS


async def test_a_new_rate_counts_for_copiers_that_wait() -> None:
    copier = Copier(1_000)
    copier.rates = [1_000, 1_000_000]
    await copier.pace.pay(1_000_000)
    assert copier.now_s == pytest.approx(2 * NAP_SECONDS_MAX + 1, abs=0.2)
    copier.pace.set_rate(1_000)
    copier.rates = [None]
    await copier.pace.pay(1_000_000)
    assert copier.now_s == pytest.approx(3 * NAP_SECONDS_MAX + 1, abs=0.3)


@given(sizes=st.lists(st.integers(0, 100_000), max_size=50), rate=st.integers(1_024, 1_000_000))
async def test_no_time_sees_more_than_the_rate_and_one_answer(sizes: list[int], rate: int) -> None:
    copier, copied = Copier(rate), 0
    for size in sizes:
        copied += size
        assert copied - size <= rate * (copier.now_s + BURST_SECONDS) + 1 + rate * 0.0002
        await copier.pace.pay(size)
        assert max(copier.naps, default=0) <= NAP_SECONDS_MAX
