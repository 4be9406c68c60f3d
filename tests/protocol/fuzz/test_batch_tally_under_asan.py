"""The tally reads what a crash has left: nothing there may make it read or write out of bounds."""

from __future__ import annotations

from tests.harness.sanitized import fuzzed


def test_damaged_batches_never_take_the_tally_out_of_bounds() -> None:
    counts = fuzzed(
        "tests.protocol.fuzz.feed_tally", ["protocol/records/batch_tally.pyx"], runs=1_000
    )

    for stop in ("END", "TRUNCATED", "BAD_CRC", "BAD_HEADER", "OUT_OF_ORDER"):
        assert counts[stop] > 0, counts
