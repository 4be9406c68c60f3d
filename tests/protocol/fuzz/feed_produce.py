"""Feed the reader of plain Produce requests with damaged frames; run under AddressSanitizer by the test
beside it.

    python -m tests.protocol.fuzz.feed_produce <plain_produce.so> <seed> <runs>

A run cuts and changes a few bytes of a plain request, and reads it and its batch. Prints how often
each was plain, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections import Counter

from tests.harness.instrumented import load_instrumented

if __name__ == "__main__":
    load_instrumented("protocol.records.plain_produce", sys.argv[1])

from protocol.records.batch_header import seal
from protocol.records.plain_produce import check_plain_batch, read_plain_produce
from tests.harness.log_builder import batch_of
from tests.harness.raw_client import encode_request
from tests.harness.served_broker import produce_request

BYTES = (0, 1, 0x7F, 0x80, 0xFF)


def damaged(source: random.Random, data: bytearray) -> bytearray:
    """Returns data with a few changed bytes, most often none, and sometimes without its end."""
    for _ in range(source.choice((0, 0, 0, 1, 2, 5))):
        data[source.randrange(len(data))] = source.choice((*BYTES, source.randrange(256)))
    return data[: len(data) - source.choice((0, 0, 0, 0, 1, source.randrange(len(data))))]


def fuzz(seed: int, runs: int) -> Counter[str]:
    counts = Counter[str]()
    for number in range(runs):
        source = random.Random(f"{seed}/{number}")
        pairs = [(source.randbytes(3), source.randbytes(source.choice((0, 9, 200))))] * 3
        batch = damaged(source, batch_of(pairs[: source.randrange(1, 4)]))
        if len(batch) > 61 and source.random() < 0.5:
            seal(batch)
        request = produce_request("orders", batch or b"x")
        frame = damaged(source, bytearray(encode_request(request, source.randrange(3, 14), 7)))
        # An array has no spare zero behind it, as bytes have: one byte too far is seen.
        found = read_plain_produce(array("B", frame))
        counts["requests" if found is not None else "other requests"] += 1
        if found is not None:
            assert 0 < found.records_start < found.records_end <= len(frame)
            batch = frame[found.records_start : found.records_end]
        checked = check_plain_batch(
            array("B", batch), keyed=True, timestamp_from=0, timestamp_to=1 << 40
        )
        counts["batches" if checked is not None else "other batches"] += 1
    return counts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[2]), int(sys.argv[3]))))
