# Sums the table digest of a log from its bytes, its key blocks and its marks; a part of kernel.pyx.
#
# The marks depend on the blocks, so the blocks are checked as in a rewrite: every record is compared
# with its entry, every key is hashed again, and every marker is compared with its row.


@final
cdef class LogSum:
    # Constant after construction
    cdef kp_sip_key key
    cdef int64_t start_offset
    cdef int64_t end_offset
    cdef Transactions transactions
    # State
    cdef SourceKeys source
    cdef int64_t last_offset_read
    cdef kp_hash128 sum
    cdef readonly int64_t keys
    # Of one batch, reused
    cdef Records records

    def __cinit__(
        self,
        bytes hash_key not None,
        *,
        int64_t start_offset,
        int64_t end_offset,
        int64_t decompressed_bytes_max,
        Transactions transactions=None,
    ):
        self.key = sip_key_of(hash_key)
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.transactions = transactions
        self.source = SourceKeys()
        self.records = Records(decompressed_bytes_max)
        self.last_offset_read = -1

    @property
    def digest(self):
        return number_of(self.sum)

    def start_source(self, int64_t base_offset, marks not None):
        self.source.start(base_offset, marks)

    def feed(self, chunk not None, key_block not None, *, int64_t position=0):
        cdef const unsigned char[::1] view = chunk
        cdef const uint8_t *start = bytes_of(view)
        self.source.open_block(key_block, view.shape[0])
        self.records.read_from(chunk, start)
        try:
            with nogil:
                self.add_chunk(start, start + view.shape[0], position)
        finally:
            self.records.release()
        self.source.close_block(view.shape[0])

    cdef int add_chunk(
        self, const uint8_t *at, const uint8_t *end, int64_t position
    ) except -1 nogil:
        cdef batch_header header
        cdef int64_t needed = 0
        while next_batch(at, end, position, &header, &needed):
            if header.base_offset <= self.last_offset_read:
                return corrupt(position, header.base_offset, b"it is out of order")
            self.add_batch(at, &header, position)
            self.last_offset_read = header.last_offset
            at += header.size
            position += header.size
        if at != end:
            return keys_differ(self.last_offset_read, b"a block ends inside a batch")
        return 0

    cdef int add_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        cdef const uint8_t *entry
        cdef int64_t tombstones
        cdef uint8_t kind = self.source.take_row(header)
        if header.record_count == 0:
            return 0
        if outcome_of_batch(self.transactions, header) == ABORTED:
            self.source.take_entries(header, &entry, &tombstones)
            return 0
        self.records.open(batch, header, position)
        if header.attributes & ATTRIBUTE_CONTROL:
            return self.check_control(header, kind, position)
        return self.add_records(header, position)

    cdef int check_control(
        self, const batch_header *header, uint8_t kind, int64_t position
    ) except -1 nogil:
        cdef record_view record
        cdef const uint8_t *at = self.records.start
        cdef int32_t last_delta = -1
        next_record(self.records, &at, 0, &last_delta, header, position, &record)
        if special_kind(header, marker_of(&record)) != kind:
            return keys_differ(header.base_offset, b"its marker has a different special row")
        return 0

    cdef int add_records(self, const batch_header *header, int64_t position) except -1 nogil:
        cdef record_view record
        cdef const uint8_t *at = self.records.start
        cdef int32_t last_delta = -1
        cdef int32_t i
        for i in range(header.record_count):
            next_record(self.records, &at, i, &last_delta, header, position, &record)
            if record.key_size >= 0:
                self.add_keyed(&record, header)
        return check_end(self.records, at, header, position)

    cdef int add_keyed(
        self, const record_view *record, const batch_header *header
    ) except -1 nogil:
        cdef int64_t offset = header.base_offset + record.offset_delta
        cdef const uint8_t *entry = self.source.take_entry(record, offset)
        cdef kp_sip_hash stored = entry_hash(entry)
        cdef kp_sip_hash hashed = kp_sip128(&self.key, record.key, <size_t>record.key_size)
        cdef int64_t timestamp = wrapping_add(header.base_timestamp, record.timestamp_delta)
        if hashed.low != stored.low or hashed.high != stored.high:
            return keys_differ(offset, b"its record has a different key")
        if offset < self.start_offset or offset >= self.end_offset or record.value_size < 0:
            return 0
        if self.source.last_is_marked():
            return 0
        if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
            timestamp = header.max_timestamp
        kp_digest_add(&self.sum, kp_table_record(record, offset, timestamp))
        self.keys += 1
        return 0
