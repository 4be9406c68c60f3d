"""What a pass is verified by: the digest is that of a plain Python oracle, no changed bit of an output
gets past the reader, and a key block that lies changes nothing that is written."""

from __future__ import annotations

import struct
from dataclasses import replace

import xxhash
from hypothesis import assume, given
from hypothesis import strategies as st

from cleaner.kernel.kernel import BatchFilter
from cleaner.kernel.verify_output import OutputReader
from cleaner.rules.record_verdict import Fate, Remains
from cleaner.rules.step import GroupAccount, KeysDiffer, OutputFound
from protocol.records.compression import Codec
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from tests.cleaner.kernel_log import (
    INFLATED_BYTES_MAX,
    LogBatch,
    LogRecord,
    emptied,
    encode_record,
    expected_outputs,
    rebuilt,
)
from tests.cleaner.kernel_steps import CleanedSegment, IndexedLog, filter_log, mark_log
from tests.properties.kernel_passes import Pass, bounded, passes

HEADER_IMAGE = struct.Struct(
    ">"
    "q"  # base offset
    "q"  # last offset
    "q"  # delete horizon, -1 for none
    "q"  # max timestamp
    "q"  # producer id
    "i"  # leader epoch
    "i"  # base sequence
    "i"  # record count
    "h"  # producer epoch
    "h"  # attributes
)


def digest_of(
    batch: LogBatch, remains: Remains[LogRecord], written: bytes, codec: Codec | None
) -> int:
    """What `cleaner/kernel/digest.h` says of one batch that remains."""
    match remains.fate:
        case Fate.DROPPED:
            return 0
        case Fate.VERBATIM:
            return xxhash.xxh3_128_intdigest(written[:21])
        case Fate.EMPTIED:
            return header_digest(emptied(batch))
        case Fate.REBUILT:
            left = rebuilt(batch, remains, codec)
            return header_digest(left) + sum(record_digest(r, left) for r in left.records)


def header_digest(batch: LogBatch) -> int:
    # The horizon has a field of its own.
    codec = batch.codec if batch.records else Codec.NONE
    attributes = replace(batch, delete_horizon_ms=None, codec=codec).attributes
    image = HEADER_IMAGE.pack(
        batch.base_offset,
        batch.last_offset,
        -1 if batch.delete_horizon_ms is None else batch.delete_horizon_ms,
        batch.max_timestamp,
        batch.producer_id,
        batch.leader_epoch,
        batch.base_sequence,
        batch.record_count,
        batch.producer_epoch,
        attributes,
    )
    return xxhash.xxh3_128_intdigest(image)


def record_digest(record: LogRecord, batch: LogBatch) -> int:
    # With the base timestamp of the record itself its delta is one zero byte, behind the attributes.
    body = encode_record(record, batch, record.timestamp)
    _, size_bytes = unsigned_varint(body)
    rest = xxhash.xxh3_128_intdigest(body[size_bytes + 2 :])
    return xxhash.xxh3_128_intdigest(
        struct.pack(">qqb", record.offset, record.timestamp, 0) + rest.to_bytes(16)
    )


def unsigned_varint(data: bytes) -> tuple[int, int]:
    value, size = 0, 0
    while True:
        value |= (data[size] & 0x7F) << 7 * size
        size += 1
        if data[size - 1] < 0x80:
            return value, size


def read_again(data: bytes, account: GroupAccount) -> OutputFound:
    reader = OutputReader(
        rebuilt=account.rebuilt,
        batches=account.batches,
        decompressed_bytes_max=2 * INFLATED_BYTES_MAX,
    )
    reader.start_segment(0)
    if reader.feed(data).consumed_bytes != len(data):
        raise CorruptBatch("the output ends inside a batch")
    return reader.found


def told_by(account: GroupAccount) -> OutputFound:
    return OutputFound(
        digest=account.digest,
        batches=account.batches,
        rebuilt_records=account.rebuilt_records,
        rebuilt_offset_sum=account.rebuilt_offset_sum,
    )


@bounded
@given(passes(), st.integers(1, 700))
def test_the_digest_is_the_oracles_and_what_the_reader_finds(
    a_pass: Pass, chunk_bytes: int
) -> None:
    (segment,), batch_filter = a_pass.filtered(chunk_bytes=chunk_bytes)

    outcomes = list(expected_outputs(a_pass.batches, a_pass.plain_map(), a_pass.bounds))
    account = batch_filter.account
    codec = a_pass.bounds.codec
    assert account.digest == sum(digest_of(*each, codec) for each in outcomes) % 2**128
    assert account.batches == sum(bool(output) for _, _, output in outcomes)
    assert read_again(segment.data, account) == told_by(account)


@bounded
@given(passes(), st.data())
def test_any_changed_bit_of_the_output_is_noticed(a_pass: Pass, data: st.DataObject) -> None:
    (segment,), batch_filter = a_pass.filtered()
    assume(segment.data)
    changed = bytearray(segment.data)
    bit = data.draw(st.integers(0, 8 * len(changed) - 1))
    changed[bit >> 3] ^= 1 << (bit & 7)
    account = batch_filter.account

    try:
        found = read_again(bytes(changed), account)
    except (CorruptBatch, DecompressionTooLarge):
        return
    assert found != told_by(account)


@bounded
@given(passes(), st.integers(1, 700), st.data())
def test_a_block_that_lies_to_the_filter_changes_nothing_that_is_written(
    a_pass: Pass, chunk_bytes: int, data: st.DataObject
) -> None:
    indexed = a_pass.indexed(chunk_bytes=chunk_bytes)
    marks = a_pass.marked(indexed).marks
    # The first four bytes say how much is read of the segment.
    lying = with_a_bit_changed(indexed, data, first_byte=4)

    refused_or_same(a_pass, indexed, lying, marks, marks)


@bounded
@given(passes(), st.integers(1, 700), st.data())
def test_an_entry_that_lies_to_map_marks_and_filter_changes_nothing_that_is_written(
    a_pass: Pass, chunk_bytes: int, data: st.DataObject
) -> None:
    indexed = a_pass.indexed(chunk_bytes=chunk_bytes)
    number = data.draw(st.integers(0, len(indexed.blocks) - 1))
    rows = int.from_bytes(indexed.blocks[number][4:8])
    lying = with_a_bit_changed(indexed, data, first_byte=16 + 24 * rows, number=number)
    marks = mark_log(
        lying,
        start_offset=a_pass.start_offset,
        end_offset=a_pass.bounds.end_offset,
        transactions=a_pass.transactions(indexed),
    ).marks

    refused_or_same(a_pass, indexed, lying, a_pass.marked(indexed).marks, marks)


def with_a_bit_changed(
    indexed: IndexedLog, data: st.DataObject, *, first_byte: int, number: int | None = None
) -> IndexedLog:
    """The log with one block that storage took for sound, and that is not."""
    if number is None:
        number = data.draw(st.integers(0, len(indexed.blocks) - 1))
    block = bytearray(indexed.blocks[number])
    assume(first_byte < len(block) - 8)
    bit = data.draw(st.integers(8 * first_byte, 8 * (len(block) - 8) - 1))
    block[bit >> 3] ^= 1 << (bit & 7)
    blocks = (*indexed.blocks[:number], bytes(block), *indexed.blocks[number + 1 :])
    return replace(indexed, blocks=blocks)


def refused_or_same(
    a_pass: Pass, indexed: IndexedLog, lying: IndexedLog, marks: bytearray, lying_marks: bytearray
) -> None:
    (expected,), _ = written(a_pass, indexed, indexed, marks)
    try:
        (segment,), _ = written(a_pass, indexed, lying, lying_marks)
    except KeysDiffer:
        return
    assert segment.data == expected.data
    assert segment.summary.records == expected.summary.records


def written(
    a_pass: Pass, indexed: IndexedLog, fed: IndexedLog, marks: bytearray
) -> tuple[list[CleanedSegment], BatchFilter]:
    batch_filter = a_pass.batch_filter(
        indexed, segment_bytes_max=2**31 - 1, index_interval_bytes=4096
    )
    return filter_log(fed, marks, batch_filter), batch_filter
