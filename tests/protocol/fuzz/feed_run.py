"""Check runs of damaged batches; run under AddressSanitizer by test_batch_run_under_asan.py.

    python -m tests.protocol.fuzz.feed_run <batch_run.so> <seed> <runs>

A run is damaged and cut as in `feed_tally.py`. The check must find what a plain loop finds. Prints why
it stopped how often, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections import Counter

from tests.harness.instrumented import load_instrumented

if __name__ == "__main__":
    load_instrumented("protocol.records.batch_run", sys.argv[1])

from protocol.records.batch_run import scan_run
from protocol.wire.numbers import Epoch, Offset
from tests.protocol.fuzz.feed_tally import log
from tests.protocol.records.test_batch_run import fields_of, plain


def fuzz(seed: int, runs: int) -> Counter[str]:
    counts = Counter[str]()
    for number in range(runs):
        source = random.Random(f"{seed}/{number}")
        data, end = log(source), source.choice((0, 0, 3))
        epoch, size_max = source.choice((-1, 0)), source.choice((0, 300, 1 << 20))
        batches_max = source.choice((1, 3, 1000))
        # An array has no spare zero behind it, as bytes have: one byte too far is seen.
        scan = scan_run(
            array("B", data),
            end_offset=Offset(end),
            last_epoch=Epoch(epoch),
            size_max=size_max,
            batches_max=batches_max,
        )
        expected = plain(data, end=end, epoch=epoch, size_max=size_max, batches_max=batches_max)
        assert fields_of(scan) == expected, f"{seed}/{number}"
        counts[scan.stop.name] += 1
    return counts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[2]), int(sys.argv[3]))))
