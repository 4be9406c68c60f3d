"""The walk over records reads what clients send: nothing there may make it read out of bounds."""

from __future__ import annotations

from tests.harness.sanitized import fuzzed


def test_damaged_records_never_take_the_walk_out_of_bounds() -> None:
    counts = fuzzed(
        "tests.protocol.fuzz.feed_walk", ["protocol/records/record_walk.pyx"], runs=5_000
    )

    for what in ("taken", "unfit", "refused"):
        assert counts[what] > 0, counts
