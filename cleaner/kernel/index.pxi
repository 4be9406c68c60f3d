# Makes a segment's key sidecar from its bytes; a part of kernel.pyx.


@final
cdef class KeyIndexer:
    # Constant after construction
    cdef kp_sip_key key
    cdef int64_t base_offset
    cdef Versions versions
    cdef bint has_versions
    # State
    cdef int64_t last_offset_read
    cdef KeyCounts counts
    # Of one feed, reused
    cdef Records records
    cdef OpenBlock block

    def __cinit__(
        self,
        bytes hash_key not None,
        *,
        int64_t base_offset,
        int64_t decompressed_bytes_max,
        strategy=BY_OFFSET_STRATEGY,
    ):
        if base_offset < 0:
            raise ValueError(f"base offset {base_offset} is negative")
        self.key = sip_key_of(hash_key)
        self.base_offset = base_offset
        self.versions = Versions(strategy.column, strategy.header)
        self.has_versions = strategy.has_column
        self.last_offset_read = base_offset - 1
        self.records = Records(decompressed_bytes_max)
        clear_counts(&self.counts)
        clear_block(&self.block)

    def __dealloc__(self):
        free_block(&self.block)

    @property
    def totals(self):
        return totals_of(&self.counts)

    def feed(self, chunk not None, *, int64_t position=0):
        cdef const unsigned char[::1] view = chunk
        cdef const uint8_t *start = bytes_of(view)
        cdef const uint8_t *at = start
        # A block's byte count is a uint32: cut the chunk, but leave room for the largest batch.
        cdef int64_t size = min(<int64_t>view.shape[0], <int64_t>INT32_MAX + 4096)
        cdef int64_t needed = 0
        self.records.read_from(chunk, start)
        try:
            with nogil:
                self.index_chunk(&at, start + size, position, &needed)
        finally:
            self.records.release()
        return IndexStep(
            consumed_bytes=at - start,
            needed_bytes=needed,
            block=finish_block(&self.block, &self.counts) or None,
        )

    cdef int index_chunk(
        self, const uint8_t **at, const uint8_t *end, int64_t position, int64_t *needed
    ) except -1 nogil:
        cdef const uint8_t *start = at[0]
        cdef batch_header header
        cdef int64_t batch_position = position
        while next_batch(at[0], end, batch_position, &header, needed):
            if (
                header.base_offset <= self.last_offset_read
                or header.last_offset - self.base_offset > INT32_MAX
            ):
                return corrupt(
                    batch_position, header.base_offset, b"it is out of order, or of another segment"
                )
            self.index_batch(at[0], &header, batch_position)
            self.last_offset_read = header.last_offset
            at[0] += header.size
            batch_position = position + (at[0] - start)
        return 0

    cdef int index_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        cdef int marker = MARKER_NONE
        cdef int64_t tombstones = 0
        cdef int64_t unkeyed = 0
        if header.record_count > 0:
            self.records.open(batch, header, position)
            if header.attributes & ATTRIBUTE_CONTROL:
                marker = self.read_control(header, position)
            else:
                self.index_records(header, position, &tombstones, &unkeyed)
                if self.has_versions:
                    self.index_versions(header)
        return add_batch(
            &self.block, header, special_kind(header, marker), tombstones, unkeyed, self.base_offset
        )

    cdef int index_records(
        self, const batch_header *header, int64_t position, int64_t *tombstones, int64_t *unkeyed
    ) except -1 nogil:
        cdef const uint8_t *at = self.records.start
        cdef uint8_t *entry
        cdef record_view record
        cdef int32_t last_delta = -1
        cdef int32_t i
        cdef uint32_t base_delta = <uint32_t>(header.base_offset - self.base_offset)
        reserve(&self.block.entries, <size_t>header.record_count * ENTRY_SIZE)
        entry = self.block.entries.data + self.block.entries.size
        for i in range(header.record_count):
            next_record(self.records, &at, i, &last_delta, header, position, &record)
            if record.key_size < 0:
                unkeyed[0] += 1
                continue
            tombstones[0] += record.value_size < 0
            store_entry(
                entry,
                kp_sip128(&self.key, record.key, <size_t>record.key_size),
                base_delta + <uint32_t>record.offset_delta,
                record.value_size < 0,
                <uint32_t>(record.end - record.start),
            )
            entry += ENTRY_SIZE
        self.block.entries.size = entry - self.block.entries.data
        return check_end(self.records, at, header, position)

    cdef int index_versions(self, const batch_header *header) except -1 nogil:
        """Add the versions of the batch's entries, in a walk of its own: few topics have versions."""
        cdef Buffer *versions = &self.block.versions
        cdef const uint8_t *at = self.records.start
        cdef record_view record
        reserve(versions, <size_t>header.record_count * VERSION_SIZE)
        while at < self.records.end:
            if read_record(&at, self.records.end, &record) != RECORD_OK:
                break
            if record.key_size >= 0:
                store_int64(versions.data + versions.size, self.versions.of(&record, header))
                versions.size += VERSION_SIZE
        return 0

    cdef int read_control(self, const batch_header *header, int64_t position) except -2 nogil:
        """Check all records of a control batch. Returns the kind of marker that its first record is."""
        cdef const uint8_t *at = self.records.start
        cdef record_view record
        cdef int32_t last_delta = -1
        cdef int32_t i
        cdef int marker = MARKER_NONE
        for i in range(header.record_count):
            next_record(self.records, &at, i, &last_delta, header, position, &record)
            if i == 0:
                marker = marker_of(&record)
        check_end(self.records, at, header, position)
        return marker
