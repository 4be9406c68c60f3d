# Reads and makes the blocks of key sidecars; a part of kernel.pyx. `storage/formats/key_sidecar.py` draws a
# block.
#
# A block comes from a file: its counts are compared with its size before they are used, and no value
# in it is ever used as a memory address.


cdef enum:
    BLOCK_HEADER_SIZE = 16
    SPECIAL_ROW_SIZE = 24
    ENTRY_SIZE = 24
    VERSION_SIZE = 8
    CHECKSUM_SIZE = 8

cdef enum:
    ENTRY_OFFSET = 16
    ENTRY_RECORD_SIZE = 20
    OFFSET_DELTA_MASK = 0x7FFFFFFF
    TOMBSTONE_SHIFT = 31

# The kinds of batches with a special row; plain data has none.
cdef enum:
    ROW_NONE
    ROW_TRANSACTIONAL_DATA
    ROW_COMMIT
    ROW_ABORT
    ROW_OTHER_CONTROL
    ROW_EMPTY

cdef enum:
    ROW_FLAG_TRANSACTIONAL = 1
    ROW_FLAG_CONTROL = 2
    ROW_FLAG_DELETE_HORIZON = 4


# ---------------------------------------------------------------------------------- reading


cdef struct KeyBlock:
    # The parts of a block whose counts match its size.
    int64_t data_bytes
    int64_t unkeyed
    const uint8_t *rows
    int64_t row_count
    const uint8_t *entries
    int64_t entry_count
    # Of the entries; NULL if records have no versions.
    const uint8_t *versions


cdef struct SpecialRow:
    int64_t first_offset
    int64_t last_offset
    int64_t producer_id
    int16_t producer_epoch
    uint8_t kind
    uint8_t flags


cdef int keys_differ(int64_t offset, const char *what) except -1 nogil:
    with gil:
        raise KeysDiffer(f"the key sidecar differs from its segment at offset {offset}: {what.decode()}")


cdef int read_key_block(const unsigned char[::1] block, KeyBlock *out) except -1:
    cdef const uint8_t *data = bytes_of(block)
    cdef int64_t left = block.shape[0] - BLOCK_HEADER_SIZE - CHECKSUM_SIZE
    if left < 0:
        raise KeysDiffer(f"a key block of {block.shape[0]} bytes has no header")
    out.data_bytes = load_uint32(data)
    out.row_count = load_uint32(data + 4)
    out.entry_count = load_uint32(data + 8)
    out.unkeyed = load_uint32(data + 12)
    out.rows = data + BLOCK_HEADER_SIZE
    out.entries = out.rows + out.row_count * SPECIAL_ROW_SIZE
    out.versions = NULL
    left -= out.row_count * SPECIAL_ROW_SIZE + out.entry_count * ENTRY_SIZE
    if left > 0 and left == out.entry_count * VERSION_SIZE:
        out.versions = out.entries + out.entry_count * ENTRY_SIZE
    elif left != 0:
        raise KeysDiffer(
            f"a key block of {block.shape[0]} bytes counts {out.row_count} special rows"
            f" and {out.entry_count} entries"
        )
    return 0


cdef inline int64_t version_at(const KeyBlock *block, int64_t number) noexcept nogil:
    """Returns the version of an entry; 0 if records have no versions."""
    return load_int64(block.versions + number * VERSION_SIZE) if block.versions != NULL else 0


cdef inline void read_special_row(
    const KeyBlock *block, int64_t number, int64_t base_offset, SpecialRow *out
) noexcept nogil:
    cdef const uint8_t *at = block.rows + number * SPECIAL_ROW_SIZE
    out.first_offset = wrapping_add(base_offset, load_uint32(at))
    out.last_offset = wrapping_add(base_offset, load_uint32(at + 4))
    out.producer_id = load_int64(at + 8)
    out.producer_epoch = load_int16(at + 16)
    out.kind = at[18]
    out.flags = at[19]


cdef inline bint is_transactional_data(const SpecialRow *row) noexcept nogil:
    """Returns whether its batch is transactional and not a marker; it may be empty."""
    return row.flags & (ROW_FLAG_TRANSACTIONAL | ROW_FLAG_CONTROL) == ROW_FLAG_TRANSACTIONAL


cdef inline bint is_marker_kind(uint8_t kind) noexcept nogil:
    return kind == ROW_COMMIT or kind == ROW_ABORT


cdef inline int64_t entry_offset(const uint8_t *entry, int64_t base_offset) noexcept nogil:
    return wrapping_add(base_offset, load_uint32(entry + ENTRY_OFFSET) & OFFSET_DELTA_MASK)


cdef inline bint entry_is_tombstone(const uint8_t *entry) noexcept nogil:
    return load_uint32(entry + ENTRY_OFFSET) >> TOMBSTONE_SHIFT


cdef inline kp_sip_hash entry_hash(const uint8_t *entry) noexcept nogil:
    cdef kp_sip_hash hashed
    hashed.low = kp_sip_load64(entry)
    hashed.high = kp_sip_load64(entry + 8)
    return hashed


# ----------------------------------------------------------------------------------- making


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
