"""Feed the scan of offsets with damaged records; run under AddressSanitizer by the test beside it.

    python -m tests.protocol.fuzz.feed_offsets <offset_commits.so> <seed> <runs>

A run damages keys and values, or whole batches, whose CRC is right again or not, and feeds them. What
comes back must be a scan or a refusal. Prints how often it was which, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections import Counter

from tests.harness.instrumented import load_instrumented

if __name__ == "__main__":
    load_instrumented("protocol.records.offset_commits", sys.argv[1])

from protocol.internal_topics.coordinator_records import write_key, write_value
from protocol.internal_topics.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.records.batch_scan import crc32c
from protocol.records.compression import Codec
from protocol.records.control_record import (
    ControlType,
    TransactionMarker,
    write_transaction_marker,
)
from protocol.records.offset_commits import OffsetScan
from protocol.records.record_batch import Record, build_batch
from protocol.wire.errors import ProtocolError

CRC_AT, ATTRIBUTES_AT = 17, 21


def batch(source: random.Random) -> bytearray:
    records = []
    for offset in range(source.randrange(1, 20)):
        name = "x" * source.choice((0, 1, 5, 300))
        key = write_key(OffsetCommitKey(group=name, topic=name, partition=source.randrange(3)))
        value = write_value(
            OffsetCommitValue(
                offset=offset,
                metadata=name,
                commit_timestamp=0,
                expire_timestamp=source.choice((-1, 5)),
            )
        )
        pair = (damaged(source, key), source.choice((None, damaged(source, value))))
        records.append(Record(offset=offset, timestamp=0, key=pair[0], value=pair[1]))
    return build_batch(
        records,
        codec=source.choice((Codec.NONE, Codec.NONE, Codec.ZSTD)),
        producer_id=source.randrange(3),
        producer_epoch=0,
        is_transactional=source.random() < 0.5,
    )


def marker(source: random.Random) -> bytearray:
    kind = source.choice((ControlType.ABORT, ControlType.COMMIT))
    key, value = write_transaction_marker(TransactionMarker(type=kind, coordinator_epoch=0))
    record = Record(offset=0, timestamp=0, key=damaged(source, key), value=damaged(source, value))
    return build_batch(
        [record],
        producer_id=source.randrange(3),
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


def damaged(source: random.Random, data: bytes) -> bytes:
    if source.random() < 0.6 or not data:
        return data
    changed = bytearray(data[: source.randrange(len(data) + 1)] if source.random() < 0.3 else data)
    if changed:
        changed[source.randrange(len(changed))] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
    return bytes(changed)


def fuzz(seed: int, runs: int) -> Counter[str]:
    counts = Counter[str]()
    for number in range(runs):
        source = random.Random(f"{seed}/{number}")
        data = batch(source)
        if source.random() < 0.3:
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
            if source.random() < 0.8:
                data[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(data[ATTRIBUTES_AT:])).to_bytes(4)
        data += marker(source)
        scan = OffsetScan(decompressed_bytes_max=1 << 20)
        try:
            # An array has no spare zero behind it, as bytes have: one byte too far is seen.
            scan.feed(array("B", bytes(data)))
            counts["unreadable" if scan.unreadable_count else "read"] += 1
        except ProtocolError as refused:
            counts[type(refused).__name__] += 1
    return counts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[2]), int(sys.argv[3]))))
