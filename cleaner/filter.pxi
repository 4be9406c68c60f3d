# What of a log goes into the cleaned segments; a part of kernel.pyx.


cdef int compare_offsets(const void *a, const void *b) noexcept nogil:
    cdef int64_t left = (<const int64_t *>a)[0]
    cdef int64_t right = (<const int64_t *>b)[0]
    return (left > right) - (left < right)


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
    cdef kp_sip_key key
    cdef int64_t end_offset
    cdef int64_t tail_offset
    cdef int64_t now_ms
    cdef int64_t new_horizon_ms
    cdef bint keeps_unkeyed
    cdef bint is_verified
    cdef int64_t *producer_offsets
    cdef size_t producer_offset_count
    cdef ProducerTable marker_epochs
    cdef Transactions transactions
    cdef bint stamps_markers
    # State: the source, what was decided, and the output segment it went to
    cdef SourceKeys source
    # Producers of whose transaction, since their last marker, a batch was kept.
    cdef ProducerTable remaining
    cdef int64_t last_offset_read
    cdef OutputSegment current
    cdef Account group
    cdef int64_t[VERDICT_COUNT] total_records
    cdef int64_t[VERDICT_COUNT] total_bytes
    # Of one feed, reused
    cdef Records records
    cdef Judged judged
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
    ):
        if min(now_ms, delete_retention_ms, index_interval_bytes, segment_bytes_max) < 0:
            raise ValueError("a time or a number of bytes is negative")
        self.key = sip_key_of(hash_key)
        self.end_offset = end_offset
        self.tail_offset = tail_offset
        self.now_ms = now_ms
        # A retention of "for ever" must not overflow into the past.
        self.new_horizon_ms = now_ms + min(delete_retention_ms, INT64_MAX - now_ms)
        self.keeps_unkeyed = keeps_unkeyed
        self.transactions = transactions
        self.stamps_markers = stamps_markers
        self.is_verified = is_verified
        self.records = Records(decompressed_bytes_max)
        self.source = SourceKeys()
        self.writer = BatchWriter()
        self.group = Account(is_verified=is_verified, new_horizon_ms=self.new_horizon_ms)
        self.current = OutputSegment(
            index_interval_bytes=index_interval_bytes, segment_bytes_max=segment_bytes_max
        )
        self.last_offset_read = -1
        self.take_producers(sorted(set(producer_last_offsets)))
        for producer_id, epoch in (producer_marker_epochs or {}).items():
            put_row(&self.marker_epochs, producer_id, epoch)

    cdef int take_producers(self, list last_offsets) except -1:
        cdef Py_ssize_t i
        self.producer_offsets = <int64_t *>malloc(max(1, len(last_offsets)) * sizeof(int64_t))
        if self.producer_offsets == NULL:
            raise MemoryError("no memory for the producers' last offsets")
        for i in range(len(last_offsets)):
            self.producer_offsets[i] = last_offsets[i]
        self.producer_offset_count = len(last_offsets)
        return 0

    def __dealloc__(self):
        free(self.producer_offsets)
        free(self.marker_epochs.rows)
        free(self.remaining.rows)
        free(self.judged.runs)

    def start_group(self):
        self.group.clear()

    def start_source(self, int64_t base_offset, marks not None):
        self.source.start(base_offset, marks)

    def start_segment(self, int64_t base_offset):
        self.current.start(base_offset)

    @property
    def account(self):
        return self.group.said()

    @property
    def segment(self):
        self.current.check_open()
        return self.current.summary()

    @property
    def key_totals(self):
        self.current.check_open()
        return totals_of(&self.current.key_counts)

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
        cdef bint full
        self.current.check_open()
        self.source.open_block(key_block, view.shape[0])
        self.writer.output.size = self.current.index_ints.size = 0
        self.fed = FilterCounts(0, 0, 0, 0, -1, -1, -1)
        self.records.read_from(chunk, start)
        try:
            with nogil:
                full = self.filter_chunk(&at, start + view.shape[0], position)
        finally:
            self.records.release()
        self.source.close_block(at - start)
        return self.fed_step(at - start, full)

    cdef object fed_step(self, int64_t consumed_bytes, bint full):
        return FilterStep(
            consumed_bytes=consumed_bytes,
            segment_full=full,
            next_base_offset=self.fed.next_base_offset,
            output=memoryview(bytes_in(&self.writer.output)),
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
        cdef SpecialRow row
        cdef int64_t i
        read_key_block(key_block, &block)
        with nogil:
            for i in range(block.row_count):
                read_special_row(&block, i, base_offset, &row)
                if is_transactional_data(&row):
                    put_row(&self.remaining, row.producer_id, row.first_offset)
                elif is_marker_kind(row.kind) and row.last_offset < self.end_offset:
                    drop_row(&self.remaining, row.producer_id)

    cdef int filter_chunk(
        self, const uint8_t **at, const uint8_t *end, int64_t position
    ) except -1 nogil:
        """Filter batch by batch: 1 when the output segment is full, 0 at the chunk's end."""
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
        """Append what remains of one batch. 0, and nothing changed, if the segment is full."""
        cdef size_t output_size = self.writer.output.size
        cdef size_t entries_size = self.current.keys.entries.size
        cdef KeyCursor cursor = self.source.cursor
        cdef batch_header remains = header[0]
        clear_judged(&self.judged)
        self.judged.kind = self.source.take_row(header)
        if header.last_offset >= self.end_offset:
            self.keep_unlooked(batch, header)
        elif header.record_count > 0:
            self.judge(batch, header, position)
            self.write_judged(batch, &remains, entries_size, position)
        elif self.must_stay(header) or header.last_offset == self.tail_offset:
            self.keep_unlooked(batch, header)
        else:
            remains.size = 0
        if remains.size > 0 and self.current.overflows(&remains):
            self.writer.output.size = output_size
            self.current.keys.entries.size = entries_size
            self.source.cursor = cursor
            return 0
        self.group.enter(&self.judged, batch, header, remains.size > 0)
        self.commit(&remains)
        return 1

    cdef bint must_stay(self, const batch_header *header) noexcept nogil:
        """Whether the batch is the last that an active producer has: its sequence or its epoch."""
        cdef const ProducerRow *marked
        if header.producer_id < 0:
            return False
        if header.attributes & ATTRIBUTE_CONTROL:
            marked = find_row(&self.marker_epochs, header.producer_id)
            return marked != NULL and marked.number == header.producer_epoch
        return bsearch(
            &header.last_offset,
            self.producer_offsets,
            self.producer_offset_count,
            sizeof(int64_t),
            compare_offsets,
        ) != NULL

    cdef int keep_unlooked(self, const uint8_t *batch, const batch_header *header) except -1 nogil:
        """Copy a batch whose records are none of the pass's business, and its entries."""
        cdef const uint8_t *entry
        cdef int64_t tombstones = 0
        cdef int64_t count = self.source.take_entries(header, &entry, &tombstones)
        cdef int64_t i
        keep_unlooked(&self.judged, header, count, tombstones)
        reserve(&self.current.keys.entries, count * ENTRY_SIZE)
        for i in range(count):
            self.current.add_entry(entry + i * ENTRY_SIZE, self.source.base_offset)
        self.judged.is_copied = True
        return self.writer.copy_whole(batch, header.size)

    # --------------------------------------------------------------------------------- judging

    cdef int judge(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        cdef const uint8_t *entry
        cdef int64_t tombstones
        if is_aborted_batch(self.transactions, header):
            # Nothing of it is kept, whatever it holds.
            self.source.take_entries(header, &entry, &tombstones)
            self.judged.records[DROPPED_ABORTED] = header.record_count
            self.judged.bytes[DROPPED_ABORTED] = header.size - BATCH_HEADER_SIZE
            return 0
        self.records.open(batch, header, position)
        if header.attributes & ATTRIBUTE_CONTROL:
            return self.judge_control(header, position)
        reserve(&self.current.keys.entries, <size_t>header.record_count * ENTRY_SIZE)
        return self.judge_batch(header, position)

    cdef int judge_control(self, const batch_header *header, int64_t position) except -1 nogil:
        """Judge a control batch, which holds one record, by its transaction: keys mean nothing."""
        cdef record_view record
        cdef const uint8_t *at = self.records.start
        cdef int32_t last_delta = -1
        cdef int32_t i
        cdef int verdict = KEPT_MARKER
        for i in range(header.record_count):
            next_record(self.records, &at, i, &last_delta, header, position, &record)
            if i == 0:
                if special_kind(header, marker_of(&record)) != self.judged.kind:
                    return keys_differ(header.base_offset, b"its marker has another special row")
                verdict = self.verdict_of_control(header)
            if verdict == DROPPED_MARKER and self.is_tail(header, i):
                verdict = KEPT_TAIL
            count_verdict(&self.judged, verdict, record.end - record.start)
            if verdict != DROPPED_MARKER:
                keep_record(&self.judged, &record, header)
        return check_end(self.records, at, header, position)

    cdef int verdict_of_control(self, const batch_header *header) noexcept nogil:
        if not is_marker_kind(self.judged.kind):
            return KEPT_MARKER
        if find_row(&self.remaining, header.producer_id) != NULL:
            return KEPT_MARKER
        if header.attributes & ATTRIBUTE_DELETE_HORIZON:
            return DROPPED_MARKER if self.now_ms >= header.base_timestamp else KEPT_MARKER
        self.judged.is_idle_marker = self.stamps_markers
        return KEPT_MARKER

    cdef inline bint is_tail(self, const batch_header *header, int32_t index) noexcept nogil:
        return header.last_offset == self.tail_offset and index == header.record_count - 1

    cdef int judge_batch(self, const batch_header *header, int64_t position) except -1 nogil:
        cdef record_view record
        cdef const uint8_t *at = self.records.start
        cdef const uint8_t *entry
        cdef int32_t last_delta = -1
        cdef int32_t i
        cdef int verdict
        for i in range(header.record_count):
            next_record(self.records, &at, i, &last_delta, header, position, &record)
            entry = NULL
            if record.key_size >= 0:
                entry = self.take_entry(&record, header)
            verdict = self.verdict_of(&record, header)
            if verdict >= DROPPED_SUPERSEDED and self.is_tail(header, i):
                verdict = KEPT_TAIL
            count_verdict(&self.judged, verdict, record.end - record.start)
            if verdict < DROPPED_SUPERSEDED:
                self.keep(&record, header, entry)
        return check_end(self.records, at, header, position)

    cdef inline const uint8_t *take_entry(
        self, const record_view *record, const batch_header *header
    ) except NULL nogil:
        """The record's entry; its key must be the one that was marked by."""
        cdef int64_t offset = header.base_offset + record.offset_delta
        cdef const uint8_t *entry = self.source.take_entry(record, offset)
        cdef kp_sip_hash hashed
        cdef kp_sip_hash said
        if self.is_verified:
            hashed = kp_sip128(&self.key, record.key, <size_t>record.key_size)
            said = entry_hash(entry)
            if hashed.low != said.low or hashed.high != said.high:
                keys_differ(offset, b"its record has another key")
        return entry

    cdef inline int verdict_of(
        self, const record_view *record, const batch_header *header
    ) noexcept nogil:
        if record.key_size < 0:
            return KEPT_UNKEYED if self.keeps_unkeyed else DROPPED_UNKEYED
        if self.source.last_is_marked():
            self.judged.marked += 1
            return DROPPED_SUPERSEDED
        if (
            record.value_size < 0
            and header.attributes & ATTRIBUTE_DELETE_HORIZON
            and self.now_ms >= header.base_timestamp
        ):
            return DROPPED_TOMBSTONE
        return KEPT_LATEST

    cdef inline int keep(
        self, const record_view *record, const batch_header *header, const uint8_t *entry
    ) except -1 nogil:
        if entry == NULL:
            self.judged.unkeyed += 1
        else:
            self.judged.tombstones += record.value_size < 0
            self.current.add_entry(entry, self.source.base_offset)
        return keep_record(&self.judged, record, header)

    # --------------------------------------------------------------------------------- writing

    cdef int write_judged(
        self,
        const uint8_t *batch,
        batch_header *remains,
        size_t entries_size,
        int64_t position,
    ) except -1 nogil:
        """Append what survives; `remains` becomes its header, with size 0 if nothing does."""
        cdef Judged *judged = &self.judged
        cdef bint stamp = gets_horizon(judged, remains)
        cdef uint8_t *entries = NULL
        cdef int64_t shift = 0
        if judged.kept == 0:
            if not self.must_stay(remains):
                remains.size = 0
                return 0
            return self.writer.write_empty(remains)
        if judged.kept == remains.record_count and not stamp:
            judged.max_timestamp = remains.max_timestamp
            judged.is_copied = True
            return self.writer.copy_whole(batch, remains.size)
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
        """Count the batch, now that it is certain where it goes."""
        cdef int i
        for i in range(VERDICT_COUNT):
            self.total_records[i] += self.judged.records[i]
            self.total_bytes[i] += self.judged.bytes[i]
        self.follow_transaction(remains)
        if remains.size == 0:
            return 0
        self.fed.batches_kept += 1
        self.fed.records_kept += remains.record_count
        if self.fed.first_base_offset < 0:
            self.fed.first_base_offset = remains.base_offset
        self.fed.last_offset_kept = remains.last_offset
        return self.current.add(&self.judged, remains)

    cdef int follow_transaction(self, const batch_header *remains) except -1 nogil:
        if remains.attributes & ATTRIBUTE_CONTROL:
            if is_marker_kind(self.judged.kind) and remains.last_offset < self.end_offset:
                drop_row(&self.remaining, remains.producer_id)
        elif remains.attributes & ATTRIBUTE_TRANSACTIONAL and remains.size > 0:
            put_row(&self.remaining, remains.producer_id, remains.base_offset)
        return 0
