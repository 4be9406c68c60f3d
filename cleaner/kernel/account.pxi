# Computes, from a group's source, what must remain of it; a part of kernel.pyx.


@final
cdef class Account:
    # Constant after construction
    cdef bint is_verified
    cdef int64_t new_horizon_ms
    cdef int codec
    # State: see GroupAccount
    cdef kp_hash128 digest
    cdef int64_t batches
    cdef Buffer rebuilt
    cdef kp_tally rebuilt_records
    cdef int64_t copied_tombstones
    cdef int64_t copied_tombstone_bytes
    cdef int64_t copied_horizon_min
    cdef int64_t copied_tombstone_horizon_max
    cdef int64_t records_read
    cdef int64_t[VERDICT_COUNT] records
    cdef int64_t marked
    cdef int64_t expired_offset_max

    def __cinit__(self, *, bint is_verified, int64_t new_horizon_ms, int codec):
        self.is_verified = is_verified
        self.codec = codec
        self.new_horizon_ms = new_horizon_ms
        self.clear()

    def __dealloc__(self):
        free(self.rebuilt.data)

    cdef void clear(self) noexcept:
        self.digest.low = self.digest.high = 0
        self.batches = self.records_read = self.marked = 0
        self.rebuilt.size = 0
        self.rebuilt_records.count = self.rebuilt_records.sum = 0
        self.copied_tombstones = self.copied_tombstone_bytes = 0
        self.copied_horizon_min = self.copied_tombstone_horizon_max = self.expired_offset_max = -1
        memset(self.records, 0, sizeof(self.records))

    cdef object snapshot(self):
        return GroupAccount(
            digest=number_of(self.digest),
            batches=self.batches,
            rebuilt=bytes_in(&self.rebuilt),
            rebuilt_records=self.rebuilt_records.count,
            rebuilt_offset_sum=self.rebuilt_records.sum,
            copied_tombstones=self.copied_tombstones,
            copied_tombstone_bytes=self.copied_tombstone_bytes,
            copied_horizon_ms_min=self.copied_horizon_min,
            copied_tombstone_horizon_ms_max=self.copied_tombstone_horizon_max,
            records_read=self.records_read,
            records_by_verdict={verdict: self.records[i] for i, verdict in enumerate(VERDICTS)},
            marked=self.marked,
            expired_offset_max=self.expired_offset_max,
        )

    cdef int enter(
        self,
        const Judged *judged,
        const uint8_t *batch,
        const batch_header *header,
        bint remains,
    ) except -1 nogil:
        """Account for a judged batch; `batch` and `header` are the source's."""
        cdef int i
        self.records_read += header.record_count
        self.marked += judged.marked
        self.expired_offset_max = max(self.expired_offset_max, judged.expired_offset)
        for i in range(VERDICT_COUNT):
            self.records[i] += judged.records[i]
        if not self.is_verified or not remains:
            return 0
        self.note_rebuilt(not judged.is_copied)
        if judged.is_copied:
            self.note_copied(judged, header)
            kp_digest_add(&self.digest, kp_digest_copied(batch))
        else:
            self.rebuilt_records.count += <uint64_t>judged.kept
            self.rebuilt_records.sum += judged.kept_offset_sum
            self.digest_rebuilt(judged, header)
        return 0

    cdef void note_copied(self, const Judged *judged, const batch_header *header) noexcept nogil:
        if judged.tombstones > 0:
            self.copied_tombstones += judged.tombstones
            self.copied_tombstone_bytes += judged.tombstone_bytes
            note_latest(&self.copied_tombstone_horizon_max, header)
        if header.attributes & ATTRIBUTE_DELETE_HORIZON and (
            judged.tombstones > 0 or is_marker_kind(judged.kind)
        ):
            note_horizon(&self.copied_horizon_min, header.base_timestamp)

    cdef int note_rebuilt(self, bint is_rebuilt) except -1 nogil:
        if self.batches & 7 == 0:
            reserve(&self.rebuilt, 1)
            self.rebuilt.data[self.rebuilt.size] = 0
            self.rebuilt.size += 1
        self.rebuilt.data[self.batches >> 3] |= is_rebuilt << (self.batches & 7)
        self.batches += 1
        return 0

    cdef void digest_rebuilt(
        self, const Judged *judged, const batch_header *header
    ) noexcept nogil:
        cdef size_t i
        cdef const uint8_t *at
        cdef record_view record
        cdef bint keeps_max = judged.kept == 0 or header.attributes & ATTRIBUTE_LOG_APPEND_TIME
        cdef int64_t max_timestamp = header.max_timestamp
        cdef batch_header expected = header[0]
        if not keeps_max:
            max_timestamp = judged.max_timestamp
        if judged.kept > 0:
            expected.attributes = rebuilt_attributes(header, self.codec)
        kp_digest_add(
            &self.digest,
            kp_digest_header(
                &expected, judged.kept, max_timestamp, self.expected_horizon(judged, header)
            ),
        )
        for i in range(judged.run_count):
            at = judged.runs[i].start
            while at < judged.runs[i].end:
                if read_record(&at, judged.runs[i].end, &record) != RECORD_OK:
                    break
                kp_digest_add(
                    &self.digest,
                    kp_digest_record(&record, header.base_offset, header.base_timestamp),
                )

    cdef int64_t expected_horizon(
        self, const Judged *judged, const batch_header *header
    ) noexcept nogil:
        if judged.kept > 0 and header.attributes & ATTRIBUTE_DELETE_HORIZON:
            return header.base_timestamp
        return self.new_horizon_ms if gets_horizon(judged, header) else -1
