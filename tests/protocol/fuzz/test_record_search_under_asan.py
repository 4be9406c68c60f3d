"""The search reads what a disk gives: nothing there may make it read out of bounds."""

from __future__ import annotations

from tests.harness.sanitized import fuzzed


def test_damaged_batches_never_take_the_search_out_of_bounds() -> None:
    counts = fuzzed(
        "tests.protocol.fuzz.feed_search", ["storage/batches/record_search.pyx"], runs=2_000
    )

    for what in ("records", "nothing", "more", "refusals"):
        assert counts[what] > 0, counts
