# Counts, by the special rows of key sidecars, the batches that a pass changes; a part of kernel.pyx.
#
# A pass must know which segments need a rewrite before it reads any. Superseded records are marked;
# the remaining changes are to batches of transactions and producers: aborted data, empty batches that
# no producer still needs, and markers of transactions without remaining batches. The rule is the
# filter's, applied to rows, entries and marks.


cdef struct DataScan:
    # An iteration over the entries of a block, batch by batch.
    KeyBlock block
    int64_t base_offset
    int64_t first_entry
    int64_t next_entry
    const uint8_t *marks
    bint horizon_is_due
    int64_t hold_offset


cdef bint has_survivor(DataScan *scan, const SpecialRow *row) noexcept nogil:
    """Returns whether a record of the batch stays. Call it with rows in order."""
    cdef bint survives = False
    cdef bint may_expire = scan.horizon_is_due and row.flags & ROW_FLAG_DELETE_HORIZON
    cdef const uint8_t *entry
    cdef int64_t ordinal
    cdef int64_t offset
    while scan.next_entry < scan.block.entry_count:
        entry = scan.block.entries + scan.next_entry * ENTRY_SIZE
        offset = entry_offset(entry, scan.base_offset)
        if offset > row.last_offset:
            break
        ordinal = scan.first_entry + scan.next_entry
        scan.next_entry += 1
        if offset >= row.first_offset and not scan.marks[ordinal >> 3] >> (ordinal & 7) & 1:
            survives = survives or not (
                may_expire and offset < scan.hold_offset and entry_is_tombstone(entry)
            )
    return survives


@final
cdef class BatchSurvey:
    # Constant after construction
    cdef int64_t end_offset
    cdef bint stamps_markers
    cdef int64_t hold_offset
    cdef Transactions transactions
    cdef ActiveProducers producers
    # State: the producers with a remaining transactional batch since their last marker
    cdef ProducerTable remaining

    def __cinit__(
        self,
        *,
        int64_t end_offset,
        producer_last_offsets=(),
        producer_marker_epochs=None,
        Transactions transactions=None,
        bint stamps_markers=False,
        int64_t hold_offset=INT64_MAX,
    ):
        self.end_offset = end_offset
        self.stamps_markers = stamps_markers
        self.hold_offset = hold_offset
        self.transactions = transactions
        self.producers = ActiveProducers(producer_last_offsets, producer_marker_epochs)

    def __dealloc__(self):
        free(self.remaining.rows)

    def look(
        self,
        block not None,
        const unsigned char[::1] marks not None,
        *,
        int64_t base_offset,
        int64_t first_entry,
        bint horizon_is_due,
    ):
        cdef DataScan scan
        cdef SpecialRow row
        cdef int64_t changed = 0
        cdef int64_t i
        memset(&scan, 0, sizeof(DataScan))
        read_key_block(block, &scan.block)
        if not marks_reach(marks.shape[0], first_entry, scan.block.entry_count):
            raise ValueError(f"{marks.shape[0]} bytes of marks are too few for the block's entries")
        scan.base_offset = base_offset
        scan.first_entry = first_entry
        scan.marks = &marks[0] if marks.shape[0] > 0 else NULL
        scan.horizon_is_due = horizon_is_due
        scan.hold_offset = self.hold_offset
        with nogil:
            for i in range(scan.block.row_count):
                read_special_row(&scan.block, i, base_offset, &row)
                changed += self.changes(&scan, &row)
        return changed

    cdef int changes(self, DataScan *scan, const SpecialRow *row) except -1 nogil:
        """Returns whether the batch is dropped or rebuilt; tracks which transactions keep a batch."""
        cdef bint is_judged = row.last_offset < self.end_offset
        cdef bint changes = False
        cdef bint stays = True
        cdef Outcome outcome
        if is_judged and row.kind == ROW_EMPTY:
            stays = self.must_stay(row)
            changes = not stays
        elif is_judged and is_marker_kind(row.kind):
            changes = self.becomes_idle(row)
            drop_row(&self.remaining, row.producer_id)
        elif is_judged and row.kind == ROW_TRANSACTIONAL_DATA:
            outcome = self.outcome_of(row)
            changes = outcome == ABORTED
            stays = outcome == UNDECIDED or self.must_stay(row) or (
                not changes and has_survivor(scan, row)
            )
        if stays and is_transactional_data(row):
            put_row(&self.remaining, row.producer_id, row.first_offset)
        return changes

    cdef Outcome outcome_of(self, const SpecialRow *row) noexcept nogil:
        if self.transactions is None:
            return COMMITTED
        return self.transactions.outcome_of(row.producer_id, row.first_offset)

    cdef bint becomes_idle(self, const SpecialRow *marker) noexcept nogil:
        """Returns whether no batch of its transaction remains, and it has no delete horizon yet."""
        return (
            self.stamps_markers
            and not marker.flags & ROW_FLAG_DELETE_HORIZON
            and find_row(&self.remaining, marker.producer_id) == NULL
        )

    cdef bint must_stay(self, const SpecialRow *row) noexcept nogil:
        """Returns whether the batch is the pass's last, or must stay for an active producer."""
        if row.last_offset == self.end_offset - 1:
            return True
        return self.producers.need(
            row.producer_id,
            row.producer_epoch,
            row.last_offset,
            row.flags & ROW_FLAG_CONTROL != 0,
        )


def sum_sizes(block not None, const unsigned char[::1] marks not None, *, int64_t first_entry):
    cdef KeyBlock read
    cdef const uint8_t *entry
    cdef int64_t all_bytes = 0
    cdef int64_t marked_bytes = 0
    cdef int64_t size
    cdef int64_t ordinal
    read_key_block(block, &read)
    if not marks_reach(marks.shape[0], first_entry, read.entry_count):
        raise ValueError(f"{marks.shape[0]} bytes of marks are too few for the block's entries")
    entry = read.entries
    with nogil:
        for ordinal in range(first_entry, first_entry + read.entry_count):
            size = load_uint32(entry + ENTRY_RECORD_SIZE)
            all_bytes += size
            if (marks[ordinal >> 3] >> (ordinal & 7)) & 1:
                marked_bytes += size
            entry += ENTRY_SIZE
    return all_bytes, marked_bytes
