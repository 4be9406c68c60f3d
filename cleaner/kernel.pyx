# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The per-record work of a cleaning pass; `kernel.pyi` says what it offers, `retain.py` the rule.

Reading order: `next_batch` cuts and checks one batch; `map_batch` puts its keys into the map;
`BatchFilter.judge_batch` finds the runs of records that survive, `write_judged` appends what
remains, `commit` keeps the books.

Both passes hash a record, prefetch its slot, and look at the slot only WINDOW records later, when
it has arrived from memory. A record is read by `read_record` of record_format.h, which checks every
bound; no pointer moves but by what it read.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport bsearch, calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memmove, memset

from cleaner.digest cimport (
    kp_digest_add,
    kp_digest_copied,
    kp_digest_header,
    kp_digest_record,
    kp_hash128,
    kp_xxh3,
)
from protocol.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_BAD_LENGTH,
    BATCH_BAD_MAGIC,
    BATCH_BASE_OFFSET,
    BATCH_CUT,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    batch_crc,
    batch_header,
    load_int16,
    load_int64,
    read_batch_header,
    read_record,
    record_status_text,
    record_view,
    restamped_size,
    write_batch_header,
    write_record_restamped,
)

from cleaner.retain import AbortedTransaction, Verdict
from cleaner.step import (
    FilterStep,
    GroupAccount,
    MapStep,
    MapStop,
    MapTally,
    SegmentSummary,
    VerdictCount,
    WalkStep,
)
from protocol.compression import Codec, compress, decompress
from protocol.errors import CorruptBatch, DecompressionTooLarge

cdef extern from "siphash.h" nogil:
    ctypedef struct kp_sip_key:
        pass
    ctypedef struct kp_sip_hash:
        uint64_t low
        uint64_t high
    kp_sip_key kp_sip_key_of(const uint8_t *secret)
    kp_sip_hash kp_sip128(const kp_sip_key *key, const uint8_t *data, size_t size)
    void kp_sip_store64(uint8_t *to, uint64_t word)

cdef extern from "offset_slots.h" nogil:
    ctypedef struct kp_slot:
        pass
    ctypedef struct kp_offset_slots:
        kp_slot *slots
        size_t slot_count
        size_t home_count
        size_t size
        uint64_t offset_sum
    ctypedef struct kp_tally:
        uint64_t count
        uint64_t sum
    enum:
        KP_PUT_FULL
    size_t kp_slots_spill(size_t slot_count)
    int kp_slots_map(kp_offset_slots *slots)
    int kp_slots_clear(kp_offset_slots *slots, size_t home_count)
    void kp_slots_unmap(kp_offset_slots *slots)
    void kp_slots_prefetch(const kp_offset_slots *slots, kp_sip_hash hash)
    int64_t kp_slots_get(const kp_offset_slots *slots, kp_sip_hash hash)
    int kp_slots_put(kp_offset_slots *slots, kp_sip_hash hash, int64_t offset)
    void kp_slots_tally(
        const kp_offset_slots *slots, const int64_t *bounds, size_t bound_count, kp_tally *tallies
    )

SLOT_BYTES = sizeof(kp_slot)

cdef enum:
    # Records between the prefetch of a slot and the look at it; a power of two.
    WINDOW = 32
    VERDICT_COUNT = 10
    RECORD_BYTES_MIN = 7
    CODEC_MAX = 4
    INDEX_ENTRY_INTS = 4

# The verdicts' numbers inside the kernel: their places in `Verdict`.
cdef enum:
    KEPT_LATEST
    KEPT_UNMAPPED
    KEPT_TAIL
    KEPT_UNKEYED
    KEPT_MARKER
    DROPPED_SUPERSEDED
    DROPPED_TOMBSTONE
    DROPPED_UNKEYED
    DROPPED_ABORTED
    DROPPED_MARKER

VERDICTS = (
    Verdict.KEPT_LATEST,
    Verdict.KEPT_UNMAPPED,
    Verdict.KEPT_TAIL,
    Verdict.KEPT_UNKEYED,
    Verdict.KEPT_MARKER,
    Verdict.DROPPED_SUPERSEDED,
    Verdict.DROPPED_TOMBSTONE,
    Verdict.DROPPED_UNKEYED,
    Verdict.DROPPED_ABORTED,
    Verdict.DROPPED_MARKER,
)


# ------------------------------------------------------------------------------- offset map


cdef kp_sip_key sip_key_of(bytes hash_key) except *:
    if len(hash_key) != 16:
        raise ValueError(f"a hash key has 16 bytes, not {len(hash_key)}")
    return kp_sip_key_of(<const uint8_t *><const char *>hash_key)


def siphash128(bytes hash_key not None, const unsigned char[::1] data not None):
    cdef kp_sip_key key = sip_key_of(hash_key)
    cdef kp_sip_hash hashed = kp_sip128(&key, bytes_of(data), data.shape[0])
    cdef uint8_t[16] out
    kp_sip_store64(out, hashed.low)
    kp_sip_store64(out + 8, hashed.high)
    return PyBytes_FromStringAndSize(<const char *>out, 16)


def xxh3_128(const unsigned char[::1] data not None):
    return number_of(kp_xxh3(bytes_of(data), data.shape[0]))


cdef object number_of(kp_hash128 hashed):
    return hashed.low | <object>hashed.high << 64


cdef inline const uint8_t *bytes_of(const unsigned char[::1] view) noexcept nogil:
    # An empty view has no first element to take the address of.
    return &view[0] if view.shape[0] > 0 else NULL


cdef class OffsetMap:
    # Constant after construction
    cdef kp_sip_key key
    cdef double load_factor
    cdef size_t home_count_max
    # State: slots.size <= capacity_keys
    cdef kp_offset_slots slots
    cdef size_t capacity_keys
    cdef int64_t end

    def __cinit__(self, memory_bytes, bytes hash_key not None, double load_factor=0.9):
        self.slots.slots = NULL
        if not 0.0 < load_factor <= 0.95:
            raise ValueError(f"load factor {load_factor} is not in (0, 0.95]")
        if memory_bytes < 16 * sizeof(kp_slot):
            raise ValueError(f"{memory_bytes} bytes hold fewer than 16 slots")
        self.key = sip_key_of(hash_key)
        self.load_factor = load_factor
        self.slots.slot_count = memory_bytes // sizeof(kp_slot)
        self.home_count_max = self.slots.slot_count - kp_slots_spill(self.slots.slot_count)
        if kp_slots_map(&self.slots) != 0:
            raise MemoryError(f"no {memory_bytes} bytes for an offset map")
        self.clear()

    def __dealloc__(self):
        kp_slots_unmap(&self.slots)

    def clear(self, keys_max=None):
        cdef size_t home_count = self.home_count_max
        cdef size_t capacity = max(<size_t>1, <size_t>(self.home_count_max * self.load_factor))
        if keys_max is not None and keys_max < capacity:
            capacity = max(1, keys_max)
            home_count = min(home_count, <size_t>(capacity / self.load_factor) + 1)
        if kp_slots_clear(&self.slots, home_count) != 0:
            raise MemoryError("no fresh pages for an offset map")
        self.capacity_keys = capacity
        self.end = 0

    @property
    def memory_bytes(self):
        return self.slots.slot_count * sizeof(kp_slot)

    @property
    def capacity(self):
        return self.capacity_keys

    @property
    def size(self):
        return self.slots.size

    def __len__(self):
        return self.slots.size

    @property
    def end_offset(self):
        return self.end

    @end_offset.setter
    def end_offset(self, int64_t end_offset):
        self.end = end_offset

    def get(self, const unsigned char[::1] key not None):
        cdef int64_t offset
        offset = kp_slots_get(&self.slots, kp_sip128(&self.key, bytes_of(key), key.shape[0]))
        return None if offset < 0 else offset

    @property
    def tally(self):
        return MapTally(count=self.slots.size, offset_sum=self.slots.offset_sum)

    def tally_slots(self, bounds):
        cdef list limits = sorted(bounds)
        cdef Py_ssize_t count = len(limits)
        cdef Py_ssize_t i
        cdef kp_tally *tallies = <kp_tally *>calloc(count + 1, sizeof(kp_tally))
        cdef int64_t *at = <int64_t *>malloc(max(1, count) * sizeof(int64_t))
        try:
            if tallies == NULL or at == NULL:
                raise MemoryError("no memory to count the offset map's entries")
            for i in range(count):
                at[i] = limits[i]
            with nogil:
                kp_slots_tally(&self.slots, at, count, tallies)
            return tuple(
                MapTally(count=tallies[i].count, offset_sum=tallies[i].sum)
                for i in range(count + 1)
            )
        finally:
            free(tallies)
            free(at)

    def put(self, const unsigned char[::1] key not None, int64_t offset):
        cdef kp_sip_hash hashed = kp_sip128(&self.key, bytes_of(key), key.shape[0])
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        if self.slots.size >= self.capacity_keys and kp_slots_get(&self.slots, hashed) < 0:
            raise OverflowError(f"the offset map is full: {self.slots.size} keys")
        if kp_slots_put(&self.slots, hashed, offset) == KP_PUT_FULL:
            raise OverflowError("the offset map has no slot left")


# --------------------------------------------------------------------------- cutting batches


cdef int corrupt(int64_t position, int64_t base_offset, const char *what) except -1 nogil:
    with gil:
        raise CorruptBatch(
            f"record batch at position {position}, base offset {base_offset}: {what.decode()}"
        )


cdef int corrupt_record(
    int64_t position, int64_t base_offset, int64_t index, const char *what
) except -1 nogil:
    with gil:
        raise CorruptBatch(
            f"record batch at position {position}, base offset {base_offset}: "
            f"record {index} {what.decode()}"
        )


cdef int next_batch(
    const uint8_t *at, const uint8_t *end, int64_t position, batch_header *header, int64_t *needed
) except -1 nogil:
    """Read and verify the batch at `at`: 1, or 0 and the bytes it needs if it is not whole."""
    cdef int status
    cdef int64_t base_offset
    needed[0] = 0
    if at == end:
        return 0
    status = read_batch_header(at, end, header)
    if status == BATCH_CUT:
        needed[0] = header.size
        return 0
    base_offset = load_int64(at + BATCH_BASE_OFFSET)
    if status == BATCH_BAD_MAGIC:
        return corrupt(position, base_offset, b"its message format is not 2")
    if status == BATCH_BAD_LENGTH:
        return corrupt(position, base_offset, b"its length is less than a header's")
    if batch_crc(at, header.size) != header.crc:
        return corrupt(position, base_offset, b"its CRC differs from its bytes")
    if status != BATCH_OK or base_offset < 0:
        return corrupt(position, base_offset, b"its offsets or its record count are impossible")
    if header.attributes & ATTRIBUTE_CODEC_MASK > CODEC_MAX:
        return corrupt(position, base_offset, b"its compression type does not exist")
    return 1


cdef class Records:
    """The uncompressed records of one batch: inside the batch itself, or inflated."""

    cdef const uint8_t *start
    cdef const uint8_t *end
    cdef int64_t bytes_max
    # The chunk as an object: a codec's error may outlive the call, and so must what it refers to.
    cdef object chunk
    cdef const uint8_t *chunk_start
    cdef Py_buffer inflated
    cdef bint holds_inflated

    def __cinit__(self, int64_t bytes_max):
        self.bytes_max = bytes_max
        self.holds_inflated = False

    def __dealloc__(self):
        self.release()

    cdef int read_from(self, object chunk, const uint8_t *chunk_start) except -1:
        self.chunk = memoryview(chunk).cast("B")
        self.chunk_start = chunk_start
        return 0

    cdef int release(self) except -1:
        self.chunk = None
        return self.drop_inflated()

    cdef int drop_inflated(self) except -1:
        if self.holds_inflated:
            self.holds_inflated = False
            PyBuffer_Release(&self.inflated)
        return 0

    cdef int open(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        self.start = batch + BATCH_HEADER_SIZE
        self.end = batch + header.size
        if header.attributes & ATTRIBUTE_CODEC_MASK and header.record_count > 0:
            with gil:
                self.inflate(header, position)
        if header.record_count > (self.end - self.start) // RECORD_BYTES_MIN:
            return corrupt(
                position, header.base_offset, b"it counts more records than it has bytes"
            )
        return 0

    cdef int inflate(self, const batch_header *header, int64_t position) except -1:
        where = f"record batch at position {position}, base offset {header.base_offset}"
        compressed = self.chunk[self.start - self.chunk_start : self.end - self.chunk_start]
        self.drop_inflated()
        try:
            data = decompress(
                Codec(header.attributes & ATTRIBUTE_CODEC_MASK),
                compressed,
                bytes_max=self.bytes_max,
            )
        except CorruptBatch as error:
            raise CorruptBatch(f"{where}: {error}") from error
        except DecompressionTooLarge as error:
            error.add_note(where)
            raise
        PyObject_GetBuffer(data, &self.inflated, PyBUF_SIMPLE)
        self.holds_inflated = True
        self.start = <const uint8_t *>self.inflated.buf
        self.end = self.start + self.inflated.len
        return 0


cdef inline int next_record(
    Records records,
    const uint8_t **at,
    int32_t index,
    int32_t *last_delta,
    const batch_header *header,
    int64_t position,
    record_view *record,
) except -1 nogil:
    """Read record `index`; its offset must follow the one before and lie inside the batch."""
    cdef int status = read_record(at, records.end, record)
    if status != RECORD_OK:
        return corrupt_record(position, header.base_offset, index, record_status_text(status))
    if (
        record.offset_delta <= last_delta[0]
        or record.offset_delta > header.last_offset - header.base_offset
    ):
        return corrupt_record(position, header.base_offset, index, b"has an offset out of order")
    last_delta[0] = record.offset_delta
    return 0


cdef inline int check_end(
    Records records, const uint8_t *at, const batch_header *header, int64_t position
) except -1 nogil:
    if at != records.end:
        return corrupt(position, header.base_offset, b"it has bytes behind its last record")
    return 0


# ---------------------------------------------------------------------------- transactions


include "transactions.pxi"


# --------------------------------------------------------------------------------- mapping


cdef struct Mapping:
    kp_offset_slots *slots
    const kp_sip_key *key
    int64_t start_offset
    # Hashes whose slots are on their way from memory.
    kp_sip_hash[WINDOW] hashes
    int64_t[WINDOW] offsets
    uint32_t pending
    # What was read
    int64_t batches
    int64_t records
    int64_t tombstones
    int64_t unkeyed


cdef int put_pending(Mapping *mapping) except -1 nogil:
    cdef uint32_t i
    for i in range(mapping.pending):
        if kp_slots_put(mapping.slots, mapping.hashes[i], mapping.offsets[i]) == KP_PUT_FULL:
            with gil:
                raise OverflowError("the offset map has no slot left")
    mapping.pending = 0
    return 0


cdef int map_batch(
    Mapping *mapping, Records records, const batch_header *header, int64_t position
) except -1 nogil:
    cdef const uint8_t *at = records.start
    cdef record_view record
    cdef int32_t last_delta = -1
    cdef int32_t i
    cdef kp_sip_hash hashed
    for i in range(header.record_count):
        next_record(records, &at, i, &last_delta, header, position, &record)
        if record.key_size < 0:
            mapping.unkeyed += 1
            continue
        mapping.tombstones += record.value_size < 0
        if header.base_offset + record.offset_delta < mapping.start_offset:
            continue
        hashed = kp_sip128(mapping.key, record.key, <size_t>record.key_size)
        kp_slots_prefetch(mapping.slots, hashed)
        mapping.hashes[mapping.pending] = hashed
        mapping.offsets[mapping.pending] = header.base_offset + record.offset_delta
        mapping.pending += 1
        if mapping.pending == WINDOW:
            put_pending(mapping)
    mapping.records += header.record_count
    return check_end(records, at, header, position)


cdef enum:
    STOP_NEED_MORE
    STOP_END
    STOP_FULL
    STOP_TRANSACTION

MAP_STOPS = (MapStop.NEED_MORE, MapStop.END, MapStop.FULL, MapStop.TRANSACTION)


cdef int map_chunk(
    Mapping *mapping,
    OffsetMap offset_map,
    Transactions transactions,
    Records records,
    const uint8_t **at,
    const uint8_t *end,
    int64_t end_offset,
    int64_t position,
    int64_t *needed,
) except -1 nogil:
    cdef const uint8_t *start = at[0]
    cdef batch_header header
    cdef int64_t batch_position
    while offset_map.end < end_offset:
        batch_position = position + (at[0] - start)
        if not next_batch(at[0], end, batch_position, &header, needed):
            return STOP_NEED_MORE
        if header.last_offset >= end_offset:
            return STOP_END
        if header.last_offset < mapping.start_offset:
            pass
        elif transactions is None and header.attributes & ATTRIBUTE_TRANSACTIONAL:
            return STOP_TRANSACTION
        elif not header.attributes & ATTRIBUTE_CONTROL and not is_aborted_batch(
            transactions, &header
        ):
            if not has_room(mapping, offset_map, header.record_count):
                return STOP_FULL
            records.open(at[0], &header, batch_position)
            map_batch(mapping, records, &header, batch_position)
        mapping.batches += 1
        at[0] += header.size
        offset_map.end = max(offset_map.end, header.last_offset + 1)
    return STOP_END


cdef bint has_room(Mapping *mapping, OffsetMap offset_map, int64_t records) except -1 nogil:
    """Whether the map can take `records` more keys, were they all new."""
    cdef int64_t capacity = <int64_t>offset_map.capacity_keys
    if capacity - <int64_t>offset_map.slots.size - mapping.pending >= records:
        return True
    put_pending(mapping)
    return capacity - <int64_t>offset_map.slots.size >= records


def map_batches(
    chunk not None,
    OffsetMap offset_map not None,
    *,
    int64_t start_offset,
    int64_t end_offset,
    int64_t decompressed_bytes_max,
    int64_t position=0,
    Transactions transactions=None,
):
    cdef Mapping mapping
    cdef Records records = Records(decompressed_bytes_max)
    cdef const unsigned char[::1] view = chunk
    cdef const uint8_t *start = bytes_of(view)
    cdef const uint8_t *at = start
    cdef const uint8_t *end = start + view.shape[0]
    cdef int64_t needed = 0
    cdef int stop
    memset(&mapping, 0, sizeof(mapping))
    mapping.slots = &offset_map.slots
    mapping.key = &offset_map.key
    mapping.start_offset = start_offset
    offset_map.end = max(offset_map.end, start_offset)
    records.read_from(chunk, start)
    with nogil:
        stop = map_chunk(
            &mapping, offset_map, transactions, records, &at, end, end_offset, position, &needed
        )
        put_pending(&mapping)
    return MapStep(
        stop=MAP_STOPS[stop],
        consumed_bytes=at - start,
        needed_bytes=needed if stop == STOP_NEED_MORE else 0,
        batches=mapping.batches,
        records=mapping.records,
        tombstones=mapping.tombstones,
        unkeyed=mapping.unkeyed,
    )


# ------------------------------------------------------------------------------- filtering


cdef struct Run:
    # Neighbouring records that survive: [start, end) of the uncompressed records.
    const uint8_t *start
    const uint8_t *end


cdef struct Judged:
    # What of one batch survives.
    Run *runs
    size_t run_count
    size_t run_capacity
    int64_t kept_bytes
    int32_t kept
    int32_t tombstones
    # A control batch: whether it ends a transaction, and lost its reason in this pass.
    bint is_marker
    bint is_idle_marker
    int64_t max_timestamp
    int64_t[VERDICT_COUNT] records
    int64_t[VERDICT_COUNT] bytes
    # What is written is the batch itself.
    bint is_copied
    uint64_t kept_offset_sum
    # Entries of the map that are records of this batch.
    kp_tally met
    # Records whose keys the map should know at their offset or a later one, and does not.
    int64_t unknown


cdef struct Account:
    # What must remain of a group of segments, told from its source; see GroupAccount.
    kp_hash128 digest
    int64_t batches
    uint8_t *rebuilt
    size_t rebuilt_capacity
    kp_tally rebuilt_records
    int64_t copied_tombstones
    int64_t copied_horizon_min
    int64_t records_read
    int64_t[VERDICT_COUNT] records
    kp_tally met
    int64_t unknown


cdef struct Awaited:
    # A record whose slot is on its way from memory.
    kp_sip_hash hash
    const uint8_t *start
    const uint8_t *end
    int64_t offset
    int64_t timestamp
    bint has_key
    bint has_value


cdef struct Output:
    uint8_t *data
    size_t size
    size_t capacity


cdef struct IndexEntries:
    int64_t *ints
    size_t count
    size_t capacity


cdef struct Segment:
    int64_t base_offset
    int64_t size
    int64_t end_offset
    int64_t batches
    int64_t records
    int64_t tombstones
    int64_t delete_horizon_min
    int64_t max_timestamp
    int64_t max_timestamp_offset
    int64_t bytes_since_entry
    bint has_unlooked


cdef void *grown(
    void *memory, size_t *capacity, size_t wanted, size_t item_bytes
) except NULL nogil:
    """Memory for at least `wanted` items with the content of `memory`, which is no more valid."""
    cdef size_t count = max(wanted, max(2 * capacity[0], <size_t>64))
    cdef void *moved = realloc(memory, count * item_bytes)
    if moved == NULL:
        with gil:
            raise MemoryError(f"no {count * item_bytes} bytes for the cleaner")
    capacity[0] = count
    return moved


cdef inline int reserve(Output *output, size_t more) except -1 nogil:
    if output.capacity - output.size < more:
        output.data = <uint8_t *>grown(output.data, &output.capacity, output.size + more, 1)
    return 0


cdef inline int keep_run(Judged *judged, const uint8_t *start, const uint8_t *end) except -1 nogil:
    if judged.run_count > 0 and judged.runs[judged.run_count - 1].end == start:
        judged.runs[judged.run_count - 1].end = end
        return 0
    if judged.run_count == judged.run_capacity:
        judged.runs = <Run *>grown(
            judged.runs, &judged.run_capacity, judged.run_count + 1, sizeof(Run)
        )
    judged.runs[judged.run_count] = Run(start, end)
    judged.run_count += 1
    return 0


cdef inline int64_t wrapping_add(int64_t a, int64_t b) noexcept nogil:
    # A peer chooses timestamps; like Java's, their sums wrap.
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline int64_t wrapping_subtract(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a - <uint64_t>b)


cdef inline void add_tally(kp_tally *to, const kp_tally *tally) noexcept nogil:
    to.count += tally.count
    to.sum += tally.sum


cdef int compare_offsets(const void *a, const void *b) noexcept nogil:
    cdef int64_t left = (<const int64_t *>a)[0]
    cdef int64_t right = (<const int64_t *>b)[0]
    return (left > right) - (left < right)


cdef class BatchFilter:
    # Constant after construction
    cdef OffsetMap offset_map
    cdef int64_t end_offset
    cdef int64_t tail_offset
    cdef int64_t now_ms
    cdef int64_t new_horizon_ms
    cdef int64_t index_interval_bytes
    cdef int64_t segment_bytes_max
    cdef bint keeps_unkeyed
    cdef int64_t start_offset
    cdef bint is_verified
    cdef int64_t *producer_offsets
    cdef size_t producer_offset_count
    cdef ProducerTable marker_epochs
    cdef Transactions transactions
    cdef bint stamps_markers
    # State: what was decided, and the output segment it went to
    cdef bint has_segment
    # Producers of whose transaction, since their last marker, a batch was kept.
    cdef ProducerTable remaining
    cdef int64_t last_offset_read
    cdef Segment current
    cdef int64_t[VERDICT_COUNT] total_records
    cdef int64_t[VERDICT_COUNT] total_bytes
    cdef Account group
    # Of one feed, reused
    cdef Records records
    cdef Judged judged
    cdef Output output
    cdef Output rebuilt
    cdef IndexEntries entries
    cdef int64_t batches_read
    cdef int64_t batches_kept
    cdef int64_t records_read
    cdef int64_t records_kept
    cdef int64_t first_base_offset
    cdef int64_t last_offset_kept
    cdef int64_t next_base_offset

    def __cinit__(
        self,
        OffsetMap offset_map not None,
        *,
        int64_t end_offset,
        int64_t tail_offset,
        int64_t now_ms,
        int64_t delete_retention_ms,
        int64_t decompressed_bytes_max,
        producer_last_offsets=(),
        int64_t index_interval_bytes=4096,
        int64_t segment_bytes_max=INT32_MAX,
        bint keeps_unkeyed=False,
        producer_marker_epochs=None,
        Transactions transactions=None,
        bint stamps_markers=False,
        int64_t start_offset=0,
        bint is_verified=False,
    ):
        if end_offset > offset_map.end:
            raise ValueError(f"the map ends at {offset_map.end}, before {end_offset}")
        if min(now_ms, delete_retention_ms, index_interval_bytes, segment_bytes_max) < 0:
            raise ValueError("a time or a number of bytes is negative")
        self.offset_map = offset_map
        self.end_offset = end_offset
        self.tail_offset = tail_offset
        self.now_ms = now_ms
        # A retention of "for ever" must not overflow into the past.
        self.new_horizon_ms = now_ms + min(delete_retention_ms, INT64_MAX - now_ms)
        self.index_interval_bytes = index_interval_bytes
        self.segment_bytes_max = segment_bytes_max
        self.keeps_unkeyed = keeps_unkeyed
        self.transactions = transactions
        self.stamps_markers = stamps_markers
        self.start_offset = start_offset
        self.is_verified = is_verified
        self.records = Records(decompressed_bytes_max)
        self.last_offset_read = -1
        self.take_producers(sorted(set(producer_last_offsets)))
        for producer_id, epoch in (producer_marker_epochs or {}).items():
            put_row(&self.marker_epochs, producer_id, epoch)

    cdef int take_producers(self, list last_offsets) except -1:
        cdef Py_ssize_t i
        self.producer_offsets = <int64_t *>malloc(max(1, len(last_offsets)) * sizeof(int64_t))
        if self.producer_offsets == NULL:
            raise MemoryError("no memory for the producers' last offsets")
        for i in range(len(last_offsets)):
            self.producer_offsets[i] = last_offsets[i]
        self.producer_offset_count = len(last_offsets)
        return 0

    def __dealloc__(self):
        free(self.producer_offsets)
        free(self.marker_epochs.rows)
        free(self.remaining.rows)
        free(self.judged.runs)
        free(self.group.rebuilt)
        free(self.output.data)
        free(self.rebuilt.data)
        free(self.entries.ints)

    def start_group(self):
        cdef Account fresh
        memset(&fresh, 0, sizeof(Account))
        fresh.copied_horizon_min = -1
        fresh.rebuilt, fresh.rebuilt_capacity = self.group.rebuilt, self.group.rebuilt_capacity
        self.group = fresh

    @property
    def account(self):
        return GroupAccount(
            digest=number_of(self.group.digest),
            batches=self.group.batches,
            rebuilt=(<const char *>self.group.rebuilt)[: (self.group.batches + 7) // 8]
            if self.is_verified and self.group.batches > 0 else b"",
            rebuilt_records=self.group.rebuilt_records.count,
            rebuilt_offset_sum=self.group.rebuilt_records.sum,
            copied_tombstones=self.group.copied_tombstones,
            copied_horizon_ms_min=self.group.copied_horizon_min,
            records_read=self.group.records_read,
            records_by_verdict={
                verdict: self.group.records[i] for i, verdict in enumerate(VERDICTS)
            },
            met=MapTally(count=self.group.met.count, offset_sum=self.group.met.sum),
            unknown=self.group.unknown,
        )

    def start_segment(self, int64_t base_offset):
        if base_offset < 0:
            raise ValueError(f"base offset {base_offset} is negative")
        memset(&self.current, 0, sizeof(Segment))
        self.current.base_offset = self.current.end_offset = base_offset
        self.current.delete_horizon_min = -1
        self.current.max_timestamp = self.current.max_timestamp_offset = -1
        self.has_segment = True

    @property
    def segment(self):
        if not self.has_segment:
            raise ValueError("there is no output segment yet: call start_segment")
        return SegmentSummary(
            base_offset=self.current.base_offset,
            size_bytes=self.current.size,
            end_offset=self.current.end_offset,
            batches=self.current.batches,
            records=self.current.records,
            tombstones=-1 if self.current.has_unlooked else self.current.tombstones,
            delete_horizon_ms_min=self.current.delete_horizon_min,
            max_timestamp=self.current.max_timestamp,
            max_timestamp_offset=self.current.max_timestamp_offset,
        )

    @property
    def counts(self):
        return {
            verdict: VerdictCount(records=self.total_records[i], bytes=self.total_bytes[i])
            for i, verdict in enumerate(VERDICTS)
        }

    def feed(self, chunk not None, *, int64_t position=0):
        cdef const unsigned char[::1] view = chunk
        cdef const uint8_t *start = bytes_of(view)
        cdef const uint8_t *at = start
        cdef const uint8_t *end = start + view.shape[0]
        cdef int64_t needed = 0
        cdef bint full
        if not self.has_segment:
            raise ValueError("there is no output segment yet: call start_segment")
        self.output.size = self.entries.count = 0
        self.batches_read = self.batches_kept = self.records_read = self.records_kept = 0
        self.first_base_offset = self.last_offset_kept = self.next_base_offset = -1
        self.records.read_from(chunk, start)
        try:
            with nogil:
                full = self.filter_chunk(&at, end, position, &needed)
        finally:
            self.records.release()
        return FilterStep(
            consumed_bytes=at - start,
            needed_bytes=needed,
            segment_full=full,
            next_base_offset=self.next_base_offset,
            output=memoryview(
                PyBytes_FromStringAndSize(<const char *>self.output.data, self.output.size)
            ),
            index_entries=memoryview(
                PyBytes_FromStringAndSize(
                    <const char *>self.entries.ints, self.entries.count * sizeof(int64_t)
                )
            ).cast("q"),
            batches_read=self.batches_read,
            batches_kept=self.batches_kept,
            records_read=self.records_read,
            records_kept=self.records_kept,
            first_base_offset=self.first_base_offset,
            last_offset=self.last_offset_kept,
        )

    cdef int filter_chunk(
        self, const uint8_t **at, const uint8_t *end, int64_t position, int64_t *needed
    ) except -1 nogil:
        """Filter batch by batch: 1 when the output segment is full, 0 at the chunk's end."""
        cdef const uint8_t *start = at[0]
        cdef batch_header header
        cdef int64_t batch_position
        while True:
            batch_position = position + (at[0] - start)
            if not next_batch(at[0], end, batch_position, &header, needed):
                return 0
            if (
                header.base_offset <= self.last_offset_read
                or header.base_offset < self.current.base_offset
            ):
                return corrupt(batch_position, header.base_offset, b"it is out of order")
            if not self.filter_batch(at[0], &header, batch_position):
                self.next_base_offset = header.base_offset
                return 1
            self.last_offset_read = header.last_offset
            self.batches_read += 1
            self.records_read += header.record_count
            at[0] += header.size

    cdef int filter_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        """Append what remains of one batch. 0, and nothing changed, if the segment is full."""
        cdef size_t output_size = self.output.size
        cdef batch_header remains = header[0]
        # The map knows all of the batch.
        cdef bint looked = header.last_offset < self.end_offset
        self.clear_judged()
        if looked and header.record_count > 0:
            self.judge(batch, header, position)
            self.write_judged(batch, &remains, position)
        elif looked and not self.must_stay(header) and header.last_offset != self.tail_offset:
            remains.size = 0
        else:
            self.judged.kept = header.record_count
            self.judged.max_timestamp = header.max_timestamp
            self.judged.records[KEPT_UNMAPPED] = header.record_count
            if header.record_count > 0:
                self.judged.bytes[KEPT_UNMAPPED] = header.size - BATCH_HEADER_SIZE
            self.copy_whole(batch, header.size)
        if remains.size > 0 and self.overflows(&remains):
            self.output.size = output_size
            return 0
        self.account_for(batch, header, &remains)
        self.commit(&remains, looked)
        return 1

    cdef bint must_stay(self, const batch_header *header) noexcept nogil:
        """Whether the batch is the last that an active producer has: its sequence or its epoch."""
        cdef const ProducerRow *marked
        if header.producer_id < 0:
            return False
        if header.attributes & ATTRIBUTE_CONTROL:
            marked = find_row(&self.marker_epochs, header.producer_id)
            return marked != NULL and marked.number == header.producer_epoch
        return bsearch(
            &header.last_offset,
            self.producer_offsets,
            self.producer_offset_count,
            sizeof(int64_t),
            compare_offsets,
        ) != NULL

    cdef void clear_judged(self) noexcept nogil:
        self.judged.run_count = 0
        self.judged.kept_bytes = 0
        self.judged.kept = 0
        self.judged.tombstones = 0
        self.judged.is_marker = self.judged.is_idle_marker = False
        self.judged.max_timestamp = -1
        self.judged.is_copied = False
        self.judged.kept_offset_sum = 0
        self.judged.met.count = self.judged.met.sum = 0
        self.judged.unknown = 0
        memset(self.judged.records, 0, sizeof(self.judged.records))
        memset(self.judged.bytes, 0, sizeof(self.judged.bytes))

    cdef int judge(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        if is_aborted_batch(self.transactions, header):
            # Nothing of it is kept, whatever it holds.
            self.judged.records[DROPPED_ABORTED] = header.record_count
            self.judged.bytes[DROPPED_ABORTED] = header.size - BATCH_HEADER_SIZE
            return 0
        self.records.open(batch, header, position)
        if header.attributes & ATTRIBUTE_CONTROL:
            return self.judge_control(header, position)
        return self.judge_batch(header, position)

    cdef int judge_control(self, const batch_header *header, int64_t position) except -1 nogil:
        """Judge a control batch, which holds one record, by its transaction: keys mean nothing."""
        cdef Awaited awaited
        cdef record_view record
        cdef const uint8_t *at = self.records.start
        cdef int32_t last_delta = -1
        cdef int32_t i
        cdef int verdict = KEPT_MARKER
        memset(&awaited, 0, sizeof(awaited))
        memset(&record, 0, sizeof(record))
        for i in range(header.record_count):
            next_record(self.records, &at, i, &last_delta, header, position, &record)
            if i == 0:
                self.judged.is_marker = marker_of(&record) != MARKER_NONE
                verdict = self.verdict_of_control(header)
            awaited.start = record.start
            awaited.end = record.end
            awaited.offset = header.base_offset + record.offset_delta
            awaited.timestamp = wrapping_add(header.base_timestamp, record.timestamp_delta)
            self.settle(verdict, &awaited, header, i == header.record_count - 1)
        return check_end(self.records, at, header, position)

    cdef int verdict_of_control(self, const batch_header *header) noexcept nogil:
        if not self.judged.is_marker or find_row(&self.remaining, header.producer_id) != NULL:
            return KEPT_MARKER
        if header.attributes & ATTRIBUTE_DELETE_HORIZON:
            return DROPPED_MARKER if self.now_ms >= header.base_timestamp else KEPT_MARKER
        self.judged.is_idle_marker = self.stamps_markers
        return KEPT_MARKER

    cdef int judge_batch(self, const batch_header *header, int64_t position) except -1 nogil:
        """Judge every record, each WINDOW records after its slot was asked for."""
        cdef Awaited[WINDOW] window
        cdef Awaited *awaited
        cdef record_view record
        cdef const uint8_t *at = self.records.start
        cdef int32_t last_delta = -1
        cdef int32_t count = header.record_count
        cdef int32_t i
        for i in range(count):
            awaited = &window[i & (WINDOW - 1)]
            if i >= WINDOW:
                self.judge_record(awaited, header, False)
            next_record(self.records, &at, i, &last_delta, header, position, &record)
            awaited.start = record.start
            awaited.end = record.end
            awaited.offset = header.base_offset + record.offset_delta
            awaited.timestamp = wrapping_add(header.base_timestamp, record.timestamp_delta)
            awaited.has_key = record.key_size >= 0
            awaited.has_value = record.value_size >= 0
            if record.key_size >= 0:
                awaited.hash = kp_sip128(
                    &self.offset_map.key, record.key, <size_t>record.key_size
                )
                kp_slots_prefetch(&self.offset_map.slots, awaited.hash)
        check_end(self.records, at, header, position)
        for i in range(max(0, count - WINDOW), count):
            self.judge_record(&window[i & (WINDOW - 1)], header, i == count - 1)
        return 0

    cdef inline int judge_record(
        self, const Awaited *awaited, const batch_header *header, bint is_last
    ) except -1 nogil:
        return self.settle(self.verdict_of(awaited, header), awaited, header, is_last)

    cdef inline int settle(
        self, int verdict, const Awaited *awaited, const batch_header *header, bint is_last
    ) except -1 nogil:
        """Count a record under its verdict, and keep it if that says so."""
        if verdict >= DROPPED_SUPERSEDED and is_last and header.last_offset == self.tail_offset:
            verdict = KEPT_TAIL
        self.judged.records[verdict] += 1
        self.judged.bytes[verdict] += awaited.end - awaited.start
        if verdict >= DROPPED_SUPERSEDED:
            return 0
        if self.judged.kept == 0 or awaited.timestamp > self.judged.max_timestamp:
            self.judged.max_timestamp = awaited.timestamp
        self.judged.kept += 1
        self.judged.kept_offset_sum += <uint64_t>awaited.offset
        self.judged.kept_bytes += awaited.end - awaited.start
        self.judged.tombstones += awaited.has_key and not awaited.has_value
        return keep_run(&self.judged, awaited.start, awaited.end)

    cdef inline int verdict_of(
        self, const Awaited *awaited, const batch_header *header
    ) noexcept nogil:
        cdef int64_t latest
        if not awaited.has_key:
            return KEPT_UNKEYED if self.keeps_unkeyed else DROPPED_UNKEYED
        latest = kp_slots_get(&self.offset_map.slots, awaited.hash)
        if awaited.offset < latest:
            return DROPPED_SUPERSEDED
        if awaited.offset == latest:
            self.judged.met.count += 1
            self.judged.met.sum += <uint64_t>latest
        elif latest >= 0 or awaited.offset >= self.start_offset:
            self.judged.unknown += 1
        if (
            not awaited.has_value
            and header.attributes & ATTRIBUTE_DELETE_HORIZON
            and self.now_ms >= header.base_timestamp
        ):
            return DROPPED_TOMBSTONE
        return KEPT_LATEST

    cdef int write_judged(
        self, const uint8_t *batch, batch_header *remains, int64_t position
    ) except -1 nogil:
        """Append what survives; `remains` becomes its header, with size 0 if nothing does."""
        cdef int64_t old_base = remains.base_timestamp
        cdef bint stamp = (self.judged.tombstones > 0 or self.judged.is_idle_marker) and not (
            remains.attributes & ATTRIBUTE_DELETE_HORIZON
        )
        if self.judged.kept == 0:
            if not self.must_stay(remains):
                remains.size = 0
                return 0
            return self.write_empty(remains)
        if self.judged.kept == remains.record_count and not stamp:
            self.judged.max_timestamp = remains.max_timestamp
            return self.copy_whole(batch, remains.size)
        remains.record_count = self.judged.kept
        if stamp:
            remains.attributes |= ATTRIBUTE_DELETE_HORIZON
            remains.base_timestamp = self.new_horizon_ms
        if remains.attributes & ATTRIBUTE_LOG_APPEND_TIME:
            self.judged.max_timestamp = remains.max_timestamp
        remains.max_timestamp = self.judged.max_timestamp
        if remains.attributes & ATTRIBUTE_CODEC_MASK:
            return self.write_compressed(remains, old_base, position)
        return self.write_plain(&self.output, remains, old_base, position)

    cdef int copy_whole(self, const uint8_t *batch, size_t size) except -1 nogil:
        self.judged.is_copied = True
        reserve(&self.output, size)
        memcpy(self.output.data + self.output.size, batch, size)
        self.output.size += size
        return 0

    cdef int write_empty(self, batch_header *remains) except -1 nogil:
        # Kafka's writeEmptyHeader: no codec, no horizon, no base timestamp.
        remains.size = BATCH_HEADER_SIZE
        remains.attributes &= (
            ATTRIBUTE_LOG_APPEND_TIME | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL
        )
        remains.base_timestamp = -1
        remains.record_count = 0
        reserve(&self.output, BATCH_HEADER_SIZE)
        write_batch_header(self.output.data + self.output.size, remains)
        self.output.size += BATCH_HEADER_SIZE
        return 0

    cdef int write_plain(
        self, Output *output, batch_header *remains, int64_t old_base, int64_t position
    ) except -1 nogil:
        """Append a header and the surviving records, uncompressed."""
        cdef int64_t records_size = self.judged.kept_bytes
        cdef uint8_t *header_at
        cdef int64_t shift = wrapping_subtract(old_base, remains.base_timestamp)
        if shift != 0:
            records_size = self.shifted_size(shift)
        if records_size > INT32_MAX - BATCH_HEADER_SIZE:
            return corrupt(position, remains.base_offset, b"its records outgrow a batch")
        reserve(output, BATCH_HEADER_SIZE + records_size)
        header_at = output.data + output.size
        if shift == 0:
            self.copy_runs(header_at + BATCH_HEADER_SIZE)
        else:
            self.shift_runs(header_at + BATCH_HEADER_SIZE, shift)
        remains.size = BATCH_HEADER_SIZE + records_size
        write_batch_header(header_at, remains)
        output.size += remains.size
        return 0

    cdef void copy_runs(self, uint8_t *to) noexcept nogil:
        cdef size_t i, size
        for i in range(self.judged.run_count):
            size = self.judged.runs[i].end - self.judged.runs[i].start
            memcpy(to, self.judged.runs[i].start, size)
            to += size

    cdef int64_t shifted_size(self, int64_t shift) noexcept nogil:
        """Bytes of the surviving records when their timestamp deltas grow by `shift`."""
        cdef int64_t total = 0
        cdef size_t i
        cdef const uint8_t *at
        cdef record_view record
        for i in range(self.judged.run_count):
            at = self.judged.runs[i].start
            while at < self.judged.runs[i].end:
                # It was read before; the check is for the compiler.
                if read_record(&at, self.judged.runs[i].end, &record) != RECORD_OK:
                    break
                total += restamped_size(&record, wrapping_add(record.timestamp_delta, shift))
        return total

    cdef void shift_runs(self, uint8_t *to, int64_t shift) noexcept nogil:
        cdef size_t i
        cdef const uint8_t *at
        cdef record_view record
        for i in range(self.judged.run_count):
            at = self.judged.runs[i].start
            while at < self.judged.runs[i].end:
                if read_record(&at, self.judged.runs[i].end, &record) != RECORD_OK:
                    break
                to = write_record_restamped(
                    to, &record, wrapping_add(record.timestamp_delta, shift)
                )

    cdef int write_compressed(
        self, batch_header *remains, int64_t old_base, int64_t position
    ) except -1 nogil:
        """Append a header and the surviving records, compressed with the batch's codec."""
        self.rebuilt.size = 0
        self.write_plain(&self.rebuilt, remains, old_base, position)
        with gil:
            self.append_compressed(remains, position)
        return 0

    cdef int append_compressed(self, batch_header *remains, int64_t position) except -1:
        cdef const unsigned char[::1] data = compress(
            Codec(remains.attributes & ATTRIBUTE_CODEC_MASK),
            PyBytes_FromStringAndSize(
                <const char *>self.rebuilt.data + BATCH_HEADER_SIZE,
                self.rebuilt.size - BATCH_HEADER_SIZE,
            ),
        )
        if data.shape[0] > INT32_MAX - BATCH_HEADER_SIZE:
            return corrupt(position, remains.base_offset, b"its records outgrow a batch")
        remains.size = BATCH_HEADER_SIZE + data.shape[0]
        reserve(&self.output, remains.size)
        memcpy(
            self.output.data + self.output.size + BATCH_HEADER_SIZE, bytes_of(data), data.shape[0]
        )
        write_batch_header(self.output.data + self.output.size, remains)
        self.output.size += remains.size
        return 0

    cdef bint overflows(self, const batch_header *remains) noexcept nogil:
        """Whether the batch must go to a new segment; the first of a segment never must."""
        if remains.last_offset - self.current.base_offset > INT32_MAX:
            return remains.base_offset > self.current.base_offset
        return self.current.size > 0 and self.current.size + remains.size > self.segment_bytes_max

    cdef int account_for(
        self, const uint8_t *batch, const batch_header *header, const batch_header *remains
    ) except -1 nogil:
        """Enter a batch into its group's account: what was judged, and the source's own bytes."""
        cdef int i
        self.group.records_read += header.record_count
        for i in range(VERDICT_COUNT):
            self.group.records[i] += self.judged.records[i]
        add_tally(&self.group.met, &self.judged.met)
        self.group.unknown += self.judged.unknown
        if not self.is_verified or remains.size == 0:
            return 0
        self.note_rebuilt(not self.judged.is_copied)
        if self.judged.is_copied:
            self.note_copied_horizon(header)
            self.group.copied_tombstones += self.judged.tombstones
            kp_digest_add(&self.group.digest, kp_digest_copied(batch))
        else:
            self.group.rebuilt_records.count += <uint64_t>self.judged.kept
            self.group.rebuilt_records.sum += self.judged.kept_offset_sum
            self.digest_rebuilt(header)
        return 0

    cdef void note_copied_horizon(self, const batch_header *header) noexcept nogil:
        cdef bint is_looked_into = header.last_offset < self.end_offset
        if header.record_count == 0 or not header.attributes & ATTRIBUTE_DELETE_HORIZON:
            return
        if is_looked_into and self.judged.tombstones == 0 and not self.judged.is_marker:
            return
        if (
            self.group.copied_horizon_min < 0
            or header.base_timestamp < self.group.copied_horizon_min
        ):
            self.group.copied_horizon_min = header.base_timestamp

    cdef int note_rebuilt(self, bint is_rebuilt) except -1 nogil:
        cdef size_t at = <size_t>(self.group.batches >> 3)
        if at == self.group.rebuilt_capacity:
            self.group.rebuilt = <uint8_t *>grown(
                self.group.rebuilt, &self.group.rebuilt_capacity, at + 1, 1
            )
        if self.group.batches & 7 == 0:
            self.group.rebuilt[at] = 0
        self.group.rebuilt[at] |= is_rebuilt << (self.group.batches & 7)
        self.group.batches += 1
        return 0

    cdef void digest_rebuilt(self, const batch_header *header) noexcept nogil:
        cdef size_t i
        cdef const uint8_t *at
        cdef record_view record
        cdef bint keeps_max = self.judged.kept == 0 or header.attributes & ATTRIBUTE_LOG_APPEND_TIME
        cdef int64_t max_timestamp = header.max_timestamp
        if not keeps_max:
            max_timestamp = self.judged.max_timestamp
        kp_digest_add(
            &self.group.digest,
            kp_digest_header(
                header, self.judged.kept, max_timestamp, self.expected_horizon(header)
            ),
        )
        for i in range(self.judged.run_count):
            at = self.judged.runs[i].start
            while at < self.judged.runs[i].end:
                if read_record(&at, self.judged.runs[i].end, &record) != RECORD_OK:
                    break
                kp_digest_add(
                    &self.group.digest,
                    kp_digest_record(&record, header.base_offset, header.base_timestamp),
                )

    cdef int64_t expected_horizon(self, const batch_header *header) noexcept nogil:
        if self.judged.kept == 0:
            return -1
        if header.attributes & ATTRIBUTE_DELETE_HORIZON:
            return header.base_timestamp
        if self.judged.tombstones > 0 or self.judged.is_idle_marker:
            return self.new_horizon_ms
        return -1

    cdef int commit(self, const batch_header *remains, bint looked) except -1 nogil:
        """Count the batch, now that it is certain where it goes."""
        cdef int i
        for i in range(VERDICT_COUNT):
            self.total_records[i] += self.judged.records[i]
            self.total_bytes[i] += self.judged.bytes[i]
        self.follow_transaction(remains)
        if remains.size == 0:
            return 0
        self.batches_kept += 1
        self.records_kept += remains.record_count
        if self.first_base_offset < 0:
            self.first_base_offset = remains.base_offset
        self.last_offset_kept = remains.last_offset
        self.summarize(remains, looked)
        return self.index(remains)

    cdef int follow_transaction(self, const batch_header *remains) except -1 nogil:
        if remains.attributes & ATTRIBUTE_CONTROL:
            if self.judged.is_marker:
                drop_row(&self.remaining, remains.producer_id)
        elif remains.attributes & ATTRIBUTE_TRANSACTIONAL and remains.size > 0:
            put_row(&self.remaining, remains.producer_id, remains.base_offset)
        return 0

    cdef void summarize(self, const batch_header *remains, bint looked) noexcept nogil:
        cdef Segment *segment = &self.current
        segment.batches += 1
        segment.records += remains.record_count
        segment.end_offset = remains.last_offset + 1
        if remains.record_count == 0:
            return
        segment.tombstones += self.judged.tombstones
        # Control records are not tombstones, whatever they hold.
        segment.has_unlooked |= not looked and not remains.attributes & ATTRIBUTE_CONTROL
        if remains.max_timestamp > segment.max_timestamp:
            segment.max_timestamp = remains.max_timestamp
            segment.max_timestamp_offset = remains.last_offset
        # A batch keeps its horizon for ever; without a tombstone or a marker nothing waits for it.
        if (
            remains.attributes & ATTRIBUTE_DELETE_HORIZON
            and (self.judged.tombstones or self.judged.is_marker or not looked)
            and (segment.delete_horizon_min < 0 or remains.base_timestamp < segment.delete_horizon_min)
        ):
            segment.delete_horizon_min = remains.base_timestamp

    cdef int index(self, const batch_header *remains) except -1 nogil:
        cdef Segment *segment = &self.current
        cdef int64_t *entry
        if segment.bytes_since_entry > self.index_interval_bytes:
            if self.entries.capacity - self.entries.count < INDEX_ENTRY_INTS:
                self.entries.ints = <int64_t *>grown(
                    self.entries.ints,
                    &self.entries.capacity,
                    self.entries.count + INDEX_ENTRY_INTS,
                    sizeof(int64_t),
                )
            entry = self.entries.ints + self.entries.count
            entry[0] = remains.last_offset
            entry[1] = segment.size
            entry[2] = segment.max_timestamp
            entry[3] = segment.max_timestamp_offset
            self.entries.count += INDEX_ENTRY_INTS
            segment.bytes_since_entry = 0
        segment.bytes_since_entry += remains.size
        segment.size += remains.size
        return 0
