"""Quantiles of requests: of the last minutes, and right within a quarter."""

from __future__ import annotations

import pytest

from metrics.histogram import REQUEST_SECONDS, SECONDS, Histogram
from metrics.request_times import RequestTimes


def observed(*seconds: float) -> Histogram:
    histogram = Histogram(REQUEST_SECONDS, shown=SECONDS)
    for each in seconds:
        histogram.observe(each)
    return histogram


def milliseconds(
    times: RequestTimes, requests: dict[str, Histogram], now: float
) -> dict[str, float]:
    return {share: ms for _, share, ms in times.quantiles(requests, now)}


def test_quantiles_are_right_within_a_quarter() -> None:
    seconds = [number / 1000 for number in range(1, 1001)]

    found = milliseconds(RequestTimes(), {"Fetch": observed(*seconds)}, 0.0)

    assert list(found) == ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"]
    for share, ms in found.items():
        exact = 1000 * float(share)
        assert exact <= ms <= exact * 1.25


def test_what_is_older_than_five_minutes_does_not_count() -> None:
    times, histogram = RequestTimes(), observed(5.0)
    assert milliseconds(times, {"Fetch": histogram}, 0.0)["0.50"] == 5000

    for now in range(15, 300, 15):
        histogram.observe(0.001)
        milliseconds(times, {"Fetch": histogram}, float(now))

    assert milliseconds(times, {"Fetch": histogram}, 300.0)["0.999"] == 1


def test_an_api_that_nobody_asked_for_lately_has_no_quantiles() -> None:
    times, requests = RequestTimes(), {"Fetch": observed(0.001)}
    milliseconds(times, requests, 0.0)

    assert milliseconds(times, requests, 400.0) == {}


def test_many_scrapes_in_a_row_keep_a_bounded_number_of_samples() -> None:
    times, requests = RequestTimes(), {"Fetch": observed(0.001)}

    for number in range(10_000):
        milliseconds(times, requests, number / 10)

    assert len(times._samples) < 30


def test_the_bounds_that_are_shown_are_among_those_that_are_counted_by() -> None:
    assert set(SECONDS) <= set(REQUEST_SECONDS)
    assert list(REQUEST_SECONDS) == sorted(REQUEST_SECONDS)
    (zeroth, *_, last) = observed(0.00005, 7.0).cumulative()
    assert zeroth == ("0.0001", 1)
    assert last == ("+Inf", 2)
    assert len(observed().cumulative()) == len(SECONDS) + 1


def test_a_quantile_of_what_is_slower_than_all_bounds_is_the_last_bound() -> None:
    found = milliseconds(RequestTimes(), {"Fetch": observed(1000.0)}, 0.0)

    assert found["0.50"] == pytest.approx(60_000)
