# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""Compiled sums over long runs of batches. `batch_tally.pyi` is the contract.

The walk over a chunk runs without the GIL and without an allocation: space for as many results as the
chunk's bytes can yield is reserved before the walk.
"""

cimport cython
from libc.stdint cimport (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint32_t,
    uint64_t,
)
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from protocol.records.batch_scan import StopReason
from protocol.records.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_BAD_CRC,
    BATCH_BAD_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    batch_crc,
    batch_header,
    load_int16,
    load_int32,
    read_batch_header,
    read_record,
    record_view,
)

cdef enum:
    BATCHES_KEPT = 5
    OUT_OF_ORDER = BATCH_BAD_HEADER + 1
    FULL = BATCH_BAD_HEADER + 2
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    # A marker, as `protocol/records/control_record.py` draws it.
    MARKER_KEY_SIZE = 4
    MARKER_VALUE_SIZE = 6
    MARKER_ABORT = 0
    MARKER_COMMIT = 1


cdef struct epoch_start:
    int64_t start_offset
    int64_t epoch


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


cdef void *grown(void *memory, size_t count, size_t item_bytes) except NULL:
    cdef void *moved = realloc(memory, count * item_bytes)
    if moved == NULL:
        raise MemoryError
    return moved


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


@cython.final
cdef class BatchTally:
    cdef readonly:
        int64_t position
        int64_t end_offset
        int64_t record_count
        int64_t max_timestamp
        int64_t offset_of_max_timestamp
        int64_t bytes_since_entry
        list epochs
        list ended
    cdef:
        int64_t base_offset
        int64_t index_interval_bytes
        int64_t producers_from
        # Bounds of a segment that is appended to; `size_max` is INT64_MAX without them.
        int64_t size_max
        int64_t index_bytes_max
        int64_t offset_entries
        int64_t all_time_entries
        bint checks_crc
        bint keeps_commits
        int64_t time_indexed
        bint has_time_entry
        int64_t latest_epoch
        # Results of the walk over the current chunk.
        size_t room
        int32_t *entry_offsets
        int32_t *entry_positions
        int64_t *entry_times
        int32_t *entry_time_offsets
        epoch_start *epoch_starts
        ended_range *ended_ranges
        size_t entries
        size_t time_entries
        size_t epoch_count
        size_t ended_count
        # Results of earlier chunks.
        bytearray offsets
        bytearray positions
        bytearray times
        bytearray time_offsets
        # Producers in the order of their first batches, and a hash table from ids to their indexes.
        producer_tail *producers
        size_t producers_count
        size_t producers_room
        uint32_t *table
        size_t table_size
        uint64_t seed

    def __cinit__(self):
        self.entry_offsets = self.entry_positions = self.entry_time_offsets = NULL
        self.entry_times = NULL
        self.epoch_starts = NULL
        self.ended_ranges = NULL
        self.producers = NULL
        self.table = NULL

    def __dealloc__(self):
        free(self.entry_offsets)
        free(self.entry_positions)
        free(self.entry_times)
        free(self.entry_time_offsets)
        free(self.epoch_starts)
        free(self.ended_ranges)
        free(self.producers)
        free(self.table)

    def __init__(
        self,
        *,
        int64_t base_offset,
        int64_t index_interval_bytes,
        int64_t position=0,
        end_offset=None,
        int64_t record_count=0,
        int64_t max_timestamp=-1,
        int64_t offset_of_max_timestamp=-1,
        int64_t bytes_since_entry=0,
        last_entry_timestamp=None,
        int64_t producers_from=0,
        int64_t size_max=INT64_MAX,
        int64_t index_bytes_max=INT64_MAX,
        int64_t offset_entries=0,
        int64_t time_entries=0,
        bint checks_crc=True,
        bint keeps_commits=False,
    ):
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.producers_from = producers_from
        self.size_max = size_max
        self.index_bytes_max = index_bytes_max
        self.offset_entries = offset_entries
        self.all_time_entries = time_entries
        self.checks_crc = checks_crc
        self.keeps_commits = keeps_commits
        self.position = position
        self.end_offset = base_offset if end_offset is None else end_offset
        self.record_count = record_count
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.bytes_since_entry = bytes_since_entry
        self.has_time_entry = last_entry_timestamp is not None
        self.time_indexed = last_entry_timestamp if self.has_time_entry else 0
        self.latest_epoch = INT64_MIN
        self.epochs = []
        self.ended = []
        self.offsets, self.positions = bytearray(), bytearray()
        self.times, self.time_offsets = bytearray(), bytearray()
        # Strings hash differently in each process, so no client can choose ids that collide.
        self.seed = (<uint64_t> <int64_t> hash("producer ids")) | 1

    def feed(self, const uint8_t[::1] chunk not None):
        cdef const uint8_t *start
        cdef const uint8_t *stopped
        cdef Py_ssize_t size = chunk.shape[0]
        cdef int status = BATCH_OK
        if size == 0:
            return StopReason.END
        self.make_room(<size_t> size // BATCH_HEADER_SIZE + 1)
        start = &chunk[0]
        with nogil:
            status = self.walk(start, start + size, &stopped)
        self.collect()
        return StopReason(status)

    @property
    def has_producers(self):
        return self.producers_count > 0

    @property
    def aborted(self):
        return [each[:4] for each in self.ended if each[4]]

    @property
    def index_entries(self):
        return bytes(self.offsets), bytes(self.positions), bytes(self.times), bytes(self.time_offsets)

    def last_batches(self):
        cdef list found = []
        cdef producer_tail *producer
        cdef kept_batch *batch
        cdef ProducerBatch handed
        cdef size_t index
        cdef int64_t number
        for index in range(self.producers_count):
            producer = &self.producers[index]
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

    def transactions(self):
        cdef size_t index
        return [
            (
                self.producers[index].producer_id,
                self.producers[index].open_since,
                self.producers[index].has_marker,
                self.producers[index].coordinator_epoch,
            )
            for index in range(self.producers_count)
            if self.producers[index].open_since >= 0 or self.producers[index].has_marker
        ]

    # ------------------------------------------------------------ one chunk

    cdef int walk(
        self, const uint8_t *at, const uint8_t *end, const uint8_t **stopped
    ) noexcept nogil:
        """Read batches up to the first that is not whole, valid and in order. Returns why it stopped."""
        cdef batch_header header
        cdef int status = BATCH_OK
        while at < end:
            status = read_batch_header(at, end, &header)
            # The header counts as contradictory only if its CRC is right; otherwise it is damaged.
            if status == BATCH_OK or status == BATCH_BAD_HEADER:
                if self.checks_crc and batch_crc(at, header.size) != header.crc:
                    status = BATCH_BAD_CRC
            if status == BATCH_OK and not self.follows(&header):
                status = OUT_OF_ORDER
            if status == BATCH_OK and self.is_full(&header):
                status = FULL
            if status != BATCH_OK:
                break
            self.take(&header, at)
            at += header.size
        stopped[0] = at
        return status

    cdef inline bint follows(self, const batch_header *header) noexcept nogil:
        """Returns whether a batch is valid here: offsets grow, within the span of the segment's base."""
        return (
            header.base_offset >= self.end_offset
            and header.last_offset < INT64_MAX
            and (self.size_max < INT64_MAX or header.last_offset - self.base_offset <= INT32_MAX)
        )

    cdef inline bint is_full(self, const batch_header *header) noexcept nogil:
        """Returns whether a batch must go into a new segment, as `storage/log/roll.py` decides it."""
        if self.size_max == INT64_MAX:
            return False
        if header.last_offset - self.base_offset > INT32_MAX:
            return True
        return self.position > 0 and (
            self.position + header.size > self.size_max
            or self.offset_entries * OFFSET_ENTRY_BYTES >= self.index_bytes_max
            or self.all_time_entries * TIME_ENTRY_BYTES >= self.index_bytes_max
        )

    cdef inline void take(self, const batch_header *header, const uint8_t *batch) noexcept nogil:
        if header.record_count > 0 and header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.offset_of_max_timestamp = header.last_offset
        if self.bytes_since_entry > self.index_interval_bytes:
            self.add_entry(header)
            self.bytes_since_entry = 0
        if header.leader_epoch > self.latest_epoch:
            self.latest_epoch = header.leader_epoch
            self.epoch_starts[self.epoch_count].epoch = header.leader_epoch
            self.epoch_starts[self.epoch_count].start_offset = header.base_offset
            self.epoch_count += 1
        if header.producer_id >= 0 and header.base_offset >= self.producers_from:
            if header.attributes & ATTRIBUTE_CONTROL:
                self.end_transaction(header, batch)
            self.keep_batch(header)
        self.bytes_since_entry += header.size
        self.position += header.size
        self.end_offset = header.last_offset + 1
        self.record_count += header.record_count

    cdef inline void add_entry(self, const batch_header *header) noexcept nogil:
        if self.position > INT32_MAX:
            return
        self.entry_offsets[self.entries] = <int32_t> (header.last_offset - self.base_offset)
        self.entry_positions[self.entries] = <int32_t> self.position
        self.entries += 1
        self.offset_entries += 1
        if self.has_time_entry and self.max_timestamp <= self.time_indexed:
            return
        self.entry_times[self.time_entries] = self.time_indexed = self.max_timestamp
        self.entry_time_offsets[self.time_entries] = <int32_t> max(
            self.offset_of_max_timestamp - self.base_offset, 0
        )
        self.has_time_entry = True
        self.time_entries += 1
        self.all_time_entries += 1

    cdef inline void keep_batch(self, const batch_header *header) noexcept nogil:
        cdef producer_tail *producer = self.find_producer(header.producer_id)
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

    cdef inline void end_transaction(
        self, const batch_header *header, const uint8_t *batch
    ) noexcept nogil:
        """Process a marker. One without a record is an empty batch that the cleaner left of a marker."""
        cdef producer_tail *producer = self.find_producer(header.producer_id)
        cdef ended_range *found
        cdef record_view record
        cdef int16_t kind = MARKER_COMMIT
        cdef const uint8_t *at = batch + BATCH_HEADER_SIZE
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
        if may_be_open and (kind == MARKER_ABORT or self.keeps_commits):
            found = &self.ended_ranges[self.ended_count]
            found.producer_id = header.producer_id
            found.first_offset = producer.open_since
            found.marker_offset = header.last_offset
            found.is_first = not producer.has_marker
            found.is_abort = kind == MARKER_ABORT
            self.ended_count += 1
        producer.open_since, producer.has_marker = -1, True

    cdef inline producer_tail *find_producer(self, int64_t producer_id) noexcept nogil:
        """Returns the producer's entry, a new one if it has none; the table always has space."""
        cdef size_t slot = self.slot_of(producer_id)
        cdef producer_tail *producer
        while self.table[slot] != 0:
            producer = &self.producers[self.table[slot] - 1]
            if producer.producer_id == producer_id:
                return producer
            slot = (slot + 1) & (self.table_size - 1)
        producer = &self.producers[self.producers_count]
        producer.producer_id = producer_id
        producer.batches_count = 0
        producer.open_since, producer.has_marker = -1, False
        producer.coordinator_epoch = -1
        self.producers_count += 1
        self.table[slot] = <uint32_t> self.producers_count
        return producer

    cdef inline size_t slot_of(self, int64_t producer_id) noexcept nogil:
        cdef uint64_t mixed = (<uint64_t> producer_id ^ (self.seed >> 7)) * self.seed
        mixed = (mixed ^ (mixed >> 29)) * <uint64_t> 0x9E3779B97F4A7C15
        return <size_t> (mixed >> 32) & (self.table_size - 1)

    # ------------------------------------------------------------ room

    cdef int collect(self) except -1:
        """Append the chunk's results to those of earlier chunks."""
        cdef size_t number
        self.offsets += (<char *> self.entry_offsets)[:self.entries * sizeof(int32_t)]
        self.positions += (<char *> self.entry_positions)[:self.entries * sizeof(int32_t)]
        self.times += (<char *> self.entry_times)[:self.time_entries * sizeof(int64_t)]
        self.time_offsets += (<char *> self.entry_time_offsets)[:self.time_entries * sizeof(int32_t)]
        for number in range(self.epoch_count):
            self.epochs.append(
                (self.epoch_starts[number].epoch, self.epoch_starts[number].start_offset)
            )
        for number in range(self.ended_count):
            self.ended.append(
                (
                    self.ended_ranges[number].producer_id,
                    self.ended_ranges[number].first_offset,
                    self.ended_ranges[number].marker_offset,
                    self.ended_ranges[number].is_first,
                    self.ended_ranges[number].is_abort,
                )
            )
        self.entries = self.time_entries = self.epoch_count = self.ended_count = 0
        return 0

    cdef int make_room(self, size_t batches) except -1:
        """Reserve the space to walk a chunk of at most `batches` batches without an allocation."""
        if batches > self.room:
            self.entry_offsets = <int32_t *> grown(self.entry_offsets, batches, sizeof(int32_t))
            self.entry_positions = <int32_t *> grown(self.entry_positions, batches, sizeof(int32_t))
            self.entry_times = <int64_t *> grown(self.entry_times, batches, sizeof(int64_t))
            self.entry_time_offsets = <int32_t *> grown(
                self.entry_time_offsets, batches, sizeof(int32_t)
            )
            self.epoch_starts = <epoch_start *> grown(
                self.epoch_starts, batches, sizeof(epoch_start)
            )
            self.ended_ranges = <ended_range *> grown(
                self.ended_ranges, batches, sizeof(ended_range)
            )
            self.room = batches
        if self.producers_from != INT64_MAX:
            self.make_room_for_producers(self.producers_count + batches)
        return 0

    cdef int make_room_for_producers(self, size_t count) except -1:
        cdef size_t slots = max(self.table_size, <size_t> 1024)
        if count > self.producers_room:
            self.producers_room = 0
            self.producers = <producer_tail *> grown(
                self.producers, 2 * count, sizeof(producer_tail)
            )
            self.producers_room = 2 * count
        while slots < 2 * count:
            slots *= 2
        if slots > self.table_size:
            self.table = <uint32_t *> grown(self.table, slots, sizeof(uint32_t))
            self.table_size = slots
            self.fill_table()
        return 0

    cdef void fill_table(self) noexcept:
        cdef size_t index, slot
        memset(self.table, 0, self.table_size * sizeof(uint32_t))
        for index in range(self.producers_count):
            slot = self.slot_of(self.producers[index].producer_id)
            while self.table[slot] != 0:
                slot = (slot + 1) & (self.table_size - 1)
            self.table[slot] = <uint32_t> (index + 1)


def sound_offset_entries(
    const int32_t[::1] offsets not None, const int32_t[::1] positions not None, *, int64_t span, int64_t size
):
    cdef Py_ssize_t count = min(offsets.shape[0], positions.shape[0])
    cdef int64_t last_offset = -1
    cdef int64_t last_position = -1
    cdef Py_ssize_t at = 0
    with nogil:
        while at < count and last_offset < offsets[at] < span and last_position < positions[at] < size:
            last_offset, last_position = offsets[at], positions[at]
            at += 1
    return at


def sound_time_entries(
    const int64_t[::1] timestamps not None, const int32_t[::1] offsets not None, *, int64_t span
):
    cdef Py_ssize_t count = min(timestamps.shape[0], offsets.shape[0])
    cdef int64_t last_offset = 0
    cdef Py_ssize_t at = 0
    with nogil:
        while at < count and last_offset <= offsets[at] < span:
            if at > 0 and timestamps[at] <= timestamps[at - 1]:
                break
            last_offset = offsets[at]
            at += 1
    return at
