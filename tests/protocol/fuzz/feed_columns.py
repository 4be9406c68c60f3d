"""Feed the columns with damaged batches; run under AddressSanitizer by the test beside it.

    python -m tests.protocol.fuzz.feed_columns <record_columns.so> <seed> <runs>

A run damages batches, whose CRC is right again or not, and feeds them in chunks of any size. What comes
back must be rows, whose buffers are read whole, or a refusal. Prints how often it was which, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections import Counter

from tests.harness.instrumented import load_instrumented

if __name__ == "__main__":
    load_instrumented("protocol.records.record_columns", sys.argv[1])

from protocol.records.batch_scan import crc32c
from protocol.records.compression import Codec
from protocol.records.record_batch import Record, build_batch
from protocol.records.record_columns import BinaryColumn, Columns, RecordColumns
from protocol.wire.errors import CorruptBatch

CRC_AT, ATTRIBUTES_AT, HEADER_BYTES = 17, 21, 61


def log(source: random.Random) -> bytearray:
    data, offset = bytearray(), 0
    for _ in range(source.randrange(1, 5)):
        count = source.randrange(1, 20)
        one = batch(source, offset, count)
        offset += count
        if source.random() < 0.4:
            low = source.choice((0, ATTRIBUTES_AT, HEADER_BYTES))
            one[source.randrange(low, len(one))] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
            if source.random() < 0.8:
                one[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(one[ATTRIBUTES_AT:])).to_bytes(4)
        data += one
    return data


def batch(source: random.Random, offset: int, count: int) -> bytearray:
    def some() -> bytes | None:
        return None if source.random() < 0.2 else source.randbytes(source.choice((0, 1, 9, 200)))

    records = [
        Record(
            offset=offset + number,
            timestamp=source.choice((-1, 0, 1 << 41)),
            key=some(),
            value=some(),
            headers=tuple(("h" * source.randrange(3), some()) for _ in range(source.randrange(3))),
        )
        for number in range(count)
    ]
    return build_batch(
        records,
        base_offset=offset,
        codec=source.choice((Codec.NONE, Codec.NONE, Codec.ZSTD)),
        producer_id=source.randrange(3),
        producer_epoch=0,
        is_transactional=source.random() < 0.5,
    )


def fed(source: random.Random, data: bytes) -> int:
    """Feed all of it; how many rows there were."""
    columns = RecordColumns(
        first_offset=source.randrange(30),
        end_offset=source.choice((20, 1 << 62)),
        aborted=[(number, 5 * number, 30) for number in range(source.randrange(4))],
        with_key=source.random() < 0.8,
        with_headers=source.random() < 0.8,
        rows_target=source.choice((1, 7, 1000)),
        decompressed_bytes_max=1 << 20,
    )
    rows, position = 0, 0
    while position < len(data) and not columns.is_done:
        size = max(source.randrange(1, 600), columns.needed_bytes)
        if columns.needed_bytes > len(data) - position:
            break
        # An array has no spare zero behind it, as bytes have: one byte too far is seen.
        position += columns.feed(array("B", data[position : position + size]), position=position)
        if columns.is_full:
            rows += read_whole(columns.take())
    return rows + read_whole(columns.take())


def read_whole(columns: Columns) -> int:
    count = len(columns)
    assert len(bytes(columns.offset)) == len(bytes(columns.timestamp)) == 8 * count
    for column in (columns.key, columns.value):
        assert column is None or len(column) == count
        check_strings(column)
    if columns.headers_offsets is not None:
        assert len(bytes(columns.headers_offsets)) == 4 * (count + 1)
        check_strings(columns.header_names)
        check_strings(columns.header_values)
    return count


def check_strings(column: BinaryColumn | None) -> None:
    if column is not None:
        ends = array("i", bytes(column.offsets))
        assert len(ends) == len(column) + 1
        assert list(ends) == sorted(ends)
        assert ends[-1] == len(bytes(column.data))
        assert len(bytes(column.validity)) == (len(column) + 7) // 8


def fuzz(seed: int, runs: int) -> Counter[str]:
    counts = Counter[str]()
    for number in range(runs):
        source = random.Random(f"{seed}/{number}")
        try:
            counts["rows" if fed(source, bytes(log(source))) else "nothing"] += 1
        except CorruptBatch as refused:
            counts["records" if ": record " in str(refused) else "batches"] += 1
    return counts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[2]), int(sys.argv[3]))))
