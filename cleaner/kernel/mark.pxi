# Puts the entries of key blocks into the offset map, and marks superseded entries by the map; a part of
# kernel.pyx.


# ----------------------------------------------------------------------------------- mapping


cdef bint put_prefetched(OffsetMap offset_map, Prefetched *prefetched) noexcept nogil:
    """Put the prefetched entries into the map. Returns false if the map became full."""
    cdef kp_offset_slots *slots = &offset_map.slots
    cdef uint32_t i
    for i in range(prefetched.count):
        if (
            slots.size >= offset_map.capacity_keys
            and kp_slots_get(slots, prefetched.hashes[i]) < 0
        ):
            return False
        if kp_slots_put(slots, prefetched.hashes[i], prefetched.offsets[i]) == KP_PUT_FULL:
            return False
    prefetched.count = 0
    return True


cdef bint put_ranked(
    OffsetMap offset_map, Prefetched *prefetched, const KeyBlock *block
) noexcept nogil:
    """Like `put_prefetched`, where records have versions."""
    cdef kp_offset_slots *slots = &offset_map.slots
    cdef kp_sip_hash hashed
    cdef int64_t version
    cdef uint32_t i
    for i in range(prefetched.count):
        hashed = prefetched.hashes[i]
        version = version_at(block, prefetched.ordinals[i])
        if slots.size >= offset_map.capacity_keys and kp_slots_get(slots, hashed) < 0:
            return False
        if kp_ranked_put(slots, hashed, prefetched.offsets[i], version) == KP_PUT_FULL:
            return False
    prefetched.count = 0
    return True


cdef inline bint put_window(
    const EntryScan *scan,
    OffsetMap offset_map,
    Prefetched *prefetched,
    History history,
    DeadOffsets dead,
) noexcept nogil:
    if dead is not None:
        return put_last(offset_map, prefetched, &scan.block, dead)
    if offset_map.slots.counts != NULL:
        return put_counted(offset_map, prefetched, scan, history)
    if offset_map.slots.versions == NULL:
        return put_prefetched(offset_map, prefetched)
    return put_ranked(offset_map, prefetched, &scan.block)


cdef bint map_entries(
    EntryScan *scan,
    OffsetMap offset_map,
    Transactions transactions,
    History history,
    DeadOffsets dead,
    int64_t *seen,
    int64_t *put,
) noexcept nogil:
    """Put the block's entries into the map. Returns false if the map is full."""
    cdef Prefetched prefetched
    cdef const uint8_t *entry = scan.block.entries
    cdef kp_sip_hash hashed
    cdef int64_t offset
    cdef int64_t i
    prefetched.count = 0
    for i in range(scan.block.entry_count):
        seen[0] = i + 1
        offset = entry_offset(entry, scan.base_offset)
        hashed = entry_hash(entry)
        entry += ENTRY_SIZE
        if offset < scan.start_offset or not kp_slots_take(&offset_map.slots, hashed):
            continue
        if offset >= scan.end_offset:
            continue
        if scan.knows_outcomes and is_left_out(scan, transactions, offset):
            continue
        put[0] += 1
        prefetch_slot(&prefetched, &offset_map.slots, hashed, offset, i)
        if prefetched.count == WINDOW and not put_window(
            scan, offset_map, &prefetched, history, dead
        ):
            break
    else:
        if put_window(scan, offset_map, &prefetched, history, dead):
            return True
    if dead is not None:
        seen[0] = prefetched.ordinals[prefetched.lacking]
    return False


def map_keys(
    block not None,
    OffsetMap offset_map not None,
    *,
    int64_t base_offset,
    int64_t start_offset,
    int64_t end_offset,
    Transactions transactions=None,
    History history=None,
    DeadOffsets dead=None,
):
    cdef EntryScan scan
    cdef int64_t seen = 0
    cdef int64_t put = 0
    cdef bint fits
    begin_scan(&scan, block, transactions, base_offset, start_offset, end_offset)
    check_history(&scan.block, offset_map, history)
    if dead is not None and (offset_map.slots.counts != NULL or offset_map.slots.parts != 1):
        raise ValueError("only a map that counts nothing, and has every key, says what is dead")
    with nogil:
        fits = map_entries(&scan, offset_map, transactions, history, dead, &seen, &put)
    return MapStep(entries=seen, put=put, is_full=not fits)


def raise_keys(
    block not None,
    OffsetMap offset_map not None,
    *,
    int64_t base_offset,
    int64_t start_offset,
    int64_t end_offset,
):
    cdef EntryScan scan
    begin_scan(&scan, block, None, base_offset, start_offset, end_offset)
    with nogil:
        raise_entries(&scan, offset_map)


cdef void raise_entries(EntryScan *scan, OffsetMap offset_map) noexcept nogil:
    """Raise the map's entries to records of the block that outrank them."""
    cdef Prefetched prefetched
    cdef const uint8_t *entry = scan.block.entries
    cdef kp_sip_hash hashed
    cdef int64_t offset
    cdef int64_t i
    prefetched.count = 0
    for i in range(scan.block.entry_count):
        offset = entry_offset(entry, scan.base_offset)
        hashed = entry_hash(entry)
        entry += ENTRY_SIZE
        if not scan.start_offset <= offset < scan.end_offset:
            continue
        if not kp_slots_take(&offset_map.slots, hashed):
            continue
        prefetch_slot(&prefetched, &offset_map.slots, hashed, offset, i)
        if prefetched.count == WINDOW:
            raise_prefetched(&offset_map.slots, &prefetched, &scan.block)
    raise_prefetched(&offset_map.slots, &prefetched, &scan.block)


cdef void raise_prefetched(
    kp_offset_slots *slots, Prefetched *prefetched, const KeyBlock *block
) noexcept nogil:
    cdef uint32_t i
    for i in range(prefetched.count):
        kp_ranked_raise(
            slots,
            prefetched.hashes[i],
            prefetched.offsets[i],
            version_at(block, prefetched.ordinals[i]),
        )
    prefetched.count = 0


# ----------------------------------------------------------------------------------- marking


cdef struct Marking:
    uint8_t *marks
    # A bit for each record that the map has; NULL if nobody asks.
    uint8_t *winners
    int64_t first_entry
    int64_t start_offset
    int64_t superseded
    kp_tally met
    int64_t unknown
    # Superseded records after the one that outranks them: how many, and the first with that one's offset.
    int64_t outranked
    int64_t outranked_offset
    int64_t outranked_by
    # Superseded records before a tombstone of their key, where records are counted.
    int64_t deleted
    # The last records of cells that were met.
    kp_tally met_cells


cdef void mark_prefetched(
    const kp_offset_slots *slots, Prefetched *prefetched, Marking *marking
) noexcept nogil:
    cdef int64_t latest
    cdef int64_t offset
    cdef uint32_t i
    for i in range(prefetched.count):
        offset = prefetched.offsets[i]
        latest = kp_slots_get(slots, prefetched.hashes[i])
        if offset < latest:
            set_bit(marking.marks, prefetched.ordinals[i])
            marking.superseded += 1
        elif offset == latest:
            marking.met.count += 1
            marking.met.sum += <uint64_t>latest
        elif latest >= 0 or offset >= marking.start_offset:
            marking.unknown += 1
    prefetched.count = 0


cdef void mark_ranked(
    const kp_offset_slots *slots, Prefetched *prefetched, Marking *marking, const KeyBlock *block
) noexcept nogil:
    """Like `mark_prefetched`, where records have versions."""
    cdef int64_t held = -1
    cdef int64_t offset
    cdef int64_t ordinal
    cdef kp_rank rank
    cdef uint32_t i
    for i in range(prefetched.count):
        offset = prefetched.offsets[i]
        ordinal = prefetched.ordinals[i]
        rank = kp_ranked_compare(
            slots,
            prefetched.hashes[i],
            offset,
            version_at(block, ordinal - marking.first_entry),
            &held,
        )
        if rank == KP_BELOW:
            set_bit(marking.marks, ordinal)
            marking.superseded += 1
            if offset > held:
                note_outranked(marking, offset, held)
        elif rank == KP_SAME:
            marking.met.count += 1
            marking.met.sum += <uint64_t>held
            if marking.winners != NULL:
                set_bit(marking.winners, ordinal)
        elif rank == KP_ABOVE or offset >= marking.start_offset:
            marking.unknown += 1
    prefetched.count = 0


cdef void mark_counted(
    OffsetMap offset_map,
    Prefetched *prefetched,
    Marking *marking,
    const EntryScan *scan,
    History history,
) noexcept nogil:
    """Like `mark_prefetched`, where older values may stay."""
    cdef kp_offset_slots *slots = &offset_map.slots
    cdef int64_t latest
    cdef int64_t offset
    cdef int64_t number
    cdef size_t at
    cdef uint32_t left
    cdef uint32_t later_tombstones = 0
    cdef bint is_last_of_cell
    cdef uint32_t i
    for i in range(prefetched.count):
        offset = prefetched.offsets[i]
        number = prefetched.ordinals[i] - marking.first_entry
        at = kp_slots_find(slots, prefetched.hashes[i])
        if not kp_slots_holds(slots, at, prefetched.hashes[i]):
            marking.unknown += offset >= marking.start_offset
            continue
        latest = kp_slots_offset(slots, at)
        left = kp_counted_take(slots, at, is_tombstone_at(scan, number), &later_tombstones)
        if left == 0 or offset > latest:
            marking.unknown += 1
            continue
        is_last_of_cell = history.level_count and history.is_last_of_cell(
            prefetched.hashes[i],
            version_at(&scan.block, number),
            offset,
            &marking.met_cells,
            &marking.unknown,
        )
        if offset == latest:
            marking.met.count += 1
            marking.met.sum += <uint64_t>latest
            if slots.counts[at].has_older and history.level_count:
                history.note_rest(version_at(&scan.block, number))
        elif later_tombstones > 0 or (left > history.versions and not is_last_of_cell):
            set_bit(marking.marks, prefetched.ordinals[i])
            marking.superseded += 1
            marking.deleted += later_tombstones > 0
        else:
            slots.counts[at].has_older = True
            history.note_due(version_at(&scan.block, number))
    prefetched.count = 0


cdef inline void set_bit(uint8_t *bits, int64_t number) noexcept nogil:
    bits[number >> 3] |= 1 << (number & 7)


cdef inline bint has_bit(const uint8_t *bits, int64_t number) noexcept nogil:
    return (bits[number >> 3] >> (number & 7)) & 1


cdef inline void note_outranked(Marking *marking, int64_t offset, int64_t by) noexcept nogil:
    if marking.outranked == 0:
        marking.outranked_offset = offset
        marking.outranked_by = by
    marking.outranked += 1


cdef void mark_entries(
    EntryScan *scan,
    OffsetMap offset_map,
    Transactions transactions,
    Marking *marking,
    History history,
    DeadOffsets dead,
) noexcept nogil:
    cdef Prefetched prefetched
    cdef int64_t first_entry = marking.first_entry
    cdef uint64_t span = <uint64_t>max(0, scan.end_offset - scan.start_offset)
    cdef const uint8_t *entry = scan.block.entries
    cdef kp_sip_hash hashed
    cdef int64_t offset
    cdef int64_t i
    prefetched.count = 0
    for i in range(scan.block.entry_count):
        offset = entry_offset(entry, scan.base_offset)
        hashed = entry_hash(entry)
        entry += ENTRY_SIZE
        # One comparison for both ends of [start_offset, end_offset).
        if <uint64_t>(offset - scan.start_offset) >= span:
            continue
        if not kp_slots_take(&offset_map.slots, hashed):
            continue
        if scan.knows_outcomes and is_left_out(scan, transactions, offset):
            continue
        prefetch_slot(&prefetched, &offset_map.slots, hashed, offset, first_entry + i)
        if prefetched.count == WINDOW:
            mark_window(scan, offset_map, &prefetched, marking, history, dead)
    mark_window(scan, offset_map, &prefetched, marking, history, dead)


cdef inline void mark_window(
    const EntryScan *scan,
    OffsetMap offset_map,
    Prefetched *prefetched,
    Marking *marking,
    History history,
    DeadOffsets dead,
) noexcept nogil:
    if dead is not None:
        note_prefetched(&offset_map.slots, prefetched, dead)
    elif offset_map.slots.counts != NULL:
        mark_counted(offset_map, prefetched, marking, scan, history)
    elif offset_map.slots.versions == NULL:
        mark_prefetched(&offset_map.slots, prefetched, marking)
    else:
        mark_ranked(&offset_map.slots, prefetched, marking, &scan.block)


def mark_keys(
    block not None,
    OffsetMap offset_map not None,
    marks not None,
    *,
    int64_t base_offset,
    int64_t first_entry,
    int64_t start_offset,
    int64_t end_offset,
    Transactions transactions=None,
    winners=None,
    int64_t log_start_offset=0,
    History history=None,
):
    cdef unsigned char[::1] bits = marks
    cdef unsigned char[::1] winner_bits
    cdef EntryScan scan
    cdef Marking marking
    cdef DeadOffsets dead = None
    begin_scan(&scan, block, transactions, base_offset, log_start_offset, end_offset)
    check_history(&scan.block, offset_map, history)
    if not marks_reach(bits.shape[0], first_entry, scan.block.entry_count):
        raise ValueError(f"{bits.shape[0]} bytes of marks are too few for the block's entries")
    memset(&marking, 0, sizeof(Marking))
    marking.marks = &bits[0] if bits.shape[0] > 0 else NULL
    marking.first_entry = first_entry
    marking.start_offset = start_offset
    if winners is not None:
        winner_bits = winners
        if winner_bits.shape[0] != bits.shape[0]:
            raise ValueError("the bits of marks and of winners differ in number")
        marking.winners = &winner_bits[0] if winner_bits.shape[0] > 0 else NULL
    with nogil:
        mark_entries(&scan, offset_map, transactions, &marking, history, dead)
    return MarkStep(
        superseded=marking.superseded,
        met=MapTally(count=marking.met.count, offset_sum=marking.met.sum),
        unknown=marking.unknown,
        deleted=marking.deleted,
        outranked=marking.outranked,
        first_outranked=(
            Outranked(offset=marking.outranked_offset, by=marking.outranked_by)
            if marking.outranked
            else None
        ),
        met_cells=MapTally(count=marking.met_cells.count, offset_sum=marking.met_cells.sum),
    )


cdef inline bint marks_reach(
    int64_t mark_bytes, int64_t first_entry, int64_t entry_count
) noexcept nogil:
    return 0 <= first_entry <= INT64_MAX // 2 and (first_entry + entry_count + 7) // 8 <= mark_bytes
