# The summary, index entries and key blocks of an output segment; a part of kernel.pyx.


cdef enum:
    INDEX_ENTRY_INTS = 4
    # A key block is finished when it covers this many bytes.
    KEY_BLOCK_BYTES = 1 << 20


cdef struct Segment:
    int64_t base_offset
    int64_t size
    int64_t end_offset
    int64_t batches
    int64_t records
    int64_t controls
    int64_t tombstones
    int64_t tombstone_bytes
    int64_t delete_horizon_min
    int64_t tombstone_horizon_max
    int64_t max_timestamp
    int64_t max_timestamp_offset
    int64_t bytes_since_entry
    # Of the entries; see digest.h.
    uint64_t key_sum
    # Whether a compressed batch with keys is in it.
    bint has_compressed


@final
cdef class OutputSegment:
    # Constant after construction
    cdef int64_t index_interval_bytes
    cdef int64_t segment_bytes_max
    cdef bint has_versions
    # State
    cdef bint is_open
    cdef Segment current
    cdef OpenBlock keys
    cdef KeyCounts key_counts
    # Of one feed, reused
    cdef Buffer index_ints

    def __cinit__(
        self, *, int64_t index_interval_bytes, int64_t segment_bytes_max, bint has_versions
    ):
        self.index_interval_bytes = index_interval_bytes
        self.segment_bytes_max = segment_bytes_max
        self.has_versions = has_versions

    def __dealloc__(self):
        free_block(&self.keys)
        free(self.index_ints.data)

    cdef int start(self, int64_t base_offset) except -1:
        if base_offset < 0:
            raise ValueError(f"base offset {base_offset} is negative")
        memset(&self.current, 0, sizeof(Segment))
        self.current.base_offset = self.current.end_offset = base_offset
        self.current.delete_horizon_min = self.current.tombstone_horizon_max = -1
        self.current.max_timestamp = self.current.max_timestamp_offset = -1
        clear_block(&self.keys)
        clear_counts(&self.key_counts)
        self.is_open = True
        return 0

    cdef int check_open(self) except -1:
        if not self.is_open:
            raise ValueError("there is no output segment yet: call start_segment")
        return 0

    cdef object summary(self):
        return SegmentSummary(
            base_offset=self.current.base_offset,
            size_bytes=self.current.size,
            end_offset=self.current.end_offset,
            batches=self.current.batches,
            records=self.current.records,
            controls=self.current.controls,
            tombstones=self.current.tombstones,
            tombstone_bytes=self.current.tombstone_bytes,
            delete_horizon_ms_min=self.current.delete_horizon_min,
            tombstone_horizon_ms_max=self.current.tombstone_horizon_max,
            max_timestamp=self.current.max_timestamp,
            max_timestamp_offset=self.current.max_timestamp_offset,
        )

    cdef object key_block(self, bint is_last):
        """Returns the key block if it is large enough or the last one; else an empty block."""
        if is_last or self.keys.data_bytes >= KEY_BLOCK_BYTES:
            return finish_block(&self.keys, &self.key_counts)
        return b""

    cdef bint overflows(self, const batch_header *remains) noexcept nogil:
        """Returns whether the batch must go to a new segment; not if it is the first at the base
        offset."""
        if remains.last_offset - self.current.base_offset > INT32_MAX:
            return remains.base_offset > self.current.base_offset
        return self.current.size > 0 and self.current.size + remains.size > self.segment_bytes_max

    cdef int reserve_entries(self, int64_t count) except -1 nogil:
        """Reserve space for so many entries."""
        reserve(&self.keys.entries, <size_t>count * ENTRY_SIZE)
        if self.has_versions:
            reserve(&self.keys.versions, <size_t>count * VERSION_SIZE)
        return 0

    cdef void cut_entries(self, size_t size) noexcept nogil:
        """Undo the entries after the first `size` bytes of them."""
        self.keys.entries.size = size
        if self.has_versions:
            self.keys.versions.size = size // ENTRY_SIZE * VERSION_SIZE

    cdef inline void add_entry(
        self, const uint8_t *entry, int64_t version, int64_t source_base_offset
    ) noexcept nogil:
        """Add a source's entry, for which space is reserved; undone if its batch does not fit."""
        cdef uint8_t *to = self.keys.entries.data + self.keys.entries.size
        cdef uint32_t moved = <uint32_t>(source_base_offset - self.current.base_offset)
        store_entry(
            to,
            entry_hash(entry),
            load_uint32(entry + ENTRY_OFFSET) + moved,
            entry_is_tombstone(entry),
            load_uint32(entry + ENTRY_RECORD_SIZE),
        )
        self.keys.entries.size += ENTRY_SIZE
        if self.has_versions:
            store_int64(self.keys.versions.data + self.keys.versions.size, version)
            self.keys.versions.size += VERSION_SIZE

    cdef int64_t tombstone_bytes(self, size_t entries_size) noexcept nogil:
        """Returns the size of the tombstones after the first `entries_size` bytes of entries."""
        cdef const uint8_t *entry = self.keys.entries.data + entries_size
        cdef const uint8_t *end = self.keys.entries.data + self.keys.entries.size
        cdef int64_t total = 0
        while entry < end:
            if entry_is_tombstone(entry):
                total += load_uint32(entry + ENTRY_RECORD_SIZE)
            entry += ENTRY_SIZE
        return total

    cdef int add(self, const Judged *judged, const batch_header *remains) except -1 nogil:
        """Count a batch that goes to this segment."""
        self.summarize(judged, remains)
        add_batch(
            &self.keys,
            remains,
            ROW_EMPTY if remains.record_count == 0 else judged.kind,
            judged.tombstones,
            judged.unkeyed,
            self.current.base_offset,
        )
        return self.index(remains)

    cdef void summarize(self, const Judged *judged, const batch_header *remains) noexcept nogil:
        cdef Segment *segment = &self.current
        segment.batches += 1
        segment.records += remains.record_count
        if remains.attributes & ATTRIBUTE_CONTROL:
            segment.controls += remains.record_count
        segment.end_offset = remains.last_offset + 1
        if remains.record_count == 0:
            return
        segment.tombstones += judged.tombstones
        if judged.tombstones > 0:
            segment.tombstone_bytes += judged.tombstone_bytes
            note_latest(&segment.tombstone_horizon_max, remains)
        segment.key_sum += judged.key_sum
        if remains.attributes & ATTRIBUTE_CODEC_MASK and not remains.attributes & ATTRIBUTE_CONTROL:
            segment.has_compressed = True
        if remains.max_timestamp > segment.max_timestamp:
            segment.max_timestamp = remains.max_timestamp
            segment.max_timestamp_offset = remains.last_offset
        # A batch keeps its horizon for ever, but it only matters with a tombstone or a marker in it.
        if remains.attributes & ATTRIBUTE_DELETE_HORIZON and (
            judged.tombstones > 0 or is_marker_kind(judged.kind)
        ):
            note_horizon(&segment.delete_horizon_min, remains.base_timestamp)

    cdef int index(self, const batch_header *remains) except -1 nogil:
        cdef Segment *segment = &self.current
        cdef int64_t *entry
        if segment.bytes_since_entry > self.index_interval_bytes:
            reserve(&self.index_ints, INDEX_ENTRY_INTS * sizeof(int64_t))
            entry = <int64_t *>(self.index_ints.data + self.index_ints.size)
            entry[0] = remains.last_offset
            entry[1] = segment.size
            entry[2] = segment.max_timestamp
            entry[3] = segment.max_timestamp_offset
            self.index_ints.size += INDEX_ENTRY_INTS * sizeof(int64_t)
            segment.bytes_since_entry = 0
        segment.bytes_since_entry += remains.size
        segment.size += remains.size
        return 0
