"""Feed the tally with damaged batches; run under AddressSanitizer by test_batch_tally_under_asan.py.

    python -m tests.protocol.fuzz.feed_tally <batch_tally.so> <seed> <runs>

A run damages a few batches, in their headers (summed again) or anywhere, and feeds them in chunks that
end anywhere. What comes back must be what a plain loop finds. Prints why it stopped how often, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections import Counter

from tests.harness.instrumented import load_instrumented

if __name__ == "__main__":
    load_instrumented("protocol.records.batch_tally", sys.argv[1])

from protocol.records.batch_scan import crc32c
from protocol.records.batch_tally import BatchTally
from tests.protocol.records.test_batch_tally import Plain, assert_same, batch

HEADER_BYTES, CRC_AT, ATTRIBUTES_AT = 61, 17, 21


def log(source: random.Random) -> bytes:
    """Some batches, one of them damaged now and then."""
    data = bytearray()
    for offset in range(source.randrange(1, 60)):
        one = bytearray(
            batch(
                offset,
                max_timestamp=source.choice((0, 5, -1, 2**63 - 1)),
                producer_id=source.choice((-1, 0, 1, 2**63 - 1, source.randrange(1000))),
                producer_epoch=0,
                base_sequence=source.choice((0, 2**31 - 1)),
                leader_epoch=source.choice((0, 1, 2**31 - 1)),
                payload=source.randbytes(source.randrange(60)),
            )
        )
        if source.random() < 0.03:
            damage(source, one)
        data += one
    return bytes(data[: source.choice((len(data), source.randrange(len(data) + 1)))])


def damage(source: random.Random, one: bytearray) -> None:
    at = source.randrange(len(one))
    one[at] ^= 1 << source.randrange(8)
    if source.random() < 0.8 and len(one) > HEADER_BYTES:
        one[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(one[ATTRIBUTES_AT:])).to_bytes(4)


def fuzz(seed: int, runs: int) -> Counter[str]:
    counts = Counter[str]()
    for number in range(runs):
        source = random.Random(f"{seed}/{number}")
        data, interval = log(source), source.choice((0, 100, 4096))
        tally = BatchTally(base_offset=0, index_interval_bytes=interval)
        plain = Plain(0, interval)
        for _ in range(8):
            size = source.randrange(len(data) + 1)
            chunk = data[plain.position : plain.position + size]
            # An array has no spare zero behind it, as bytes have: one byte too far is seen.
            stop = tally.feed(array("B", chunk))
            assert stop is plain.feed(chunk), f"{seed}/{number}"
            counts[stop.name] += 1
        assert_same(tally, plain)
    return counts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[2]), int(sys.argv[3]))))
