# Which older values of a key stay; a part of kernel.pyx. The rule is that of cleaner/rules/history.py.
#
# The offset map counts the records and tombstones of each key; marking takes them from the counts in the
# order of offsets, so it knows for each record how many of its key come after it. Where age keeps records,
# a second map has the last offset of each cell.


cdef struct HistoryLevel:
    # See Level in cleaner/rules/history.py.
    int64_t period_ms
    int64_t from_age_ms
    bint is_rest


cdef enum:
    LEVELS_MAX = 32

# Times and durations are bounded so that the sum of three does not overflow; no clock is that far ahead.
cdef int64_t TIME_MS_MAX = INT64_MAX // 8


cdef inline int64_t in_bounds(int64_t timestamp) noexcept nogil:
    return min(max(timestamp, <int64_t>0), TIME_MS_MAX)


@final
cdef class History:
    # Constant after construction
    cdef int64_t versions
    cdef HistoryLevel[LEVELS_MAX] levels
    cdef int level_count
    cdef int64_t now_ms
    # State: the last record of each cell, None without levels; and when an older value may have to go
    cdef readonly OffsetMap cells
    cdef readonly int64_t due_ms

    def __cinit__(self, *, int64_t versions, levels=(), int64_t now_ms, OffsetMap cells=None):
        if versions < 1 or now_ms < 0 or len(levels) > LEVELS_MAX:
            raise ValueError("a history has at least one version, a time, and few levels")
        if bool(levels) != (cells is not None):
            raise ValueError("levels need a map of their cells")
        self.versions = versions
        for i, (period_ms, from_age_ms, is_rest) in enumerate(levels):
            if not 0 < period_ms <= TIME_MS_MAX or not 0 <= from_age_ms <= TIME_MS_MAX:
                raise ValueError(f"there are no cells of {period_ms} ms from {from_age_ms} ms on")
            self.levels[i] = HistoryLevel(period_ms, from_age_ms, is_rest)
        self.level_count = len(levels)
        self.now_ms = min(now_ms, TIME_MS_MAX)
        self.cells = cells
        self.due_ms = INT64_MAX

    cdef inline int64_t enters_ms(self, int level, int64_t timestamp) noexcept nogil:
        """Returns when a record gets into its cell of a level."""
        cdef int64_t period_ms = self.levels[level].period_ms
        cdef int64_t ended = in_bounds(timestamp) // period_ms + 1
        return ended * period_ms + self.levels[level].from_age_ms

    cdef inline bint find_cell(
        self, kp_sip_hash hashed, int64_t timestamp, kp_sip_hash *cell
    ) noexcept nogil:
        """Find the hash of a record's cell. Returns false if it is in none."""
        cdef uint64_t bucket = 0
        cdef int level = 0
        while level < self.level_count and self.enters_ms(level, timestamp) <= self.now_ms:
            level += 1
        if level == 0:
            return False
        if not self.levels[level - 1].is_rest:
            bucket = <uint64_t>(in_bounds(timestamp) // self.levels[level - 1].period_ms)
        # An odd factor maps different cells to different numbers.
        cell.low = hashed.low ^ (bucket * LEVELS_MAX + <uint64_t>level) * 0x9E3779B97F4A7C15ull
        cell.high = hashed.high
        return True

    cdef inline void note_due(self, int64_t timestamp) noexcept nogil:
        """Note when a record that stays gets into its next cell."""
        cdef int64_t moment
        cdef int level
        for level in range(self.level_count):
            moment = self.enters_ms(level, timestamp)
            if moment > self.now_ms:
                self.due_ms = min(self.due_ms, moment)
                return

    cdef inline bint is_last_of_cell(
        self,
        kp_sip_hash hashed,
        int64_t timestamp,
        int64_t offset,
        kp_tally *met,
        int64_t *unknown,
    ) noexcept nogil:
        """Returns whether no record of the cell comes after it, or it is in none. Counts the cells whose
        last record it is, and those that should have it and do not."""
        cdef kp_sip_hash cell
        cdef int64_t last
        if not self.find_cell(hashed, timestamp, &cell):
            return True
        last = kp_slots_get(&self.cells.slots, cell)
        if offset == last:
            met.count += 1
            met.sum += <uint64_t>last
        unknown[0] += offset > last
        return offset >= last

    cdef inline void note_rest(self, int64_t timestamp) noexcept nogil:
        """Note when the last record of a key gets into its last cell, which may hold older ones."""
        cdef int64_t moment = self.enters_ms(self.level_count - 1, timestamp)
        if moment > self.now_ms:
            self.due_ms = min(self.due_ms, moment)

    cdef bint put_cell(
        self, kp_sip_hash hashed, int64_t timestamp, int64_t offset
    ) noexcept nogil:
        """Put a record into its cell. Returns false if the cells are full."""
        cdef kp_offset_slots *slots = &self.cells.slots
        cdef kp_sip_hash cell
        if not self.find_cell(hashed, timestamp, &cell):
            return True
        if slots.size >= self.cells.capacity_keys and kp_slots_get(slots, cell) < 0:
            return False
        return kp_slots_put(slots, cell, offset) != KP_PUT_FULL


cdef int check_history(
    const KeyBlock *block, OffsetMap offset_map, History history
) except -1:
    """Raise ValueError unless a map with counts comes with a history, and thinning with timestamps."""
    if (offset_map.slots.counts != NULL) != (history is not None):
        raise ValueError("a map that counts records goes together with a history")
    if history is not None and history.level_count:
        if block.entry_count > 0 and block.versions == NULL:
            raise ValueError("the block has no timestamps to thin its records by")
    return 0


cdef bint put_counted(
    OffsetMap offset_map, Prefetched *prefetched, const EntryScan *scan, History history
) noexcept nogil:
    """Like `put_prefetched`, where older values may stay."""
    cdef kp_offset_slots *slots = &offset_map.slots
    cdef kp_sip_hash hashed
    cdef int64_t offset
    cdef int64_t ordinal
    cdef uint32_t i
    for i in range(prefetched.count):
        hashed = prefetched.hashes[i]
        offset = prefetched.offsets[i]
        ordinal = prefetched.ordinals[i]
        if slots.size >= offset_map.capacity_keys and kp_slots_get(slots, hashed) < 0:
            return False
        if kp_counted_put(slots, hashed, offset, is_tombstone_at(scan, ordinal)) == KP_PUT_FULL:
            return False
        if history.level_count and not history.put_cell(
            hashed, version_at(&scan.block, ordinal), offset
        ):
            return False
    prefetched.count = 0
    return True


cdef inline bint is_tombstone_at(const EntryScan *scan, int64_t ordinal) noexcept nogil:
    return entry_is_tombstone(scan.block.entries + ordinal * ENTRY_SIZE)


def count_keys(
    block not None,
    OffsetMap offset_map not None,
    History history not None,
    *,
    int64_t base_offset,
    int64_t end_offset,
    Transactions transactions=None,
):
    cdef EntryScan scan
    cdef bint fits
    begin_scan(&scan, block, transactions, base_offset, 0, end_offset)
    check_history(&scan.block, offset_map, history)
    with nogil:
        fits = count_entries(&scan, offset_map, transactions, history)
    return fits


cdef bint count_entries(
    EntryScan *scan, OffsetMap offset_map, Transactions transactions, History history
) noexcept nogil:
    """Count the block's entries of keys that the map has. Returns false if the cells are full."""
    cdef kp_offset_slots *slots = &offset_map.slots
    cdef const uint8_t *entry = scan.block.entries
    cdef kp_sip_hash hashed
    cdef int64_t offset
    cdef int64_t i
    for i in range(scan.block.entry_count):
        offset = entry_offset(entry, scan.base_offset)
        hashed = entry_hash(entry)
        entry += ENTRY_SIZE
        if offset >= scan.end_offset or not kp_slots_take(slots, hashed):
            continue
        if kp_slots_get(slots, hashed) < 0:
            continue
        # Marking leaves them out, too: DeleteRecords may have moved the log start into their batch.
        if scan.knows_outcomes and is_left_out(scan, transactions, offset):
            continue
        kp_counted_add(slots, hashed, is_tombstone_at(scan, i))
        if history.level_count and not history.put_cell(
            hashed, version_at(&scan.block, i), offset
        ):
            return False
    return True
