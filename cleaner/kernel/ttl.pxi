# When a value expires; a part of expired_keys.pyx and of find_key.pyx. The rule is that of
# cleaner/rules/expiry.py.


cdef enum:
    TTL_DIGITS_MAX = 19


cdef class Ttl:
    # Constant after construction
    cdef int64_t topic_ms
    # Owns the bytes of `name`; empty if records set no time of their own.
    cdef bytes header
    cdef const uint8_t *name
    cdef int32_t name_size
    # State: values of the header that were no time to live
    cdef int64_t unreadable

    def __cinit__(self, int64_t topic_ms, str header not None):
        self.topic_ms = topic_ms
        self.header = header.encode()
        self.name = <const uint8_t *><const char *>self.header
        self.name_size = <int32_t>len(self.header)

    cdef int64_t expires(self, const record_view *record, int64_t timestamp) noexcept nogil:
        """Returns the wall time from which a value is expired; INT64_MAX if it does not expire."""
        cdef int64_t ttl_ms = self.own(record) if self.name_size > 0 else -1
        if ttl_ms < 0:
            ttl_ms = self.topic_ms
        if ttl_ms < 0 or timestamp < 0 or ttl_ms > INT64_MAX - timestamp:
            return INT64_MAX
        return timestamp + ttl_ms

    cdef int64_t own(self, const record_view *record) noexcept nogil:
        """Returns what the record's header says; -1 if it says nothing."""
        cdef const uint8_t *digits = NULL
        cdef int32_t size = last_header(record, self.name, self.name_size, &digits)
        cdef uint64_t number = 0
        cdef int32_t i
        if size < 0:
            return -1
        if size == 0 or size > TTL_DIGITS_MAX:
            self.unreadable += 1
            return -1
        for i in range(size):
            if digits[i] < 48 or digits[i] > 57:
                self.unreadable += 1
                return -1
            # 19 digits fit into 64 bits without a sign.
            number = 10 * number + (digits[i] - 48)
        return INT64_MAX if number > <uint64_t>INT64_MAX else <int64_t>number


cdef inline int64_t timestamp_of(
    const record_view *record, const batch_header *header
) noexcept nogil:
    """Returns a record's timestamp; with LogAppendTime that of its batch."""
    if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return header.max_timestamp
    return <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>record.timestamp_delta)
