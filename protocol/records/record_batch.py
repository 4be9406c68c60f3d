"""Record batches of message format 2: the unit that clients produce and fetch and that logs store.

`batch_header.py` draws a batch and reads its header, `record.py` draws a record. On its hot paths the
broker only reads headers and leaves records to compiled code (`batch_scan`, the cleaner's kernel);
control batches, tools and tests read and build whole batches here.

Source: Apache Kafka, DefaultRecordBatch.java; KIP-98, KIP-534.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from protocol.records.batch_header import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    TimestampType,
    is_intact,
    read_header,
    seal,
)
from protocol.records.compression import Buffer, Codec, compress, decompress
from protocol.records.control_record import (
    ControlType,
    TransactionMarker,
    read_control_type,
    read_transaction_marker,
    write_transaction_marker,
)
from protocol.records.record import Record, read_record, write_record
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Epoch, Offset, ProducerId

__all__ = [
    "Codec",
    "Record",
    "build_batch",
    "build_batch_around",
    "build_control_batch",
    "build_empty_batch",
    "read_marker",
    "read_records",
]

_CONTROL_BYTES_MAX = 1 << 20


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
    if not is_intact(batch):
        raise CorruptBatch(f"batch at offset {header.base_offset} fails its CRC")
    packed = batch[HEADER_BYTES:]
    # A batch without records has nothing to inflate, even if its attributes name a codec.
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
        | (LOG_APPEND_TIME if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL if is_transactional else 0)
        | (CONTROL if is_control else 0)
        | (DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    packed = compress(codec, plain)
    header = BatchHeader(
        size_bytes=HEADER_BYTES + len(packed),
        base_offset=Offset(base_offset),
        last_offset=Offset(last_offset),
        leader_epoch=Epoch(leader_epoch),
        crc=0,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=ProducerId(producer_id),
        producer_epoch=Epoch(producer_epoch),
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return _sealed(header, packed)


def build_batch_around(
    encoded: Buffer,
    *,
    record_count: int,
    timestamp: int,
    max_timestamp: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Build a batch from encoded records with offsets from 0, such as `write_record` writes.

    Args:
        encoded: the records, uncompressed.
        timestamp: the base of the deltas of their timestamps.
        max_timestamp: their largest timestamp; by default all of them have `timestamp`.
    """
    is_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    attributes = (TRANSACTIONAL if is_transactional else 0) | (
        LOG_APPEND_TIME if is_append_time else 0
    )
    header = BatchHeader(
        size_bytes=HEADER_BYTES + len(encoded),
        base_offset=Offset(0),
        last_offset=Offset(record_count - 1),
        leader_epoch=Epoch(-1),
        crc=0,
        attributes=attributes,
        base_timestamp=timestamp,
        max_timestamp=timestamp if max_timestamp is None else max_timestamp,
        producer_id=ProducerId(producer_id),
        producer_epoch=Epoch(producer_epoch),
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
    kept_bits = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    empty = BatchHeader(
        size_bytes=HEADER_BYTES,
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
    seal(batch)
    return batch
