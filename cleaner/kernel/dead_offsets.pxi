# Notes where a log has something that is not the last record of its key; a part of kernel.pyx.
#
# One bit for a block of 2^shift neighbouring offsets. Blocks without a bit have only last records, so a
# reader of the last values can be sent them as they are stored.


@final
cdef class DeadOffsets:
    # Constant after construction
    cdef int64_t start_offset
    cdef int shift
    # State
    cdef Buffer bits

    def __cinit__(self, *, int64_t start_offset, int shift):
        if start_offset < 0 or not 0 <= shift < 63:
            raise ValueError(f"start offset {start_offset}, shift {shift}")
        self.start_offset = start_offset
        self.shift = shift

    def __dealloc__(self):
        free(self.bits.data)

    @property
    def memory_bytes(self):
        return self.bits.capacity

    def note(self, int64_t first_offset, int64_t end_offset):
        with nogil:
            self.note_range(first_offset, end_offset)

    def next_dead(self, int64_t offset, int64_t end_offset):
        cdef int64_t found
        with nogil:
            found = self.first_from(offset, end_offset)
        return found

    cdef int note_one(self, int64_t offset) except -1 nogil:
        cdef uint64_t block
        if offset < self.start_offset:
            return 0
        block = <uint64_t>(offset - self.start_offset) >> self.shift
        if block >> 3 >= self.bits.size:
            self.grow_to((block >> 3) + 1)
        self.bits.data[block >> 3] |= <uint8_t>(1 << (block & 7))
        return 0

    cdef int note_range(self, int64_t first_offset, int64_t end_offset) except -1 nogil:
        cdef int64_t offset = max(first_offset, self.start_offset)
        while offset < end_offset:
            self.note_one(offset)
            offset = self.block_end(offset)
        return 0

    cdef int grow_to(self, size_t size) except -1 nogil:
        cdef size_t before = self.bits.size
        reserve(&self.bits, size - before)
        memset(self.bits.data + before, 0, size - before)
        self.bits.size = size
        return 0

    cdef int64_t block_end(self, int64_t offset) noexcept nogil:
        return self.start_offset + ((((offset - self.start_offset) >> self.shift) + 1) << self.shift)

    cdef int64_t first_from(self, int64_t offset, int64_t end_offset) noexcept nogil:
        """Returns the first offset from `offset` on in a block with a bit; at most `end_offset`."""
        cdef int64_t at = max(offset, self.start_offset)
        cdef uint64_t block
        while at < end_offset:
            block = <uint64_t>(at - self.start_offset) >> self.shift
            if block >> 3 >= self.bits.size:
                return end_offset
            if self.bits.data[block >> 3] == 0:
                # None of the eight blocks of this byte.
                at = self.start_offset + (<int64_t>((block | 7) + 1) << self.shift)
                continue
            if self.bits.data[block >> 3] >> (block & 7) & 1:
                return at
            at = self.block_end(at)
        return end_offset


cdef bint put_last(
    OffsetMap offset_map, Prefetched *prefetched, const KeyBlock *block, DeadOffsets dead
) except -1 nogil:
    """Put the prefetched entries into the map, and note which records are not the last ones. Returns
    false if the map became full."""
    cdef kp_offset_slots *slots = &offset_map.slots
    cdef kp_sip_hash hashed
    cdef int64_t lost
    cdef uint32_t i
    for i in range(prefetched.count):
        hashed = prefetched.hashes[i]
        if slots.size >= offset_map.capacity_keys and kp_slots_get(slots, hashed) < 0:
            return False
        if kp_last_put(
            slots, hashed, prefetched.offsets[i], version_at(block, prefetched.ordinals[i]), &lost
        ) == KP_PUT_FULL:
            return False
        if lost >= 0:
            dead.note_one(lost)
    prefetched.count = 0
    return True


cdef bint map_last(
    EntryScan *scan, OffsetMap offset_map, Transactions transactions, DeadOffsets dead
) except -1 nogil:
    """Put the block's entries into the map. Returns false if the map is full."""
    cdef Prefetched prefetched
    cdef const uint8_t *entry = scan.block.entries
    cdef int64_t offset
    cdef int64_t i
    prefetched.count = 0
    for i in range(scan.block.entry_count):
        offset = entry_offset(entry, scan.base_offset)
        entry += ENTRY_SIZE
        if not scan.start_offset <= offset < scan.end_offset:
            continue
        if scan.knows_outcomes and is_left_out(scan, transactions, offset):
            continue
        prefetch_slot(
            &prefetched, &offset_map.slots, entry_hash(entry - ENTRY_SIZE), offset, i
        )
        if prefetched.count == WINDOW and not put_last(
            offset_map, &prefetched, &scan.block, dead
        ):
            return False
    return put_last(offset_map, &prefetched, &scan.block, dead)


cdef int note_special_batches(
    const KeyBlock *block, int64_t base_offset, int64_t segment_end_offset, DeadOffsets dead
) except -1 nogil:
    """Note batches that are not sent as they are: of transactions, with markers, without records. Where
    a block has records without a key, the whole segment: the block does not say where."""
    cdef SpecialRow row
    cdef int64_t i
    if block.unkeyed > 0:
        return dead.note_range(base_offset, segment_end_offset)
    for i in range(block.row_count):
        read_special_row(block, i, base_offset, &row)
        dead.note_range(row.first_offset, min(row.last_offset + 1, segment_end_offset))
    return 0


def map_last_keys(
    block not None,
    OffsetMap offset_map not None,
    DeadOffsets dead not None,
    *,
    int64_t base_offset,
    int64_t segment_end_offset,
    int64_t start_offset,
    int64_t end_offset,
    Transactions transactions=None,
):
    cdef EntryScan scan
    cdef bint fits
    if offset_map.slots.counts != NULL or offset_map.slots.parts != 1:
        raise ValueError("a map of last keys counts nothing, and has every key")
    begin_scan(&scan, block, transactions, base_offset, start_offset, end_offset)
    with nogil:
        note_special_batches(&scan.block, base_offset, segment_end_offset, dead)
        fits = map_last(&scan, offset_map, transactions, dead)
    return fits
