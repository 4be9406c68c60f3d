# Iterates over the source's key blocks and marks, record by record; a part of kernel.pyx.
#
# The marks depend on the blocks, so the blocks must match the segment: every record that the filter
# reads, and every batch with a special row, is compared.


cdef struct KeyCursor:
    # The position in a block.
    int64_t entry
    int64_t row
    # Records so far, without control records.
    int64_t records


@final
cdef class SourceKeys:
    # Of the source segment
    cdef int64_t base_offset
    cdef const unsigned char[::1] marks
    cdef const unsigned char[::1] winners
    cdef bint has_marks
    cdef bint has_winners
    # Whether each entry's key was compared with its record's in an earlier pass.
    cdef bint keys_checked
    # Of its current block; `block` is valid only while `feed` holds the block's bytes.
    cdef KeyBlock block
    cdef int64_t first_entry
    cdef int64_t consumed_bytes
    cdef KeyCursor cursor

    cdef int start(self, int64_t base_offset, marks, winners=None, bint keys_checked=False) except -1:
        self.marks = marks
        self.keys_checked = keys_checked
        self.has_marks = True
        self.has_winners = winners is not None
        self.winners = winners
        if self.has_winners and self.winners.shape[0] != self.marks.shape[0]:
            raise ValueError("the bits of marks and of winners differ in number")
        self.base_offset = base_offset
        self.first_entry = self.consumed_bytes = 0
        memset(&self.cursor, 0, sizeof(KeyCursor))
        return 0

    cdef int open_block(self, const unsigned char[::1] block, int64_t chunk_bytes) except -1:
        if not self.has_marks:
            raise ValueError("there is no source segment yet: call start_source")
        read_key_block(block, &self.block)
        if chunk_bytes != self.block.data_bytes - self.consumed_bytes:
            raise ValueError(
                f"a chunk of {chunk_bytes} bytes is not the rest of a block for {self.block.data_bytes}"
                f" bytes, {self.consumed_bytes} of which were fed before"
            )
        if not marks_reach(self.marks.shape[0], self.first_entry, self.block.entry_count):
            raise ValueError(f"{self.marks.shape[0]} bytes of marks are too few for the source")
        if self.cursor.entry > self.block.entry_count or self.cursor.row > self.block.row_count:
            raise ValueError("the rest of a chunk was fed with another block")
        return 0

    cdef int close_block(self, int64_t consumed_bytes) except -1:
        """Count the consumed bytes; at the block's end all its rows and entries must be used."""
        self.consumed_bytes += consumed_bytes
        if self.consumed_bytes < self.block.data_bytes:
            return 0
        if (
            self.cursor.entry != self.block.entry_count
            or self.cursor.row != self.block.row_count
            or self.cursor.records - self.block.entry_count != self.block.unkeyed
        ):
            return keys_differ(self.base_offset, b"a block does not match its bytes")
        self.first_entry += self.block.entry_count
        self.consumed_bytes = 0
        memset(&self.cursor, 0, sizeof(KeyCursor))
        return 0

    cdef uint8_t take_row(self, const batch_header *header) except? 255 nogil:
        """Returns the kind of a batch by its special row; ROW_NONE if it needs none."""
        cdef SpecialRow row
        if not header.attributes & ATTRIBUTE_CONTROL:
            self.cursor.records += header.record_count
        if special_kind(header, MARKER_NONE) == ROW_NONE:
            return ROW_NONE
        memset(&row, 0, sizeof(row))
        if self.cursor.row < self.block.row_count:
            read_special_row(&self.block, self.cursor.row, self.base_offset, &row)
        if not row_fits(&row, header):
            keys_differ(header.base_offset, b"its batch has no special row")
        self.cursor.row += 1
        return row.kind

    cdef inline const uint8_t *take_entry(
        self, const record_view *record, int64_t offset
    ) except NULL nogil:
        """Returns the next entry, which must be that of the record."""
        cdef const uint8_t *entry = self.block.entries + self.cursor.entry * ENTRY_SIZE
        if (
            self.cursor.entry >= self.block.entry_count
            or entry_offset(entry, self.base_offset) != offset
            or entry_is_tombstone(entry) != (record.value_size < 0)
            or load_uint32(entry + ENTRY_RECORD_SIZE) != <uint32_t>(record.end - record.start)
        ):
            keys_differ(offset, b"its record has no such entry")
        self.cursor.entry += 1
        return entry

    cdef inline bint last_is_marked(self) noexcept nogil:
        """Returns whether the last entry taken has a mark."""
        cdef int64_t ordinal = self.first_entry + self.cursor.entry - 1
        return (self.marks[ordinal >> 3] >> (ordinal & 7)) & 1

    cdef inline bint last_is_winner(self) noexcept nogil:
        """Returns whether the last entry taken is the map's record of its key."""
        cdef int64_t ordinal = self.first_entry + self.cursor.entry - 1
        return self.has_winners and (self.winners[ordinal >> 3] >> (ordinal & 7)) & 1

    cdef inline int64_t last_version(self) noexcept nogil:
        """Returns the version of the last entry taken; 0 if records have no versions."""
        return version_at(&self.block, self.cursor.entry - 1)

    cdef int64_t take_entries(
        self, const batch_header *header, const uint8_t **first, int64_t *tombstones
    ) except -1 nogil:
        """Take the entries of a batch whose records are not read. Returns their number."""
        cdef int64_t start = self.cursor.entry
        cdef const uint8_t *entry = self.block.entries + start * ENTRY_SIZE
        cdef bint is_inside = True
        first[0] = entry
        tombstones[0] = 0
        while self.cursor.entry < self.block.entry_count:
            if entry_offset(entry, self.base_offset) > header.last_offset:
                break
            is_inside &= entry_offset(entry, self.base_offset) >= header.base_offset
            tombstones[0] += entry_is_tombstone(entry)
            entry += ENTRY_SIZE
            self.cursor.entry += 1
        if not is_inside or self.cursor.entry - start > header.record_count:
            return keys_differ(header.base_offset, b"its batch has different records")
        return self.cursor.entry - start

    cdef bint are_untouched(
        self,
        const batch_header *header,
        bint drops_tombstones,
        int64_t *tombstones,
        int64_t *records_bytes,
    ) noexcept nogil:
        """Returns whether the next entries are those of all records of the batch, and none is marked or
        a tombstone that may have to go. They are not taken."""
        cdef int64_t number = self.cursor.entry
        cdef const uint8_t *entry = self.block.entries + number * ENTRY_SIZE
        cdef int64_t last_offset = header.base_offset - 1
        cdef int64_t ordinal
        cdef int64_t offset
        tombstones[0] = records_bytes[0] = 0
        if number + header.record_count > self.block.entry_count:
            return False
        for ordinal in range(
            self.first_entry + number, self.first_entry + number + header.record_count
        ):
            offset = entry_offset(entry, self.base_offset)
            if offset <= last_offset or (self.marks[ordinal >> 3] >> (ordinal & 7)) & 1:
                return False
            last_offset = offset
            tombstones[0] += entry_is_tombstone(entry)
            records_bytes[0] += load_uint32(entry + ENTRY_RECORD_SIZE)
            entry += ENTRY_SIZE
        return last_offset <= header.last_offset and not (drops_tombstones and tombstones[0] > 0)


cdef bint row_fits(const SpecialRow *row, const batch_header *header) noexcept nogil:
    cdef bint is_control = header.attributes & ATTRIBUTE_CONTROL != 0
    cdef bint is_empty = header.record_count == 0
    return (
        row.first_offset == header.base_offset
        and row.last_offset == header.last_offset
        and row.producer_id == header.producer_id
        and row.producer_epoch == header.producer_epoch
        and row.flags == special_flags(header)
        and ROW_NONE < row.kind <= ROW_EMPTY
        and is_empty == (row.kind == ROW_EMPTY)
        and (is_empty or is_control == (row.kind != ROW_TRANSACTIONAL_DATA))
    )
