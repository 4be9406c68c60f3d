# Walks the entries of key blocks; a part of kernel.pyx.
#
# Mapping and marking prefetch slots and read them up to WINDOW entries later, when they have arrived from
# memory.


cdef struct EntryScan:
    # An iteration over the entries of one block, with the special row that an entry may belong to.
    KeyBlock block
    int64_t base_offset
    int64_t start_offset
    int64_t end_offset
    bint knows_outcomes
    int64_t next_row
    SpecialRow row
    bint row_is_committed


cdef struct Prefetched:
    # Entries whose slots were prefetched.
    kp_sip_hash[WINDOW] hashes
    int64_t[WINDOW] offsets
    int64_t[WINDOW] ordinals
    uint32_t count
    # The first of them that did not fit, if `put_last` says so.
    uint32_t lacking


cdef int begin_scan(
    EntryScan *scan,
    const unsigned char[::1] block,
    Transactions transactions,
    int64_t base_offset,
    int64_t start_offset,
    int64_t end_offset,
) except -1:
    memset(scan, 0, sizeof(EntryScan))
    read_key_block(block, &scan.block)
    scan.base_offset = base_offset
    scan.start_offset = start_offset
    scan.end_offset = end_offset
    scan.knows_outcomes = transactions is not None and transactions.range_count > 0
    scan.row.last_offset = -1
    return 0


cdef bint is_left_out(EntryScan *scan, Transactions transactions, int64_t offset) noexcept nogil:
    """Returns whether the entry's batch is aborted or undecided: it supersedes nothing, and no mark says
    whether it stays. Call it with offsets that do not decrease."""
    while scan.row.last_offset < offset and scan.next_row < scan.block.row_count:
        read_special_row(&scan.block, scan.next_row, scan.base_offset, &scan.row)
        scan.row_is_committed = not is_transactional_data(&scan.row) or (
            transactions.outcome_of(scan.row.producer_id, scan.row.first_offset) == COMMITTED
        )
        scan.next_row += 1
    return not scan.row_is_committed and scan.row.first_offset <= offset <= scan.row.last_offset


cdef inline void prefetch_slot(
    Prefetched *prefetched,
    const kp_offset_slots *slots,
    kp_sip_hash hashed,
    int64_t offset,
    int64_t ordinal,
) noexcept nogil:
    kp_slots_prefetch(slots, hashed)
    prefetched.hashes[prefetched.count] = hashed
    prefetched.offsets[prefetched.count] = offset
    prefetched.ordinals[prefetched.count] = ordinal
    prefetched.count += 1
