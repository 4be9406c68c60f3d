"""Search damaged batches for records; run under AddressSanitizer by the test beside it.

    python -m tests.protocol.fuzz.feed_search <record_search.so> <seed> <runs>

A run damages batches, whose CRC is right again or not, cuts them anywhere, and looks for some offsets.
What comes back must be a record, nothing, a number of bytes, or a refusal. Prints how often it was what,
as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections import Counter

from tests.harness.instrumented import load_instrumented

if __name__ == "__main__":
    load_instrumented("storage.batches.record_search", sys.argv[1])

from protocol.wire.errors import ProtocolError
from storage.batches.record_search import find_record
from tests.protocol.fuzz.feed_columns import log


def found(source: random.Random, data: bytes) -> str:
    """Look for one offset in a part of the data. Returns what came back."""
    # An array has no spare zero behind it, as bytes have: one byte too far is seen.
    chunk = array("B", data[: source.choice((source.randrange(len(data)), len(data)))])
    offset = source.randrange(40)
    record, needed, skipped = find_record(chunk, offset, position=0, decompressed_bytes_max=1 << 20)
    assert 0 <= skipped <= len(chunk)
    if record is not None:
        assert record.offset == offset
        return "records"
    assert needed == 0 or skipped + needed > len(chunk)
    return "more" if needed else "nothing"


def fuzz(seed: int, runs: int) -> Counter[str]:
    counts = Counter[str]()
    for number in range(runs):
        source = random.Random(f"{seed}/{number}")
        data = bytes(log(source))
        for _ in range(5):
            try:
                counts[found(source, data)] += 1
            except ProtocolError:
                counts["refusals"] += 1
    return counts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[2]), int(sys.argv[3]))))
