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
    OUT_OF_ORDER = BATCH_BAD_HEADER + 1
    FULL = BATCH_BAD_HEADER + 2
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12


cdef struct epoch_start:
    int64_t start_offset
    int64_t epoch


cdef void *grown(void *memory, size_t count, size_t item_bytes) except NULL:
    cdef void *moved = realloc(memory, count * item_bytes)
    if moved == NULL:
        raise MemoryError
    return moved


include "producer_tails.pxi"


@cython.final
cdef class BatchTally:
    cdef readonly:
        int64_t position
        int64_t end_offset
        int64_t record_count
        int64_t control_count
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
        producer_tails producers

    def __cinit__(self):
        self.entry_offsets = self.entry_positions = self.entry_time_offsets = NULL
        self.entry_times = NULL
        self.epoch_starts = NULL
        self.ended_ranges = NULL
        self.producers.rows = NULL
        self.producers.table = NULL

    def __dealloc__(self):
        free(self.entry_offsets)
        free(self.entry_positions)
        free(self.entry_times)
        free(self.entry_time_offsets)
        free(self.epoch_starts)
        free(self.ended_ranges)
        free(self.producers.rows)
        free(self.producers.table)

    def __init__(
        self,
        *,
        int64_t base_offset,
        int64_t index_interval_bytes,
        int64_t position=0,
        end_offset=None,
        int64_t record_count=0,
        int64_t control_count=0,
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
        self.control_count = control_count
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
        self.producers.seed = (<uint64_t> <int64_t> hash("producer ids")) | 1

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
        return self.producers.count > 0

    @property
    def aborted(self):
        return [each[:4] for each in self.ended if each[4]]

    @property
    def index_entries(self):
        return bytes(self.offsets), bytes(self.positions), bytes(self.times), bytes(self.time_offsets)

    def last_batches(self):
        return last_batches_of(&self.producers)

    def transactions(self):
        return transactions_of(&self.producers)

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
            keep_batch(&self.producers, header)
        self.bytes_since_entry += header.size
        self.position += header.size
        self.end_offset = header.last_offset + 1
        self.record_count += header.record_count
        if header.attributes & ATTRIBUTE_CONTROL:
            self.control_count += header.record_count

    # A method, because the compiler would inline a function into the walk, which then takes 25 % longer.
    cdef void end_transaction(
        self, const batch_header *header, const uint8_t *batch
    ) noexcept nogil:
        self.ended_count += end_transaction(
            &self.producers,
            header,
            batch,
            self.keeps_commits,
            &self.ended_ranges[self.ended_count],
        )

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
            make_room_for_producers(&self.producers, self.producers.count + batches)
        return 0


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
