# Judges the records of a batch by the rule of record_verdict.py and the marks; a part of kernel.pyx. A batch
# that keeps a tombstone for the first time gets its delete horizon when it is written (filter.pxi).


@final
cdef class Judge:
    # Constant after construction; source and output belong to the filter
    cdef kp_sip_key key
    cdef int64_t end_offset
    cdef int64_t tail_offset
    cdef int64_t now_ms
    cdef int64_t hold_offset
    cdef bint keeps_unkeyed
    cdef bint is_verified
    cdef ActiveProducers producers
    cdef Transactions transactions
    cdef bint stamps_markers
    cdef Versions versions
    cdef bint has_versions
    cdef SourceKeys source
    cdef OutputSegment output
    # State: the producers with a kept transactional batch since their last marker
    cdef ProducerTable remaining
    # Of one batch, reused
    cdef Records records
    cdef Judged judged

    def __cinit__(
        self,
        bytes hash_key not None,
        SourceKeys source not None,
        OutputSegment output not None,
        ActiveProducers producers not None,
        Transactions transactions,
        Versions versions not None,
        *,
        int64_t end_offset,
        int64_t tail_offset,
        int64_t now_ms,
        int64_t hold_offset,
        int64_t decompressed_bytes_max,
        bint keeps_unkeyed,
        bint stamps_markers,
        bint is_verified,
    ):
        self.key = sip_key_of(hash_key)
        self.source = source
        self.output = output
        self.producers = producers
        self.transactions = transactions
        self.versions = versions
        self.has_versions = versions.ranking != BY_OFFSET
        self.end_offset = end_offset
        self.tail_offset = tail_offset
        self.now_ms = now_ms
        self.hold_offset = hold_offset
        self.records = Records(decompressed_bytes_max)
        self.keeps_unkeyed = keeps_unkeyed
        self.stamps_markers = stamps_markers
        self.is_verified = is_verified

    def __dealloc__(self):
        free(self.remaining.rows)
        free(self.judged.runs)

    cdef bint must_stay(self, const batch_header *header) noexcept nogil:
        return self.producers.need(
            header.producer_id,
            header.producer_epoch,
            header.last_offset,
            header.attributes & ATTRIBUTE_CONTROL != 0,
        )

    cdef int judge(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        cdef const uint8_t *entry
        cdef int64_t tombstones
        if outcome_of_batch(self.transactions, header) == ABORTED:
            # Nothing of an aborted batch is kept, so its records need not be read.
            self.source.take_entries(header, &entry, &tombstones)
            self.judged.records[DROPPED_ABORTED] = header.record_count
            self.judged.bytes[DROPPED_ABORTED] = header.size - BATCH_HEADER_SIZE
            return 0
        if self.is_untouched(header):
            return self.keep_untouched(header)
        self.records.open(batch, header, position)
        if header.attributes & ATTRIBUTE_CONTROL:
            return self.judge_control(header, position)
        self.output.reserve_entries(header.record_count)
        return self.judge_batch(header, position)

    cdef bint is_untouched(self, const batch_header *header) noexcept nogil:
        """Returns whether the sidecar shows that a compressed batch stays as it is.

        Only entries whose keys were compared with their records in an earlier pass show that. A
        tombstone without a delete horizon gets one, and one whose horizon has passed may go.
        """
        cdef int64_t tombstones
        cdef int64_t records_bytes
        if (
            not self.source.keys_checked
            or not header.attributes & ATTRIBUTE_CODEC_MASK
            or header.attributes & ATTRIBUTE_CONTROL
            or not self.source.are_untouched(
                header, self.may_drop_tombstones(header), &tombstones, &records_bytes
            )
        ):
            return False
        self.judged.is_unread = True
        self.judged.tombstones = <int32_t>tombstones
        self.judged.bytes[KEPT_LATEST] = records_bytes
        return True

    cdef inline bint may_drop_tombstones(self, const batch_header *header) noexcept nogil:
        return (
            not header.attributes & ATTRIBUTE_DELETE_HORIZON or self.now_ms >= header.base_timestamp
        )

    cdef int keep_untouched(self, const batch_header *header) except -1 nogil:
        """Keep a batch as its entries describe it, without reading its records."""
        cdef int64_t i
        self.output.reserve_entries(header.record_count)
        for i in range(header.record_count):
            self.source.cursor.entry += 1
            self.keep_entry(
                self.source.block.entries + (self.source.cursor.entry - 1) * ENTRY_SIZE
            )
        self.judged.kept = header.record_count
        self.judged.records[KEPT_LATEST] = header.record_count
        return 0

    cdef inline void keep_entry(self, const uint8_t *entry) noexcept nogil:
        """Add the entry that was taken last to the output's."""
        cdef int64_t version = self.source.last_version()
        self.judged.key_sum += key_product(entry, self.source.base_offset, version)
        self.output.add_entry(entry, version, self.source.base_offset)

    cdef bint can_judge(self, const batch_header *header) noexcept nogil:
        """Returns whether the pass knows what may go of a batch: not beyond its end, nor if a fence may
        hold the marker of its transaction."""
        if header.last_offset >= self.end_offset:
            return False
        return outcome_of_batch(self.transactions, header) != UNDECIDED

    cdef int keep_unjudged(self, const batch_header *header) except -1 nogil:
        """Keep a batch whose records the pass does not judge, and its entries."""
        cdef const uint8_t *entry
        cdef int64_t tombstones = 0
        cdef int64_t first = self.source.cursor.entry
        cdef int64_t count = self.source.take_entries(header, &entry, &tombstones)
        cdef int64_t i
        keep_unjudged(&self.judged, header, count, tombstones)
        self.output.reserve_entries(count)
        for i in range(count):
            self.output.add_entry(
                entry + i * ENTRY_SIZE,
                version_at(&self.source.block, first + i),
                self.source.base_offset,
            )
        return 0

    cdef int judge_control(self, const batch_header *header, int64_t position) except -1 nogil:
        """Judge a control batch, which holds one record, by its transaction, not by its key."""
        cdef record_view record
        cdef const uint8_t *at = self.records.start
        cdef int32_t last_delta = -1
        cdef int32_t i
        cdef int verdict = KEPT_MARKER
        for i in range(header.record_count):
            next_record(self.records, &at, i, &last_delta, header, position, &record)
            if i == 0:
                if special_kind(header, marker_of(&record)) != self.judged.kind:
                    return keys_differ(header.base_offset, b"its marker has a different special row")
                verdict = self.verdict_of_control(header)
            if verdict == DROPPED_MARKER and self.is_tail(header, i):
                verdict = KEPT_TAIL
            count_verdict(&self.judged, verdict, record.end - record.start)
            if verdict != DROPPED_MARKER:
                keep_record(&self.judged, &record, header)
            else:
                self.judged.expired_offset = header.last_offset
        return check_end(self.records, at, header, position)

    cdef int verdict_of_control(self, const batch_header *header) noexcept nogil:
        if not is_marker_kind(self.judged.kind):
            return KEPT_MARKER
        if find_row(&self.remaining, header.producer_id) != NULL:
            return KEPT_MARKER
        if header.attributes & ATTRIBUTE_DELETE_HORIZON:
            if self.now_ms < header.base_timestamp or is_dirty(self.transactions, header):
                return KEPT_MARKER
            return KEPT_HELD if header.last_offset >= self.hold_offset else DROPPED_MARKER
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
            if verdict >= KEPT_CONTESTED and self.is_tail(header, i):
                self.judged.has_lost_tail = verdict == DROPPED_SUPERSEDED
                verdict = KEPT_TAIL
            count_verdict(&self.judged, verdict, record.end - record.start)
            if verdict < DROPPED_SUPERSEDED:
                self.keep(&record, header, entry)
            elif verdict == DROPPED_TOMBSTONE:
                self.judged.expired_offset = header.base_offset + record.offset_delta
        return check_end(self.records, at, header, position)

    cdef inline const uint8_t *take_entry(
        self, const record_view *record, const batch_header *header
    ) except NULL nogil:
        """Returns the record's entry; if verifying, after comparing its hash and its version with the
        record's."""
        cdef int64_t offset = header.base_offset + record.offset_delta
        cdef const uint8_t *entry = self.source.take_entry(record, offset)
        cdef kp_sip_hash hashed
        cdef kp_sip_hash stored
        if self.is_verified:
            hashed = kp_sip128(&self.key, record.key, <size_t>record.key_size)
            stored = entry_hash(entry)
            if hashed.low != stored.low or hashed.high != stored.high:
                keys_differ(offset, b"its record has a different key")
            if self.has_versions and (
                self.versions.of(record, header) != self.source.last_version()
            ):
                keys_differ(offset, b"its record has a different version")
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
            if header.base_offset + record.offset_delta >= self.hold_offset:
                return KEPT_HELD
            return KEPT_CONTESTED if self.source.last_is_winner() else DROPPED_TOMBSTONE
        return KEPT_LATEST

    cdef inline int keep(
        self, const record_view *record, const batch_header *header, const uint8_t *entry
    ) except -1 nogil:
        if entry == NULL:
            self.judged.unkeyed += 1
        else:
            self.judged.tombstones += record.value_size < 0
            self.keep_entry(entry)
        return keep_record(&self.judged, record, header)

    cdef int track(self, const batch_header *header, bint remains) except -1 nogil:
        """Track which transactions still have batches, after this batch was judged."""
        if header.attributes & ATTRIBUTE_CONTROL:
            if is_marker_kind(self.judged.kind) and header.last_offset < self.end_offset:
                drop_row(&self.remaining, header.producer_id)
        elif header.attributes & ATTRIBUTE_TRANSACTIONAL and remains:
            put_row(&self.remaining, header.producer_id, header.base_offset)
        return 0

    cdef int track_rows(self, const KeyBlock *block, int64_t base_offset) except -1 nogil:
        """Like `track`, for the batches of a block in a segment that is not rewritten."""
        cdef SpecialRow row
        cdef int64_t i
        for i in range(block.row_count):
            read_special_row(block, i, base_offset, &row)
            if is_transactional_data(&row):
                put_row(&self.remaining, row.producer_id, row.first_offset)
            elif is_marker_kind(row.kind) and row.last_offset < self.end_offset:
                drop_row(&self.remaining, row.producer_id)
        return 0
