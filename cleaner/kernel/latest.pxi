# Copies the records that are the last ones of their keys, by the map; a part of kernel.pyx.


cdef enum:
    # Why a feed ends: its chunk does, the next batch reaches the end offset, or it may not fit.
    AT_CHUNK_END
    AT_END_OFFSET
    AT_OUTPUT_MAX


cdef struct Probed:
    # A record whose slot is on its way into the cache
    const uint8_t *start
    const uint8_t *end
    kp_sip_hash hashed
    int64_t offset
    int64_t timestamp


@final
cdef class LatestFilter:
    # Constant after construction
    cdef OffsetMap offset_map
    cdef bint with_tombstones
    # State
    cdef readonly int64_t next_offset
    # Of one feed, reused
    cdef Records records
    cdef BatchWriter writer
    cdef Judged judged
    cdef Probed[WINDOW] window
    cdef uint32_t window_count
    # Neighbouring batches of the chunk that stay as they are, not yet in the output
    cdef const uint8_t *whole_start
    cdef const uint8_t *whole_end

    def __cinit__(
        self,
        OffsetMap offset_map not None,
        *,
        int64_t start_offset,
        int64_t decompressed_bytes_max,
        tuple codec_levels=(None,) * 5,
        bint with_tombstones=True,
    ):
        if start_offset < 0:
            raise ValueError(f"start offset {start_offset} is negative")
        self.offset_map = offset_map
        self.with_tombstones = with_tombstones
        self.next_offset = start_offset
        self.records = Records(decompressed_bytes_max)
        self.writer = BatchWriter(codec=-1, levels=codec_levels)

    def __dealloc__(self):
        free(self.judged.runs)

    def feed(
        self,
        chunk not None,
        *,
        int64_t end_offset,
        int64_t output_bytes_max,
        bint whole_first_batch,
        int64_t position=0,
    ):
        cdef const unsigned char[::1] view = chunk
        cdef const uint8_t *start = bytes_of(view)
        cdef const uint8_t *at = start
        cdef int64_t needed = 0
        cdef int64_t kept = 0
        cdef int64_t last_kept_offset = -1
        cdef int ends
        self.writer.output.size = 0
        self.whole_start = self.whole_end = start
        self.records.read_from(chunk, start)
        try:
            with nogil:
                ends = self.filter_chunk(
                    &at,
                    start + view.shape[0],
                    position,
                    end_offset,
                    output_bytes_max,
                    whole_first_batch,
                    &needed,
                    &kept,
                    &last_kept_offset,
                )
        finally:
            self.records.release()
        return LatestStep(
            consumed_bytes=at - start,
            needed_bytes=needed,
            output=self.taken_output(chunk, start, view.shape[0]),
            records=kept,
            last_kept_offset=last_kept_offset,
            is_end=ends == AT_END_OFFSET,
            is_full=ends == AT_OUTPUT_MAX,
        )

    cdef object taken_output(self, object chunk, const uint8_t *start, Py_ssize_t chunk_size):
        """Returns the batches of this feed: a view of the chunk, unless it has little else."""
        cdef Py_ssize_t size = self.whole_end - self.whole_start
        if self.writer.output.size == 0 and 2 * size >= chunk_size:
            return memoryview(chunk)[self.whole_start - start : self.whole_end - start]
        self.copy_whole_batches()
        return bytes_in(&self.writer.output)

    cdef size_t output_size(self) noexcept nogil:
        return self.writer.output.size + (self.whole_end - self.whole_start)

    cdef int keep_whole(self, const uint8_t *batch, size_t size) except -1 nogil:
        if self.whole_end != batch or self.whole_start == self.whole_end:
            self.copy_whole_batches()
            self.whole_start = batch
        self.whole_end = batch + size
        return 0

    cdef int copy_whole_batches(self) except -1 nogil:
        cdef size_t size = self.whole_end - self.whole_start
        if size > 0:
            self.writer.copy_whole(self.whole_start, size)
        self.whole_start = self.whole_end
        return 0

    cdef int filter_chunk(
        self,
        const uint8_t **at,
        const uint8_t *end,
        int64_t position,
        int64_t end_offset,
        int64_t output_bytes_max,
        bint whole_first_batch,
        int64_t *needed,
        int64_t *kept,
        int64_t *last_kept_offset,
    ) except -1 nogil:
        """Filter batch by batch. Returns why it ends."""
        cdef const uint8_t *start = at[0]
        cdef batch_header header
        cdef int64_t batch_position = position
        while next_batch(at[0], end, batch_position, &header, needed):
            if header.last_offset >= end_offset:
                return AT_END_OFFSET
            if header.last_offset >= self.next_offset:
                if (
                    <int64_t>self.output_size() + header.size > output_bytes_max
                    and not (whole_first_batch and self.output_size() == 0)
                ):
                    return AT_OUTPUT_MAX
                if self.filter_batch(at[0], &header, batch_position):
                    kept[0] += self.judged.kept
                    last_kept_offset[0] = header.last_offset
                self.next_offset = header.last_offset + 1
            at[0] += header.size
            batch_position = position + (at[0] - start)
        return AT_CHUNK_END

    cdef bint filter_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        """Append the last records of a batch. Returns whether it has any."""
        cdef batch_header remains = header[0]
        cdef size_t output_at
        cdef bint is_whole
        clear_judged(&self.judged)
        if header.attributes & ATTRIBUTE_CONTROL or header.record_count == 0:
            return False
        self.records.open(batch, header, position)
        self.judge_records(header, position)
        if self.judged.kept == 0:
            return False
        # Readers are sent no markers, so nothing may look like a part of a transaction.
        remains.attributes &= ~ATTRIBUTE_TRANSACTIONAL
        is_whole = self.judged.kept == header.record_count
        if is_whole and remains.attributes == header.attributes:
            self.keep_whole(batch, header.size)
            return True
        self.copy_whole_batches()
        if is_whole:
            output_at = self.writer.output.size
            self.writer.copy_whole(batch, header.size)
            write_batch_header(self.writer.output.data + output_at, &remains)
            return True
        remains.record_count = self.judged.kept
        if not remains.attributes & ATTRIBUTE_LOG_APPEND_TIME:
            remains.max_timestamp = self.judged.max_timestamp
        self.writer.write_survivors(&self.judged, &remains, 0, NULL, position)
        return True

    cdef int judge_records(self, const batch_header *header, int64_t position) except -1 nogil:
        cdef record_view record
        cdef const uint8_t *at = self.records.start
        cdef int32_t last_delta = -1
        cdef int32_t i
        self.window_count = 0
        for i in range(header.record_count):
            next_record(self.records, &at, i, &last_delta, header, position, &record)
            if record.key_size < 0 or (record.value_size < 0 and not self.with_tombstones):
                continue
            if self.window_count == WINDOW:
                self.judge_window()
            self.probe(&record, header)
        self.judge_window()
        return check_end(self.records, at, header, position)

    cdef inline void probe(self, const record_view *record, const batch_header *header) noexcept nogil:
        cdef Probed *probed = &self.window[self.window_count]
        probed.start = record.start
        probed.end = record.end
        probed.hashed = kp_sip128(&self.offset_map.key, record.key, <size_t>record.key_size)
        probed.offset = header.base_offset + record.offset_delta
        probed.timestamp = wrapping_add(header.base_timestamp, record.timestamp_delta)
        kp_slots_prefetch(&self.offset_map.slots, probed.hashed)
        self.window_count += 1

    cdef int judge_window(self) except -1 nogil:
        """Keep those records of the window that the map has, in their order."""
        cdef const Probed *probed
        cdef uint32_t i
        for i in range(self.window_count):
            probed = &self.window[i]
            if kp_slots_get(&self.offset_map.slots, probed.hashed) != probed.offset:
                continue
            if self.judged.kept == 0 or probed.timestamp > self.judged.max_timestamp:
                self.judged.max_timestamp = probed.timestamp
            self.judged.kept += 1
            self.judged.kept_bytes += probed.end - probed.start
            keep_run(&self.judged, probed.start, probed.end)
        self.window_count = 0
        return 0
