"""The check of a run reads what a peer has sent: nothing there may make it read out of bounds."""

from __future__ import annotations

from tests.harness.sanitized import fuzzed


def test_damaged_batches_never_take_the_check_out_of_bounds() -> None:
    counts = fuzzed("tests.protocol.fuzz.feed_run", ["protocol/records/batch_run.pyx"], runs=1_000)

    for stop in ("END", "TRUNCATED", "BAD_CRC", "BAD_HEADER", "OUT_OF_ORDER", "FULL"):
        assert counts[stop] > 0, counts
