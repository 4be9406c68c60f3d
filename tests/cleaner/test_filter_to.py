"""Kafka's tests of `MemoryRecords.filterTo`, applied to our kernel's filter.

Source: Apache Kafka, MemoryRecordsTest.java; each test names the one whose behaviour it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from aiokafka.record import MemoryRecords

from cleaner.kernel.kernel import BatchFilter
from cleaner.rules.step import FilterStep
from protocol.records.batch_header import BatchHeader, TimestampType, read_header
from protocol.records.record_batch import Codec, read_records
from tests.cleaner.kernel_log import HASH_KEY, INFLATED_BYTES_MAX, LogBatch, encode, log_batch
from tests.cleaner.kernel_steps import index_log, mark_log

NOW_MS = 50_000
RETENTION_MS = 1_000


def filtered(
    *batches: LogBatch,
    superseding: Sequence[bytes] = (),
    producers: Sequence[int] = (),
    now_ms: int = NOW_MS,
) -> FilterStep:
    """Filter consecutive batches as if the log had later records of the `superseding` keys."""
    later = [log_batch(900 + number, (key, b"later")) for number, key in enumerate(superseding)]
    indexed = index_log(b"".join(map(encode, [*batches, *later])))
    batch_filter = BatchFilter(
        HASH_KEY,
        end_offset=1_000,
        tail_offset=-1,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        decompressed_bytes_max=INFLATED_BYTES_MAX,
        producer_last_offsets=tuple(producers),
        is_verified=True,
    )
    marked = mark_log(indexed, end_offset=1_000)
    # The batches have the first marks; the superseding records are not fed.
    fed = index_log(b"".join(map(encode, batches)))
    batch_filter.start_source(0, marked.marks)
    batch_filter.start_segment(0)
    (block,) = fed.blocks
    return batch_filter.feed(fed.data, block)


def headers_of(step: FilterStep) -> list[BatchHeader]:
    data, headers, position = bytes(step.output), [], 0
    while position < len(data):
        headers.append(read_header(data, position))
        position += headers[-1].size_bytes
    return headers


def offsets_seen_by_a_client(step: FilterStep) -> list[int]:
    """Returns the records that an independent client reads."""
    records, offsets = MemoryRecords(bytes(step.output)), []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        offsets += [record.offset for record in batch]
    return offsets


@pytest.mark.parametrize(
    ("superseding", "is_verbatim"), [([], True), ([b"b"], False), ([b"a", b"b"], False)]
)
def test_a_step_says_whether_its_output_is_what_it_consumed(
    superseding: list[bytes], is_verbatim: bool
) -> None:
    step = filtered(log_batch(5, (b"a", b"1"), (b"b", b"2")), superseding=superseding)
    assert step.is_verbatim is is_verbatim


IDEMPOTENT = replace(
    log_batch(5, (b"a", b"1"), (b"b", b"2")), producer_id=77, producer_epoch=2, base_sequence=9
)


@pytest.mark.parametrize("superseding", [[], [b"a"], [b"a", b"b"]], ids=["whole", "part", "empty"])
def test_the_leader_epoch_of_a_batch_stays(superseding: list[bytes]) -> None:
    """testFilterToPreservesPartitionLeaderEpoch."""
    batch = replace(IDEMPOTENT, leader_epoch=67)

    step = filtered(batch, superseding=superseding, producers=[6])

    assert [header.leader_epoch for header in headers_of(step)] == [67]


@pytest.mark.parametrize("superseding", [[], [b"a"], [b"a", b"b"]], ids=["whole", "part", "empty"])
def test_producer_and_sequences_of_a_batch_stay(superseding: list[bytes]) -> None:
    """testFilterToPreservesProducerInfo."""
    (header,) = headers_of(filtered(IDEMPOTENT, superseding=superseding, producers=[6]))

    assert (header.producer_id, header.producer_epoch) == (77, 2)
    assert (header.base_sequence, header.last_sequence) == (9, 10)
    assert (header.base_offset, header.last_offset) == (5, 6)


@pytest.mark.parametrize("is_log_append_time", [False, True])
@pytest.mark.parametrize("codec", Codec)
def test_an_emptied_batch_that_is_needed_stays_as_a_header(
    codec: Codec, is_log_append_time: bool
) -> None:
    """testFilterToEmptyBatchRetention."""
    batch = replace(IDEMPOTENT, codec=codec, is_log_append_time=is_log_append_time)

    step = filtered(batch, superseding=[b"a", b"b"], producers=[6])

    assert len(step.output) == 61
    (header,) = headers_of(step)
    assert (header.record_count, header.codec, header.base_timestamp) == (0, Codec.NONE, -1)
    assert header.timestamp_type is TimestampType(int(is_log_append_time))
    assert (step.records_read, step.records_kept, step.batches_kept) == (2, 0, 1)
    assert offsets_seen_by_a_client(step) == []


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_batch_that_was_emptied_before_stays_while_it_is_needed(is_needed: bool) -> None:
    """testEmptyBatchRetention, testEmptyBatchDeletion."""
    empty = replace(IDEMPOTENT, records=(), base_timestamp=-1)

    step = filtered(empty, producers=[6] if is_needed else [])

    assert bytes(step.output) == (encode(empty) if is_needed else b"")


def test_a_horizon_becomes_the_base_timestamp_and_no_record_changes_its_time() -> None:
    """testBaseTimestampToDeleteHorizonConversion."""
    batch = log_batch(3, (b"a", None), (b"b", b"2"))

    step = filtered(batch)

    (header,) = headers_of(step)
    assert header.delete_horizon_ms == header.base_timestamp == NOW_MS + RETENTION_MS
    records = read_records(bytes(step.output), decompressed_bytes_max=0)
    assert [record.timestamp for record in records] == [r.timestamp for r in batch.records]
    assert offsets_seen_by_a_client(step) == [3, 4]


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_which_nothing_stays_go_and_their_neighbours_do_not_move(codec: Codec) -> None:
    """testFilterToBatchDiscard."""
    batches = [
        replace(log_batch(offset, (key, b"1"), (key + b"2", b"2")), codec=codec)
        for offset, key in ((0, b"a"), (2, b"b"), (4, b"c"), (6, b"d"))
    ]

    step = filtered(*batches, superseding=[b"b", b"b2", b"d", b"d2"])

    assert bytes(step.output) == encode(batches[0]) + encode(batches[2])
    assert offsets_seen_by_a_client(step) == [0, 1, 4, 5]
    assert step.last_offset == 5


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_with_holes_is_filtered_again(codec: Codec) -> None:
    """testFilterToAlreadyCompactedLog."""
    batch = replace(log_batch(0, (b"a", b"1"), (b"b", b"2"), (b"c", b"3")), codec=codec)
    holes = replace(batch, records=batch.records[1:], last_offset=9)

    untouched = filtered(holes)
    step = filtered(holes, superseding=[b"b"])

    assert bytes(untouched.output) == encode(holes)
    (header,) = headers_of(step)
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 9, 1)
    assert offsets_seen_by_a_client(step) == [2]


def test_output_larger_than_its_input_is_not_cut() -> None:
    """testFilterToWithUndersizedBuffer: the kernel allocates its own buffer."""
    tombstones = [log_batch(number, (b"%d" % number, None)) for number in range(300)]

    step = filtered(*tombstones)

    assert len(step.output) > sum(len(encode(batch)) for batch in tombstones)
    assert offsets_seen_by_a_client(step) == list(range(300))


@pytest.mark.parametrize("codec", Codec)
def test_survivors_keep_offset_time_key_value_and_headers(codec: Codec) -> None:
    """testFilterTo."""
    batch = replace(
        log_batch(10, (b"a", b"1"), (b"b", None), (b"c", b""), (b"", b"3")), codec=codec
    )
    records = tuple(
        replace(record, timestamp=2_000 + number, headers=(("h", None), ("h", b"x")))
        for number, record in enumerate(batch.records)
    )
    batch = replace(batch, records=records, base_timestamp=2_000, max_timestamp=2_003)

    step = filtered(batch, superseding=[b"b"])

    left = read_records(bytes(step.output), decompressed_bytes_max=INFLATED_BYTES_MAX)
    assert [(r.offset, r.timestamp, r.key, r.value) for r in left] == [
        (10, 2_000, b"a", b"1"),
        (12, 2_002, b"c", b""),
        (13, 2_003, b"", b"3"),
    ]
    assert all(len(record.headers) == 2 for record in left)
    (header,) = headers_of(step)
    assert (header.codec, header.max_timestamp) == (codec, 2_003)
    assert offsets_seen_by_a_client(step) == [10, 12, 13]


def test_the_brokers_time_of_a_batch_stays_whichever_records_go() -> None:
    """testFilterToPreservesLogAppendTime."""
    batch = replace(
        log_batch(0, (b"a", b"1"), (b"b", b"2")), is_log_append_time=True, max_timestamp=77_000
    )

    (header,) = headers_of(filtered(batch, superseding=[b"b"]))

    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == 77_000
