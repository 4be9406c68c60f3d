"""Feed the walk over records with damaged records; run under AddressSanitizer by the test beside it.

    python -m tests.protocol.fuzz.feed_walk <record_walk.so> <seed> <runs>

A run walks over records of which a few bytes are changed, as a whole and in windows of any size: both
must say the same. Prints how often they were taken, unfit or refused, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections import Counter
from collections.abc import Iterable

from tests.harness.instrumented import load_instrumented

if __name__ == "__main__":
    load_instrumented("protocol.records.record_walk", sys.argv[1])

from protocol.records.record import Record, write_record
from protocol.records.record_walk import RecordScan, RecordWalk
from protocol.wire.errors import CorruptBatch

BYTES = (0, 1, 0x7F, 0x80, 0xFF)


def damaged_records(source: random.Random, count: int) -> bytearray:
    def some() -> bytes | None:
        return None if source.random() < 0.1 else source.randbytes(source.choice((0, 1, 9, 300)))

    plain = bytearray()
    for number in range(count):
        record = Record(
            offset=number,
            timestamp=source.choice((-1, 0, 1 << 41, -(1 << 62))),
            key=some(),
            value=some(),
            headers=tuple(("h" * source.randrange(3), some()) for _ in range(source.randrange(3))),
        )
        write_record(plain, record, base_offset=0, base_timestamp=0)
    for _ in range(source.choice((0, 0, 1, 2, 5))):
        plain[source.randrange(len(plain))] = source.choice((*BYTES, source.randrange(256)))
    return plain[: len(plain) - source.choice((0, 0, 0, 1, 5))]


def walked(windows: Iterable[bytes], count: int, base_timestamp: int) -> RecordScan | None:
    walk = RecordWalk(count, base_timestamp=base_timestamp, keyed=True, timestamp_from=-5)
    try:
        for window in windows:
            # An array has no spare zero behind it, as bytes have: one byte too far is seen.
            walk.feed(array("B", window))
        return walk.finish()
    except CorruptBatch:
        return None


def told(scan: RecordScan | None) -> tuple[object, ...] | None:
    if scan is None:
        return None
    return scan.unfit, scan.unfit_count, scan.youngest_timestamp, scan.last_offset_delta


def fuzz(seed: int, runs: int) -> Counter[str]:
    counts = Counter[str]()
    for number in range(runs):
        source = random.Random(f"{seed}/{number}")
        count = source.choice((1, 2, 5, 30))
        plain = bytes(damaged_records(source, count))
        size = source.choice((1, 2, 7, 100, 1 << 20))
        base_timestamp = source.choice((0, 1 << 41, (1 << 63) - 1))
        whole = walked([plain], count, base_timestamp)
        windows = (plain[at : at + size] for at in range(0, len(plain), size))
        assert told(walked(windows, count, base_timestamp)) == told(whole)
        counts["refused" if whole is None else "unfit" if whole.unfit else "taken"] += 1
    return counts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[2]), int(sys.argv[3]))))
