# Decides which batches and records go into the cleaned segments, and writes them; a part of kernel.pyx.


cdef struct FilterCounts:
    # Of one feed
    int64_t batches_read
    int64_t batches_kept
    int64_t records_read
    int64_t records_kept
    int64_t first_base_offset
    int64_t last_offset_kept
    int64_t next_base_offset


@final
cdef class BatchFilter:
    # Constant after construction
    cdef int64_t end_offset
    cdef int64_t tail_offset
    cdef int64_t new_horizon_ms
    # State: the source, its judge, and the current output segment
    cdef SourceKeys source
    cdef Judge judge
    cdef int64_t last_offset_read
    cdef OutputSegment current
    cdef Account group
    cdef readonly int64_t lost_tail_offset
    cdef int64_t[VERDICT_COUNT] total_records
    cdef int64_t[VERDICT_COUNT] total_bytes
    cdef readonly int64_t batches_unread
    # Of one feed, reused
    cdef BatchWriter writer
    cdef FilterCounts fed

    def __cinit__(
        self,
        bytes hash_key not None,
        *,
        int64_t end_offset,
        int64_t tail_offset,
        int64_t now_ms,
        int64_t delete_retention_ms,
        int64_t decompressed_bytes_max,
        producer_last_offsets=(),
        int64_t index_interval_bytes=4096,
        int64_t segment_bytes_max=INT32_MAX,
        bint keeps_unkeyed=False,
        producer_marker_epochs=None,
        Transactions transactions=None,
        bint stamps_markers=False,
        bint is_verified=False,
        int64_t hold_offset=INT64_MAX,
        strategy=BY_OFFSET_STRATEGY,
        codec=None,
        tuple codec_levels=(None,) * 5,
    ):
        cdef int codec_number = -1 if codec is None else codec
        if min(now_ms, delete_retention_ms, index_interval_bytes, segment_bytes_max) < 0:
            raise ValueError("a time or a number of bytes is negative")
        self.end_offset = end_offset
        self.tail_offset = tail_offset
        # An infinite retention must not overflow into the past.
        self.new_horizon_ms = now_ms + min(delete_retention_ms, INT64_MAX - now_ms)
        self.source = SourceKeys()
        self.writer = BatchWriter(codec=codec_number, levels=codec_levels)
        self.group = Account(
            is_verified=is_verified, new_horizon_ms=self.new_horizon_ms, codec=codec_number
        )
        self.current = OutputSegment(
            index_interval_bytes=index_interval_bytes,
            segment_bytes_max=segment_bytes_max,
            has_versions=strategy.has_column,
        )
        self.judge = Judge(
            hash_key,
            self.source,
            self.current,
            ActiveProducers(producer_last_offsets, producer_marker_epochs),
            transactions,
            Versions(strategy.column, strategy.header),
            end_offset=end_offset,
            tail_offset=tail_offset,
            now_ms=now_ms,
            hold_offset=hold_offset,
            decompressed_bytes_max=decompressed_bytes_max,
            keeps_unkeyed=keeps_unkeyed,
            stamps_markers=stamps_markers,
            is_verified=is_verified,
        )
        self.last_offset_read = self.lost_tail_offset = -1

    def start_group(self):
        self.group.clear()

    def start_source(
        self, int64_t base_offset, marks not None, winners=None, *, bint keys_checked=False
    ):
        self.source.start(base_offset, marks, winners, keys_checked)

    def start_segment(self, int64_t base_offset):
        self.current.start(base_offset)

    @property
    def keeps_unkeyed(self):
        return self.judge.keeps_unkeyed

    @keeps_unkeyed.setter
    def keeps_unkeyed(self, bint keeps):
        self.judge.keeps_unkeyed = keeps

    @property
    def account(self):
        return self.group.snapshot()

    @property
    def segment(self):
        self.current.check_open()
        return self.current.summary()

    @property
    def key_totals(self):
        self.current.check_open()
        return totals_of(&self.current.key_counts)

    @property
    def key_sum(self):
        self.current.check_open()
        return self.current.current.key_sum

    @property
    def has_compressed(self):
        self.current.check_open()
        return self.current.current.has_compressed

    def take_keys(self):
        self.current.check_open()
        return self.current.key_block(True)

    @property
    def counts(self):
        return {
            verdict: VerdictCount(records=self.total_records[i], bytes=self.total_bytes[i])
            for i, verdict in enumerate(VERDICTS)
        }

    # ------------------------------------------------------------------- a block and its bytes

    def feed(self, chunk not None, key_block not None, *, int64_t position=0):
        cdef const unsigned char[::1] view = chunk
        cdef const uint8_t *start = bytes_of(view)
        cdef const uint8_t *at = start
        cdef bint full, same
        self.current.check_open()
        self.source.open_block(key_block, view.shape[0])
        self.writer.output.size = self.current.index_ints.size = 0
        self.fed = FilterCounts(0, 0, 0, 0, -1, -1, -1)
        self.judge.records.read_from(chunk, start)
        try:
            with nogil:
                full = self.filter_chunk(&at, start + view.shape[0], position)
                same = self.writer.equals(start, at - start)
        finally:
            self.judge.records.release()
        self.source.close_block(at - start)
        return self.fed_step(at - start, full, same)

    cdef object fed_step(self, int64_t consumed_bytes, bint full, bint same):
        return FilterStep(
            consumed_bytes=consumed_bytes,
            segment_full=full,
            next_base_offset=self.fed.next_base_offset,
            output=memoryview(bytes_in(&self.writer.output)),
            is_verbatim=same,
            index_entries=memoryview(bytes_in(&self.current.index_ints)).cast("q"),
            key_block=self.current.key_block(full),
            batches_read=self.fed.batches_read,
            batches_kept=self.fed.batches_kept,
            records_read=self.fed.records_read,
            records_kept=self.fed.records_kept,
            first_base_offset=self.fed.first_base_offset,
            last_offset=self.fed.last_offset_kept,
        )

    def skip(self, key_block not None, *, int64_t base_offset):
        cdef KeyBlock block
        read_key_block(key_block, &block)
        with nogil:
            self.judge.track_rows(&block, base_offset)

    cdef int filter_chunk(
        self, const uint8_t **at, const uint8_t *end, int64_t position
    ) except -1 nogil:
        """Filter batch by batch. Returns 1 when the output segment is full, 0 at the chunk's end."""
        cdef const uint8_t *start = at[0]
        cdef batch_header header
        cdef int64_t needed = 0
        cdef int64_t batch_position = position
        while next_batch(at[0], end, batch_position, &header, &needed):
            if (
                header.base_offset <= self.last_offset_read
                or header.base_offset < self.current.current.base_offset
            ):
                return corrupt(batch_position, header.base_offset, b"it is out of order")
            if not self.filter_batch(at[0], &header, batch_position):
                self.fed.next_base_offset = header.base_offset
                return 1
            self.last_offset_read = header.last_offset
            self.fed.batches_read += 1
            self.fed.records_read += header.record_count
            at[0] += header.size
            batch_position = position + (at[0] - start)
        if at[0] != end:
            return keys_differ(self.last_offset_read, b"a block ends inside a batch")
        return 0

    cdef int filter_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        """Append what remains of one batch. Returns 0 without any change if the segment is full."""
        cdef size_t output_size = self.writer.output.size
        cdef size_t entries_size = self.current.keys.entries.size
        cdef KeyCursor cursor = self.source.cursor
        cdef batch_header remains = header[0]
        clear_judged(&self.judge.judged)
        self.judge.judged.kind = self.source.take_row(header)
        if not self.judge.can_judge(header):
            self.copy_unjudged(batch, header)
        elif header.record_count > 0:
            self.judge.judge(batch, header, position)
            self.write_judged(batch, &remains, entries_size, position)
        elif self.judge.must_stay(header) or header.last_offset == self.tail_offset:
            self.copy_unjudged(batch, header)
        else:
            remains.size = 0
        if remains.size > 0 and self.current.overflows(&remains):
            self.writer.output.size = output_size
            self.current.cut_entries(entries_size)
            self.source.cursor = cursor
            return 0
        if self.judge.judged.tombstones > 0:
            self.judge.judged.tombstone_bytes = self.current.tombstone_bytes(entries_size)
        self.group.enter(&self.judge.judged, batch, header, remains.size > 0)
        self.commit(&remains)
        return 1

    cdef int copy_unjudged(self, const uint8_t *batch, const batch_header *header) except -1 nogil:
        self.judge.keep_unjudged(header)
        return self.copy_whole(batch, header)

    cdef int copy_whole(self, const uint8_t *batch, const batch_header *header) except -1 nogil:
        self.judge.judged.is_copied = True
        self.judge.judged.max_timestamp = header.max_timestamp
        return self.writer.copy_whole(batch, header.size)

    cdef int write_judged(
        self,
        const uint8_t *batch,
        batch_header *remains,
        size_t entries_size,
        int64_t position,
    ) except -1 nogil:
        """Append the surviving records; `remains` becomes their header, with size 0 if there are
        none."""
        cdef Judged *judged = &self.judge.judged
        cdef bint stamp = gets_horizon(judged, remains)
        cdef uint8_t *entries = NULL
        cdef int64_t shift = 0
        if judged.kept == 0:
            if not self.judge.must_stay(remains):
                remains.size = 0
                return 0
            return self.writer.write_empty(remains)
        if judged.kept == remains.record_count and not stamp:
            return self.copy_whole(batch, remains)
        if stamp:
            shift = wrapping_subtract(remains.base_timestamp, self.new_horizon_ms)
            remains.attributes |= ATTRIBUTE_DELETE_HORIZON
            remains.base_timestamp = self.new_horizon_ms
        if remains.attributes & ATTRIBUTE_LOG_APPEND_TIME:
            judged.max_timestamp = remains.max_timestamp
        remains.record_count = judged.kept
        remains.max_timestamp = judged.max_timestamp
        if not remains.attributes & ATTRIBUTE_CONTROL:
            entries = self.current.keys.entries.data + entries_size
        return self.writer.write_survivors(judged, remains, shift, entries, position)

    cdef int commit(self, const batch_header *remains) except -1 nogil:
        """Count the batch, after it was certain that it fits in the output segment."""
        cdef int i
        for i in range(VERDICT_COUNT):
            self.total_records[i] += self.judge.judged.records[i]
            self.total_bytes[i] += self.judge.judged.bytes[i]
        self.batches_unread += self.judge.judged.is_unread
        if self.judge.judged.has_lost_tail:
            self.lost_tail_offset = remains.base_offset
        self.judge.track(remains, remains.size > 0)
        if remains.size == 0:
            return 0
        self.fed.batches_kept += 1
        self.fed.records_kept += remains.record_count
        if self.fed.first_base_offset < 0:
            self.fed.first_base_offset = remains.base_offset
        self.fed.last_offset_kept = remains.last_offset
        return self.current.add(&self.judge.judged, remains)
