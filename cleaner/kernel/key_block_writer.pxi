# Makes the blocks of key sidecars; a part of kernel.pyx. `key_block.pxi` has their layout.


cdef int keys_differ(int64_t offset, const char *what) except -1 nogil:
    with gil:
        raise KeysDiffer(f"the key sidecar differs from its segment at offset {offset}: {what.decode()}")


cdef struct KeyCounts:
    # The KeyTotals of one block, or of a whole segment.
    int64_t blocks
    int64_t entries
    int64_t tombstones
    int64_t unkeyed
    int64_t special_rows
    int64_t batches
    int64_t least_delete_horizon


cdef struct OpenBlock:
    # A block that is being made; `counts.entries` and `counts.special_rows` are set at its end.
    Buffer rows
    Buffer entries
    # Of the entries; empty if records have no versions.
    Buffer versions
    int64_t data_bytes
    KeyCounts counts


cdef inline uint64_t key_product(
    const uint8_t *entry, int64_t base_offset, int64_t version
) noexcept nogil:
    """Returns the entry's part of the sum of keys (digest.h)."""
    cdef kp_sip_hash hashed = entry_hash(entry)
    return kp_key_product(
        hashed.low,
        hashed.high,
        entry_offset(entry, base_offset),
        entry_is_tombstone(entry),
        version,
        load_uint32(entry + ENTRY_RECORD_SIZE),
    )


cdef inline void store_entry(
    uint8_t *entry, kp_sip_hash hashed, uint32_t offset_delta, bint is_tombstone, uint32_t size
) noexcept nogil:
    kp_sip_store64(entry, hashed.low)
    kp_sip_store64(entry + 8, hashed.high)
    store_uint32(
        entry + ENTRY_OFFSET,
        (offset_delta & OFFSET_DELTA_MASK) | <uint32_t>is_tombstone << TOMBSTONE_SHIFT,
    )
    store_uint32(entry + ENTRY_RECORD_SIZE, size)


cdef uint8_t special_kind(const batch_header *header, int marker) noexcept nogil:
    if header.record_count == 0:
        return ROW_EMPTY
    if header.attributes & ATTRIBUTE_CONTROL:
        if marker == MARKER_NONE:
            return ROW_OTHER_CONTROL
        return ROW_COMMIT if marker == MARKER_COMMIT else ROW_ABORT
    return ROW_TRANSACTIONAL_DATA if header.attributes & ATTRIBUTE_TRANSACTIONAL else ROW_NONE


cdef inline uint8_t special_flags(const batch_header *header) noexcept nogil:
    cdef uint8_t flags = 0
    if header.attributes & ATTRIBUTE_TRANSACTIONAL:
        flags |= ROW_FLAG_TRANSACTIONAL
    if header.attributes & ATTRIBUTE_CONTROL:
        flags |= ROW_FLAG_CONTROL
    if header.attributes & ATTRIBUTE_DELETE_HORIZON:
        flags |= ROW_FLAG_DELETE_HORIZON
    return flags


cdef int add_batch(
    OpenBlock *block,
    const batch_header *header,
    uint8_t kind,
    int64_t tombstones,
    int64_t unkeyed,
    int64_t base_offset,
) except -1 nogil:
    """Count a batch, whose entries were already added, and add its special row if it needs one."""
    block.data_bytes += header.size
    block.counts.batches += 1
    block.counts.unkeyed += unkeyed
    if not header.attributes & ATTRIBUTE_DELETE_HORIZON:
        block.counts.tombstones += tombstones
    elif tombstones > 0 or is_marker_kind(kind):
        note_horizon(&block.counts.least_delete_horizon, header.base_timestamp)
    if kind != ROW_NONE:
        add_special_row(block, header, kind, base_offset)
    return 0


cdef int add_special_row(
    OpenBlock *block, const batch_header *header, uint8_t kind, int64_t base_offset
) except -1 nogil:
    cdef uint8_t *row
    reserve(&block.rows, SPECIAL_ROW_SIZE)
    row = block.rows.data + block.rows.size
    store_uint32(row, <uint32_t>(header.base_offset - base_offset))
    store_uint32(row + 4, <uint32_t>(header.last_offset - base_offset))
    store_int64(row + 8, header.producer_id)
    store_int16(row + 16, header.producer_epoch)
    row[18] = kind
    row[19] = special_flags(header)
    store_uint32(row + 20, 0)
    block.rows.size += SPECIAL_ROW_SIZE
    return 0


cdef inline void note_horizon(int64_t *least, int64_t horizon) noexcept nogil:
    """Set `least` to the smaller horizon; a negative `least` means none."""
    if least[0] < 0 or horizon < least[0]:
        least[0] = horizon


cdef inline void note_latest(int64_t *latest, const batch_header *header) noexcept nogil:
    """Set `latest` to the batch's delete horizon if that is later; a batch without one is the latest."""
    if not header.attributes & ATTRIBUTE_DELETE_HORIZON:
        latest[0] = INT64_MAX
    elif header.base_timestamp > latest[0]:
        latest[0] = header.base_timestamp


cdef void clear_counts(KeyCounts *counts) noexcept nogil:
    memset(counts, 0, sizeof(KeyCounts))
    counts.least_delete_horizon = -1


cdef void clear_block(OpenBlock *block) noexcept nogil:
    block.rows.size = block.entries.size = block.versions.size = 0
    block.data_bytes = 0
    clear_counts(&block.counts)


cdef object finish_block(OpenBlock *block, KeyCounts *totals):
    """Returns the block, empty if it covers no bytes; adds it to `totals` and starts another one."""
    cdef bytes finished = b""
    if block.data_bytes > 0:
        finished = sealed_block(block)
        block.counts.blocks = 1
        block.counts.entries = block.entries.size // ENTRY_SIZE
        block.counts.special_rows = block.rows.size // SPECIAL_ROW_SIZE
        add_counts(totals, &block.counts)
    clear_block(block)
    return finished


cdef bytes sealed_block(const OpenBlock *block):
    cdef size_t versions_at = BLOCK_HEADER_SIZE + block.rows.size + block.entries.size
    cdef size_t size = versions_at + block.versions.size
    cdef bytes sealed = PyBytes_FromStringAndSize(NULL, size + CHECKSUM_SIZE)
    cdef uint8_t *to = <uint8_t *><char *>sealed
    store_uint32(to, <uint32_t>block.data_bytes)
    store_uint32(to + 4, <uint32_t>(block.rows.size // SPECIAL_ROW_SIZE))
    store_uint32(to + 8, <uint32_t>(block.entries.size // ENTRY_SIZE))
    store_uint32(to + 12, <uint32_t>block.counts.unkeyed)
    with nogil:
        if block.rows.size > 0:
            memcpy(to + BLOCK_HEADER_SIZE, block.rows.data, block.rows.size)
        if block.entries.size > 0:
            memcpy(to + BLOCK_HEADER_SIZE + block.rows.size, block.entries.data, block.entries.size)
        if block.versions.size > 0:
            memcpy(to + versions_at, block.versions.data, block.versions.size)
        store_int64(to + size, <int64_t>kp_xxh3(to, size).low)
    return sealed


cdef void add_counts(KeyCounts *to, const KeyCounts *counts) noexcept nogil:
    to.blocks += counts.blocks
    to.entries += counts.entries
    to.tombstones += counts.tombstones
    to.unkeyed += counts.unkeyed
    to.special_rows += counts.special_rows
    to.batches += counts.batches
    if counts.least_delete_horizon >= 0:
        note_horizon(&to.least_delete_horizon, counts.least_delete_horizon)


cdef void free_block(OpenBlock *block) noexcept nogil:
    free(block.rows.data)
    free(block.entries.data)
    free(block.versions.data)


cdef object totals_of(const KeyCounts *counts):
    return KeyTotals(
        blocks=counts.blocks,
        entries=counts.entries,
        tombstones=counts.tombstones,
        unkeyed=counts.unkeyed,
        special_rows=counts.special_rows,
        batches=counts.batches,
        least_delete_horizon_ms=counts.least_delete_horizon,
    )
