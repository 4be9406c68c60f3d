# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""The simplest Fetch requests. `plain_fetch.pyi` is the contract."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from protocol.records.frame_span cimport (
    has_no_tags,
    is_one,
    read_header,
    read_int32,
    read_int64,
    read_size,
    skip_ascii,
    span,
)

cdef enum:
    VERSION_MIN = 5  # Earlier answers are shorter.
    SESSIONS_SINCE = 7
    LEADER_EPOCHS_SINCE = 9
    RACKS_SINCE = 11
    FLEXIBLE_SINCE = 12  # The last fetched epoch, too.
    IDS_SINCE = 13
    REPLICA_IS_TAGGED_SINCE = 15
    VERSION_MAX = 18
    ID_BYTES = 16
    FETCH = 1
    CONSUMER = -1
    NO_SESSION = 0
    NEW_SESSION = 0  # A request for one partition gets none.
    FINAL_EPOCH = -1


cdef class PlainFetch:
    cdef readonly:
        int16_t api_version
        int32_t correlation_id
        int32_t max_wait_ms
        int32_t min_bytes
        int32_t max_bytes
        int8_t isolation_level
        bytes topic
        int32_t partition
        int32_t current_leader_epoch
        int64_t fetch_offset
        int32_t partition_max_bytes


cdef inline bint read_bounds(span *rest, PlainFetch found) noexcept:
    """Read the fields before the topics. Returns False unless they are a consumer's without a session."""
    cdef int32_t replica_id, session_id, session_epoch
    if found.api_version < REPLICA_IS_TAGGED_SINCE:
        if not read_int32(rest, &replica_id) or replica_id != CONSUMER:
            return False
    if not read_int32(rest, &found.max_wait_ms) or not read_int32(rest, &found.min_bytes):
        return False
    if not read_int32(rest, &found.max_bytes) or rest.at == rest.end:
        return False
    found.isolation_level = <int8_t> rest.at[0]
    rest.at += 1
    if found.api_version < SESSIONS_SINCE:
        return True
    if not read_int32(rest, &session_id) or not read_int32(rest, &session_epoch):
        return False
    return session_id == NO_SESSION and (session_epoch == NEW_SESSION or session_epoch == FINAL_EPOCH)


cdef inline bint read_partition(span *rest, PlainFetch found, bint flexible) noexcept:
    """Read the only partition. Returns False unless its fields are a consumer's."""
    cdef int32_t last_fetched_epoch
    cdef int64_t log_start_offset
    found.current_leader_epoch = -1
    if not read_int32(rest, &found.partition):
        return False
    if found.api_version >= LEADER_EPOCHS_SINCE:
        if not read_int32(rest, &found.current_leader_epoch):
            return False
    if not read_int64(rest, &found.fetch_offset):
        return False
    if flexible and (not read_int32(rest, &last_fetched_epoch) or last_fetched_epoch != -1):
        return False
    if not read_int64(rest, &log_start_offset) or log_start_offset != -1:
        return False
    return read_int32(rest, &found.partition_max_bytes)


cdef inline bint read_end(span *rest, int16_t version, bint flexible) noexcept:
    """Read what follows the partition: no forgotten topic, a rack, no tags, and then nothing."""
    cdef int64_t size
    if flexible and (not has_no_tags(rest) or not has_no_tags(rest)):
        return False
    if version >= SESSIONS_SINCE and (not read_size(rest, flexible, False, &size) or size != 0):
        return False
    if version >= RACKS_SINCE:
        if not read_size(rest, flexible, True, &size) or not skip_ascii(rest, size):
            return False
    return (not flexible or has_no_tags(rest)) and rest.at == rest.end


def read_plain_fetch(const uint8_t[::1] frame not None):
    cdef span rest
    cdef int64_t size
    cdef bint flexible
    cdef PlainFetch found
    if frame.shape[0] == 0:
        return None
    rest.at = &frame[0]
    rest.end = rest.at + frame.shape[0]
    found = PlainFetch.__new__(PlainFetch)
    if not read_header(
        &rest,
        FETCH,
        VERSION_MIN,
        VERSION_MAX,
        FLEXIBLE_SINCE,
        &found.api_version,
        &found.correlation_id,
    ):
        return None
    flexible = found.api_version >= FLEXIBLE_SINCE
    if not read_bounds(&rest, found) or not is_one(&rest, flexible):
        return None
    if found.api_version >= IDS_SINCE:
        size = ID_BYTES
    elif not read_size(&rest, flexible, True, &size):
        return None
    if size < 1 or size > rest.end - rest.at:
        return None
    found.topic = PyBytes_FromStringAndSize(<const char *> rest.at, size)
    rest.at += size
    if not is_one(&rest, flexible) or not read_partition(&rest, found, flexible):
        return None
    return found if read_end(&rest, found.api_version, flexible) else None
