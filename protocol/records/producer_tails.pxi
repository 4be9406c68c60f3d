# The producers of a run of batches: their last batches, their transactions; a part of batch_tally.pyx.


cdef enum:
    BATCHES_KEPT = 5
    # A marker, as `protocol/records/control_record.py` draws it.
    MARKER_KEY_SIZE = 4
    MARKER_VALUE_SIZE = 6
    MARKER_ABORT = 0
    MARKER_COMMIT = 1


cdef struct kept_batch:
    int64_t base_offset
    int64_t last_offset
    int32_t base_sequence
    int16_t producer_epoch
    bint is_marker


cdef struct ended_range:
    int64_t producer_id
    int64_t first_offset
    int64_t marker_offset
    # No marker of the producer precedes it: the transaction may have begun before these batches.
    bint is_first
    bint is_abort


# A producer with its last batches: number n is at index n % BATCHES_KEPT.
cdef struct producer_tail:
    int64_t producer_id
    int64_t batches_count
    # First offset of the transaction that is open at the end; -1 if none began here.
    int64_t open_since
    bint has_marker
    int32_t coordinator_epoch
    kept_batch batches[BATCHES_KEPT]


# Producers in the order of their first batches, and a hash table from ids to their indexes, plus 1.
cdef struct producer_tails:
    producer_tail *rows
    size_t count
    size_t room
    uint32_t *table
    size_t table_size
    uint64_t seed


cdef class ProducerBatch:
    cdef readonly:
        int64_t producer_id
        int64_t base_offset
        int64_t last_offset
        int32_t base_sequence
        int16_t producer_epoch
        bint is_marker

    @property
    def last_sequence(self):
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) & INT32_MAX


cdef inline void keep_batch(producer_tails *held, const batch_header *header) noexcept nogil:
    cdef producer_tail *producer = find_producer(held, header.producer_id)
    cdef kept_batch *batch
    cdef bint is_marker = header.attributes & ATTRIBUTE_CONTROL != 0
    if (
        not is_marker
        and header.attributes & ATTRIBUTE_TRANSACTIONAL
        and producer.open_since < 0
    ):
        producer.open_since = header.base_offset
    if is_marker and producer.batches_count > 0:
        batch = &producer.batches[(producer.batches_count - 1) % BATCHES_KEPT]
        if header.producer_epoch <= batch.producer_epoch:
            return
    batch = &producer.batches[producer.batches_count % BATCHES_KEPT]
    batch.is_marker = is_marker
    batch.base_offset = header.base_offset
    batch.last_offset = header.last_offset
    batch.base_sequence = header.base_sequence
    batch.producer_epoch = header.producer_epoch
    producer.batches_count += 1


cdef inline bint end_transaction(
    producer_tails *held,
    const batch_header *header,
    const uint8_t *batch,
    bint keeps_commits,
    ended_range *found,
) noexcept nogil:
    """Process a marker. Returns whether it fills `found`: the offsets between which it ended a transaction.

    A marker without a record is an empty batch that the cleaner left of one.
    """
    cdef producer_tail *producer = find_producer(held, header.producer_id)
    cdef record_view record
    cdef int16_t kind = MARKER_COMMIT
    cdef const uint8_t *at = batch + BATCH_HEADER_SIZE
    cdef bint has_ended
    # Without a batch here, an earlier transaction may be open, unless a marker has ended it.
    cdef bint may_be_open = producer.open_since >= 0 or not producer.has_marker
    if (
        header.record_count > 0
        and header.attributes & ATTRIBUTE_CODEC_MASK == 0
        and read_record(&at, batch + header.size, &record) == RECORD_OK
        and record.key_size >= MARKER_KEY_SIZE
        and record.value_size >= MARKER_VALUE_SIZE
    ):
        kind = load_int16(record.key + 2)
        if kind == MARKER_ABORT or kind == MARKER_COMMIT:
            producer.coordinator_epoch = max(
                producer.coordinator_epoch, load_int32(record.value + 2)
            )
    has_ended = may_be_open and (kind == MARKER_ABORT or keeps_commits)
    if has_ended:
        found.producer_id = header.producer_id
        found.first_offset = producer.open_since
        found.marker_offset = header.last_offset
        found.is_first = not producer.has_marker
        found.is_abort = kind == MARKER_ABORT
    producer.open_since, producer.has_marker = -1, True
    return has_ended


cdef inline producer_tail *find_producer(producer_tails *held, int64_t producer_id) noexcept nogil:
    """Returns the producer's entry, a new one if it has none; the table always has space."""
    cdef size_t slot = slot_of(held, producer_id)
    cdef producer_tail *producer
    while held.table[slot] != 0:
        producer = &held.rows[held.table[slot] - 1]
        if producer.producer_id == producer_id:
            return producer
        slot = (slot + 1) & (held.table_size - 1)
    producer = &held.rows[held.count]
    producer.producer_id = producer_id
    producer.batches_count = 0
    producer.open_since, producer.has_marker = -1, False
    producer.coordinator_epoch = -1
    held.count += 1
    held.table[slot] = <uint32_t> held.count
    return producer


cdef inline size_t slot_of(const producer_tails *held, int64_t producer_id) noexcept nogil:
    cdef uint64_t mixed = (<uint64_t> producer_id ^ (held.seed >> 7)) * held.seed
    mixed = (mixed ^ (mixed >> 29)) * <uint64_t> 0x9E3779B97F4A7C15
    return <size_t> (mixed >> 32) & (held.table_size - 1)


cdef int make_room_for_producers(producer_tails *held, size_t count) except -1:
    """Reserve the space to find `count` producers without an allocation."""
    cdef size_t slots = max(held.table_size, <size_t> 1024)
    if count > held.room:
        held.room = 0
        held.rows = <producer_tail *> grown(held.rows, 2 * count, sizeof(producer_tail))
        held.room = 2 * count
    while slots < 2 * count:
        slots *= 2
    if slots > held.table_size:
        held.table = <uint32_t *> grown(held.table, slots, sizeof(uint32_t))
        held.table_size = slots
        fill_table(held)
    return 0


cdef void fill_table(producer_tails *held) noexcept:
    cdef size_t index, slot
    memset(held.table, 0, held.table_size * sizeof(uint32_t))
    for index in range(held.count):
        slot = slot_of(held, held.rows[index].producer_id)
        while held.table[slot] != 0:
            slot = (slot + 1) & (held.table_size - 1)
        held.table[slot] = <uint32_t> (index + 1)


cdef list last_batches_of(const producer_tails *held):
    cdef list found = []
    cdef const producer_tail *producer
    cdef const kept_batch *batch
    cdef ProducerBatch handed
    cdef size_t index
    cdef int64_t number
    for index in range(held.count):
        producer = &held.rows[index]
        number = max(producer.batches_count - BATCHES_KEPT, 0)
        while number < producer.batches_count:
            batch = &producer.batches[number % BATCHES_KEPT]
            handed = ProducerBatch.__new__(ProducerBatch)
            handed.producer_id = producer.producer_id
            handed.base_offset = batch.base_offset
            handed.last_offset = batch.last_offset
            handed.base_sequence = batch.base_sequence
            handed.producer_epoch = batch.producer_epoch
            handed.is_marker = batch.is_marker
            found.append(handed)
            number += 1
    return found


cdef list transactions_of(const producer_tails *held):
    cdef size_t index
    return [
        (
            held.rows[index].producer_id,
            held.rows[index].open_since,
            held.rows[index].has_marker,
            held.rows[index].coordinator_epoch,
        )
        for index in range(held.count)
        if held.rows[index].open_since >= 0 or held.rows[index].has_marker
    ]
