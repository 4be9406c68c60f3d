# Reads the blocks of key sidecars; a part of kernel.pyx and of expired_keys.pyx. `key_block_writer.pxi`
# makes them; `storage/formats/key_sidecar.py` draws one.
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
