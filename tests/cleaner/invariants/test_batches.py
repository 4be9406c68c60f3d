"""Invariants of batches: header, bytes, and checks of damaged data."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from cleaner.kernel.kernel import siphash128
from cleaner.pacing.settings import CHUNK_BYTES_MIN
from protocol.records.batch_header import TimestampType
from protocol.records.record_batch import Codec, Record, build_batch
from storage.files.paths import LOG
from tests.cleaner.invariants.scenes import EACH_SEGMENT_ITS_GROUP, RETENTION_MS
from tests.harness.compacted_log import SETTINGS, CompactedLog, read_bytes
from tests.harness.log_builder import valid


@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_invariant_02_a_rewritten_batch_keeps_what_its_header_says(
    timestamp_type: TimestampType,
) -> None:
    log = CompactedLog()
    records = [
        Record(offset=number, timestamp=5000 + number, key=key, value=b"1")
        for number, key in enumerate((b"dead", b"alive", b"dead"))
    ]
    batch = build_batch(
        records, timestamp_type=timestamp_type, producer_id=7, producer_epoch=3, base_sequence=40
    )
    log.append((b"first", b"1"))
    log.append_batch(valid(batch))
    log.append((b"dead", b"2"))
    before = log.headers()[1]

    log.clean()

    after = log.headers()[1]
    assert after.record_count == 1
    same = "base_offset last_offset leader_epoch producer_id producer_epoch base_sequence"
    same += " last_sequence timestamp_type attributes base_timestamp"
    assert [getattr(after, name) for name in same.split()] == [
        getattr(before, name) for name in same.split()
    ]
    assert after.max_timestamp == (5001 if timestamp_type is TimestampType.CREATE_TIME else 5002)


def test_invariant_16_a_batch_larger_than_the_buffer_grows_it_and_a_lying_size_is_corruption() -> (
    None
):
    log = CompactedLog()
    big = bytes(3 * CHUNK_BYTES_MIN)
    log.append_segment((b"a", big), (b"b", b"1"), (b"a", big + b"2"))
    path, size = log.log.segments[0].path(LOG), log.log.segments[0].size
    length = log.fs.read_bytes(path)[8:12]
    log.fs.overwrite(path, 8, struct.pack(">i", size))
    (fence,) = log.execute(log.plan()).fences
    assert f"batch claims {size + 12:,} bytes" in fence.reason

    log.fs.overwrite(path, 8, length)
    log.execute(log.plan())

    assert [record.offset for record in log.records()] == [1, 2]


@pytest.mark.parametrize("is_clean", [False, True], ids=["dirty", "clean"])
def test_invariant_17_a_rotten_batch_is_neither_trusted_nor_given_a_fresh_checksum(
    is_clean: bool,
) -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"value"))
    if is_clean:
        log.execute(log.plan())
    log.append_segment((b"a", b"2"))
    first = log.log.segments[0]
    data = first.files.open().read_at(0, first.size)
    log.fs.overwrite(first.path(LOG), data.index(b"value"), b"valve")
    rotten = first.files.open().read_at(0, first.size)

    report = log.execute(log.plan())

    assert [fence.base_offset for fence in report.fences] == [0]
    assert log.log.segments[0] is first
    assert first.files.open().read_at(0, first.size) == rotten
    assert log.log.clean_offset == (2 if is_clean else 0)


def test_invariant_18_no_key_can_be_made_to_delete_another() -> None:
    """The map identifies a key by 128 bits of SipHash under a secret of the log directory."""
    assert len(siphash128(bytes(16), b"key")) == 16
    assert siphash128(bytes(16), b"key") != siphash128(bytes(15) + b"1", b"key")
    log = CompactedLog(settings=replace(SETTINGS, dedupe_buffer_size=24 * 40_000))
    keys = [struct.pack(">q", number) * (1 + number % 3) for number in range(20_000)]
    for start in range(0, len(keys), 1000):
        log.append(*[(key, b"v") for key in keys[start : start + 1000]], codec=Codec.LZ4)

    log.clean()

    assert [record.key for record in log.records()] == keys


def test_invariant_24_unchanged_batches_are_copied_byte_for_byte() -> None:
    log = CompactedLog()
    log.append((b"a", b"1" * 100), (b"b", b"1" * 100), codec=Codec.ZSTD)
    log.append((b"c", b"1"), (b"d", b"1"))
    log.append((b"c", b"2"))
    batch = read_bytes(log.log, 0)[: log.headers()[0].size_bytes]

    log.clean()

    assert read_bytes(log.log, 0)[: len(batch)] == batch


def test_invariant_24_unchanged_segments_are_not_touched() -> None:
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    log.append((b"a", b"1" * 100), (b"b", b"1" * 100), codec=Codec.ZSTD)
    for pair in ((b"c", b"1"), (b"c", b"2"), (b"d", None), (b"e", b"1")):
        log.append(pair)
    log.clean()
    before = log.log.segments

    log.now_ms += RETENTION_MS
    log.append((b"e", b"2"))
    log.clean()

    kept = [segment.base_offset for segment in log.log.segments if segment in before]
    assert kept == [0, 2, 3, 6]
    assert log.pairs() == [
        (0, b"a", b"1" * 100),
        (1, b"b", b"1" * 100),
        (3, b"c", b"2"),
        (6, b"e", b"2"),
    ]
