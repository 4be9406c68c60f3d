# Knows which batches lie in aborted transactions; a part of record_columns.pyx.


cdef struct aborted_transaction:
    int64_t producer_id
    int64_t first_offset
    int64_t marker_offset


cdef struct aborted_transactions:
    # By producer, then by first offset.
    aborted_transaction *rows
    int64_t count


cdef int compare(const void *left, const void *right) noexcept nogil:
    cdef const aborted_transaction *a = <const aborted_transaction *> left
    cdef const aborted_transaction *b = <const aborted_transaction *> right
    if a.producer_id != b.producer_id:
        return -1 if a.producer_id < b.producer_id else 1
    return (a.first_offset > b.first_offset) - (a.first_offset < b.first_offset)


cdef int take_aborted(aborted_transactions *held, rows) except -1:
    cdef int64_t i
    if not rows:
        return 0
    held.rows = <aborted_transaction *> malloc(len(rows) * sizeof(aborted_transaction))
    if held.rows == NULL:
        raise MemoryError("no memory for the aborted transactions")
    for i, (producer_id, first_offset, marker_offset) in enumerate(rows):
        held.rows[i].producer_id = producer_id
        held.rows[i].first_offset = first_offset
        held.rows[i].marker_offset = marker_offset
    held.count = len(rows)
    qsort(held.rows, <size_t> held.count, sizeof(aborted_transaction), compare)
    return 0


cdef bint is_aborted(
    const aborted_transactions *held, const batch_header *header
) noexcept nogil:
    """Returns whether it lies in its producer's last aborted transaction at or before it."""
    cdef int64_t low = 0
    cdef int64_t high = held.count
    cdef int64_t middle
    cdef const aborted_transaction *row
    while low < high:
        middle = (low + high) // 2
        row = &held.rows[middle]
        if row.producer_id < header.producer_id or (
            row.producer_id == header.producer_id and row.first_offset <= header.base_offset
        ):
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return False
    row = &held.rows[low - 1]
    return row.producer_id == header.producer_id and header.base_offset < row.marker_offset
