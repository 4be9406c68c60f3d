"""Record batches of message format 2: the unit that clients produce and fetch and that logs store.

    base offset             int64   0   stamped by the broker, outside the CRC
    batch length            int32   8   of everything after this field
    partition leader epoch  int32  12   stamped by the broker, outside the CRC
    magic                   int8   16   2
    crc                     uint32 17   CRC-32C of everything from attributes to the end
    attributes              int16  21   bits 0-2 codec, 3 log append time, 4 transactional,
                                        5 control, 6 base timestamp is the delete horizon
    last offset delta       int32  23   kept by compaction: a batch always covers its offsets
    base timestamp          int64  27   of the first record, or the delete horizon (KIP-534)
    max timestamp           int64  35
    producer id             int64  43   -1: the producer is not idempotent
    producer epoch          int16  51
    base sequence           int32  53
    record count            int32  57
    records                        61   compressed as one unit

Integers are big-endian; `record.py` draws a record. On its hot paths the broker only reads headers
here and leaves records to compiled code (`batch_scan`, the cleaner's kernel); control batches, tools
and tests read and build whole batches in Python.

Source: Apache Kafka, DefaultRecordBatch.java; KIP-98, KIP-534.
"""

from __future__ import annotations

import enum
import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocol.records.batch_scan import crc32c
from protocol.records.compression import Buffer, Codec, compress, decompress
from protocol.records.control_record import (
    ControlType,
    TransactionMarker,
    read_control_type,
    read_transaction_marker,
    write_transaction_marker,
)
from protocol.records.record import Record, read_record, write_record
from protocol.wire.errors import CorruptBatch, UnsupportedCodec, UnsupportedMagic

__all__ = [
    "BatchHeader",
    "Codec",
    "Record",
    "TimestampType",
    "build_batch",
    "build_batch_around",
    "build_control_batch",
    "build_empty_batch",
    "read_header",
    "read_marker",
    "read_records",
    "stamp",
]

HEADER = struct.Struct(
    ">"
    "q"  # base offset
    "i"  # batch length
    "i"  # partition leader epoch
    "b"  # magic
    "I"  # crc
    "h"  # attributes
    "i"  # last offset delta
    "q"  # base timestamp
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # record count
)
assert HEADER.size == 61

MAGIC = 2
LENGTH_OVERHEAD = 12
"""Bytes of a batch that its length field does not count."""

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC = struct.Struct(">I")
_CRC_AT = 17
_ATTRIBUTES_AT = 21

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40

_CODECS = tuple(Codec)  # Calling an enum takes several times as long.
_CONTROL_BYTES_MAX = 1 << 20
_OFFSET_MAX = (1 << 63) - 1
_SEQUENCES = 1 << 31  # Sequences run from 0 to 2^31 - 1 and then start at 0 again.


class TimestampType(enum.IntEnum):
    """Who sets a record's timestamp, bit 3 of the attributes. On disk: values never change."""

    CREATE_TIME = 0
    """The producer, record by record."""
    LOG_APPEND_TIME = 1
    """The broker: every record of the batch has the batch's max timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """The first 61 bytes of a batch."""

    size_bytes: int
    """Size of the whole batch."""
    base_offset: int
    last_offset: int
    """The last offset that the batch covers (inclusive), whether or not that record still exists."""
    leader_epoch: int
    crc: int
    attributes: int
    base_timestamp: int
    """Record timestamps are relative to this; it is the delete horizon if there is one."""
    max_timestamp: int
    producer_id: int
    """-1: the producer is not idempotent, and epoch and sequence mean nothing."""
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.last_offset + 1

    @property
    def codec(self) -> Codec:
        """The codec. Raises UnsupportedCodec if the attributes name an unknown one."""
        number = self.attributes & _CODEC_MASK
        if number > Codec.ZSTD:
            raise UnsupportedCodec(number)
        return _CODECS[number]

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the broker or the producer sets the records' timestamps."""
        is_brokers = self.attributes & _LOG_APPEND_TIME
        return TimestampType.LOG_APPEND_TIME if is_brokers else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether it holds records of a transaction, or the marker that ends it."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it holds a control record, which no consumer sees."""
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Wall time from which the cleaner may drop its tombstones or its marker; None if unset."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last offset, -1 without sequences. Compaction does not change it."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) % _SEQUENCES


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at `position`; the buffer need not hold the rest of the batch.

    The CRC is not checked, because it covers the records too.

    Raises:
        CorruptBatch: fewer bytes than a header, a length smaller than that, negative counts, or
            more records than offsets.
        UnsupportedMagic: an older message format.
    """
    if len(buffer) - position < HEADER.size:
        raise _too_short(buffer, position)
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = HEADER.unpack_from(buffer, position)
    if magic != MAGIC:
        raise UnsupportedMagic(magic)
    if length < HEADER.size - LENGTH_OVERHEAD:
        raise CorruptBatch(f"batch length {length} is smaller than a header")
    if not 0 <= record_count <= last_offset_delta + 1 or last_offset_delta < 0:
        raise CorruptBatch(f"{record_count} records in {last_offset_delta + 1} offsets")
    if base_offset + last_offset_delta > _OFFSET_MAX:
        raise CorruptBatch(f"base offset {base_offset} leaves no room for its records")
    return BatchHeader(
        size_bytes=length + LENGTH_OVERHEAD,
        base_offset=base_offset,
        last_offset=base_offset + last_offset_delta,
        leader_epoch=leader_epoch,
        crc=crc,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )


def _too_short(buffer: Buffer, position: int) -> CorruptBatch | UnsupportedMagic:
    """A whole message of format 0 or 1 may be shorter than our header; it is not damaged."""
    if len(buffer) - position > _MAGIC_AT and buffer[position + _MAGIC_AT] in (0, 1):
        return UnsupportedMagic(buffer[position + _MAGIC_AT])
    return CorruptBatch(f"{len(buffer) - position} bytes are too few for a batch header")


def read_records(buffer: Buffer, position: int = 0, *, decompressed_bytes_max: int) -> list[Record]:
    """Read all records of the batch at `position`, after comparing its CRC.

    Args:
        decompressed_bytes_max: bound for the records of a compressed batch.

    Raises:
        CorruptBatch: the batch is cut off, its CRC differs, or its records are malformed.
        UnsupportedMagic, UnsupportedCodec: its format is not supported.
        DecompressionTooLarge: its records inflate beyond the bound.
    """
    header = read_header(buffer, position)
    batch = memoryview(buffer)[position : position + header.size_bytes]
    if len(batch) < header.size_bytes:
        raise CorruptBatch(f"batch of {header.size_bytes} bytes, {len(batch)} are there")
    if crc32c(batch[_ATTRIBUTES_AT:]) != header.crc:
        raise CorruptBatch(f"batch at offset {header.base_offset} fails its CRC")
    packed = batch[HEADER.size :]
    # A batch without records has nothing to inflate, whatever its attributes say.
    if header.record_count == 0 and not packed:
        return []
    plain = decompress(header.codec, packed, bytes_max=decompressed_bytes_max)
    return _read_all(memoryview(plain), header)


def read_marker(batch: Buffer) -> TransactionMarker | None:
    """Returns the transaction marker in a control batch; None if it has none, or no longer has it.

    Raises:
        ProtocolError: it is damaged.
    """
    for record in read_records(batch, decompressed_bytes_max=_CONTROL_BYTES_MAX):
        if read_control_type(record.key) in (ControlType.COMMIT, ControlType.ABORT):
            return read_transaction_marker(record.key, record.value)
    return None


def _read_all(plain: memoryview, header: BatchHeader) -> list[Record]:
    records = []
    position = 0
    last_offset = header.base_offset - 1
    for _ in range(header.record_count):
        record, position = read_record(
            plain, position, base_offset=header.base_offset, base_timestamp=header.base_timestamp
        )
        if not last_offset < record.offset <= header.last_offset:
            raise CorruptBatch(f"record offset {record.offset} is out of place")
        last_offset = record.offset
        records.append(record)
    if position != len(plain):
        raise CorruptBatch(f"{len(plain) - position} bytes are left behind the records")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return [replace(record, timestamp=header.max_timestamp) for record in records]
    return records


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """Build a batch of one record or more.

    Args:
        records: in offset order; offsets may leave gaps, as after compaction.
        base_offset: at most the first record's offset.
        delete_horizon_ms: becomes the base timestamp, so that record deltas may be negative.
        last_offset: the last offset that the batch covers; the last record's offset by default.
        max_timestamp: the records' largest timestamp by default. With LOG_APPEND_TIME it is the
            timestamp of every record.
    """
    assert records, "a batch without records is build_empty_batch's"
    if last_offset is None:
        last_offset = records[-1].offset
    offsets = [base_offset - 1, *(record.offset for record in records), last_offset + 1]
    assert all(a < b for a, b in itertools.pairwise(offsets)), "offsets must grow"
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    if max_timestamp is None:
        max_timestamp = max(record.timestamp for record in records)
    plain = bytearray()
    for record in records:
        write_record(plain, record, base_offset=base_offset, base_timestamp=base_timestamp)
    attributes = (
        codec
        | (_LOG_APPEND_TIME if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (_TRANSACTIONAL if is_transactional else 0)
        | (_CONTROL if is_control else 0)
        | (_DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    packed = compress(codec, plain)
    header = BatchHeader(
        size_bytes=HEADER.size + len(packed),
        base_offset=base_offset,
        last_offset=last_offset,
        leader_epoch=leader_epoch,
        crc=0,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return _sealed(header, packed)


def build_batch_around(
    encoded: bytearray,
    *,
    record_count: int,
    timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Build a batch from records that `write_record` has written one by one, with offsets from 0.

    Args:
        encoded: the records, uncompressed.
        timestamp: the timestamp of every record, and the base of their deltas.
    """
    header = BatchHeader(
        size_bytes=HEADER.size + len(encoded),
        base_offset=0,
        last_offset=record_count - 1,
        leader_epoch=-1,
        crc=0,
        attributes=_TRANSACTIONAL if is_transactional else 0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        record_count=record_count,
    )
    return _sealed(header, encoded)


def build_control_batch(
    marker: TransactionMarker,
    *,
    offset: int = 0,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    leader_epoch: int = -1,
) -> bytearray:
    """Build the batch that ends a producer's transaction in one partition."""
    key, value = write_transaction_marker(marker)
    return build_batch(
        [Record(offset=offset, timestamp=timestamp, key=key, value=value)],
        base_offset=offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def build_empty_batch(header: BatchHeader) -> bytearray:
    """Build the empty batch that remains when all records of a batch are gone but its offsets stay.

    It keeps offsets, leader epoch, producer fields, timestamp type, max timestamp and the
    transactional and control bits; it has no codec and no delete horizon, and base timestamp -1.
    Source: DefaultRecordBatch.writeEmptyHeader.
    """
    kept_bits = _LOG_APPEND_TIME | _TRANSACTIONAL | _CONTROL
    empty = BatchHeader(
        size_bytes=HEADER.size,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.leader_epoch,
        crc=0,
        attributes=header.attributes & kept_bits,
        base_timestamp=-1,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=0,
    )
    return _sealed(empty, b"")


def stamp(batch: bytearray | memoryview, *, base_offset: int, leader_epoch: int) -> None:
    """Write a batch's base offset and leader epoch, in place. Both fields lie outside the CRC."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def _sealed(header: BatchHeader, packed: Buffer) -> bytearray:
    """Write header and records, then the CRC over them."""
    batch = bytearray(
        HEADER.pack(
            header.base_offset,
            header.size_bytes - LENGTH_OVERHEAD,
            header.leader_epoch,
            MAGIC,
            0,
            header.attributes,
            header.last_offset - header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        )
    )
    batch += packed
    with memoryview(batch) as view:
        crc = crc32c(view[_ATTRIBUTES_AT:])
    _CRC.pack_into(batch, _CRC_AT, crc)
    return batch
