"""The reader of plain Fetch requests reads what clients send: nothing may take it out of bounds."""

from __future__ import annotations

from tests.harness.sanitized import fuzzed


def test_damaged_requests_never_take_the_reader_out_of_bounds() -> None:
    counts = fuzzed(
        "tests.protocol.fuzz.feed_fetch", ["protocol/records/plain_fetch.pyx"], runs=5_000
    )

    for what in ("requests", "other requests"):
        assert counts[what] > 0, counts
