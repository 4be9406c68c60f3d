# Writes the tombstones of expired values; a part of expired_keys.pyx.
#
# Each is a record with the key, without a value, and with these headers:
#
#     kompakt.expired     the offset of the value that expired, in ASCII digits
#     (the version's)     the version of that value, if records have versions in a header
#
# It must outrank the value, and nothing that did not lose against the value. Its offset is higher, so it has
# the same version: where timestamps are versions, the timestamp of the value; otherwise the time now.


cdef const char *EXPIRED_NAME = b"kompakt.expired"

cdef enum:
    EXPIRED_NAME_SIZE = 15
    OFFSET_DIGITS_MAX = 20


cdef object write_tombstones(
    ExpiredKeys keys, int64_t now_ms, int32_t count_max, size_t bytes_max
):
    """Write those of the next candidates that are left, as records with the offsets 0, 1, 2, ..."""
    cdef int32_t count = 0
    cdef int64_t base_timestamp = 0
    cdef int64_t max_timestamp = INT64_MIN
    cdef int64_t timestamp
    cdef const Candidate *candidate
    while keys.next < keys.count and count < count_max and keys.written.size < bytes_max:
        candidate = &keys.candidates[keys.next]
        if candidate.state == ALIVE:
            timestamp = candidate.timestamp if keys.versions.ranking == BY_TIMESTAMP else now_ms
            if count == 0:
                base_timestamp = timestamp
            max_timestamp = max(max_timestamp, timestamp)
            write_tombstone(keys, candidate, count, timestamp - base_timestamp)
            count += 1
        keys.next += 1
    if count == 0:
        return None
    return Tombstones(
        records=bytes_in(&keys.written),
        count=count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )


cdef int write_tombstone(
    ExpiredKeys keys, const Candidate *candidate, int32_t number, int64_t timestamp_delta
) except -1:
    cdef Versions versions = keys.versions
    cdef uint8_t[OFFSET_DIGITS_MAX] digits
    cdef int32_t digit_count = write_digits(digits, candidate.offset)
    cdef bint has_version = versions.ranking == BY_HEADER and candidate.version != INT64_MIN
    cdef uint8_t[VERSION_HEADER_SIZE] version
    cdef size_t size = (
        1 + varlong_size(timestamp_delta) + varint_size(number)
        + varint_size(candidate.key_size) + candidate.key_size
        + varint_size(-1) + varint_size(2)
        + header_size(EXPIRED_NAME_SIZE, digit_count)
    )
    cdef uint8_t *at
    if has_version:
        size += header_size(versions.name_size, VERSION_HEADER_SIZE)
    reserve(&keys.written, VARINT_SIZE_MAX + size)
    at = write_varint(keys.written.data + keys.written.size, <int32_t>size)
    at[0] = 0  # attributes
    at = write_varlong(at + 1, timestamp_delta)
    at = write_varint(at, number)
    at = write_varint(at, candidate.key_size)
    memcpy(at, keys.key_bytes.data + candidate.key_at, candidate.key_size)
    at = write_varint(at + candidate.key_size, -1)
    at = write_varint(at, 2 if has_version else 1)
    at = write_header(at, <const uint8_t *>EXPIRED_NAME, EXPIRED_NAME_SIZE, digits, digit_count)
    if has_version:
        store_int64(version, candidate.version)
        at = write_header(at, versions.name, versions.name_size, version, VERSION_HEADER_SIZE)
    keys.written.size = at - keys.written.data
    return 0


cdef inline size_t header_size(int32_t name_size, int32_t value_size) noexcept nogil:
    return varint_size(name_size) + name_size + varint_size(value_size) + value_size


cdef inline uint8_t *write_header(
    uint8_t *at, const uint8_t *name, int32_t name_size, const uint8_t *value, int32_t value_size
) noexcept nogil:
    at = write_varint(at, name_size)
    memcpy(at, name, name_size)
    at = write_varint(at + name_size, value_size)
    memcpy(at, value, value_size)
    return at + value_size


cdef int32_t write_digits(uint8_t *to, int64_t number) noexcept nogil:
    """Write a number that is not negative, in decimal. Returns the count of its digits."""
    cdef uint8_t[OFFSET_DIGITS_MAX] reversed_
    cdef int32_t count = 0
    cdef int32_t i
    while True:
        reversed_[count] = 48 + <uint8_t>(number % 10)
        number //= 10
        count += 1
        if number == 0:
            break
    for i in range(count):
        to[i] = reversed_[count - 1 - i]
    return count
