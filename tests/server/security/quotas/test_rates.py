"""Rates over windows and token buckets: Kafka's formulas, against a model that keeps every event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.security.quotas.rates import Rate, TokenBucket, Windows, refill_ms, throttle_ms

WINDOWS = Windows(count=11, seconds=1)


class KeptSample:
    """A window that keeps its events, for the model."""

    def __init__(self, start_ms: float) -> None:
        self.start_ms = start_ms
        self.events: list[tuple[float, float]] = []

    def last_ms(self) -> float:
        return self.events[-1][0] if self.events else self.start_ms


class ModelRate:
    """Kafka's rate with all events in lists: a window begins with the first event after the last one's
    end, and is forgotten when its last event is older than all windows."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.samples: list[KeptSample] = []

    def record(self, amount: float, now_ms: float) -> None:
        if not self.samples or now_ms - self.samples[-1].start_ms >= self.windows.size_ms:
            self.samples.append(KeptSample(now_ms))
            del self.samples[: -self.windows.count - 1]
        self.samples[-1].events.append((now_ms, amount))

    def per_second(self, now_ms: float) -> float:
        age_ms = self.windows.count * self.windows.size_ms
        for sample in self.samples:
            if now_ms - sample.last_ms() >= age_ms:
                sample.start_ms, sample.events = now_ms, []
        total = sum(amount for sample in self.samples for _, amount in sample.events)
        span_ms = now_ms - min(sample.start_ms for sample in self.samples)
        missing = self.windows.count - 1 - int(span_ms // self.windows.size_ms)
        span_ms += max(missing, 0) * self.windows.size_ms
        return total / (max(span_ms, 1) / 1000)


@given(
    count=st.integers(1, 12),
    seconds=st.integers(1, 3),
    events=st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(0, 1_000_000), st.booleans()), min_size=1
    ),
)
def test_a_rate_is_what_the_kept_events_amount_to(
    count: int, seconds: int, events: list[tuple[int, int, bool]]
) -> None:
    windows = Windows(count=count, seconds=seconds)
    rate, model, now_ms = Rate(), ModelRate(windows), 1_000
    for pause_ms, amount, is_measured in events:
        now_ms += pause_ms
        rate.record(amount, windows, now_ms)
        model.record(amount, now_ms)
        if is_measured:
            assert rate.per_second(windows, now_ms) == pytest.approx(model.per_second(now_ms))
    assert rate.per_second(windows, now_ms) == pytest.approx(model.per_second(now_ms))


def test_a_quota_violation_pauses_as_in_kafkas_test() -> None:
    """ClientQuotaManagerTest.testQuotaViolation: a quota of 500 bytes a second."""
    rate, now_ms = Rate(), 0
    for _ in range(10):
        rate.record(400, WINDOWS, now_ms)
        assert rate.per_second(WINDOWS, now_ms) <= 500
        now_ms += 1000
    # One second of a window has passed: 600 a second on average need 2.1 seconds' pause.
    now_ms += 500
    rate.record(2300, WINDOWS, now_ms)
    per_second, span_ms = rate.per_second(WINDOWS, now_ms), rate.span_ms(WINDOWS, now_ms)
    assert span_ms == 10_500
    assert throttle_ms(per_second, 500, span_ms) == 2100

    for _ in range(10):
        now_ms += 1000
        rate.record(400, WINDOWS, now_ms)
    now_ms += 1000
    rate.record(0, WINDOWS, now_ms)
    assert rate.per_second(WINDOWS, now_ms) <= 500


def test_a_rate_after_a_long_silence_begins_again() -> None:
    rate = Rate()
    rate.record(1e9, WINDOWS, 0)
    assert rate.per_second(WINDOWS, 11_000) == 0
    rate.record(100, WINDOWS, 50_000)
    assert rate.per_second(WINDOWS, 50_000) == 10


def test_what_is_taken_back_no_longer_counts() -> None:
    rate = Rate()
    rate.record(5000, WINDOWS, 0)
    rate.record(700, WINDOWS, 10)
    rate.record(-700, WINDOWS, 10)
    assert rate.per_second(WINDOWS, 10) == pytest.approx(5000 / 10.01)


def test_the_bound_itself_is_within_the_quota() -> None:
    assert throttle_ms(500, 500, 10_000) == 0
    assert throttle_ms(501, 500, 10_000) == 20


def test_a_pause_fits_into_an_answer() -> None:
    assert throttle_ms(1e18, 1e-3, 10_000) == (1 << 31) - 1


def test_a_bucket_allows_a_burst_and_then_refills_at_the_bound() -> None:
    """The example in the comment of Kafka's TokenBucket: 560 tokens of a burst of 500."""
    windows = Windows(count=100, seconds=1)
    bucket = TokenBucket()
    assert bucket.tokens(5, windows, 0) == 500
    bucket.take(560, 5, windows, 0)
    assert bucket.tokens(5, windows, 0) == -60
    assert refill_ms(-60, 5) == 12_000
    assert bucket.tokens(5, windows, 12_000) == 0
    assert refill_ms(0, 5) == 0
    assert bucket.tokens(5, windows, 10_000_000) == 500, "no more than the burst"


@given(
    bound=st.floats(0.1, 1000),
    events=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 10_000)), min_size=1),
)
def test_the_pause_of_a_bucket_is_when_it_is_no_longer_overdrawn(
    bound: float, events: list[tuple[int, int]]
) -> None:
    bucket, now_ms = TokenBucket(), 0
    for pause_ms, amount in events:
        now_ms += pause_ms
        bucket.take(amount, bound, WINDOWS, now_ms)
    wait_ms = refill_ms(bucket.tokens(bound, WINDOWS, now_ms), bound)
    assert bucket.tokens(bound, WINDOWS, now_ms + wait_ms + 1) >= 0
    if wait_ms > 2:
        rest = TokenBucket()
        rest._tokens, rest._last_ms = -wait_ms * bound / 1000, 0
        assert rest.tokens(bound, WINDOWS, wait_ms - 2) < 0
