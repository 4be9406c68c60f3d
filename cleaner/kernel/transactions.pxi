# Finds the outcomes of the transactions in a section of a log; a part of kernel.pyx.
#
# A transaction is the transactional batches of one producer up to its marker, a control batch whose
# record has COMMIT or ABORT in its key. The data batches do not tell the outcome, so the special rows
# of the section's sidecars are walked once, before its keys are mapped.
#
# Source: Apache Kafka, CleanedTransactionMetadata.java, ControlRecordType.java.


cdef enum:
    MARKER_ABORT = 0
    MARKER_COMMIT = 1
    MARKER_NONE = -1
    CONTROL_KEY_SIZE = 4


cdef struct Place:
    # The place of a transactional data batch; base offset -1 means no batch.
    int64_t producer_id
    int64_t base_offset
    int64_t end_offset


cdef struct ProducerRow:
    int64_t producer_id
    int64_t number
    # Of an open transaction: the batch directly before its first batch.
    Place before


cdef struct ProducerTable:
    # One row per producer, sorted by id. Few producers have a transaction at a time.
    ProducerRow *rows
    size_t count
    size_t capacity


cdef enum Outcome:
    # Of a batch's transaction; all data in no range is committed.
    COMMITTED
    ABORTED
    # Its marker may lie in a fence (cleaner/rules/fence.py).
    UNDECIDED


cdef struct OutcomeRange:
    # Batches of this producer with base offsets in [first_offset, end_offset) have this outcome. If they
    # are aborted, their marker is at the end offset; if they are undecided, a fence begins there.
    int64_t producer_id
    int64_t first_offset
    int64_t end_offset
    Outcome outcome


cdef size_t row_place(const ProducerTable *table, int64_t producer_id) noexcept nogil:
    """Returns the index of the producer's row, or where it would be inserted."""
    cdef size_t low = 0
    cdef size_t high = table.count
    cdef size_t middle
    while low < high:
        middle = low + (high - low) // 2
        if table.rows[middle].producer_id < producer_id:
            low = middle + 1
        else:
            high = middle
    return low


cdef ProducerRow *find_row(const ProducerTable *table, int64_t producer_id) noexcept nogil:
    cdef size_t place = row_place(table, producer_id)
    if place < table.count and table.rows[place].producer_id == producer_id:
        return &table.rows[place]
    return NULL


cdef int put_row(ProducerTable *table, int64_t producer_id, int64_t number) except -1 nogil:
    """Set the number in the producer's row, which is added if it is missing."""
    cdef size_t place = row_place(table, producer_id)
    if place == table.count or table.rows[place].producer_id != producer_id:
        if table.count == table.capacity:
            table.rows = <ProducerRow *>grow(
                table.rows, &table.capacity, table.count + 1, sizeof(ProducerRow)
            )
        memmove(
            table.rows + place + 1, table.rows + place, (table.count - place) * sizeof(ProducerRow)
        )
        table.count += 1
    table.rows[place] = ProducerRow(producer_id, number, Place(-1, -1, -1))
    return 0


cdef void drop_row(ProducerTable *table, int64_t producer_id) noexcept nogil:
    cdef ProducerRow *row = find_row(table, producer_id)
    if row != NULL:
        table.count -= 1
        memmove(row, row + 1, (table.rows + table.count - row) * sizeof(ProducerRow))


cdef inline int marker_of(const record_view *record) noexcept nogil:
    """Returns the kind of marker that a control record is; MARKER_NONE for types of later releases."""
    cdef int kind
    if record.key_size < CONTROL_KEY_SIZE or load_int16(record.key) < 0:
        return MARKER_NONE
    kind = load_int16(record.key + 2)
    return kind if kind == MARKER_ABORT or kind == MARKER_COMMIT else MARKER_NONE


cdef int compare_ranges(const void *a, const void *b) noexcept nogil:
    cdef const OutcomeRange *left = <const OutcomeRange *>a
    cdef const OutcomeRange *right = <const OutcomeRange *>b
    if left.producer_id != right.producer_id:
        return (left.producer_id > right.producer_id) - (left.producer_id < right.producer_id)
    return (left.first_offset > right.first_offset) - (left.first_offset < right.first_offset)


@final
cdef class Transactions:
    # Constant after construction
    cdef int64_t start_offset
    cdef int64_t bound_offset
    # State: the outcome of the walk so far
    cdef ProducerTable undecided
    cdef Place before
    cdef OutcomeRange *ranges
    cdef size_t range_count
    cdef size_t range_capacity
    cdef bint is_sorted

    def __cinit__(self, *, int64_t start_offset, int64_t end_offset):
        self.start_offset = start_offset
        self.bound_offset = end_offset
        self.before = Place(-1, -1, -1)
        self.is_sorted = True

    def __dealloc__(self):
        free(self.undecided.rows)
        free(self.ranges)

    def walk(self, block not None, *, int64_t base_offset):
        cdef KeyBlock keys
        cdef bint goes_on
        read_key_block(block, &keys)
        with nogil:
            goes_on = self.walk_rows(&keys, base_offset)
        return goes_on

    cdef bint walk_rows(self, const KeyBlock *keys, int64_t base_offset) except -1 nogil:
        """Walk row by row. Returns 0 at the section's end, 1 at the block's."""
        cdef SpecialRow row
        cdef int64_t i
        for i in range(keys.row_count):
            read_special_row(keys, i, base_offset, &row)
            if row.last_offset >= self.bound_offset:
                return False
            if row.last_offset >= self.start_offset:
                self.take(&row)
        return True

    cdef int take(self, const SpecialRow *row) except -1 nogil:
        if not is_transactional_data(row):
            self.before = Place(-1, -1, -1)
            if is_marker_kind(row.kind):
                self.end_transaction(row)
            return 0
        if find_row(&self.undecided, row.producer_id) == NULL:
            put_row(&self.undecided, row.producer_id, row.first_offset)
            # Plain data has no rows: only consecutive offsets prove that there is none between.
            if self.before.end_offset == row.first_offset:
                find_row(&self.undecided, row.producer_id).before = self.before
        self.before = Place(
            row.producer_id, row.first_offset, wrapping_add(row.last_offset, 1)
        )
        return 0

    cdef int end_transaction(self, const SpecialRow *marker) except -1 nogil:
        cdef ProducerRow *row = find_row(&self.undecided, marker.producer_id)
        if row == NULL:
            return 0
        if marker.kind == ROW_ABORT:
            self.add_range(row, marker.first_offset, ABORTED)
        drop_row(&self.undecided, marker.producer_id)
        return 0

    cdef int add_range(
        self, const ProducerRow *row, int64_t end_offset, Outcome outcome
    ) except -1 nogil:
        if self.range_count == self.range_capacity:
            self.ranges = <OutcomeRange *>grow(
                self.ranges, &self.range_capacity, self.range_count + 1, sizeof(OutcomeRange)
            )
        self.ranges[self.range_count] = OutcomeRange(
            row.producer_id, row.number, end_offset, outcome
        )
        self.range_count += 1
        self.is_sorted = False
        return 0

    cdef void sort(self) noexcept nogil:
        if not self.is_sorted:
            qsort(self.ranges, self.range_count, sizeof(OutcomeRange), compare_ranges)
            self.is_sorted = True

    def begin_fence(self, int64_t base_offset):
        """The transactions that are open here stay undecided: the fence may hold their markers."""
        cdef size_t i
        for i in range(self.undecided.count):
            self.add_range(&self.undecided.rows[i], base_offset, UNDECIDED)
        self.undecided.count = 0
        self.before = Place(-1, -1, -1)

    cdef Outcome outcome_of(self, int64_t producer_id, int64_t base_offset) noexcept nogil:
        """Returns the outcome of the producer's transactional data batch at an offset."""
        cdef OutcomeRange wanted = OutcomeRange(producer_id, base_offset, 0, COMMITTED)
        cdef size_t low = 0
        cdef size_t high = self.range_count
        cdef size_t middle
        self.sort()
        # The last range of the producer that begins at the batch or before it.
        while low < high:
            middle = low + (high - low) // 2
            if compare_ranges(&self.ranges[middle], &wanted) <= 0:
                low = middle + 1
            else:
                high = middle
        if low == 0 or self.ranges[low - 1].producer_id != producer_id:
            return COMMITTED
        if base_offset >= self.ranges[low - 1].end_offset:
            return COMMITTED
        return self.ranges[low - 1].outcome

    @property
    def end_offset(self):
        cdef ProducerRow *first = NULL
        cdef int64_t end
        cdef size_t i
        for i in range(self.undecided.count):
            if first == NULL or self.undecided.rows[i].number < first.number:
                first = &self.undecided.rows[i]
        if first == NULL:
            return self.bound_offset
        end = first.number
        if self.outcome_of(first.before.producer_id, first.before.base_offset) == ABORTED:
            end = first.before.base_offset
        return max(end, self.start_offset)

    @property
    def aborted(self):
        cdef size_t i
        self.sort()
        return [
            AbortedTransaction(
                producer_id=self.ranges[i].producer_id,
                first_offset=self.ranges[i].first_offset,
                marker_offset=self.ranges[i].end_offset,
            )
            for i in range(self.range_count)
            if self.ranges[i].outcome == ABORTED
        ]

    @property
    def left_out(self):
        cdef size_t i
        return [
            (
                self.ranges[i].producer_id,
                self.ranges[i].first_offset,
                self.ranges[i].end_offset,
                self.ranges[i].outcome == ABORTED,
            )
            for i in range(self.range_count)
        ]

    @property
    def first_undecided(self):
        cdef int64_t first = INT64_MAX
        cdef size_t i
        for i in range(self.range_count):
            if self.ranges[i].outcome == UNDECIDED:
                first = min(first, self.ranges[i].first_offset)
        return first


cdef inline Outcome outcome_of_batch(
    Transactions transactions, const batch_header *header
) noexcept nogil:
    """Returns the outcome of a batch's transaction; COMMITTED for a batch of none."""
    if transactions is None or (
        header.attributes & (ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL) != ATTRIBUTE_TRANSACTIONAL
    ):
        return COMMITTED
    return transactions.outcome_of(header.producer_id, header.base_offset)


cdef inline bint is_dirty(Transactions transactions, const batch_header *header) noexcept nogil:
    """Returns whether a control batch lies in the dirty section, so that readers may still need it."""
    return transactions is not None and header.last_offset >= transactions.start_offset
