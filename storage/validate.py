"""What must hold of one record batch, as a client sent it, before it may be appended. Pure.

In this order, the first that fails refuses the whole batch and nothing is written:
    whole       exactly one batch, of message format 2, no larger than max.message.bytes
    intact      its CRC-32C is right
    sound       record count, offsets and codec make sense; no control or transactional bits
    timely      with CreateTime, its largest timestamp lies within the topic's bounds
    keyed       on a compacted topic every record has a key (looked up by the compiled scanner)

With LogAppendTime the batch then gets the broker's time, in place, and a new CRC.
Source: Apache Kafka, LogValidator.java.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from protocol.batch_scan import crc32c, find_keyless
from protocol.compression import Buffer, decompress
from protocol.error_codes import ErrorCode
from protocol.errors import (
    CorruptBatch,
    DecompressionTooLarge,
    ProtocolError,
    UnsupportedCodec,
    UnsupportedMagic,
)
from protocol.record_batch import BatchHeader, Codec, read_header

HEADER_BYTES = 61
CRC_POSITION = 17
CRC_FROM = 21
MAX_TIMESTAMP_POSITION = 35
TIMESTAMP_TYPE_BIT = 0x08
NO_TIMESTAMP = -1

DECOMPRESSED_BYTES_MAX = 128 << 20
"""No batch may inflate beyond this; the cleaner must be able to take what was accepted here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRules:
    """The part of a log's configuration that decides whether a batch is taken."""

    log: str
    """The partition's name, for messages."""
    is_compacted: bool
    is_log_append_time: bool
    max_message_bytes: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    now_ms: int


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
        or _refuse_untimely(header, rules)
        or _refuse_keyless(header, view, rules)
    )
    if refused is not None:
        return refused
    if rules.is_log_append_time:
        _stamp_time(view, rules.now_ms)
        return ValidBatch(read_header(view), view, rules.now_ms)
    return ValidBatch(header, view)


def _refuse(header: BatchHeader, error_code: ErrorCode, message: str) -> Refused:
    return Refused(error_code=error_code, message=message, record_count=header.record_count)


def _refuse_size(header: BatchHeader, size: int, rules: ValidationRules) -> Refused | None:
    if header.size_bytes > rules.max_message_bytes:
        text = (
            f"The batch has {header.size_bytes} bytes; {rules.log} takes at most"
            f" {rules.max_message_bytes} (max.message.bytes)."
        )
        return _refuse(header, ErrorCode.MESSAGE_TOO_LARGE, text)
    if header.size_bytes < size:
        text = "A partition's records must be exactly one record batch."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if header.size_bytes > size:
        text = f"The batch announces {header.size_bytes} bytes and has {size}."
        return _refuse(header, ErrorCode.CORRUPT_MESSAGE, text)
    return None


def _refuse_damage(header: BatchHeader, view: memoryview) -> Refused | None:
    if crc32c(view[CRC_FROM:]) != struct.unpack_from(">I", view, CRC_POSITION)[0]:
        text = "The batch's CRC differs from its bytes."
        return _refuse(header, ErrorCode.CORRUPT_MESSAGE, text)
    return None


def _refuse_unsound(header: BatchHeader) -> Refused | None:
    if header.is_control:
        return _refuse(header, ErrorCode.INVALID_RECORD, "Clients may not write control batches.")
    if header.is_transactional:
        text = "Transactions are not served yet."
        return _refuse(header, ErrorCode.INVALID_TXN_STATE, text)
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
    return _refuse_codec(header)


def _refuse_codec(header: BatchHeader) -> Refused | None:
    try:
        header.codec  # noqa: B018 - reading it checks it
    except UnsupportedCodec as error:
        return _refuse(header, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error))
    return None


def _refuse_untimely(header: BatchHeader, rules: ValidationRules) -> Refused | None:
    if rules.is_log_append_time or header.max_timestamp == NO_TIMESTAMP:
        return None
    # The header knows the first and the largest timestamp; records are not looked into for one
    # in between that is too old.
    oldest = min(header.base_timestamp, header.max_timestamp)
    is_late = rules.now_ms - oldest > rules.timestamp_before_max_ms
    if is_late or header.max_timestamp - rules.now_ms > rules.timestamp_after_max_ms:
        text = (
            f"Timestamps {oldest} to {header.max_timestamp} are further from the broker's time"
            f" {rules.now_ms} than message.timestamp.before.max.ms and"
            " message.timestamp.after.max.ms allow."
        )
        return _refuse(header, ErrorCode.INVALID_TIMESTAMP, text)
    return None


def _refuse_keyless(
    header: BatchHeader, view: memoryview, rules: ValidationRules
) -> Refused | None:
    if not rules.is_compacted:
        return None
    try:
        index = find_keyless(_records(header, view), header.record_count)
    except CorruptBatch as error:
        return _refuse(header, ErrorCode.INVALID_RECORD, str(error))
    except DecompressionTooLarge as error:
        return _refuse(header, ErrorCode.MESSAGE_TOO_LARGE, str(error))
    if index < 0:
        return None
    text = f"Compacted topic cannot accept message without key in topic partition {rules.log}."
    return Refused(
        error_code=ErrorCode.INVALID_RECORD,
        message=text,
        record_errors=(RecordError(index, text),),
        record_count=header.record_count,
    )


def _records(header: BatchHeader, view: memoryview) -> Buffer:
    records = view[HEADER_BYTES:]
    if header.codec is Codec.NONE:
        return records
    return decompress(header.codec, records, bytes_max=DECOMPRESSED_BYTES_MAX)


def _stamp_time(view: memoryview, now_ms: int) -> None:
    """Give the batch the broker's time: timestamp type, largest timestamp, CRC."""
    view[22] |= TIMESTAMP_TYPE_BIT
    struct.pack_into(">q", view, MAX_TIMESTAMP_POSITION, now_ms)
    struct.pack_into(">I", view, CRC_POSITION, crc32c(view[CRC_FROM:]))
