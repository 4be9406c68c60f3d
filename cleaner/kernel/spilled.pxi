# Entries of an offset map that have left memory, as blocks in the order of their hashes; a part of kernel.pyx.
#
#     block :=  entry{0..n} | zeros | count: uint32 | zeros: uint32 | xxh3-64 of all before it: uint64
#     entry :=  hash low: uint64 | hash high: uint64 | offset: int64 | version: int64, if records have versions
#
# A block has 4,096 bytes: 170 entries, 127 with versions. Numbers are the machine's own, because no other
# process reads them, and none after a start.


cdef enum:
    SPILLED_BLOCK_SIZE = 4096
    SPILLED_COUNT_AT = 4080
    SPILLED_SUM_AT = 4088

SPILLED_BLOCK_BYTES = SPILLED_BLOCK_SIZE


cdef struct SpilledEntry:
    uint64_t low
    uint64_t high
    int64_t offset
    int64_t version


cdef inline size_t spilled_entry_size(bint has_versions) noexcept nogil:
    return 32 if has_versions else 24


cdef inline uint32_t spilled_entries_max(bint has_versions) noexcept nogil:
    return SPILLED_COUNT_AT // spilled_entry_size(has_versions)


cdef inline void read_spilled(
    const uint8_t *block, size_t number, bint has_versions, SpilledEntry *out
) noexcept nogil:
    out.version = 0
    memcpy(
        out,
        block + number * spilled_entry_size(has_versions),
        spilled_entry_size(has_versions),
    )


cdef int64_t checked_count(const uint8_t *block, bint has_versions) except -1 nogil:
    """Returns how many entries a block has. Raises SpillDamaged."""
    cdef uint64_t expected
    cdef uint32_t count
    memcpy(&expected, block + SPILLED_SUM_AT, 8)
    memcpy(&count, block + SPILLED_COUNT_AT, 4)
    if kp_xxh3(block, SPILLED_SUM_AT).low != expected or count > spilled_entries_max(has_versions):
        with gil:
            raise SpillDamaged("a block of keys on the disk is not what was written")
    return count


cdef inline bint comes_before(uint64_t low, uint64_t high, const SpilledEntry *other) noexcept nogil:
    return low < other.low or (low == other.low and high < other.high)


def find_spilled(const unsigned char[::1] block not None, bytes hashed not None, *, bint has_versions):
    cdef kp_sip_hash wanted = hash_from(hashed)
    cdef SpilledEntry entry
    cdef size_t low = 0
    cdef size_t high
    cdef size_t middle
    if block.shape[0] != SPILLED_BLOCK_SIZE:
        raise SpillDamaged(f"a block of keys on the disk has {block.shape[0]} bytes")
    high = checked_count(&block[0], has_versions)
    while low < high:
        middle = (low + high) // 2
        read_spilled(&block[0], middle, has_versions, &entry)
        if entry.low == wanted.low and entry.high == wanted.high:
            return Rank(version=entry.version, offset=entry.offset)
        if comes_before(wanted.low, wanted.high, &entry):
            high = middle
        else:
            low = middle + 1
    return None


def entry_hashes(
    block not None, *, int64_t base_offset, int64_t start_offset, int64_t end_offset
):
    cdef EntryScan scan
    cdef const uint8_t *entry
    cdef int64_t i
    cdef list hashes = []
    begin_scan(&scan, block, None, base_offset, start_offset, end_offset)
    entry = scan.block.entries
    for i in range(scan.block.entry_count):
        if start_offset <= entry_offset(entry, base_offset) < end_offset:
            hashes.append(PyBytes_FromStringAndSize(<const char *>entry, 16))
        entry += ENTRY_SIZE
    return hashes


def offset_at(block not None, int64_t number, *, int64_t base_offset):
    cdef KeyBlock read
    read_key_block(block, &read)
    if not 0 <= number < read.entry_count:
        raise ValueError(f"there is no entry {number} of {read.entry_count}")
    return entry_offset(read.entries + number * ENTRY_SIZE, base_offset)


@final
cdef class SpillMerge:
    # Constant after construction
    cdef OffsetMap offset_map
    cdef DeadOffsets dead
    cdef bint has_versions
    # State: the slots below `at` are written.
    cdef size_t at
    cdef Buffer output
    cdef uint32_t in_block
    cdef readonly int64_t count

    def __cinit__(self, OffsetMap offset_map not None, DeadOffsets dead not None):
        self.offset_map = offset_map
        self.dead = dead
        self.has_versions = offset_map.slots.versions != NULL

    def __dealloc__(self):
        free(self.output.data)

    def feed(self, const unsigned char[::1] blocks not None):
        cdef SpilledEntry entry
        cdef Py_ssize_t number
        cdef Py_ssize_t start
        cdef int64_t i
        if blocks.shape[0] % SPILLED_BLOCK_SIZE:
            raise SpillDamaged("the keys on the disk end inside a block")
        with nogil:
            for number in range(blocks.shape[0] // SPILLED_BLOCK_SIZE):
                start = number * SPILLED_BLOCK_SIZE
                for i in range(checked_count(&blocks[start], self.has_versions)):
                    read_spilled(&blocks[start], i, self.has_versions, &entry)
                    self.take(&entry)
        return self.whole_blocks()

    def rest(self, size_t size):
        cdef SpilledEntry held
        with nogil:
            # A begun block does not count.
            while self.output.size <= size and self.held_slot(&held):
                self.at += 1
                self.write(&held)
        if not self.held_slot(&held):
            self.end_block()
        return self.whole_blocks()

    cdef bint held_slot(self, SpilledEntry *out) noexcept nogil:
        """Reads the next used slot. Returns false if there is none."""
        cdef const kp_offset_slots *slots = &self.offset_map.slots
        while self.at < slots.slot_count and slots.slots[self.at].next_offset == 0:
            self.at += 1
        if self.at >= slots.slot_count:
            return False
        out.low = slots.slots[self.at].low
        out.high = slots.slots[self.at].high
        out.offset = kp_slots_offset(slots, self.at)
        out.version = slots.versions[self.at] if self.has_versions else 0
        return True

    cdef int take(self, const SpilledEntry *entry) except -1 nogil:
        """Write what the map has before an earlier entry, and the one of both that wins."""
        cdef SpilledEntry held
        while self.held_slot(&held) and comes_before(held.low, held.high, entry):
            self.at += 1
            self.write(&held)
        if self.held_slot(&held) and held.low == entry.low and held.high == entry.high:
            self.at += 1
            if held.offset != entry.offset:
                if held.version > entry.version or (
                    held.version == entry.version and held.offset > entry.offset
                ):
                    self.dead.note_one(entry.offset)
                    self.write(&held)
                    return 0
                self.dead.note_one(held.offset)
        self.write(entry)
        return 0

    cdef int write(self, const SpilledEntry *entry) except -1 nogil:
        cdef size_t size = spilled_entry_size(self.has_versions)
        if self.in_block == 0:
            reserve(&self.output, SPILLED_BLOCK_SIZE)
            memset(self.output.data + self.output.size, 0, SPILLED_BLOCK_SIZE)
            self.output.size += SPILLED_BLOCK_SIZE
        memcpy(
            self.output.data + self.output.size - SPILLED_BLOCK_SIZE + self.in_block * size,
            entry,
            size,
        )
        self.in_block += 1
        self.count += 1
        if self.in_block == spilled_entries_max(self.has_versions):
            self.end_block()
        return 0

    cdef void end_block(self) noexcept nogil:
        cdef uint8_t *block
        cdef uint64_t checksum
        if self.in_block == 0:
            return
        block = self.output.data + self.output.size - SPILLED_BLOCK_SIZE
        memcpy(block + SPILLED_COUNT_AT, &self.in_block, 4)
        checksum = kp_xxh3(block, SPILLED_SUM_AT).low
        memcpy(block + SPILLED_SUM_AT, &checksum, 8)
        self.in_block = 0

    cdef object whole_blocks(self):
        """Returns the blocks that are full; a begun one moves to the front of the output."""
        cdef size_t whole = self.output.size - (SPILLED_BLOCK_SIZE if self.in_block else 0)
        cdef object done = PyBytes_FromStringAndSize(<const char *>self.output.data, whole)
        if self.in_block:
            memmove(self.output.data, self.output.data + whole, SPILLED_BLOCK_SIZE)
        self.output.size -= whole
        return done
