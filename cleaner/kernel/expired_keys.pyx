# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Collects expired values, and drops those that have a later one; `expired_keys.pyi` documents it.

    candidate    a value whose time has come: the hash of its key, its rank, its key
    slots        hash -> candidate; open addressing, at most half full
    key_bytes    the candidates' keys, one behind the other

`tombstones.pxi` writes the tombstones of the candidates that are left.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cython cimport final
from libc.stdint cimport (
    INT64_MAX,
    INT64_MIN,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint32_t,
    uint64_t,
)
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from cleaner.kernel.siphash cimport (
    kp_sip128,
    kp_sip_hash,
    kp_sip_key,
    kp_sip_key_of,
    kp_sip_load64,
)
from protocol.records.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CODEC_MAX,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_CUT,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    VARINT_SIZE_MAX,
    VARLONG_SIZE_MAX,
    batch_crc,
    batch_header,
    last_header,
    load_int16,
    load_int64,
    load_uint32,
    read_batch_header,
    read_record,
    record_view,
    store_int64,
    varint_size,
    varlong_size,
    write_varint,
    write_varlong,
)

from cleaner.rules.step import Expired, KeysDiffer, ReadStep, Tombstones
from protocol.records.compression import Codec, decompress
from protocol.wire.errors import CorruptBatch
from storage.formats.compaction_strategy import Ranking

# What has become of a candidate.
cdef enum:
    ALIVE
    # It is outranked by a record that may go: of a transaction that is not decided, or an older
    # tombstone with a higher version.
    DEFERRED
    # It has a later one, or its tombstone is in the log.
    GONE


cdef struct Candidate:
    kp_sip_hash hashed
    int64_t offset
    int64_t version
    int64_t timestamp
    size_t key_at
    int32_t key_size
    uint8_t state


cdef struct AbortedRange:
    # Batches of this producer with base offsets in [first_offset, marker_offset) are aborted.
    int64_t producer_id
    int64_t first_offset
    int64_t marker_offset


cdef inline const uint8_t *bytes_of(const unsigned char[::1] view) noexcept nogil:
    # An empty view has no first element to take the address of.
    return &view[0] if view.shape[0] > 0 else NULL


cdef inline int64_t wrapping_add(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a + <uint64_t>b)


include "buffers.pxi"
include "batch_reader.pxi"
include "versions.pxi"
include "ttl.pxi"
include "key_block.pxi"


@final
cdef class ExpiredKeys(BatchReader):
    # Constant after construction
    cdef kp_sip_key hash_key
    cdef int64_t now_ms
    cdef int64_t start_offset
    cdef int64_t stable_offset
    cdef int64_t decompressed_bytes_max
    cdef size_t keys_max
    cdef size_t key_bytes_max
    cdef Ttl ttl
    cdef Versions versions
    cdef AbortedRange *aborted
    cdef size_t aborted_count
    # State: the candidates
    cdef Candidate *candidates
    cdef size_t count
    cdef size_t capacity
    cdef size_t alive
    cdef Buffer key_bytes
    cdef uint32_t *slots
    cdef size_t slot_mask
    # Of the collection
    cdef int64_t from_offset
    cdef int64_t end_offset
    cdef readonly int64_t collected_end
    cdef readonly bint is_full
    cdef readonly int64_t least_later_ms
    cdef readonly int64_t expired
    # Of the comparison
    cdef bint compares
    cdef readonly int64_t compared_end
    # Of the tombstones: the candidates of the batch that was written last are in [first, next).
    cdef size_t first
    cdef size_t next
    cdef Buffer written
    cdef readonly bint is_stale

    def __cinit__(
        self,
        bytes hash_key not None,
        *,
        int64_t now_ms,
        int64_t start_offset,
        int64_t stable_offset,
        ttl not None,
        strategy not None,
        aborted not None,
        int64_t decompressed_bytes_max,
        size_t keys_max,
        size_t key_bytes_max,
    ):
        cdef size_t slot_count = 16
        if len(hash_key) != 16:
            raise ValueError(f"a hash key has 16 bytes, not {len(hash_key)}")
        self.hash_key = kp_sip_key_of(<const uint8_t *><const char *>hash_key)
        self.now_ms = now_ms
        self.start_offset = start_offset
        self.stable_offset = stable_offset
        self.bytes_max = self.decompressed_bytes_max = decompressed_bytes_max
        self.keys_max = min(max(keys_max, <size_t>1), <size_t>1 << 30)
        self.key_bytes_max = key_bytes_max
        self.ttl = Ttl(ttl.topic_ms, ttl.header)
        self.versions = Versions(strategy.ranking, strategy.header)
        self.take_aborted(sorted(aborted))
        while slot_count < 2 * self.keys_max:
            slot_count *= 2
        # The memory is taken page by page when it is used.
        self.slots = <uint32_t *>calloc(slot_count, sizeof(uint32_t))
        if self.slots == NULL:
            raise MemoryError(f"no memory for {keys_max} expired keys")
        self.slot_mask = slot_count - 1
        self.least_later_ms = INT64_MAX
        self.compared_end = 0

    def __dealloc__(self):
        free(self.aborted)
        free(self.candidates)
        free(self.key_bytes.data)
        free(self.written.data)
        free(self.slots)

    cdef int take_aborted(self, list rows) except -1:
        cdef size_t i
        self.aborted = <AbortedRange *>malloc(max(len(rows), 1) * sizeof(AbortedRange))
        if self.aborted == NULL:
            raise MemoryError("no memory for the aborted transactions")
        for i in range(<size_t>len(rows)):
            producer_id, first_offset, marker_offset = rows[i]
            self.aborted[i] = AbortedRange(producer_id, first_offset, marker_offset)
        self.aborted_count = len(rows)
        return 0

    @property
    def candidates_left(self):
        return self.alive

    @property
    def least_offset(self):
        cdef int64_t least = INT64_MAX
        cdef size_t i
        for i in range(self.count):
            if self.candidates[i].state == ALIVE:
                least = min(least, self.candidates[i].offset)
        return least

    @property
    def unreadable(self):
        return self.ttl.unreadable

    # ---------------------------------------------------------------------- collecting

    def begin(self):
        if self.count > 0:
            memset(self.slots, 0, (self.slot_mask + 1) * sizeof(uint32_t))
        self.is_full = False
        self.alive = self.count = self.first = self.next = 0
        self.key_bytes.size = self.written.size = 0
        self.is_stale = False

    def collect_between(self, int64_t from_offset, int64_t end_offset):
        self.from_offset = self.collected_end = from_offset
        self.end_offset = min(end_offset, self.stable_offset)

    def collect(self, const unsigned char[::1] chunk not None, *, int64_t position=0):
        self.compares = False
        self.bytes_max = self.decompressed_bytes_max
        return self.feed(chunk, position=position)

    def take_least_later_ms(self):
        cdef int64_t least = self.least_later_ms
        self.least_later_ms = INT64_MAX
        return least

    # ----------------------------------------------------------------------- comparing

    def compare(
        self,
        const unsigned char[::1] chunk not None,
        *,
        int64_t position=0,
        decompressed_bytes_max=None,
    ):
        self.compares = True
        self.bytes_max = self.decompressed_bytes_max
        if decompressed_bytes_max is not None:
            self.bytes_max = min(self.bytes_max, decompressed_bytes_max)
        return self.feed(chunk, position=position)

    def compare_keys(self, const unsigned char[::1] block not None, *, int64_t base_offset):
        cdef KeyBlock keys
        read_key_block(block, &keys)
        with nogil:
            self.compare_entries(&keys, base_offset)

    def note_compared(self, int64_t end_offset):
        self.compared_end = max(self.compared_end, end_offset)

    cdef void compare_entries(self, const KeyBlock *keys, int64_t base_offset) noexcept nogil:
        cdef SpecialRow row
        cdef const uint8_t *entry
        cdef int64_t i, offset, version
        cdef int64_t next_row = 0
        cdef bint is_special, is_aborted = False
        memset(&row, 0, sizeof(SpecialRow))
        row.first_offset = row.last_offset = -1
        for i in range(keys.entry_count):
            entry = keys.entries + i * ENTRY_SIZE
            offset = entry_offset(entry, base_offset)
            while row.last_offset < offset and next_row < keys.row_count:
                read_special_row(keys, next_row, base_offset, &row)
                next_row += 1
                is_aborted = is_transactional_data(&row) and self.is_aborted(
                    row.producer_id, row.first_offset
                )
            is_special = row.first_offset <= offset <= row.last_offset
            if is_special and is_aborted:
                continue
            version = 0
            if self.versions.ranking != BY_OFFSET:
                version = version_at(keys, i)
            self.drop_if_outranked(
                entry_hash(entry), offset, version,
                is_special and is_transactional_data(&row) and offset >= self.stable_offset,
                entry_is_tombstone(entry),
            )

    cdef void drop_if_outranked(
        self,
        kp_sip_hash hashed,
        int64_t offset,
        int64_t version,
        bint is_undecided,
        bint is_tombstone,
    ) noexcept nogil:
        """Drop the candidate of a key if a record of these outranks it."""
        cdef Candidate *candidate
        cdef uint32_t number = self.slots[self.slot_of(hashed)]
        if number == 0 or offset < self.start_offset:
            return
        candidate = &self.candidates[number - 1]
        if candidate.state == GONE or not outranks(version, offset, candidate):
            return
        if candidate.state == ALIVE:
            self.alive -= 1
        candidate.state = GONE
        if is_undecided or (is_tombstone and offset < candidate.offset):
            candidate.state = DEFERRED
        if self.first < number and number <= self.next:
            self.is_stale = True

    # ------------------------------------------------------------------- batches, records

    cdef int take_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        if self.compares:
            self.compared_end = max(self.compared_end, header.last_offset + 1)
        else:
            self.collected_end = max(self.collected_end, header.last_offset + 1)
        if header.attributes & ATTRIBUTE_CONTROL or header.record_count <= 0:
            return 0
        if header.attributes & ATTRIBUTE_TRANSACTIONAL and self.is_aborted(
            header.producer_id, header.base_offset
        ):
            return 0
        if self.compares:
            return self.read_batch(batch, header, position) if self.alive > 0 else 0
        if (
            self.is_full
            or header.last_offset < self.from_offset
            or header.base_offset >= self.end_offset
        ):
            return 0
        return self.read_batch(batch, header, position)

    cdef int take_records(
        self, const uint8_t *at, const uint8_t *end, const batch_header *header, int64_t position
    ) except -1 nogil:
        cdef record_view record
        cdef int64_t offset
        cdef int32_t i
        for i in range(header.record_count):
            if read_record(&at, end, &record) != RECORD_OK:
                return refuse(position, b"one of its records is damaged")
            if record.key_size < 0:
                continue
            offset = header.base_offset + record.offset_delta
            if self.compares:
                self.drop_if_outranked(
                    kp_sip128(&self.hash_key, record.key, <size_t>record.key_size),
                    offset,
                    self.versions.of(&record, header),
                    header.attributes & ATTRIBUTE_TRANSACTIONAL
                    and offset >= self.stable_offset,
                    record.value_size < 0,
                )
            elif self.from_offset <= offset < self.end_offset and record.value_size >= 0:
                if not self.take_value(&record, header, offset):
                    self.is_full = True
                    self.from_offset = offset
                    return 0
        return 0

    cdef bint take_value(
        self, const record_view *record, const batch_header *header, int64_t offset
    ) except -1 nogil:
        """Returns False if there is no room for an expired value."""
        cdef int64_t timestamp = timestamp_of(record, header)
        cdef int64_t unreadable = self.ttl.unreadable
        cdef int64_t expires = self.ttl.expires(record, timestamp)
        if expires > self.now_ms:
            self.least_later_ms = min(self.least_later_ms, expires)
            return True
        if (
            self.count == self.keys_max
            or self.key_bytes.size + <size_t>record.key_size > self.key_bytes_max
        ) and self.count > 0:
            # It comes again, so its header is counted then.
            self.ttl.unreadable = unreadable
            return False
        self.expired += 1
        self.add(record, offset, self.versions.of(record, header), timestamp)
        return True

    cdef int add(
        self, const record_view *record, int64_t offset, int64_t version, int64_t timestamp
    ) except -1 nogil:
        cdef kp_sip_hash hashed = kp_sip128(
            &self.hash_key, record.key, <size_t>record.key_size
        )
        cdef size_t slot = self.slot_of(hashed)
        cdef Candidate *candidate
        if self.slots[slot] != 0:
            candidate = &self.candidates[self.slots[slot] - 1]
            if outranks(version, offset, candidate):
                candidate.offset = offset
                candidate.version = version
                candidate.timestamp = timestamp
            return 0
        if self.count == self.capacity:
            self.candidates = <Candidate *>grow(
                self.candidates, &self.capacity, self.count + 1, sizeof(Candidate)
            )
        candidate = &self.candidates[self.count]
        candidate.hashed = hashed
        candidate.offset = offset
        candidate.version = version
        candidate.timestamp = timestamp
        candidate.key_at = self.key_bytes.size
        candidate.key_size = record.key_size
        candidate.state = ALIVE
        reserve(&self.key_bytes, <size_t>record.key_size)
        if record.key_size > 0:
            memcpy(self.key_bytes.data + self.key_bytes.size, record.key, record.key_size)
        self.key_bytes.size += <size_t>record.key_size
        self.count += 1
        self.alive += 1
        self.slots[slot] = <uint32_t>self.count
        return 0

    cdef size_t slot_of(self, kp_sip_hash hashed) noexcept nogil:
        """Returns the slot of the candidate with this hash, or the empty slot where it belongs."""
        cdef size_t slot = hashed.low & self.slot_mask
        cdef const Candidate *candidate
        while self.slots[slot] != 0:
            candidate = &self.candidates[self.slots[slot] - 1]
            if candidate.hashed.low == hashed.low and candidate.hashed.high == hashed.high:
                break
            slot = (slot + 1) & self.slot_mask
        return slot

    cdef bint is_aborted(self, int64_t producer_id, int64_t base_offset) noexcept nogil:
        """Returns whether the producer's transactional data batch at an offset was aborted."""
        cdef size_t low = 0
        cdef size_t high = self.aborted_count
        cdef size_t middle
        cdef const AbortedRange *row
        # The last range of the producer that begins at the batch or before it.
        while low < high:
            middle = low + (high - low) // 2
            row = &self.aborted[middle]
            if row.producer_id < producer_id or (
                row.producer_id == producer_id and row.first_offset <= base_offset
            ):
                low = middle + 1
            else:
                high = middle
        if low == 0 or self.aborted[low - 1].producer_id != producer_id:
            return False
        return base_offset < self.aborted[low - 1].marker_offset

    # ------------------------------------------------------------------------- the rest

    def deferred_offsets(self):
        cdef size_t i
        return sorted([
            self.candidates[i].offset
            for i in range(self.count)
            if self.candidates[i].state != GONE
        ])

    def write_tombstones(self, *, int64_t now_ms, int32_t count_max, size_t bytes_max):
        self.first = self.next
        self.written.size = 0
        self.is_stale = False
        return write_tombstones(self, now_ms, count_max, bytes_max)

    def written_expired(self):
        cdef size_t i
        return [
            Expired(
                key=PyBytes_FromStringAndSize(
                    <const char *>self.key_bytes.data + self.candidates[i].key_at,
                    self.candidates[i].key_size,
                ),
                offset=self.candidates[i].offset,
                version=self.candidates[i].version,
            )
            for i in range(self.first, self.next)
            if self.candidates[i].state == ALIVE
        ]

    def drop_below(self, int64_t start_offset):
        cdef size_t i
        for i in range(self.first, self.next):
            if self.candidates[i].state == ALIVE and self.candidates[i].offset < start_offset:
                self.candidates[i].state = GONE
                self.alive -= 1
                self.is_stale = True

    def retract(self):
        self.next = self.first
        self.is_stale = False

    def appended(self):
        cdef size_t i
        for i in range(self.first, self.next):
            if self.candidates[i].state == ALIVE:
                self.candidates[i].state = GONE
                self.alive -= 1
        self.first = self.next


cdef inline bint outranks(
    int64_t version, int64_t offset, const Candidate *candidate
) noexcept nogil:
    if version != candidate.version:
        return version > candidate.version
    return offset > candidate.offset


include "tombstones.pxi"
