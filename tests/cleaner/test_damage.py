"""Damaged and hostile batches: a pass cleans around their segments, reports the position, and changes
no byte of them.

No kind of damage makes a pass drop a batch or rebuild one with a new checksum over corrupt bytes, and
the log above keeps its tombstones (invariants 12, 16 and 17 of tests/cleaner/invariants).
"""

from __future__ import annotations

import re
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from cramjam import gzip, lz4, snappy, zstd

from cleaner.pacing.meter import CleaningAborted
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.rules.report import PassReport
from protocol.records.batch_scan import crc32c
from protocol.records.compression import Codec
from storage.files.paths import KEYS, LOG, SEGMENT_KINDS
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog
from tests.harness.damage import flip
from tests.harness.log_builder import batch_of, records_in, valid

BATCH_LENGTH, CRC, ATTRIBUTES, LAST_OFFSET_DELTA, RECORD_COUNT, RECORDS = 8, 17, 21, 23, 57, 61
MEBIBYTE = 1 << 20
INFLATED_BYTES_MAX = 4 * MEBIBYTE
RETENTION_MS = CONFIG.delete_retention_ms

PAIRS = ((b"a", b"2" * 300), (b"b", b"2" * 300), (b"a", b"3" * 300))


def overwritten(batch: bytes, position: int, data: bytes) -> bytes:
    return batch[:position] + data + batch[position + len(data) :]


def sealed(batch: bytes) -> bytes:
    """Returns the batch with the right length and CRC for its current content."""
    batch = overwritten(batch, BATCH_LENGTH, struct.pack(">i", len(batch) - 12))
    return overwritten(batch, CRC, struct.pack(">I", crc32c(batch[ATTRIBUTES:])))


def with_records(batch: bytes, records: bytes, codec: Codec) -> bytes:
    """Returns the batch with other bytes in place of its records."""
    attributes = struct.pack(">h", codec)
    return sealed(overwritten(batch[:RECORDS], ATTRIBUTES, attributes) + records)


def wrong_crc(batch: bytes) -> bytes:
    return overwritten(batch, RECORDS + 20, bytes([batch[RECORDS + 20] ^ 1]))


def rotten_inside(codec: Codec) -> Callable[[bytes], bytes]:
    """Corruption from before the checksum was computed: only the codec can detect it."""

    def damage(_batch: bytes) -> bytes:
        batch = bytes(batch_of(PAIRS, codec=codec))
        middle = RECORDS + (len(batch) - RECORDS) // 2
        return sealed(overwritten(batch, middle, bytes(8)))

    return damage


def lying(position: int, data: bytes) -> Callable[[bytes], bytes]:
    """Sets a header field to a wrong value, under a right CRC."""
    return lambda batch: sealed(overwritten(batch, position, data))


def lying_length(batch: bytes) -> bytes:
    """Sets a wrong length; the CRC does not cover the length."""
    return overwritten(batch, BATCH_LENGTH, struct.pack(">i", 1 << 30))


DAMAGES = [
    pytest.param(wrong_crc, "CRC", id="crc_wrong"),
    pytest.param(rotten_inside(Codec.GZIP), "position", id="rot_inside_gzip"),
    pytest.param(rotten_inside(Codec.SNAPPY), "position", id="rot_inside_snappy"),
    pytest.param(rotten_inside(Codec.LZ4), "position", id="rot_inside_lz4"),
    pytest.param(rotten_inside(Codec.ZSTD), "position", id="rot_inside_zstd"),
    pytest.param(lying_length, "claims", id="length_beyond_the_segment"),
    pytest.param(
        lying(RECORD_COUNT, struct.pack(">i", 2)), "after its last", id="too_few_records_counted"
    ),
    pytest.param(
        lying(RECORD_COUNT, struct.pack(">i", 1 << 30)), "impossible", id="absurd_record_count"
    ),
    pytest.param(
        lying(LAST_OFFSET_DELTA, struct.pack(">i", -7)), "impossible", id="negative_last_offset"
    ),
    pytest.param(lying(RECORDS, b"\xfe\xff\xff\xff\x0f"), "record 0", id="record_beyond_the_batch"),
    pytest.param(lying(RECORDS + 6, b"\xfe\x7f"), "record 0", id="key_beyond_the_record"),
    pytest.param(lying(ATTRIBUTES, struct.pack(">h", 5)), "compression type", id="unknown_codec"),
]


def damaged_log(damage: Callable[[bytes], bytes]) -> CompactedLog:
    """Returns three segments: superseded records, the damage among sound batches, newer records."""
    log = CompactedLog(settings=replace(SETTINGS, decompressed_bytes_max=INFLATED_BYTES_MAX))
    log.append_segment((b"a", b"1"), (b"b", b"1"), (b"t", None))
    log.append((b"c", b"1"))
    put_damaged(log, damage)
    log.append((b"c", b"2"))
    log.roll()
    log.append_segment((b"a", b"4"), (b"c", b"3"))
    return log


def put_damaged(log: CompactedLog, damage: Callable[[bytes], bytes]) -> None:
    """Append a sound batch, then damage its bytes."""
    sound = bytes(batch_of(PAIRS))
    bad = damage(sound)
    if len(bad) != len(sound):
        log.append_batch(valid(bytearray(bad)))
        return
    segment = log.log.segments[-1]
    position = segment.size
    log.append_batch(valid(bytearray(sound)))
    stamped = segment.files.open().read_at(position, 8)
    log.fs.overwrite(segment.path(LOG), position, stamped + bad[8:])


def bytes_of(log: CompactedLog, number: int) -> bytes:
    """Returns the bytes of a segment's file, and of its indexes."""
    segment = log.log.segments[number]
    names = [segment.path(kind) for kind in SEGMENT_KINDS if kind != KEYS]
    return b"".join(log.fs.read_bytes(name) for name in names)


def has_key_sidecar(log: CompactedLog, number: int) -> bool:
    return log.fs.exists(log.log.segments[number].path(KEYS))


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_a_pass_cleans_around_damage_reports_its_position_and_changes_no_byte_of_it(
    damage: Callable[[bytes], bytes], reason: str
) -> None:
    log = damaged_log(damage)
    before = bytes_of(log, 1)
    fenced = log.log.segments[1]

    report = log.execute(log.plan())

    (fence,) = report.fences
    assert (fence.base_offset, fence.end_offset) == (3, fenced.end_offset)
    assert re.search(reason, fence.reason)
    assert "position" in fence.reason
    assert log.log.segments[1] is fenced
    assert bytes_of(log, 1) == before
    assert not has_key_sidecar(log, 1)
    assert log.log.clean_offset == 3
    first = records_in(log.log.segments[0].files.open().read_at(0, 1 << 20))
    assert [record.offset for record in first] == [1, 2], (
        "only what a readable record supersedes goes"
    )


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_damage_below_the_clean_offset_is_fenced_and_tombstones_above_it_stay(
    damage: Callable[[bytes], bytes], reason: str
) -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=1))
    log.append_segment((b"a", b"1"))
    log.append((b"m", b"x" * 2000), (b"n", b"1"))
    log.append_segment((b"t", None))
    log.append_segment((b"z", b"1"))
    log.clean_until_idle()
    spoil_second_segment(log, damage)
    log.now_ms += RETENTION_MS
    log.append_segment((b"a", b"2"), (b"m", b"2"), (b"z", b"2"))
    spoiled = log.log.segments[1]
    before = bytes_of(log, 1)

    report = clean_until_the_damage_is_known(log)

    assert re.search(reason, report.fences[0].reason)
    assert report.held_by == str(report.fences[0])
    assert [segment.record_count for segment in log.log.segments[2:4]] == [1, 0]
    assert log.log.segments[0].record_count == 0, "what a newer record superseded went"
    assert log.log.segments[1] is spoiled
    assert bytes_of(log, 1) == before
    assert log.log.segments[2].tombstone_count == 1
    assert log.log.clean_offset == 5


def clean_until_the_damage_is_known(log: CompactedLog) -> PassReport:
    """Damage may first look like a wrong sidecar, which the first pass removes; and a pass that meets it
    after a swap leaves the rest to the next one."""
    for _ in range(3):
        with suppress(VerificationFailed, CleaningAborted):
            return log.execute(log.plan(requested=False))
    raise AssertionError("no pass has cleaned around the damage")


def test_damage_that_a_pass_meets_before_its_first_swap_starts_the_pass_again() -> None:
    """The segment has a sidecar from when it was sound."""
    log = CompactedLog(replace(CONFIG, segment_bytes=1))
    log.append_segment((b"m", b"x" * 2000), (b"n", b"1"))
    log.append_segment((b"z", b"1"))
    log.clean_until_idle()
    log.append_segment((b"m", b"2"), (b"z", b"2"))
    flip(log.fs, log.log.segments[0].path(LOG), 1000)

    report = log.execute(log.plan())

    assert [fence.base_offset for fence in report.fences] == [0]
    assert log.log.segments[2].record_count == 0
    assert not has_key_sidecar(log, 0)


def test_a_repaired_segment_is_cleaned_by_the_next_pass_and_nothing_deleted_comes_back() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    log.append_segment((b"b", b"1"), (b"c", b"1"))
    path, spoiled = log.log.segments[1].path(LOG), 40
    flip(log.fs, path, spoiled)
    log.append_segment((b"a", None), (b"b", None), (b"last", b"1"))
    for _ in range(3):
        log.execute(log.plan())
        log.now_ms += RETENTION_MS
    log.append_segment((b"guard", b"1"))
    held = log.execute(log.plan())
    tombstones = log.log.segments[2].tombstone_count

    flip(log.fs, path, spoiled)
    last = {key: value for _, key, value in log.pairs()}
    log.execute(log.plan())
    log.clean_until_idle()

    assert held.records_by_verdict["kept_held"] + tombstones >= 2
    assert last == {b"a": None, b"b": None, b"c": b"1", b"last": b"1", b"guard": b"1"}
    assert [(key, value) for _, key, value in log.pairs()] == [
        (b"c", b"1"),
        (b"last", b"1"),
        (b"guard", b"1"),
    ]
    assert log.log.clean_offset == log.log.log_end_offset


def test_a_fenced_log_rests_until_there_is_news_or_the_segment_is_gone() -> None:
    log = damaged_log(wrong_crc)

    assert log.clean_until_idle() == 1
    log.now_ms += RETENTION_MS
    assert log.clean_until_idle() <= 1, "the tombstone below the fence is due"
    log.append_segment((b"a", b"5"))
    assert log.clean_until_idle() == 1
    log.log.delete_records(log.log.segments[2].base_offset)
    assert log.clean_until_idle() == 1

    assert log.log.clean_offset == log.log.log_end_offset


def test_neighbours_of_a_fence_are_merged_on_their_side_only() -> None:
    log = CompactedLog()
    for number in range(5):
        log.append_segment((b"%d" % number, b"1"))
    flip(log.fs, log.log.segments[2].path(LOG), 40)

    log.execute(log.plan())

    assert [(each.base_offset, each.end_offset) for each in log.log.segments[:-1]] == [
        (0, 2),
        (2, 3),
        (3, 5),
    ]


def spoil_second_segment(log: CompactedLog, damage: Callable[[bytes], bytes]) -> None:
    """Replace the segment's batches by a damaged batch of the same total size."""
    segment = log.log.segments[1]
    bad = damage(bytes(batch_of(PAIRS)))
    head = segment.files.open().read_at(0, 8)
    assert len(bad) <= segment.size
    log.fs.overwrite(segment.path(LOG), 0, head + bad[8:])


# ------------------------------------------------------------------------------------- bombs


def repeated(frame: bytes) -> bytes:
    """Returns many frames, which a codec inflates one after the other to a gigabyte in total."""
    return frame * 1024


BOMBS = {
    Codec.GZIP: lambda: repeated(bytes(gzip.compress(bytes(MEBIBYTE)))),
    Codec.ZSTD: lambda: repeated(bytes(zstd.compress(bytes(MEBIBYTE)))),
    Codec.LZ4: lambda: repeated(bytes(lz4.compress(bytes(MEBIBYTE)))),
    Codec.SNAPPY: lambda: bytes(snappy.compress_raw(bytes(8 * INFLATED_BYTES_MAX))),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_decompression_bomb_is_fenced_within_the_bound_of_memory(codec: Codec) -> None:
    log = damaged_log(lambda batch: with_records(batch, BOMBS[codec](), codec))
    plan = log.plan()
    before = bytes_of(log, 1)

    tracemalloc.start()
    try:
        report = log.execute(plan)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    (fence,) = report.fences
    assert "position" in fence.reason
    assert "raise log.cleaner.decompressed.batch.bytes.max" in fence.reason
    assert peak < 2 * INFLATED_BYTES_MAX + 8 * MEBIBYTE, "a bomb is a gigabyte"
    assert bytes_of(log, 1) == before
    assert log.log.segments[0].record_count == 2


def test_a_batch_is_cleaned_once_the_bound_is_raised() -> None:
    log = CompactedLog(settings=replace(SETTINGS, decompressed_bytes_max=MEBIBYTE))
    log.append((b"a", bytes(2 * MEBIBYTE)), codec=Codec.ZSTD)
    log.append_segment((b"a", b"2"))
    assert log.execute(log.plan()).fences

    log.settings = replace(SETTINGS, decompressed_bytes_max=4 * MEBIBYTE)
    report = log.execute(log.plan())

    assert not report.fences
    assert log.pairs() == [(1, b"a", b"2")]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_what_compresses_well_is_no_bomb(codec: Codec) -> None:
    """The compression ratio does not matter: only the size of the inflated records is bounded."""
    log = CompactedLog(settings=replace(SETTINGS, decompressed_bytes_max=INFLATED_BYTES_MAX))
    log.append((b"a", bytes(INFLATED_BYTES_MAX // 2)), (b"b", b"1"), codec=codec)
    log.append((b"b", b"2"))

    log.clean()

    assert [record.offset for record in log.records()] == [0, 2]
