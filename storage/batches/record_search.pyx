# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""Finds one record by its offset. `record_search.pyi` is the contract."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from protocol.records.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CODEC_MAX,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_CUT,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    batch_crc,
    batch_header,
    read_batch_header,
    read_record,
    read_varint,
    record_status_text,
    record_view,
)

from protocol.records.compression import Codec, decompress
from protocol.records.record import Record
from protocol.wire.errors import CorruptBatch


def find_record(
    chunk not None, int64_t offset, *, int64_t position, int64_t decompressed_bytes_max
):
    cdef const unsigned char[::1] view = chunk
    cdef const uint8_t *start = &view[0] if view.shape[0] > 0 else NULL
    cdef const uint8_t *at = start
    cdef const uint8_t *end = start + view.shape[0]
    cdef batch_header header
    cdef int status
    while True:
        status = read_batch_header(at, end, &header)
        if status == BATCH_CUT:
            return None, header.size, at - start
        if status != BATCH_OK:
            raise damaged(position + (at - start), "its header is damaged")
        if header.last_offset >= offset:
            break
        at += header.size
    if batch_crc(at, header.size) != header.crc:
        raise damaged(position + (at - start), "its CRC differs from its bytes")
    if (
        header.base_offset > offset
        or header.record_count == 0
        or header.attributes & ATTRIBUTE_CONTROL
    ):
        return None, 0, at - start
    if header.attributes & ATTRIBUTE_CODEC_MASK == 0:
        found = record_in(
            at + BATCH_HEADER_SIZE, at + header.size, &header, offset, position + (at - start)
        )
    else:
        found = inflated_record(
            at, &header, offset, position + (at - start), decompressed_bytes_max
        )
    return found, 0, at - start


cdef object inflated_record(
    const uint8_t *batch,
    const batch_header *header,
    int64_t offset,
    int64_t position,
    int64_t bytes_max,
):
    cdef const unsigned char[::1] inflated
    if header.attributes & ATTRIBUTE_CODEC_MASK > ATTRIBUTE_CODEC_MAX:
        raise damaged(position, "its compression type does not exist")
    try:
        inflated = decompress(
            Codec(header.attributes & ATTRIBUTE_CODEC_MASK),
            (<const char *>batch)[BATCH_HEADER_SIZE : header.size],
            bytes_max=bytes_max,
        )
    except CorruptBatch as error:
        raise damaged(position, str(error)) from error
    if inflated.shape[0] == 0:
        raise damaged(position, "its records are missing")
    return record_in(&inflated[0], &inflated[0] + inflated.shape[0], header, offset, position)


cdef object record_in(
    const uint8_t *at,
    const uint8_t *end,
    const batch_header *header,
    int64_t offset,
    int64_t position,
):
    """Returns the record at an offset among those of a batch; None if the batch has none there."""
    cdef record_view record
    cdef int64_t wanted = offset - header.base_offset
    cdef int32_t number
    cdef int status
    for number in range(header.record_count):
        status = read_record(&at, end, &record)
        if status != RECORD_OK:
            raise damaged(position, f"record {number} {record_status_text(status).decode()}")
        if record.offset_delta >= wanted:
            return as_record(&record, header) if record.offset_delta == wanted else None
    return None


cdef object as_record(const record_view *record, const batch_header *header):
    # Unsigned, because it wraps as in Java.
    cdef int64_t timestamp = <int64_t>(
        <uint64_t>header.base_timestamp + <uint64_t>record.timestamp_delta
    )
    if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    return Record(
        offset=header.base_offset + record.offset_delta,
        timestamp=timestamp,
        key=bytes_or_none(record.key, record.key_size),
        value=bytes_or_none(record.value, record.value_size),
        headers=headers_of(record) if record.header_count else (),
    )


cdef tuple headers_of(const record_view *record):
    """Returns a record's headers, which `read_record` has found to be sound."""
    cdef const uint8_t *at = record.headers
    cdef const uint8_t *name
    cdef int32_t size
    cdef int32_t name_size
    cdef list headers = []
    for _ in range(record.header_count):
        read_varint(&at, record.end, &name_size)
        name = at
        at += name_size
        read_varint(&at, record.end, &size)
        headers.append(
            (
                (<const char *>name)[:name_size].decode("utf-8", "surrogateescape"),
                bytes_or_none(at, size),
            )
        )
        if size > 0:
            at += size
    return tuple(headers)


cdef object bytes_or_none(const uint8_t *data, int32_t size):
    return None if size < 0 else (<const char *>data)[:size]


cdef object damaged(int64_t position, str what):
    return CorruptBatch(f"record batch at position {position}: {what}")
