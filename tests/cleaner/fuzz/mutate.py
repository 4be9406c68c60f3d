"""Feeds the kernel and the output reader with damaged data; run by test_kernel_under_asan.py.

    python -m tests.cleaner.fuzz.mutate <kernel.so> <verify_output.so> <seed> <runs> <seconds>

A run damages one batch in one of three ways and gives it to the indexer, the filter and the reader:

    records   the uncompressed records, compressed again and with a new CRC: reaches the record parser
    header    the header's fields, with a new CRC
    bytes     any bytes, with the old CRC

It also damages the block of a sound batch, in its counts, rows and entries, and gives that to everything
that reads blocks: the walk, the map, the marks, the survey, the notes of dead offsets, the filter and
its skipping, the table digest.

Only the documented errors may be raised, and the reader must find in the filter's output exactly what
the filter's account says. Prints the counts as JSON.
"""

from __future__ import annotations

import json
import random
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tests.harness.instrumented import load_instrumented

if __name__ == "__main__":
    load_instrumented("cleaner.kernel.kernel", sys.argv[1])
    load_instrumented("cleaner.kernel.verify_output", sys.argv[2])

from cleaner.kernel.kernel import (
    BatchFilter,
    BatchSurvey,
    DeadOffsets,
    KeyIndexer,
    LogSum,
    OffsetMap,
    Transactions,
    map_keys,
    mark_keys,
)
from cleaner.kernel.verify_output import OutputReader
from cleaner.rules.step import KeysDiffer, OutputFound
from protocol.records.batch_scan import crc32c
from protocol.records.compression import Codec, compress
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from tests.cleaner.kernel_log import (
    HASH_KEY,
    HEADER,
    LogBatch,
    LogRecord,
    encode,
    encode_record,
    log_batch,
    seal,
)

HEADER_BYTES = 61
INFLATED_BYTES_MAX = 1 << 16
BLOCK_BYTES_MIN = 24
MAX_ENTRIES = 1 << 20
REFUSALS = (CorruptBatch, DecompressionTooLarge, KeysDiffer)
NASTY = (
    b"\x00", b"\x01", b"\x7e", b"\x7f", b"\x80", b"\xff",
    b"\xfe\xff\xff\xff\x0f",  # the largest varint
    b"\xff\xff\xff\xff\x0f",  # the least
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # the least varlong
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",  # a varint that never ends
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00",
)  # fmt: skip


ABORT = b"\x00\x00\x00\x00"


def sound_batch(source: random.Random) -> LogBatch:
    base_offset, count = source.choice((0, 7, 2**40)), source.randrange(70)
    records = tuple(
        LogRecord(
            offset=base_offset + 2 * i,
            timestamp=source.choice((1_000, 1_000 + i, -1, 2**63 - 1, -(2**63))),
            key=source.choice((None, b"", b"a", ABORT, source.randbytes(source.randrange(40)))),
            value=source.choice((None, b"", source.randbytes(source.randrange(90)))),
            headers=source.choice(((), (("name", None), ("", b"x")))),
        )
        for i in range(count)
    )
    return LogBatch(
        base_offset=base_offset,
        last_offset=base_offset + 2 * count,
        records=records,
        codec=source.choice(tuple(Codec)) if records else Codec.NONE,
        is_log_append_time=source.random() < 0.2,
        is_transactional=source.random() < 0.2,
        is_control=source.random() < 0.2,
        delete_horizon_ms=source.choice((None, None, 4_000, 6_000)),
        base_timestamp=source.choice((1_000, -1, 2**63 - 1)),
        producer_id=source.choice((-1, 5)),
    )


def damage(source: random.Random, data: bytes) -> bytes:
    """Change a few places: overwrite, insert, delete, cut or repeat bytes."""
    out = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 5))):
        at, size = source.randrange(len(out) + 1), source.randrange(12)
        match source.randrange(6):
            case 0 if out:
                out[at % len(out)] ^= 1 << source.randrange(8)
            case 1:
                nasty = source.choice(NASTY)
                out[at : at + len(nasty)] = nasty
            case 2:
                out[at:at] = source.choice(NASTY)
            case 3:
                del out[at : at + size]
            case 4 if source.random() < 0.3:
                del out[at:]
            case _:
                other = source.randrange(len(out) + 1)
                out[at : at + size] = out[other : other + size]
    return bytes(out)


def with_damaged_records(source: random.Random, batch: LogBatch) -> bytes:
    base = batch.base_timestamp if batch.delete_horizon_ms is None else batch.delete_horizon_ms
    plain = b"".join(encode_record(record, batch, base) for record in batch.records)
    return seal(batch, base, bytes(compress(batch.codec, damage(source, plain))))


def with_damaged_header(source: random.Random, batch: LogBatch) -> bytes:
    data = encode(batch)
    header = damage(source, data[:HEADER_BYTES])[:HEADER_BYTES].ljust(HEADER_BYTES, b"\x00")
    out = bytearray(header + data[HEADER_BYTES:])
    out[16] = 2
    if source.random() < 0.8:
        out[8:12] = (len(out) - 12).to_bytes(4)
    out[HEADER.size - 4 : HEADER.size] = crc32c(bytes(out[HEADER.size :])).to_bytes(4)
    return bytes(out)


def with_damaged_bytes(source: random.Random, batch: LogBatch) -> bytes:
    return damage(source, encode(batch))


def undamaged(_: random.Random, batch: LogBatch) -> bytes:
    return encode(batch)


KINDS: tuple[Callable[[random.Random, LogBatch], bytes], ...] = (
    with_damaged_records, with_damaged_records, with_damaged_records,
    with_damaged_header, with_damaged_bytes, undamaged,
)  # fmt: skip


def exact(data: bytes) -> array[int]:
    """Returns a copy without the zero byte after a bytes object: ASan sees a read one byte too far."""
    return array("B", data)


def run_index(source: random.Random, data: bytes, batch: LogBatch) -> None:
    indexer = KeyIndexer(
        HASH_KEY,
        base_offset=max(0, batch.base_offset - source.choice((0, 9))),
        decompressed_bytes_max=INFLATED_BYTES_MAX,
    )
    step = indexer.feed(exact(data))
    assert step.block is None or len(step.block) >= BLOCK_BYTES_MIN
    assert indexer.totals.entries <= MAX_ENTRIES


def sound_block(data: bytes, base_offset: int) -> bytes:
    indexer = KeyIndexer(
        HASH_KEY, base_offset=base_offset, decompressed_bytes_max=INFLATED_BYTES_MAX
    )
    return indexer.feed(data).block or bytes(BLOCK_BYTES_MIN)


def run_filter(source: random.Random, data: bytes, batch: LogBatch) -> None:
    """Filter a damaged batch, with the block of the sound batch or with its own block."""
    block = sound_block(encode(batch), batch.base_offset)
    if source.random() < 0.5:
        with suppress(CorruptBatch, DecompressionTooLarge):
            block = sound_block(data, batch.base_offset)
    filter_with(source, data, batch, block)


def run_filter_with_a_damaged_block(source: random.Random, _: bytes, batch: LogBatch) -> None:
    data = encode(batch)
    filter_with(source, data, batch, damaged_block(source, data, batch))


def run_entries(source: random.Random, _: bytes, batch: LogBatch) -> None:
    block = exact(damaged_block(source, encode(batch), batch))
    offset_map = OffsetMap(1 << 14, HASH_KEY)
    offset_map.clear(
        source.choice((None, 1, 30)), part=source.randrange(2), parts=source.choice((2, 2**63))
    )
    transactions = walked(source, batch)
    start_offset, end_offset = source.choice((0, 9)), source.choice((9, 2**62))
    map_keys(
        block,
        offset_map,
        base_offset=batch.base_offset,
        start_offset=start_offset,
        end_offset=end_offset,
        transactions=transactions,
    )
    marks = exact(bytes(len(block) // 24 // 8 + 1))
    mark_keys(
        block,
        offset_map,
        marks,
        base_offset=batch.base_offset,
        first_entry=0,
        start_offset=start_offset,
        end_offset=end_offset,
        transactions=transactions,
    )
    survey = BatchSurvey(
        end_offset=end_offset,
        producer_last_offsets=source.choice(((), (batch.last_offset,))),
        producer_marker_epochs=source.choice(({}, {5: -1})),
        transactions=transactions,
        stamps_markers=source.random() < 0.5,
    )
    survey.look(
        block,
        marks,
        base_offset=batch.base_offset,
        first_entry=0,
        horizon_is_due=source.random() < 0.5,
    )


def damaged_block(source: random.Random, data: bytes, batch: LogBatch) -> bytes:
    """Returns a damaged block; the kernel does not check its checksum, so that stays as it is."""
    block = sound_block(data, batch.base_offset)
    match source.randrange(4):
        case 0:
            return damage(source, block)
        case 1:
            # Damage inside the rows and entries keeps the counts right.
            inside = damage(source, block[16:-8])[: len(block) - 24]
            return block[:16] + inside.ljust(len(block) - 24, b"\0") + block[-8:]
        case 2:
            row, entry = source.randbytes(24), source.randbytes(24)
            counts = (len(data).to_bytes(4), bytes((0, 0, 0, 1)), bytes((0, 0, 0, 2)), bytes(4))
            return b"".join((*counts, row, entry, entry, bytes(8)))
        case _:
            return block


def walked(source: random.Random, batch: LogBatch) -> Transactions:
    transactions = Transactions(start_offset=source.choice((0, 9)), end_offset=2**62)
    # A following marker aborts any transaction that the batch begins.
    marker = LogBatch(
        base_offset=batch.last_offset + 3,
        last_offset=batch.last_offset + 3,
        records=(LogRecord(offset=batch.last_offset + 3, key=ABORT),),
        is_control=True,
        producer_id=5,
    )
    for each in (encode(batch), encode(marker)):
        block = exact(sound_block(each, batch.base_offset))
        if source.random() < 0.3:
            with suppress(KeysDiffer):
                block = exact(damaged_block(source, each, batch))
        with suppress(KeysDiffer):
            transactions.walk(block, base_offset=batch.base_offset)
    assert transactions.end_offset <= 2**62
    return transactions


def run_sum(source: random.Random, data: bytes, batch: LogBatch) -> None:
    """Sum a damaged batch, with the block of the sound batch or with a damaged block."""
    block = sound_block(encode(batch), batch.base_offset)
    if source.random() < 0.5:
        block = damaged_block(source, encode(batch), batch)
    log_sum = LogSum(
        HASH_KEY,
        start_offset=source.choice((0, 9)),
        end_offset=source.choice((9, 2**62)),
        decompressed_bytes_max=INFLATED_BYTES_MAX,
        transactions=source.choice((None, walked(source, batch))),
    )
    log_sum.start_source(batch.base_offset, exact(source.randbytes(len(block) // 24 // 8 + 1)))
    log_sum.feed(exact(data), exact(len(data).to_bytes(4) + block[4:]))
    assert 0 <= log_sum.keys <= MAX_ENTRIES


def filter_with(source: random.Random, data: bytes, batch: LogBatch, block: bytes) -> None:
    batch_filter = BatchFilter(
        HASH_KEY,
        end_offset=source.choice((2**62, 2**62, 9)),
        tail_offset=source.choice((-1, batch.last_offset)),
        now_ms=5_000,
        delete_retention_ms=source.choice((0, 700, 2**63 - 1)),
        decompressed_bytes_max=INFLATED_BYTES_MAX,
        producer_last_offsets=source.choice(((), (batch.last_offset,))),
        segment_bytes_max=source.choice((0, 2**31 - 1)),
        producer_marker_epochs=source.choice(({}, {5: -1})),
        transactions=source.choice((None, walked(source, batch))),
        stamps_markers=source.random() < 0.5,
        index_interval_bytes=source.choice((0, 4096)),
        is_verified=(is_verified := source.random() < 0.8),
    )
    with suppress(KeysDiffer):
        batch_filter.skip(exact(block), base_offset=source.choice((0, batch.base_offset)))
    batch_filter.start_source(batch.base_offset, exact(source.randbytes(len(block) // 24 // 8 + 1)))
    batch_filter.start_segment(source.choice((0, batch.base_offset)))
    # A pass reads as many bytes as the block says.
    block, output = len(data).to_bytes(4) + block[4:], b""
    while True:
        step = batch_filter.feed(exact(data), exact(block))
        output, data = output + bytes(step.output), data[step.consumed_bytes :]
        if not step.segment_full:
            break
        batch_filter.start_segment(step.next_base_offset)
    if is_verified:
        check_output(batch_filter, exact(output))
    # The output must be readable: indexing it must not raise.
    sound_block(output, batch.base_offset)


def check_output(batch_filter: BatchFilter, output: array[int]) -> None:
    account = batch_filter.account
    reader = OutputReader(
        rebuilt=account.rebuilt,
        batches=account.batches,
        decompressed_bytes_max=2 * INFLATED_BYTES_MAX,
    )
    assert reader.feed(output).consumed_bytes == len(output)
    assert reader.found == OutputFound(
        digest=account.digest,
        batches=account.batches,
        rebuilt_records=account.rebuilt_records,
        rebuilt_offset_sum=account.rebuilt_offset_sum,
    )


def run_reader(source: random.Random, data: bytes, _: LogBatch) -> None:
    """Read a damaged output, with any batches flagged as rebuilt."""
    batches = source.choice((0, 1, 2, 2, 8))
    rebuilt = source.choice((b"\x00", b"\xff", b"\x01", b"\x02"))
    reader = OutputReader(
        rebuilt=rebuilt, batches=batches, decompressed_bytes_max=INFLATED_BYTES_MAX
    )
    reader.start_segment(source.choice((0, 9)))
    step = reader.feed(exact(data), position=source.choice((0, 2**40)))
    assert 0 <= step.consumed_bytes <= len(data)
    assert reader.segment.size_bytes == step.consumed_bytes
    assert reader.found.batches <= batches


def run_notes(source: random.Random, _: bytes, batch: LogBatch) -> None:
    """Note what a damaged block says is no last record, in memory that may be too small for it."""
    block = exact(damaged_block(source, encode(batch), batch))
    offset_map = OffsetMap(1 << 14, HASH_KEY)
    end_offset = source.choice((9, 2**62, 2**63 - 1))
    dead, copied = (
        DeadOffsets(
            start_offset=source.choice((0, 9)),
            shift=source.choice((0, 6, 62)),
            memory_bytes=source.choice((1, 2, 64)),
        )
        for _ in range(2)
    )
    dead.note_special(block, base_offset=batch.base_offset, segment_end_offset=end_offset)
    map_keys(
        block,
        offset_map,
        base_offset=batch.base_offset,
        start_offset=0,
        end_offset=end_offset,
        dead=dead,
    )
    dead.note_outranked(block, offset_map, base_offset=batch.base_offset, end_offset=end_offset)
    copied.note_as(dead, source.choice((0, 9)), end_offset)
    assert 0 <= copied.next_dead(0, end_offset) <= end_offset


RUNS: tuple[tuple[str, Callable[[random.Random, bytes, LogBatch], None]], ...] = (
    ("index", run_index),
    ("filter", run_filter),
    ("entries", run_entries),
    ("notes", run_notes),
    ("filter by block", run_filter_with_a_damaged_block),
    ("reader", run_reader),
    ("sum", run_sum),
)


def fuzz(seed: int, runs: int, seconds: float) -> Counter[str]:
    counts = Counter[str]()
    deadline = time.monotonic() + seconds
    for number in range(runs):
        if time.monotonic() > deadline:
            break
        source = random.Random(f"{seed}/{number}")
        batch, kind = sound_batch(source), source.choice(KINDS)
        data = kind(source, batch)
        neighbour = encode(log_batch(batch.last_offset + 9, (b"a", b"1"), (b"b", None)))
        data += source.choice((b"", neighbour, neighbour[: source.randrange(len(neighbour))]))
        for name, run in RUNS:
            try:
                run(source, data, batch)
                counts[f"{kind.__name__} {name} accepted"] += 1
            except REFUSALS:
                counts[f"{kind.__name__} {name} refused"] += 1
            except BaseException:
                sys.stderr.write(f"seed {seed}, run {number}: {kind.__name__}\n")
                raise
        counts["runs"] += 1
    return counts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))))
