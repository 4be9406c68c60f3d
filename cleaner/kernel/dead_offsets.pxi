# Notes where a log has something that is not the last record of its key; a part of kernel.pyx.
#
# One bit for a block of 2^shift neighbouring offsets. Blocks without a bit have only last records, so a
# reader of the last values can be sent them as they are stored. When offsets lie beyond the last bit,
# each block takes in its neighbour, so that the memory is always enough.


@final
cdef class DeadOffsets:
    # Constant after construction
    cdef int64_t start_offset
    cdef size_t size
    # State
    cdef int shift
    cdef uint8_t *bits

    def __cinit__(self, *, int64_t start_offset, int shift, size_t memory_bytes):
        if start_offset < 0 or not 0 <= shift < 63 or memory_bytes == 0:
            raise ValueError(f"start offset {start_offset}, shift {shift}, {memory_bytes} bytes")
        self.start_offset = start_offset
        self.shift = shift
        self.size = memory_bytes
        self.bits = <uint8_t *>calloc(memory_bytes, 1)
        if self.bits == NULL:
            raise MemoryError(f"no {memory_bytes} bytes to note what is not a last record")

    def __dealloc__(self):
        free(self.bits)

    @property
    def memory_bytes(self):
        return self.size

    def next_dead(self, int64_t offset, int64_t end_offset):
        cdef int64_t found
        with nogil:
            found = self.first_from(offset, end_offset)
        return found

    def note_special(self, block not None, *, int64_t base_offset, int64_t segment_end_offset):
        cdef KeyBlock read
        cdef SpecialRow row
        cdef int64_t i
        read_key_block(block, &read)
        with nogil:
            if read.unkeyed > 0:
                # The block does not say where they are.
                self.note_range(base_offset, segment_end_offset)
            else:
                for i in range(read.row_count):
                    read_special_row(&read, i, base_offset, &row)
                    if row.last_offset < segment_end_offset:
                        self.note_range(row.first_offset, row.last_offset + 1)
                    else:
                        self.note_range(row.first_offset, segment_end_offset)

    def note_outranked(
        self, block not None, OffsetMap offset_map not None, *, int64_t base_offset, int64_t end_offset
    ):
        cdef EntryScan scan
        cdef Marking marking
        cdef Transactions transactions = None
        cdef History history = None
        begin_scan(&scan, block, transactions, base_offset, self.start_offset, end_offset)
        memset(&marking, 0, sizeof(Marking))
        with nogil:
            mark_entries(&scan, offset_map, transactions, &marking, history, self)

    def note(self, int64_t offset):
        self.note_one(offset)

    def note_as(self, DeadOffsets other not None, int64_t first_offset, int64_t end_offset):
        cdef int64_t at = first_offset
        cdef int64_t block_end
        with nogil:
            while True:
                at = other.first_from(at, end_offset)
                if at >= end_offset:
                    break
                block_end = other.block_end(at, end_offset)
                self.note_range(at, block_end)
                at = block_end

    cdef inline void note_one(self, int64_t offset) noexcept nogil:
        cdef int64_t block
        if offset < self.start_offset:
            return
        block = (offset - self.start_offset) >> self.shift
        while block >> 3 >= <int64_t>self.size:
            self.join_neighbours()
            block >>= 1
        set_bit(self.bits, block)

    cdef void note_range(self, int64_t first_offset, int64_t end_offset) noexcept nogil:
        cdef int64_t first = max(first_offset, self.start_offset)
        cdef int64_t block
        if first >= end_offset:
            return
        self.note_one(end_offset - 1)  # Now all blocks have bits.
        for block in range(
            (first - self.start_offset) >> self.shift,
            (end_offset - 1 - self.start_offset) >> self.shift,
        ):
            set_bit(self.bits, block)

    cdef void join_neighbours(self) noexcept nogil:
        """Let each block have twice as many offsets."""
        cdef int64_t block
        cdef bint is_noted
        for block in range(8 * <int64_t>self.size):
            is_noted = has_bit(self.bits, block)
            self.bits[block >> 3] &= ~(1 << (block & 7))
            if is_noted:
                set_bit(self.bits, block >> 1)
        self.shift += 1

    cdef int64_t block_end(self, int64_t offset, int64_t end_offset) noexcept nogil:
        """Returns where the block of an offset ends; at most `end_offset`."""
        cdef uint64_t block = <uint64_t>(offset - self.start_offset) >> self.shift
        return <int64_t>min(<uint64_t>end_offset, self.start_offset + ((block + 1) << self.shift))

    cdef inline bint are_free(self, int64_t block) noexcept nogil:
        """Returns whether 64 blocks from one on have no bit, if that is the first of its byte."""
        return (
            block & 7 == 0
            and (block >> 3) + 8 <= <int64_t>self.size
            and load_int64(self.bits + (block >> 3)) == 0
        )

    cdef int64_t first_from(self, int64_t offset, int64_t end_offset) noexcept nogil:
        """Returns the first offset from `offset` on in a block with a bit; at most `end_offset`."""
        cdef int64_t first = max(offset, self.start_offset)
        cdef int64_t block
        cdef int64_t last
        if first >= end_offset:
            return end_offset
        block = (first - self.start_offset) >> self.shift
        last = min((end_offset - 1 - self.start_offset) >> self.shift, 8 * <int64_t>self.size - 1)
        while block <= last:
            if self.are_free(block):
                block += 64
            elif self.bits[block >> 3] == 0:
                # None of the eight blocks of this byte.
                block = (block | 7) + 1
            elif has_bit(self.bits, block):
                return max(first, self.start_offset + (block << self.shift))
            else:
                block += 1
        return end_offset


cdef bint put_last(
    OffsetMap offset_map, Prefetched *prefetched, const KeyBlock *block, DeadOffsets dead
) noexcept nogil:
    """Like `put_prefetched`, with or without versions, and note which records are not the last ones."""
    cdef kp_offset_slots *slots = &offset_map.slots
    cdef kp_sip_hash hashed
    cdef int64_t lost
    cdef uint32_t i
    for i in range(prefetched.count):
        hashed = prefetched.hashes[i]
        prefetched.lacking = i
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


cdef void note_prefetched(
    const kp_offset_slots *slots, Prefetched *prefetched, DeadOffsets dead
) noexcept nogil:
    """Note the records that are not the map's ones of their keys."""
    cdef uint32_t i
    for i in range(prefetched.count):
        if kp_slots_get(slots, prefetched.hashes[i]) != prefetched.offsets[i]:
            dead.note_one(prefetched.offsets[i])
    prefetched.count = 0
