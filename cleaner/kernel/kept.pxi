# Sums the keyed records that must remain of a segment, independently of their order; a part of
# kernel.pyx.
#
# The sum over the records that must remain of the sources and the sum over the outputs are equal if,
# and (except for a collision of 128-bit hashes) only if, these are the same records by key and offset.

cdef enum:
    # key hash | offset: int64 | tombstone: uint8. Without the record's size, which changes when a delete
    # horizon is stamped.
    KEPT_IMAGE_SIZE = 25


cdef void add_kept(kp_hash128 *sum, const uint8_t *entry, int64_t offset) noexcept nogil:
    cdef uint8_t[KEPT_IMAGE_SIZE] image
    memcpy(image, entry, 16)
    store_int64(image + 16, offset)
    image[24] = entry_is_tombstone(entry)
    kp_digest_add(sum, kp_xxh3(image, KEPT_IMAGE_SIZE))


cdef int64_t sum_entries(
    EntryScan *scan,
    OffsetMap offset_map,
    Transactions transactions,
    const uint8_t *marks,
    int64_t first_entry,
    bint with_tombstones,
    int64_t hold_offset,
    kp_hash128 *sum,
) noexcept nogil:
    cdef const uint8_t *entry = scan.block.entries - ENTRY_SIZE
    cdef int64_t count = 0
    cdef int64_t offset
    cdef int64_t ordinal
    cdef int64_t i
    for i in range(scan.block.entry_count):
        entry += ENTRY_SIZE
        ordinal = first_entry + i
        offset = entry_offset(entry, scan.base_offset)
        # The last record below the pass's end always stays, so it proves nothing.
        if offset == scan.end_offset - 1:
            continue
        if not kp_slots_take(&offset_map.slots, entry_hash(entry)):
            continue
        if marks != NULL and marks[ordinal >> 3] >> (ordinal & 7) & 1:
            continue
        if not with_tombstones and offset < hold_offset and entry_is_tombstone(entry):
            continue
        if (
            scan.knows_outcomes
            and offset < scan.end_offset
            and is_left_out(scan, transactions, offset)
        ):
            continue
        add_kept(sum, entry, offset)
        count += 1
    return count


def sum_kept(
    block not None,
    OffsetMap offset_map not None,
    marks,
    *,
    int64_t base_offset,
    int64_t first_entry,
    int64_t end_offset,
    bint with_tombstones,
    Transactions transactions=None,
    int64_t hold_offset=INT64_MAX,
):
    cdef const unsigned char[::1] bits
    cdef const uint8_t *first_mark = NULL
    cdef kp_hash128 sum
    cdef EntryScan scan
    cdef int64_t count
    begin_scan(&scan, block, transactions, base_offset, 0, end_offset)
    if marks is not None:
        bits = marks
        if not marks_reach(bits.shape[0], first_entry, scan.block.entry_count):
            raise ValueError(f"{bits.shape[0]} bytes of marks are too few for the block's entries")
        if bits.shape[0] > 0:
            first_mark = &bits[0]
    memset(&sum, 0, sizeof(sum))
    with nogil:
        count = sum_entries(
            &scan,
            offset_map,
            transactions,
            first_mark,
            first_entry,
            with_tombstones,
            hold_offset,
            &sum,
        )
    return KeySum(count=count, digest=number_of(sum))
