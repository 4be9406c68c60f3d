"""The header of a record batch of message format 2: the only place in Python that has its layout.

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

Integers are big-endian. `record_format.h` has the same layout for compiled code; a test compares both.

Source: Apache Kafka, DefaultRecordBatch.java; KIP-98, KIP-534.
"""

from __future__ import annotations

import enum
import struct

from protocol.records.batch_scan import crc32c
from protocol.records.compression import Buffer, Codec
from protocol.wire.errors import CorruptBatch, UnsupportedCodec, UnsupportedMagic
from protocol.wire.numbers import Epoch, Offset, ProducerId
from protocol.wire.value_class import value_class

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
HEADER_BYTES = 61
assert HEADER.size == HEADER_BYTES

LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
FLAGS_AT = 22
"""The low byte of the attributes, which has all bits that mean something."""
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43

MAGIC = 2
LENGTH_OVERHEAD = 12
"""Bytes of a batch that its length field does not count."""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")

_CODECS = tuple(Codec)  # Calling an enum takes several times as long.
_OFFSET_MAX = (1 << 63) - 1
_SEQUENCES = 1 << 31  # Sequences run from 0 to 2^31 - 1 and then start at 0 again.


class TimestampType(enum.IntEnum):
    """Who sets a record's timestamp, bit 3 of the attributes. On disk: values never change."""

    CREATE_TIME = 0
    """The producer, record by record."""
    LOG_APPEND_TIME = 1
    """The broker: every record of the batch has the batch's max timestamp."""


@value_class(kw_only=True)
class BatchHeader:
    """The first 61 bytes of a batch."""

    size_bytes: int
    """Size of the whole batch."""
    base_offset: Offset
    last_offset: Offset
    """The last offset that the batch covers (inclusive), whether or not that record still exists."""
    leader_epoch: Epoch
    crc: int
    attributes: int
    base_timestamp: int
    """Record timestamps are relative to this; it is the delete horizon if there is one."""
    max_timestamp: int
    producer_id: ProducerId
    """-1: the producer is not idempotent, and epoch and sequence mean nothing."""
    producer_epoch: Epoch
    base_sequence: int
    record_count: int

    @property
    def next_offset(self) -> Offset:
        """The offset after the batch."""
        return Offset(self.last_offset + 1)

    @property
    def codec(self) -> Codec:
        """The codec. Raises UnsupportedCodec if the attributes name an unknown one."""
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise UnsupportedCodec(number)
        return _CODECS[number]

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the broker or the producer sets the records' timestamps."""
        is_brokers = self.is_log_append_time
        return TimestampType.LOG_APPEND_TIME if is_brokers else TimestampType.CREATE_TIME

    @property
    def is_log_append_time(self) -> bool:
        """Whether each of its records has the batch's max timestamp."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether it holds records of a transaction, or the marker that ends it."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it holds a control record, which no consumer sees."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Wall time from which the cleaner may drop its tombstones or its marker; None if unset."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

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
    if len(buffer) - position < HEADER_BYTES:
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
    if length < HEADER_BYTES - LENGTH_OVERHEAD:
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
    if len(buffer) - position > MAGIC_AT and buffer[position + MAGIC_AT] in (0, 1):
        return UnsupportedMagic(buffer[position + MAGIC_AT])
    return CorruptBatch(f"{len(buffer) - position} bytes are too few for a batch header")


def stamp(batch: bytearray | memoryview, *, base_offset: int, leader_epoch: int) -> None:
    """Write a batch's base offset and leader epoch, in place. Both fields lie outside the CRC."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)


def seal(batch: bytearray | memoryview) -> None:
    """Write the CRC of a batch that is complete or was changed, in place."""
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_AT, crc32c(view[ATTRIBUTES_AT:]))


def is_intact(batch: Buffer) -> bool:
    """Returns whether the CRC matches the bytes. `batch` is one whole batch."""
    with memoryview(batch) as view:
        return bool(crc32c(view[ATTRIBUTES_AT:]) == _CRC.unpack_from(view, CRC_AT)[0])
