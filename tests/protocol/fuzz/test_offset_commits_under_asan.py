"""The scan of offsets reads what a disk gives: nothing there may make it read out of bounds."""

from __future__ import annotations

from tests.harness.sanitized import fuzzed


def test_damaged_records_never_take_the_scan_out_of_bounds() -> None:
    counts = fuzzed(
        "tests.protocol.fuzz.feed_offsets", ["protocol/records/offset_commits.pyx"], runs=2_000
    )

    for what in ("read", "unreadable", "CorruptBatch", "UnknownRecord"):
        assert counts[what] > 0, counts
