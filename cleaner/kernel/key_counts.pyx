# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Counts the records of each key of a log; `key_counts.pyi` documents the interface."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cython cimport final
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from cleaner.kernel.key_count_slots cimport (
    KP_AGES,
    KP_CLASSES,
    kp_count_class,
    kp_drop_counts,
    kp_fresh_counts,
    kp_hot_key,
    kp_hottest_put,
    kp_key_add,
    kp_key_count,
    kp_key_prefetch,
    kp_keyed,
    kp_slot_hash,
    kp_slot_is_used,
)
from cleaner.kernel.offset_slots cimport (
    KP_PUT_FULL,
    kp_offset_slots,
    kp_slot,
    kp_slots_clear,
    kp_slots_map,
    kp_slots_offset,
    kp_slots_spill,
    kp_slots_take,
    kp_slots_unmap,
)
from cleaner.kernel.siphash cimport kp_sip_hash, kp_sip_load64, kp_sip_store64
from protocol.records.record_format cimport load_int16, load_int64, load_uint32

from array import array

from cleaner.keys.counts import BlockCounts, HotKey, KeyTally
from cleaner.rules.step import KeysDiffer

cdef enum:
    # Records between the prefetch of a slot and its use.
    WINDOW = 32

SLOT_BYTES = sizeof(kp_slot) + sizeof(kp_key_count)
VERSION_BYTES = sizeof(int64_t)


cdef struct LeftOut:
    # Transactional batches of this producer with base offsets in [first_offset, end_offset) count for no
    # key.
    int64_t producer_id
    int64_t first_offset
    int64_t end_offset
    bint is_aborted


cdef struct Sums:
    int64_t records
    int64_t record_bytes
    int64_t tombstones
    int64_t aborted
    int64_t undecided
    int64_t all_bytes


cdef inline const uint8_t *bytes_of(const unsigned char[::1] view) noexcept nogil:
    # An empty view has no first element to take the address of.
    return &view[0] if view.shape[0] > 0 else NULL


cdef inline int64_t wrapping_add(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a + <uint64_t>b)


include "key_block.pxi"


cdef struct Batches:
    # The special row that an entry may belong to.
    int64_t next_row
    SpecialRow row
    const LeftOut *outcome


@final
cdef class KeyCounts:
    # Constant after construction
    cdef double load_factor
    cdef size_t home_count_max
    cdef int64_t start_offset
    cdef int64_t end_offset
    cdef LeftOut *left_out
    cdef Py_ssize_t left_out_count
    # State: slots.size <= keys_max
    cdef kp_offset_slots slots
    cdef kp_key_count *counts
    cdef size_t keys_max

    def __cinit__(
        self,
        memory_bytes,
        double load_factor=0.9,
        *,
        bint has_versions=False,
        int64_t start_offset,
        int64_t end_offset,
        left_out=(),
    ):
        cdef size_t slot_bytes = SLOT_BYTES + (VERSION_BYTES if has_versions else 0)
        if not 0.0 < load_factor <= 0.95:
            raise ValueError(f"load factor {load_factor} is not in (0, 0.95]")
        if memory_bytes < 16 * slot_bytes:
            raise ValueError(f"{memory_bytes} bytes hold fewer than 16 slots")
        self.load_factor = load_factor
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.take_outcomes(sorted(left_out))
        self.slots.slot_count = memory_bytes // slot_bytes
        self.home_count_max = self.slots.slot_count - kp_slots_spill(self.slots.slot_count)
        if kp_slots_map(&self.slots, has_versions, False) != 0:
            raise MemoryError(f"cannot map {memory_bytes} bytes for the counts of keys")
        self.counts = <kp_key_count *>kp_fresh_counts(NULL, self.slots.slot_count)
        if self.counts == NULL:
            raise MemoryError(f"cannot map {memory_bytes} bytes for the counts of keys")
        self.clear()

    def __dealloc__(self):
        kp_slots_unmap(&self.slots)
        kp_drop_counts(self.counts, self.slots.slot_count)
        free(self.left_out)

    cdef int take_outcomes(self, list ranges) except -1:
        cdef Py_ssize_t i
        self.left_out = <LeftOut *>malloc(max(1, len(ranges)) * sizeof(LeftOut))
        if self.left_out == NULL:
            raise MemoryError("no memory for the outcomes of transactions")
        for i, (producer_id, first_offset, end_offset, is_aborted) in enumerate(ranges):
            self.left_out[i] = LeftOut(producer_id, first_offset, end_offset, is_aborted)
        self.left_out_count = len(ranges)
        return 0

    def clear(self, keys_max=None, *, uint64_t part=0, uint64_t parts=1):
        cdef size_t home_count = self.home_count_max
        cdef size_t capacity = max(<size_t>1, <size_t>(self.home_count_max * self.load_factor))
        if part >= parts:
            raise ValueError(f"there is no part {part} of {parts}")
        if keys_max is not None and keys_max < capacity:
            capacity = max(1, keys_max)
            home_count = min(home_count, <size_t>(capacity / self.load_factor) + 1)
        if self.slots.size != 0:
            if kp_fresh_counts(self.counts, self.slots.slot_count) == NULL:
                raise MemoryError("cannot map fresh pages for the counts of keys")
        if kp_slots_clear(&self.slots, home_count, part, parts) != 0:
            raise MemoryError("cannot map fresh pages for the counts of keys")
        self.keys_max = capacity

    @property
    def capacity(self):
        return self.keys_max

    @property
    def size(self):
        return self.slots.size

    def count(self, block not None, *, int64_t base_offset, uint32_t age=0):
        cdef const unsigned char[::1] view = block
        cdef KeyBlock keys
        cdef Sums sums
        cdef bint fits
        if age >= KP_AGES:
            raise ValueError(f"age {age} is not below {KP_AGES}")
        read_key_block(view, &keys)
        if self.slots.versions != NULL and keys.versions == NULL and keys.entry_count > 0:
            raise ValueError("the block has no versions")
        memset(&sums, 0, sizeof(Sums))
        with nogil:
            fits = self.count_entries(&keys, base_offset, age, &sums)
        return BlockCounts(
            sums.records,
            sums.record_bytes,
            sums.tombstones,
            sums.aborted,
            sums.undecided,
            sums.all_bytes,
            is_full=not fits,
        )

    cdef bint count_entries(
        self, const KeyBlock *block, int64_t base_offset, uint32_t age, Sums *sums
    ) noexcept nogil:
        """Count a block's entries. Returns false if their keys do not fit."""
        cdef kp_keyed[WINDOW] window
        cdef Batches batches
        cdef const uint8_t *entry = block.entries
        cdef kp_keyed *record
        cdef uint32_t waiting = 0
        cdef int64_t i
        memset(&batches, 0, sizeof(Batches))
        batches.row.last_offset = -1
        for i in range(block.entry_count):
            record = &window[waiting]
            record.hash = entry_hash(entry)
            record.offset = entry_offset(entry, base_offset)
            record.size = load_uint32(entry + ENTRY_RECORD_SIZE)
            record.is_tombstone = entry_is_tombstone(entry)
            entry += ENTRY_SIZE
            if not kp_slots_take(&self.slots, record.hash):
                continue
            sums.all_bytes += record.size
            if not self.start_offset <= record.offset < self.end_offset:
                continue
            if self.is_left_out(block, base_offset, &batches, record.offset):
                sums.aborted += batches.outcome.is_aborted
                sums.undecided += not batches.outcome.is_aborted
                continue
            sums.records += 1
            sums.record_bytes += record.size
            sums.tombstones += record.is_tombstone
            record.version = version_at(block, i)
            record.age = age
            kp_key_prefetch(&self.slots, self.counts, record.hash)
            waiting += 1
            if waiting == WINDOW:
                if not self.add(window, waiting):
                    return False
                waiting = 0
        return self.add(window, waiting)

    cdef bint add(self, const kp_keyed *window, uint32_t count) noexcept nogil:
        cdef uint32_t i
        for i in range(count):
            if kp_key_add(&self.slots, self.counts, self.keys_max, &window[i]) == KP_PUT_FULL:
                return False
        return True

    cdef bint is_left_out(
        self, const KeyBlock *block, int64_t base_offset, Batches *batches, int64_t offset
    ) noexcept nogil:
        """Returns whether an entry counts for no key; its batch's outcome is then set. Call it with
        offsets that do not decrease."""
        if self.left_out_count == 0:
            return False
        while batches.row.last_offset < offset and batches.next_row < block.row_count:
            read_special_row(block, batches.next_row, base_offset, &batches.row)
            batches.outcome = NULL
            if is_transactional_data(&batches.row):
                batches.outcome = self.outcome_of(&batches.row)
            batches.next_row += 1
        if batches.outcome == NULL:
            return False
        return batches.row.first_offset <= offset <= batches.row.last_offset

    cdef const LeftOut *outcome_of(self, const SpecialRow *row) noexcept nogil:
        """Returns why a transactional batch is left out; NULL if it is not."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.left_out_count
        cdef Py_ssize_t middle
        cdef const LeftOut *at
        # The last range of the producer that begins at the batch or before it.
        while low < high:
            middle = low + (high - low) // 2
            at = &self.left_out[middle]
            if at.producer_id < row.producer_id or (
                at.producer_id == row.producer_id and at.first_offset <= row.first_offset
            ):
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return NULL
        at = &self.left_out[low - 1]
        if at.producer_id != row.producer_id or row.first_offset >= at.end_offset:
            return NULL
        return at

    def tally(self):
        cdef uint64_t[KP_AGES] by_age
        cdef uint64_t[KP_CLASSES] keys
        cdef uint64_t[KP_CLASSES] records
        cdef uint64_t live = 0
        cdef uint64_t live_bytes = 0
        cdef uint64_t was_live = 0
        cdef const kp_key_count *count
        cdef int number
        cdef size_t at
        memset(by_age, 0, sizeof(by_age))
        memset(keys, 0, sizeof(keys))
        memset(records, 0, sizeof(records))
        with nogil:
            for at in range(self.slots.slot_count):
                if not kp_slot_is_used(&self.slots, at):
                    # Behind the homes, the first free slot is the end.
                    if at >= self.slots.home_count:
                        break
                    continue
                count = &self.counts[at]
                number = <int>kp_count_class(count.records)
                keys[number] += 1
                records[number] += count.records
                by_age[count.age] += 1
                was_live += count.was_live
                if not count.is_deleted:
                    live += 1
                    live_bytes += count.last_size
        packed = array("Q")
        for number in range(KP_CLASSES):
            if keys[number]:
                packed.extend((number, keys[number], records[number]))
        return KeyTally(
            keys=self.slots.size,
            live=live,
            live_bytes=live_bytes,
            was_live=was_live,
            by_age=tuple([by_age[number] for number in range(KP_AGES)]),
            classes=packed,
        )

    def hottest(self, Py_ssize_t count):
        cdef kp_hot_key *heap
        cdef size_t found = 0
        cdef size_t at
        if count <= 0:
            raise ValueError(f"{count} is not a number of keys")
        heap = <kp_hot_key *>malloc(count * sizeof(kp_hot_key))
        if heap == NULL:
            raise MemoryError("no memory for the hottest keys")
        try:
            with nogil:
                for at in range(self.slots.slot_count):
                    if not kp_slot_is_used(&self.slots, at):
                        if at >= self.slots.home_count:
                            break
                        continue
                    found = kp_hottest_put(heap, found, count, self.hot_key_at(at))
            return sorted([self.named(&heap[at]) for at in range(found)], reverse=True)
        finally:
            free(heap)

    cdef inline kp_hot_key hot_key_at(self, size_t at) noexcept nogil:
        cdef const kp_key_count *count = &self.counts[at]
        return kp_hot_key(count.records, count.bytes, kp_slots_offset(&self.slots, at), at)

    cdef object named(self, const kp_hot_key *key):
        cdef kp_sip_hash hashed = kp_slot_hash(&self.slots, key.at)
        cdef uint8_t[16] out
        kp_sip_store64(out, hashed.low)
        kp_sip_store64(out + 8, hashed.high)
        return HotKey(
            key.records,
            key.bytes,
            key.offset,
            PyBytes_FromStringAndSize(<const char *>out, 16),
            bool(self.counts[key.at].is_deleted),
        )
