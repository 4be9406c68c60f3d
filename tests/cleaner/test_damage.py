"""Damaged and hostile batches: a pass ends before them, reports the position, and changes no byte.

No kind of damage makes a pass drop a batch or rebuild one with a new checksum over corrupt bytes, and
the log above keeps its tombstones (invariants 12, 16 and 17 of tests/cleaner/invariants).
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from cramjam import gzip, lz4, snappy, zstd

from cleaner.passes.verify_pass import VerificationFailed
from protocol.records.batch_scan import crc32c
from protocol.records.compression import Codec
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from storage.files.paths import KEYS, LOG
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog
from tests.harness.log_builder import batch_of, valid

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


def contents(log: CompactedLog) -> dict[str, bytes]:
    """Returns all files except key sidecars, which a pass makes before it reads the damage."""
    names = [name for name in log.files() if not name.endswith(KEYS)]
    return {name: log.fs.read_bytes(f"{log.log.directory}/{name}") for name in names}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_a_pass_ends_at_damage_with_its_position_and_changes_no_byte(
    damage: Callable[[bytes], bytes], reason: str
) -> None:
    log = damaged_log(damage)
    plan = log.plan()
    before = contents(log)

    with pytest.raises(CorruptBatch, match=reason) as raised:
        log.execute(plan)

    assert "position" in str(raised.value)
    assert contents(log) == before
    assert log.log.clean_offset == 0


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_damage_below_the_clean_offset_stops_the_pass_after_the_groups_before_it(
    damage: Callable[[bytes], bytes], reason: str
) -> None:
    """Those groups are older: no tombstone above the damage is dropped, so no value comes back."""
    log = CompactedLog(replace(CONFIG, segment_bytes=1))
    log.append_segment((b"a", b"1"))
    log.append((b"m", b"x" * 2000), (b"n", b"1"))
    log.append_segment((b"t", None))
    log.append_segment((b"z", b"1"))
    log.clean_until_idle()
    spoil_second_segment(log, damage)
    log.now_ms += RETENTION_MS
    log.append_segment((b"a", b"2"), (b"m", b"2"), (b"z", b"2"))
    spoiled = log.log.segments[1:]

    with pytest.raises(CorruptBatch, match=reason):
        clean_by_sound_sidecars(log)

    assert log.log.segments[0].record_count == 0, "what a newer record superseded went"
    assert log.log.segments[1:] == spoiled
    assert log.log.segments[2].tombstone_count == 1
    assert log.log.clean_offset == 5


def clean_by_sound_sidecars(log: CompactedLog) -> None:
    """Clean twice: damage may first look like a wrong sidecar, which the first pass removes."""
    with suppress(VerificationFailed):
        log.execute(log.plan(requested=False))
    log.execute(log.plan(requested=False))


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
def test_a_decompression_bomb_ends_the_pass_within_the_bound_of_memory(codec: Codec) -> None:
    log = damaged_log(lambda batch: with_records(batch, BOMBS[codec](), codec))
    plan = log.plan()
    before = contents(log)

    tracemalloc.start()
    try:
        with pytest.raises(DecompressionTooLarge) as raised:
            log.execute(plan)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert raised.value.size_max == INFLATED_BYTES_MAX
    assert "position" in raised.value.__notes__[0]
    assert peak < 2 * INFLATED_BYTES_MAX + 8 * MEBIBYTE, "a bomb is a gigabyte"
    assert contents(log) == before


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_what_compresses_well_is_no_bomb(codec: Codec) -> None:
    """The compression ratio does not matter: only the size of the inflated records is bounded."""
    log = CompactedLog(settings=replace(SETTINGS, decompressed_bytes_max=INFLATED_BYTES_MAX))
    log.append((b"a", bytes(INFLATED_BYTES_MAX // 2)), (b"b", b"1"), codec=codec)
    log.append((b"b", b"2"))

    log.clean()

    assert [record.offset for record in log.records()] == [0, 2]
