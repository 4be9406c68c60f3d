"""Formatting of sizes, durations, moments and counts."""

from __future__ import annotations

import pytest

from cleaner.rules.text import count_text, duration_text, moment_text, size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000, "2.5 MB"), (3e12, "3.0 TB")],
)
def test_sizes(count: float, text: str) -> None:
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.0004, "< 1 ms"),
        (0.0476, "48 ms"),
        (0.9996, "1.0 s"),
        (119.9, "119.9 s"),
        (180, "3 min"),
        (10_800, "3.0 h"),
        (432_000, "5.0 d"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_moments() -> None:
    assert moment_text(0) == "1970-01-01 00:00:00 UTC"
    assert moment_text(1 << 62) == f"{1 << 62} ms after 1970"


def test_counts_have_their_noun_in_the_right_number() -> None:
    assert count_text(1, "segment") == "1 segment"
    assert count_text(12_000, "segment") == "12,000 segments"
    assert count_text(0, "pass", "passes") == "0 passes"
