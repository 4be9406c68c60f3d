# The version of a record, by which it outranks others of its key; a part of kernel.pyx and of
# find_key.pyx. The rule is that of cleaner/rules/latest.py.


cdef enum:
    BY_OFFSET
    BY_TIMESTAMP
    BY_HEADER
    VERSION_HEADER_SIZE = 8


# Not final: so its methods are never inlined into loops that most topics run without versions.
cdef class Versions:
    # Constant after construction
    cdef int ranking
    # Owns the bytes of `name`.
    cdef bytes header
    cdef const uint8_t *name
    cdef int32_t name_size

    def __cinit__(self, ranking not None, str header not None):
        self.ranking = {
            Ranking.OFFSET: BY_OFFSET, Ranking.TIMESTAMP: BY_TIMESTAMP, Ranking.HEADER: BY_HEADER
        }[ranking]
        self.header = header.encode()
        self.name = <const uint8_t *><const char *>self.header
        self.name_size = <int32_t>len(self.header)

    cdef int64_t of(
        self, const record_view *record, const batch_header *header
    ) noexcept nogil:
        if self.ranking == BY_OFFSET:
            return 0
        if self.ranking == BY_TIMESTAMP:
            if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
                return header.max_timestamp
            return <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>record.timestamp_delta)
        return self.in_header(record)

    cdef int64_t in_header(self, const record_view *record) noexcept nogil:
        cdef const uint8_t *value = NULL
        cdef int32_t size = last_header(record, self.name, self.name_size, &value)
        return load_int64(value) if size == VERSION_HEADER_SIZE else INT64_MIN
