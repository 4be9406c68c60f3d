"""What must hold of one record batch, as a client sent it, before it may be appended. Pure.

In this order, the first that fails refuses the whole batch and nothing is written:
    whole       exactly one batch, of message format 2, no larger than max.message.bytes
    intact      its CRC-32C is right
    sound       record count, offsets and codec make sense; no control bit
    keyed       on a compacted topic every record has a key
    timely      with CreateTime, its timestamps lie within the topic's bounds
    storable    recompressed (compression.type), it still is no larger than max.message.bytes

Most batches are judged by their header alone. The records themselves are decompressed and walked, by
the compiled scanner, where the topic asks for what only they can say (`ValidationRules.asks_records`).
There the header's largest timestamp is set to that of the records, as Kafka does for every batch: some
clients get it wrong, and ListOffsets and retention go by it.

Then the batch is changed into what is stored: with LogAppendTime it gets the broker's time.
Source: Apache Kafka, LogValidator.java, UnifiedLog.java.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from protocol.batch_scan import RecordScan, crc32c, scan_records
from protocol.compression import Buffer, decompress
from protocol.control_record import TransactionMarker
from protocol.error_codes import ErrorCode
from protocol.errors import (
    CorruptBatch,
    DecompressionTooLarge,
    ProtocolError,
    UnsupportedCodec,
    UnsupportedMagic,
)
from protocol.record_batch import BatchHeader, Codec, TimestampType, read_header, read_marker
from storage.log_config import LogConfig
from storage.recompress import CRC_FROM, HEADER_BYTES, recompress, seal
from storage.topic_partition import TopicPartition

CRC_POSITION = 17
MAX_TIMESTAMP_POSITION = 35
ATTRIBUTES_POSITION = 22
CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08

DECOMPRESSED_BYTES_MAX = 128 << 20
"""No batch may inflate beyond this; the cleaner must be able to take what was accepted here."""


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """What decides whether a batch is taken. Small, because every batch has its own."""

    log: TopicPartition
    """For messages."""
    config: LogConfig
    now_ms: int

    def recompresses(self, batch: memoryview) -> bool:
        """Whether the batch, which may be anything yet, will be stored with another codec."""
        stored = self.config.stored_codec
        if stored is None or len(batch) < HEADER_BYTES:
            return False
        return batch[ATTRIBUTES_POSITION] & CODEC_MASK != stored.codec

    @property
    def asks_records(self) -> bool:
        """Whether every batch's records are looked at, not its header only.

        Where a timestamp bound is narrower than the default, no record may break it, whatever the
        header says.
        """
        config = self.config
        return config.is_compacted or (
            config.has_narrow_timestamp_bounds and not config.is_log_append_time
        )

    def are_timely(self, oldest: int, youngest: int) -> bool:
        """Whether timestamps in this range are within the bounds."""
        return (
            self.now_ms - oldest <= self.config.message_timestamp_before_max_ms
            and youngest - self.now_ms <= self.config.message_timestamp_after_max_ms
        )


@dataclass(frozen=True, slots=True)
class RecordError:
    """What is wrong with the record at `batch_index`."""

    batch_index: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A batch that is not appended, and why."""

    error_code: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()
    record_count: int = 0
    """Records in the batch, as far as its header can be trusted; for the metrics."""


@dataclass(frozen=True, slots=True)
class ValidBatch:
    """A batch that may be appended. Its offset and epoch are still the producer's."""

    header: BatchHeader
    view: memoryview
    """The batch's bytes, writable and exactly its own."""
    log_append_time_ms: int = -1

    @property
    def marker(self) -> TransactionMarker | None:
        """What it says if it is a control batch that ends a transaction."""
        return read_marker(self.view) if self.header.is_control else None


def validate_batch(view: memoryview, rules: ValidationRules) -> ValidBatch | Refused:
    """Check a batch against a log's rules. Any thread may do it; `view` belongs to the caller."""
    try:
        header = read_header(view)
    except UnsupportedMagic as error:
        return Refused(error_code=ErrorCode.INVALID_RECORD, message=str(error))
    except ProtocolError as error:
        return Refused(error_code=ErrorCode.CORRUPT_MESSAGE, message=str(error))
    refused = (
        _refuse_size(header, len(view), rules)
        or _refuse_damage(header, view)
        or _refuse_unsound(header)
    )
    if refused is not None:
        return refused
    if rules.asks_records or rules.recompresses(view):
        return _validate_records(header, view, rules)
    refused = _refuse_header_times(header, rules)
    if refused is not None:
        return refused
    return _stamped(view, rules) if rules.config.is_log_append_time else ValidBatch(header, view)


def _validate_records(
    header: BatchHeader, view: memoryview, rules: ValidationRules
) -> ValidBatch | Refused:
    """Go on with the records themselves."""
    try:
        records = _records(header, view)
        base_timestamp = header.base_timestamp
        found = scan_records(records, header.record_count, base_timestamp=base_timestamp)
    except CorruptBatch as error:
        return _refuse(header, ErrorCode.INVALID_RECORD, str(error))
    except DecompressionTooLarge as error:
        return _refuse(header, ErrorCode.MESSAGE_TOO_LARGE, str(error))
    refused = _refuse_keyless(header, found, rules) or _refuse_untimely(header, found, rules)
    if refused is not None:
        return refused
    stored, wanted = view, rules.config.stored_codec
    if wanted is not None and header.codec is not wanted.codec:
        stored = memoryview(recompress(view, records, wanted))
        if len(stored) > rules.config.max_message_bytes:
            return _too_large(header, len(stored), rules)
    if rules.config.is_log_append_time:
        return _stamped(stored, rules)
    if found.youngest_timestamp != header.max_timestamp:
        _set_max_timestamp(stored, found.youngest_timestamp)
    elif stored is view:
        return ValidBatch(header, view)
    return ValidBatch(read_header(stored), stored)


def _refuse(header: BatchHeader, error_code: ErrorCode, message: str) -> Refused:
    return Refused(error_code=error_code, message=message, record_count=header.record_count)


def _refuse_size(header: BatchHeader, size: int, rules: ValidationRules) -> Refused | None:
    if header.size_bytes > rules.config.max_message_bytes:
        return _too_large(header, header.size_bytes, rules)
    if header.size_bytes < size:
        text = "A partition's records must be exactly one record batch."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if header.size_bytes > size:
        text = f"The batch announces {header.size_bytes} bytes and has {size}."
        return _refuse(header, ErrorCode.CORRUPT_MESSAGE, text)
    return None


def _too_large(header: BatchHeader, size: int, rules: ValidationRules) -> Refused:
    text = (
        f"The batch has {size} bytes; {rules.log} takes at most {rules.config.max_message_bytes}"
        " (max.message.bytes)."
    )
    return _refuse(header, ErrorCode.MESSAGE_TOO_LARGE, text)


def _refuse_damage(header: BatchHeader, view: memoryview) -> Refused | None:
    if crc32c(view[CRC_FROM:]) != struct.unpack_from(">I", view, CRC_POSITION)[0]:
        text = "The batch's CRC differs from its bytes."
        return _refuse(header, ErrorCode.CORRUPT_MESSAGE, text)
    return None


def _refuse_unsound(header: BatchHeader) -> Refused | None:
    if header.is_control:
        return _refuse(header, ErrorCode.INVALID_RECORD, "Clients may not write control batches.")
    if header.is_transactional and header.producer_id < 0:
        text = "A transactional batch needs a producer id."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if (
        header.record_count <= 0
        or header.last_offset - header.base_offset + 1 != header.record_count
    ):
        text = f"The batch counts {header.record_count} records, which its offsets deny."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        text = "A batch with a producer id needs an epoch and a sequence number."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if header.delete_horizon_ms is not None:
        text = "Clients may not set a delete horizon."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        text = "Clients may not say that the timestamps are the broker's."
        return _refuse(header, ErrorCode.INVALID_TIMESTAMP, text)
    return _refuse_codec(header)


def _refuse_codec(header: BatchHeader) -> Refused | None:
    try:
        header.codec  # noqa: B018 - reading it checks it
    except UnsupportedCodec as error:
        return _refuse(header, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error))
    return None


def _refuse_header_times(header: BatchHeader, rules: ValidationRules) -> Refused | None:
    """Judge by what the header says of its timestamps: the first one and the largest.

    The past has no bound here: where it has one, the records are asked.
    """
    youngest = max(header.base_timestamp, header.max_timestamp)
    if rules.config.is_log_append_time or rules.are_timely(youngest, youngest):
        return None
    return _refuse(header, ErrorCode.INVALID_TIMESTAMP, _untimely_text(youngest, rules))


def _refuse_untimely(
    header: BatchHeader, found: RecordScan, rules: ValidationRules
) -> Refused | None:
    """Judge by the records' own timestamps; -1, which means none, is always taken."""
    oldest, youngest = found.oldest_timestamp, found.youngest_timestamp
    if (
        rules.config.is_log_append_time
        or found.oldest_index < 0
        or rules.are_timely(oldest, youngest)
    ):
        return None
    is_oldest = not rules.are_timely(oldest, oldest)
    index = found.oldest_index if is_oldest else found.youngest_index
    text = _untimely_text(oldest if is_oldest else youngest, rules)
    return Refused(
        error_code=ErrorCode.INVALID_TIMESTAMP,
        message=text,
        record_errors=(RecordError(index, text),),
        record_count=header.record_count,
    )


def _untimely_text(timestamp: int, rules: ValidationRules) -> str:
    return (
        f"Timestamp {timestamp} is further from the broker's time {rules.now_ms} than"
        f" message.timestamp.before.max.ms ({rules.config.message_timestamp_before_max_ms}) and"
        f" message.timestamp.after.max.ms ({rules.config.message_timestamp_after_max_ms}) allow."
    )


def _refuse_keyless(
    header: BatchHeader, found: RecordScan, rules: ValidationRules
) -> Refused | None:
    if not rules.config.is_compacted or found.first_keyless < 0:
        return None
    text = f"Compacted topic cannot accept message without key in topic partition {rules.log}."
    return Refused(
        error_code=ErrorCode.INVALID_RECORD,
        message=text,
        record_errors=(RecordError(found.first_keyless, text),),
        record_count=header.record_count,
    )


def _records(header: BatchHeader, view: memoryview) -> Buffer:
    records = view[HEADER_BYTES:]
    if header.codec is Codec.NONE:
        return records
    return decompress(header.codec, records, bytes_max=DECOMPRESSED_BYTES_MAX)


def _stamped(view: memoryview, rules: ValidationRules) -> ValidBatch:
    """Give the batch the broker's time, in place: timestamp type and largest timestamp."""
    view[ATTRIBUTES_POSITION] |= TIMESTAMP_TYPE_BIT
    _set_max_timestamp(view, rules.now_ms)
    return ValidBatch(read_header(view), view, rules.now_ms)


def _set_max_timestamp(view: memoryview, timestamp: int) -> None:
    struct.pack_into(">q", view, MAX_TIMESTAMP_POSITION, timestamp)
    seal(view)
