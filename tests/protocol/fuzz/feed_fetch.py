"""Feed the reader of plain Fetch requests with damaged frames; run under AddressSanitizer by the test
beside it.

    python -m tests.protocol.fuzz.feed_fetch <plain_fetch.so> <seed> <runs>

A run cuts and changes a few bytes of a plain request. Prints how often it was plain, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections import Counter

from tests.harness.instrumented import load_instrumented

if __name__ == "__main__":
    load_instrumented("protocol.records.plain_fetch", sys.argv[1])

from protocol.records.plain_fetch import read_plain_fetch
from tests.harness.raw_client import encode_request
from tests.harness.served_broker import fetch_request
from tests.protocol.fuzz.feed_produce import damaged


def fuzz(seed: int, runs: int) -> Counter[str]:
    counts = Counter[str]()
    for number in range(runs):
        source = random.Random(f"{seed}/{number}")
        request = fetch_request([("orders", 3, source.randrange(1 << 50))], rack_id="west")
        frame = damaged(source, bytearray(encode_request(request, source.randrange(4, 19), 7)))
        # An array has no spare zero behind it, as bytes have: one byte too far is seen.
        found = read_plain_fetch(array("B", frame))
        counts["requests" if found is not None else "other requests"] += 1
    return counts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[2]), int(sys.argv[3]))))
