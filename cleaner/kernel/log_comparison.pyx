# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compares two copies of a log; `log_comparison.pyi` documents the interface."""

from libc.stdint cimport INT64_MAX, UINT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from cleaner.kernel.digest cimport kp_digest_add, kp_hash128
from cleaner.kernel.siphash cimport kp_sip128, kp_sip_hash, kp_sip_key, kp_sip_key_of
from cleaner.kernel.table_digest cimport kp_table_record
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
    batch_crc,
    batch_header,
    load_int16,
    read_batch_header,
    read_record,
    record_view,
)

from cleaner.rules.log_comparison import Comparison, Difference, DifferenceKind, SideSum
from cleaner.rules.step import ReadStep
from protocol.records.compression import Codec, decompress
from protocol.wire.errors import CorruptBatch


cdef enum:
    MISSING = 0
    EXTRA = 1
    OTHER_OFFSET = 2
    OTHER_CONTENT = 3
    KINDS = 4
    # A marker's key is a version and this type (protocol/records/control_record.py).
    TYPE_ABORT = 0


cdef struct Newest:
    # The newest record of one side. A calloc'd entry has none.
    uint64_t place      # 0: none; else 1 + 2 * offset + (whether it has a value)
    kp_hash128 row


cdef struct Entry:
    kp_sip_hash hash
    Newest[2] sides


cdef struct Found:
    int kind
    int64_t[2] offsets


include "batch_reader.pxi"


cdef inline bint is_empty(const Entry *entry) noexcept nogil:
    return entry.sides[0].place == 0 and entry.sides[1].place == 0


cdef inline int64_t offset_of(const Newest *newest) noexcept nogil:
    return <int64_t>((newest.place - 1) >> 1) if newest.place else -1


cdef inline bint has_value(const Newest *newest) noexcept nogil:
    return newest.place != 0 and (newest.place - 1) & 1


cdef object number_of(kp_hash128 hashed):
    return hashed.low | <object>hashed.high << 64


cdef class LogComparison(BatchReader):
    # Constant after construction
    cdef kp_sip_key key
    cdef bint by_key
    cdef Entry *entries
    cdef size_t slot_count        # a power of two
    cdef size_t capacity
    cdef Py_ssize_t listed_max
    # State: size <= capacity
    cdef size_t size
    cdef uint64_t first_hash
    cdef readonly uint64_t last_hash
    cdef readonly int64_t limit_offset
    cdef readonly int64_t next_offset
    # State of the current chunk
    cdef int side
    cdef int64_t first_offset
    cdef list coming              # (first offset, producer id), the last one comes first
    cdef set aborting             # producers in an aborted transaction

    def __cinit__(
        self,
        bytes hash_key not None,
        *,
        bint by_key,
        size_t memory_bytes,
        Py_ssize_t listed_max,
        int64_t decompressed_bytes_max,
    ):
        if len(hash_key) != 16:
            raise ValueError(f"a hash key has 16 bytes, not {len(hash_key)}")
        if memory_bytes < 16 * sizeof(Entry):
            raise ValueError(f"{memory_bytes} bytes hold fewer than 16 entries")
        self.key = kp_sip_key_of(<const uint8_t *><const char *>hash_key)
        self.by_key = by_key
        self.bytes_max = decompressed_bytes_max
        self.listed_max = listed_max
        self.slot_count = 16
        while self.slot_count * 2 * sizeof(Entry) <= memory_bytes:
            self.slot_count *= 2
        self.capacity = self.slot_count // 4 * 3
        self.entries = <Entry *>calloc(self.slot_count, sizeof(Entry))
        if self.entries == NULL:
            raise MemoryError(f"no memory for {self.slot_count} entries")
        self.begin()

    def __dealloc__(self):
        free(self.entries)

    def close(self):
        free(self.entries)
        self.entries = NULL
        self.size = 0

    def __len__(self):
        return self.size

    @property
    def has_all_keys(self):
        return self.last_hash == UINT64_MAX

    def begin(self, uint64_t first_hash=0):
        if self.size:
            with nogil:
                memset(self.entries, 0, self.slot_count * sizeof(Entry))
        self.size = 0
        self.first_hash = first_hash
        self.last_hash = UINT64_MAX
        self.limit_offset = INT64_MAX
        self.next_offset = 0

    def feed(
        self,
        const unsigned char[::1] chunk not None,
        *,
        int side,
        int64_t first_offset,
        aborted=(),
    ):
        if self.entries == NULL:
            raise ValueError("the table is closed")
        if side != 0 and side != 1:
            raise ValueError(f"there is no side {side}")
        self.side = side
        self.first_offset = first_offset
        self.coming = sorted([(first, producer) for producer, first in aborted], reverse=True)
        self.aborting = set()
        return BatchReader.feed(self, chunk)

    # ------------------------------------------------------------ reading batches

    cdef int take_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        cdef bint counts = True
        if header.attributes & ATTRIBUTE_TRANSACTIONAL:
            with gil:
                counts = not self.skips(batch, header)
        if counts and not header.attributes & ATTRIBUTE_CONTROL:
            self.read_batch(batch, header, position)
        self.next_offset = header.last_offset + 1
        return 0

    cdef bint skips(self, const uint8_t *batch, const batch_header *header) except -1:
        """Returns whether a batch of a transaction was aborted, by the rule of Kafka's consumers."""
        cdef record_view record
        cdef const uint8_t *at = batch + BATCH_HEADER_SIZE
        while self.coming and self.coming[len(self.coming) - 1][0] <= header.last_offset:
            self.aborting.add(self.coming.pop()[1])
        if not header.attributes & ATTRIBUTE_CONTROL:
            return header.producer_id in self.aborting
        if (
            header.record_count > 0
            and read_record(&at, batch + header.size, &record) == RECORD_OK
            and record.key_size >= 4
            and load_int16(record.key + 2) == TYPE_ABORT
        ):
            self.aborting.discard(header.producer_id)
        return True

    cdef int take_records(
        self, const uint8_t *at, const uint8_t *end, const batch_header *header, int64_t position
    ) except -1 nogil:
        cdef record_view record
        cdef int32_t i
        for i in range(header.record_count):
            if read_record(&at, end, &record) != RECORD_OK:
                return refuse(position, b"one of its records is damaged")
            if not self.by_key or record.key_size >= 0:
                self.take(&record, header)
        return 0

    cdef int take(self, const record_view *record, const batch_header *header) except -1 nogil:
        cdef int64_t offset = header.base_offset + record.offset_delta
        cdef int64_t timestamp
        cdef kp_sip_hash hashed
        cdef Newest newest
        if offset < self.first_offset or offset >= self.limit_offset:
            return 0
        if self.by_key:
            hashed = kp_sip128(&self.key, record.key, <size_t>record.key_size)
            if hashed.high < self.first_hash or hashed.high > self.last_hash:
                return 0
        else:
            # A multiplication by an odd number spreads offsets, and is one to one.
            hashed.low = <uint64_t>offset * <uint64_t>0x9E3779B97F4A7C15
            hashed.high = <uint64_t>offset
        timestamp = <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>record.timestamp_delta)
        if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
            timestamp = header.max_timestamp
        newest.place = 1 + 2 * <uint64_t>offset
        if not self.by_key or record.value_size >= 0:
            newest.place += 1
            newest.row = kp_table_record(record, offset, timestamp)
        return self.put(hashed, newest)

    # ------------------------------------------------------------ the table

    cdef inline size_t home(self, kp_sip_hash hashed) noexcept nogil:
        return <size_t>(hashed.low ^ (hashed.low >> 32)) & (self.slot_count - 1)

    cdef Entry *slot_of(self, kp_sip_hash hashed) noexcept nogil:
        """Returns the entry of a hash, or the empty one where it belongs."""
        cdef size_t i = self.home(hashed)
        cdef Entry *entry = &self.entries[i]
        while not is_empty(entry) and (
            entry.hash.low != hashed.low or entry.hash.high != hashed.high
        ):
            i = (i + 1) & (self.slot_count - 1)
            entry = &self.entries[i]
        return entry

    cdef int put(self, kp_sip_hash hashed, Newest newest) except -1 nogil:
        cdef Entry *entry = self.slot_of(hashed)
        # By offset, side 0 leaves room for records that only side 1 has: else it could take all, again
        # and again.
        cdef size_t room = self.capacity if self.by_key or self.side else self.capacity // 2
        while is_empty(entry) and self.size >= room:
            if not self.by_key:
                self.limit_offset = offset_of(&newest)
                return 0
            self.halve()
            if hashed.high > self.last_hash:
                return 0
            entry = self.slot_of(hashed)
        if is_empty(entry):
            self.size += 1
            entry.hash = hashed
        entry.sides[self.side] = newest
        return 0

    cdef int halve(self) except -1 nogil:
        """Give up the upper half of the range, and put what stays where it belongs."""
        cdef size_t i, start = 0
        cdef Entry moved
        if self.last_hash == self.first_hash:
            with gil:
                raise OverflowError("too many keys have one hash")
        self.last_hash = self.first_hash + (self.last_hash - self.first_hash) // 2
        # Behind an empty slot no entry belongs further forward, so each moves forward at most.
        while not is_empty(&self.entries[start]):
            start += 1
        for i in range(start + 1, start + self.slot_count):
            moved = self.entries[i & (self.slot_count - 1)]
            if is_empty(&moved):
                continue
            memset(&self.entries[i & (self.slot_count - 1)], 0, sizeof(Entry))
            if moved.hash.high <= self.last_hash:
                self.slot_of(moved.hash)[0] = moved
            else:
                self.size -= 1
        return 0

    # ------------------------------------------------------------ comparing

    def compare(self, *, int64_t start_offset, int64_t end_offset):
        cdef kp_hash128[2] sums
        cdef int64_t[2] counts
        cdef int64_t[KINDS] kinds
        cdef int64_t rewritten = 0, first = -1, last = -1
        cdef Found *listed = <Found *>calloc(max(1, self.listed_max), sizeof(Found))
        cdef Py_ssize_t listed_count = 0
        cdef size_t i
        cdef int side
        cdef Found found
        if listed == NULL or self.entries == NULL:
            free(listed)
            raise MemoryError("no memory for the differences, or the table is closed")
        end_offset = min(end_offset, self.limit_offset)
        memset(sums, 0, sizeof(sums))
        memset(counts, 0, sizeof(counts))
        memset(kinds, 0, sizeof(kinds))
        try:
            with nogil:
                for i in range(self.slot_count):
                    if is_empty(&self.entries[i]):
                        continue
                    if is_newer(&self.entries[i], end_offset):
                        rewritten += 1
                        continue
                    for side in range(2):
                        found.offsets[side] = value_offset(&self.entries[i].sides[side], start_offset)
                        if found.offsets[side] >= 0:
                            counts[side] += 1
                            kp_digest_add(&sums[side], self.entries[i].sides[side].row)
                    found.kind = kind_of(&self.entries[i], found.offsets)
                    if found.kind < 0:
                        continue
                    kinds[found.kind] += 1
                    last = max(last, found.offsets[0], found.offsets[1])
                    if first < 0 or first_of(&found) < first:
                        first = first_of(&found)
                    listed_count = enlist(listed, listed_count, self.listed_max, found)
            return Comparison(
                sides=tuple(
                    [SideSum(count=counts[side], digest=number_of(sums[side])) for side in range(2)]
                ),
                rewritten=rewritten if self.by_key else 0,
                counts=tuple([kinds[side] for side in range(KINDS)]),
                first_offset=first,
                last_offset=last,
                listed=tuple([difference_of(&listed[i]) for i in range(<size_t>listed_count)]),
            )
        finally:
            free(listed)


cdef inline bint is_newer(const Entry *entry, int64_t end_offset) noexcept nogil:
    return (
        offset_of(&entry.sides[0]) >= end_offset or offset_of(&entry.sides[1]) >= end_offset
    )


cdef inline int64_t value_offset(const Newest *newest, int64_t start_offset) noexcept nogil:
    cdef int64_t offset = offset_of(newest)
    return offset if has_value(newest) and offset >= start_offset else -1


cdef inline int kind_of(const Entry *entry, const int64_t *offsets) noexcept nogil:
    """Returns how the sides differ; -1 if they do not."""
    if offsets[0] < 0 and offsets[1] < 0:
        return -1
    if offsets[1] < 0:
        return MISSING
    if offsets[0] < 0:
        return EXTRA
    if offsets[0] != offsets[1]:
        return OTHER_OFFSET
    if (
        entry.sides[0].row.low != entry.sides[1].row.low
        or entry.sides[0].row.high != entry.sides[1].row.high
    ):
        return OTHER_CONTENT
    return -1


cdef inline int64_t first_of(const Found *found) noexcept nogil:
    if found.offsets[0] < 0:
        return found.offsets[1]
    if found.offsets[1] < 0:
        return found.offsets[0]
    return min(found.offsets[0], found.offsets[1])


cdef Py_ssize_t enlist(
    Found *listed, Py_ssize_t count, Py_ssize_t most, Found found
) noexcept nogil:
    """Insert a difference into the sorted list, and drop its last one if there are too many."""
    cdef Py_ssize_t i
    if count == most:
        if most == 0 or first_of(&found) >= first_of(&listed[count - 1]):
            return count
        count -= 1
    i = count
    while i > 0 and first_of(&listed[i - 1]) > first_of(&found):
        listed[i] = listed[i - 1]
        i -= 1
    listed[i] = found
    return count + 1


cdef object difference_of(const Found *found):
    return Difference(
        kind=DifferenceKind(found.kind),
        offsets=(
            found.offsets[0] if found.offsets[0] >= 0 else None,
            found.offsets[1] if found.offsets[1] >= 0 else None,
        ),
    )
