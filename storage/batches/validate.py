"""Validates one record batch, as a client sent it, before it is appended. Pure.

The checks run in this order. The first that fails refuses the whole batch, and nothing is written:
    whole       exactly one batch, of message format 2, no larger than max.message.bytes
    intact      its CRC-32C is right
    sound       record count, offsets, codec and producer fields make sense; no control bit, delete
                horizon or LogAppendTime
    readable    its records decompress, each is well formed, their offset deltas are 0, 1, 2, ... and
                they are as many as the header says
    keyed       on a compacted topic every record has a key
    timely      with CreateTime, each record's timestamp lies within the topic's bounds
    storable    in its stored form, if that is recompressed, it still is no larger than max.message.bytes

The stored form of a batch is the client's, recompressed if compression.type says so, with the broker's
time if the topic has LogAppendTime; else with the records' largest timestamp in the header, as in Kafka:
some clients get it wrong, and ListOffsets and retention use it.

Kafka accepts uncompressed records whose offset deltas are wrong; here such a batch is refused,
compressed or not.

The records are read by `protocol/records/record_walk.pyx`, which checks each: readable, keyed, timely.
Compressed records are walked while they decompress; only a batch that is recompressed is decompressed
as a whole.

`check_plain_batch` (`protocol/records/plain_produce.pyx`) does the same in one step for the simplest
batches: a rule that is added here has to be added there.

Source: Apache Kafka, LogValidator.java, UnifiedLog.java.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from protocol.records.batch_header import (
    CODEC_MASK,
    FLAGS_AT,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_AT,
    BatchHeader,
    TimestampType,
    is_intact,
    read_header,
    seal,
)
from protocol.records.compression import Buffer
from protocol.records.control_record import TransactionMarker
from protocol.records.inflate import inflated
from protocol.records.record_batch import Codec, read_marker
from protocol.records.record_walk import (
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    UNFIT_MAX,
    RecordScan,
    RecordWalk,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import (
    CorruptBatch,
    DecompressionTooLarge,
    ProtocolError,
    UnsupportedCodec,
    UnsupportedMagic,
)
from protocol.wire.value_class import value_class
from storage.batches.recompress import recompress
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from storage.threads import any_thread

DECOMPRESSED_BYTES_MAX = 128 << 20
"""No batch may decompress to more; the cleaner must be able to handle everything accepted here."""

AT_ONCE_BYTES_MAX = (1 << 20) + (64 << 10)
"""The loop itself validates an uncompressed batch up to this size, which covers the largest batch that
topics accept by default: 0.1 ms with records of 100 bytes, 0.7 ms with the smallest possible records.
Handing it to a thread would cost a quarter of such a request's processor time."""

AT_ONCE_PACKED_BYTES_MAX = 64 << 10
"""The loop itself validates a compressed batch up to this size, unless one of the next two bounds is
exceeded; then validation starts over in a thread."""
AT_ONCE_INFLATED_BYTES_MAX = 512 << 10
"""The largest size to which the loop decompresses a batch: 1 ms of gzip."""
AT_ONCE_WINDOWS_MAX = 32
"""The most windows in which the loop decompresses a batch."""


@value_class
class ValidationRules:
    """The rules that decide whether a batch is accepted. Small, because each batch gets its own."""

    log: TopicPartition
    """For error texts."""
    config: LogConfig
    now_ms: int

    def recompresses(self, batch: memoryview) -> bool:
        """Returns whether an unchecked batch will be stored with another codec."""
        stored = self.config.stored_codec
        if stored is None or len(batch) < HEADER_BYTES:
            return False
        return batch[FLAGS_AT] & CODEC_MASK != stored.codec

    @property
    def timestamp_bounds(self) -> tuple[int, int]:
        """The smallest and largest timestamp of a record, in ms; -1 ("none") is always allowed."""
        if self.config.is_log_append_time:
            return TIMESTAMP_MIN, TIMESTAMP_MAX
        return producers_timestamp_bounds(self.config, self.now_ms)


def producers_timestamp_bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Returns the smallest and largest timestamp, in ms, that a producer may give a record."""
    return (
        max(TIMESTAMP_MIN, now_ms - config.message_timestamp_before_max_ms),
        min(TIMESTAMP_MAX, now_ms + config.message_timestamp_after_max_ms),
    )


@dataclass(frozen=True, slots=True)
class RecordError:
    """The error of the record at `batch_index`."""

    batch_index: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A batch that was refused, and why."""

    error_code: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()
    record_count: int = 0
    """The records in the batch, as far as its header can be trusted; for the metrics."""


@value_class
class ValidBatch:
    """A batch that may be appended, which gives it its offsets and its leader epoch."""

    header: BatchHeader
    view: memoryview
    """The batch's bytes: writable, without other data."""
    log_append_time_ms: int = -1

    @property
    def marker(self) -> TransactionMarker | None:
        """The decoded marker, if it is a control batch that ends a transaction."""
        return read_marker(self.view) if self.header.is_control else None


class _TakesLong(Exception):
    """Decompressing the batch would hold the loop too long."""


@any_thread
def validate_batch(view: memoryview, rules: ValidationRules) -> ValidBatch | Refused:
    """Check a batch against a log's rules. The caller owns `view`.

    Decompression takes a few windows of memory, or DECOMPRESSED_BYTES_MAX if the batch is recompressed.
    """
    return _validate(view, rules, at_once=False)


def validate_at_once(view: memoryview, rules: ValidationRules) -> ValidBatch | Refused | None:
    """Do the same as `validate_batch` if that takes 2 ms at most.

    Otherwise returns None and leaves `view` unchanged.
    """
    if rules.recompresses(view):
        return None  # At a high compression level even a small batch takes milliseconds.
    is_compressed = len(view) > FLAGS_AT and view[FLAGS_AT] & CODEC_MASK
    if len(view) > (AT_ONCE_PACKED_BYTES_MAX if is_compressed else AT_ONCE_BYTES_MAX):
        return None
    try:
        return _validate(view, rules, at_once=True)
    except _TakesLong:
        return None


def _validate(view: memoryview, rules: ValidationRules, *, at_once: bool) -> ValidBatch | Refused:
    try:
        header = read_header(view)
    except UnsupportedMagic as error:
        return Refused(error_code=ErrorCode.INVALID_RECORD, message=str(error))
    except ProtocolError as error:
        return Refused(error_code=_code_of_contradiction(view), message=str(error))
    refused = (
        _refuse_size(header, view, rules) or _refuse_damage(header, view) or _refuse_unsound(header)
    )
    if refused is not None:
        return refused
    packed, records = view[HEADER_BYTES:], bytearray()
    is_copied = rules.recompresses(view)
    try:
        found = _walk(header, packed, rules, at_once=at_once, into=records if is_copied else None)
    except CorruptBatch as error:
        return _refuse(header, ErrorCode.INVALID_RECORD, str(error))
    except DecompressionTooLarge as error:
        return _refuse(header, ErrorCode.MESSAGE_TOO_LARGE, str(error))
    if found.unfit_count:
        return _refuse_unfit(header, found, rules)
    return _stored(header, view, found, packed if header.codec is Codec.NONE else records, rules)


def _walk(
    header: BatchHeader,
    packed: memoryview,
    rules: ValidationRules,
    *,
    at_once: bool,
    into: bytearray | None,
) -> RecordScan:
    """Scan every record; append the decompressed bytes to `into` if it is given."""
    timestamp_from, timestamp_to = rules.timestamp_bounds
    walk = RecordWalk(
        header.record_count,
        base_timestamp=header.base_timestamp,
        keyed=rules.config.is_compacted,
        timestamp_from=timestamp_from,
        timestamp_to=timestamp_to,
    )
    if header.codec is Codec.NONE:
        walk.feed(packed)
        return walk.finish()
    bytes_max = DECOMPRESSED_BYTES_MAX
    if at_once:
        bytes_max = min(bytes_max, AT_ONCE_INFLATED_BYTES_MAX)
    try:
        for number, window in enumerate(inflated(header.codec, packed, bytes_max=bytes_max)):
            if at_once and number == AT_ONCE_WINDOWS_MAX:
                raise _TakesLong
            walk.feed(window)
            if into is not None:
                into += window
    except DecompressionTooLarge:
        if bytes_max < DECOMPRESSED_BYTES_MAX:
            raise _TakesLong from None
        raise
    return walk.finish()


def _stored(
    header: BatchHeader,
    view: memoryview,
    found: RecordScan,
    records: Buffer,
    rules: ValidationRules,
) -> ValidBatch | Refused:
    """Turn an accepted batch into its stored form. `records` is used only to recompress it."""
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


def _refuse_size(header: BatchHeader, view: memoryview, rules: ValidationRules) -> Refused | None:
    size = len(view)
    if header.size_bytes > rules.config.max_message_bytes:
        return _too_large(header, header.size_bytes, rules)
    if header.size_bytes < size:
        text = "A partition's records must be exactly one record batch."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if header.size_bytes > size:
        text = f"The batch announces {header.size_bytes} bytes and has {size}."
        return _refuse(header, _code_of_contradiction(view), text)
    return None


def _too_large(header: BatchHeader, size: int, rules: ValidationRules) -> Refused:
    text = (
        f"The batch has {size} bytes; {rules.log} takes at most {rules.config.max_message_bytes}"
        " (max.message.bytes)."
    )
    return _refuse(header, ErrorCode.MESSAGE_TOO_LARGE, text)


def _refuse_damage(header: BatchHeader, view: memoryview) -> Refused | None:
    if not is_intact(view):
        text = "The batch's CRC differs from its bytes."
        return _refuse(header, ErrorCode.CORRUPT_MESSAGE, text)
    return None


def _code_of_contradiction(view: memoryview) -> ErrorCode:
    """Returns the error for a batch whose header contradicts its own size or counts.

    Clients resend a batch after CORRUPT_MESSAGE. So only bytes that were damaged in transit get that
    error, and not a batch that the client has built wrong.
    """
    is_as_made = len(view) >= HEADER_BYTES and is_intact(view)
    return ErrorCode.INVALID_RECORD if is_as_made else ErrorCode.CORRUPT_MESSAGE


def _refuse_unsound(header: BatchHeader) -> Refused | None:
    if header.is_control:
        return _refuse(header, ErrorCode.INVALID_RECORD, "Clients may not write control batches.")
    if header.is_transactional and header.producer_id < 0:
        text = "A transactional batch needs a producer id."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if header.last_offset - header.base_offset + 1 != header.record_count:
        text = f"The batch announces {header.record_count} records, but its offsets do not match."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        text = "A batch with a producer id needs an epoch and a sequence number."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if header.delete_horizon_ms is not None:
        text = "Clients may not set a delete horizon."
        return _refuse(header, ErrorCode.INVALID_RECORD, text)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        text = "Clients may not set the timestamp type LogAppendTime."
        return _refuse(header, ErrorCode.INVALID_TIMESTAMP, text)
    return _refuse_codec(header)


def _refuse_codec(header: BatchHeader) -> Refused | None:
    try:
        header.codec  # noqa: B018 - reading it checks it
    except UnsupportedCodec as error:
        return _refuse(header, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error))
    return None


def _refuse_unfit(header: BatchHeader, found: RecordScan, rules: ValidationRules) -> Refused:
    """Refuse a batch and name every record that the topic does not accept (KIP-467), up to UNFIT_MAX."""
    keyless = f"Compacted topic cannot accept message without key in topic partition {rules.log}."
    errors = tuple(
        RecordError(index, keyless if timestamp is None else _untimely_text(timestamp, rules))
        for index, timestamp in found.unfit
    )
    # One untimely record decides the code, as in Kafka, so the message is about it.
    is_untimely = found.untimely_count > 0
    untimely = [timestamp for _, timestamp in found.unfit if timestamp is not None]
    text = _untimely_text(untimely[0], rules) if untimely else keyless
    if is_untimely and not untimely:
        text = "One or more records have been rejected due to invalid timestamp."
    if found.unfit_count > 1:
        count = f"{found.unfit_count} of {header.record_count} records"
        text = f"{count} are refused. {text}"
    if found.unfit_count > UNFIT_MAX:
        text += f" Only the first {UNFIT_MAX} are named."
    return Refused(
        error_code=ErrorCode.INVALID_TIMESTAMP if is_untimely else ErrorCode.INVALID_RECORD,
        message=text,
        record_errors=errors,
        record_count=header.record_count,
    )


def _untimely_text(timestamp: int, rules: ValidationRules) -> str:
    return (
        f"Timestamp {timestamp} is further from the broker's time {rules.now_ms} than"
        f" message.timestamp.before.max.ms ({rules.config.message_timestamp_before_max_ms}) and"
        f" message.timestamp.after.max.ms ({rules.config.message_timestamp_after_max_ms}) allow."
    )


def _stamped(view: memoryview, rules: ValidationRules) -> ValidBatch:
    """Set the batch's timestamp type and largest timestamp to the broker's time, in place."""
    view[FLAGS_AT] |= LOG_APPEND_TIME
    _set_max_timestamp(view, rules.now_ms)
    return ValidBatch(read_header(view), view, rules.now_ms)


def _set_max_timestamp(view: memoryview, timestamp: int) -> None:
    struct.pack_into(">q", view, MAX_TIMESTAMP_AT, timestamp)
    seal(view)
