"""The columns read what a disk gives: nothing there may make them read or write out of bounds."""

from __future__ import annotations

from tests.harness.sanitized import fuzzed


def test_damaged_batches_never_take_the_columns_out_of_bounds() -> None:
    counts = fuzzed(
        "tests.protocol.fuzz.feed_columns", ["protocol/records/record_columns.pyx"], runs=2_000
    )

    for what in ("rows", "nothing", "records", "batches"):
        assert counts[what] > 0, counts
