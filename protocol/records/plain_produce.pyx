# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""The simplest Produce requests and batches. `plain_produce.pyi` is the contract."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from protocol.records.frame_span cimport (
    has_no_tags,
    is_one,
    read_header,
    read_int16,
    read_int32,
    read_size,
    skip,
    span,
)
from protocol.records.record_format cimport (
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    batch_crc,
    batch_header,
    read_batch_header,
    read_record,
    record_view,
)

cdef enum:
    VERSION_MIN = 5  # Earlier answers are shorter.
    FLEXIBLE_SINCE = 9
    IDS_SINCE = 13
    VERSION_MAX = 13
    ID_BYTES = 16
    PRODUCE = 0
    ACKS_LEADER = 1
    ACKS_ALL = -1
    NO_TIMESTAMP = -1


cdef class PlainProduce:
    cdef readonly:
        int16_t api_version
        int32_t correlation_id
        int16_t acks
        bytes topic
        int32_t partition
        Py_ssize_t records_start
        Py_ssize_t records_end


def read_plain_produce(const uint8_t[::1] frame not None):
    cdef span rest
    cdef int16_t version, acks
    cdef int32_t correlation_id, timeout_ms, partition
    cdef int64_t size
    cdef const uint8_t *topic
    cdef const uint8_t *start
    cdef bint flexible
    cdef PlainProduce found
    if frame.shape[0] == 0:
        return None
    start = &frame[0]
    rest.at = start
    rest.end = start + frame.shape[0]
    if not read_header(
        &rest, PRODUCE, VERSION_MIN, VERSION_MAX, FLEXIBLE_SINCE, &version, &correlation_id
    ):
        return None
    flexible = version >= FLEXIBLE_SINCE
    # The transactional id.
    if not read_size(&rest, flexible, True, &size) or size != -1:
        return None
    if not read_int16(&rest, &acks) or (acks != ACKS_LEADER and acks != ACKS_ALL):
        return None
    if not read_int32(&rest, &timeout_ms) or not is_one(&rest, flexible):
        return None
    if version >= IDS_SINCE:
        size = ID_BYTES
    elif not read_size(&rest, flexible, True, &size):
        return None
    topic = rest.at
    if size < 1 or not skip(&rest, size):
        return None
    if not is_one(&rest, flexible) or not read_int32(&rest, &partition):
        return None
    found = PlainProduce.__new__(PlainProduce)
    found.topic = PyBytes_FromStringAndSize(<const char *> topic, size)
    if not read_size(&rest, flexible, False, &size) or size < 1:
        return None
    found.records_start = rest.at - start
    if not skip(&rest, size):
        return None
    found.records_end = rest.at - start
    # The tags of the partition, the topic and the request follow.
    if rest.end - rest.at != (3 if flexible else 0):
        return None
    while flexible and rest.at < rest.end:
        if not has_no_tags(&rest):
            return None
    found.api_version = version
    found.correlation_id = correlation_id
    found.acks = acks
    found.partition = partition
    return found


cdef bint are_plain(
    const batch_header *header,
    const uint8_t *at,
    const uint8_t *end,
    bint keyed,
    int64_t timestamp_from,
    int64_t timestamp_to,
) noexcept nogil:
    """Returns whether the records are whole, dense, keyed and timely, and the youngest is the header's."""
    cdef record_view record
    cdef int64_t index = 0
    cdef int64_t timestamp
    cdef int64_t youngest = NO_TIMESTAMP
    while at < end:
        if index == header.record_count or read_record(&at, end, &record) != RECORD_OK:
            return False
        if record.offset_delta != index or (keyed and record.key_size < 0):
            return False
        # Unsigned, because clients' bytes may overflow; it wraps as in Java.
        timestamp = <int64_t> (<uint64_t> header.base_timestamp + <uint64_t> record.timestamp_delta)
        if timestamp != NO_TIMESTAMP and (timestamp < timestamp_from or timestamp > timestamp_to):
            return False
        if index == 0 or timestamp > youngest:
            youngest = timestamp
        index += 1
    return index == header.record_count and youngest == header.max_timestamp


def check_plain_batch(
    const uint8_t[::1] batch not None,
    *,
    bint keyed,
    int64_t timestamp_from,
    int64_t timestamp_to,
):
    cdef batch_header header
    cdef const uint8_t *start
    cdef const uint8_t *end
    if batch.shape[0] <= BATCH_HEADER_SIZE:
        return None
    start = &batch[0]
    end = start + batch.shape[0]
    if read_batch_header(start, end, &header) != BATCH_OK or header.size != batch.shape[0]:
        return None
    if header.attributes != 0 or header.crc != batch_crc(start, header.size):
        return None
    if header.record_count < 1 or header.last_offset - header.base_offset + 1 != header.record_count:
        return None
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        return None
    if not are_plain(&header, start + BATCH_HEADER_SIZE, end, keyed, timestamp_from, timestamp_to):
        return None
    return {
        "size_bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "leader_epoch": header.leader_epoch,
        "crc": header.crc,
        "attributes": header.attributes,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "record_count": header.record_count,
    }
