# The result of judging one batch: which records survive, and why; a part of kernel.pyx.


cdef struct Run:
    # Surviving neighbours: [start, end) of the uncompressed records.
    const uint8_t *start
    const uint8_t *end


cdef struct Judged:
    Run *runs
    size_t run_count
    size_t run_capacity
    int64_t kept_bytes
    int32_t kept
    int32_t tombstones
    int32_t unkeyed
    # Of the tombstones that remain, as they are written, uncompressed.
    int64_t tombstone_bytes
    # The kind of its special row.
    uint8_t kind
    # A marker without remaining batches that gets its delete horizon now.
    bint is_idle_marker
    int64_t max_timestamp
    int64_t[VERDICT_COUNT] records
    int64_t[VERDICT_COUNT] bytes
    # The batch is copied, not rebuilt.
    bint is_copied
    uint64_t kept_offset_sum
    # Of the entries that stay; see digest.h.
    uint64_t key_sum
    # It was copied without being inflated.
    bint is_unread
    # Records with a mark.
    int64_t marked
    # The offset of the last tombstone or marker that its delete horizon has dropped; -1: none.
    int64_t expired_offset
    # Whether its last record stays only as the pass's last one, though another outranks it.
    bint has_lost_tail


cdef void clear_judged(Judged *judged) noexcept nogil:
    cdef Run *runs = judged.runs
    cdef size_t run_capacity = judged.run_capacity
    memset(judged, 0, sizeof(Judged))
    judged.runs = runs
    judged.run_capacity = run_capacity
    judged.max_timestamp = judged.expired_offset = -1


cdef inline int keep_record(
    Judged *judged, const record_view *record, const batch_header *header
) except -1 nogil:
    cdef int64_t timestamp = wrapping_add(header.base_timestamp, record.timestamp_delta)
    if judged.kept == 0 or timestamp > judged.max_timestamp:
        judged.max_timestamp = timestamp
    judged.kept += 1
    judged.kept_offset_sum += <uint64_t>(header.base_offset + record.offset_delta)
    judged.kept_bytes += record.end - record.start
    return keep_run(judged, record.start, record.end)


cdef inline int keep_run(Judged *judged, const uint8_t *start, const uint8_t *end) except -1 nogil:
    if judged.run_count > 0 and judged.runs[judged.run_count - 1].end == start:
        judged.runs[judged.run_count - 1].end = end
        return 0
    if judged.run_count == judged.run_capacity:
        judged.runs = <Run *>grow(
            judged.runs, &judged.run_capacity, judged.run_count + 1, sizeof(Run)
        )
    judged.runs[judged.run_count] = Run(start, end)
    judged.run_count += 1
    return 0


cdef inline void count_verdict(Judged *judged, int verdict, int64_t size) noexcept nogil:
    judged.records[verdict] += 1
    judged.bytes[verdict] += size


cdef void keep_unjudged(
    Judged *judged, const batch_header *header, int64_t entries, int64_t tombstones
) noexcept nogil:
    """Count a batch that stays unjudged; only its entries were read."""
    judged.kept = header.record_count
    judged.tombstones = <int32_t>tombstones
    judged.records[KEPT_UNMAPPED] = header.record_count
    if header.record_count > 0:
        judged.bytes[KEPT_UNMAPPED] = header.size - BATCH_HEADER_SIZE
    if not header.attributes & ATTRIBUTE_CONTROL:
        judged.unkeyed = <int32_t>(header.record_count - entries)


cdef bint gets_horizon(const Judged *judged, const batch_header *header) noexcept nogil:
    """Returns whether the batch gets a delete horizon now: it keeps a tombstone or an idle marker."""
    if judged.kept == 0 or header.attributes & ATTRIBUTE_DELETE_HORIZON:
        return False
    return judged.tombstones > 0 or judged.is_idle_marker
