# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Proves by the keys themselves that records are superseded; `key_proof.pyi` documents the interface."""

from bisect import bisect_right

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from cleaner.kernel.siphash cimport kp_sip128, kp_sip_key, kp_sip_key_of
from protocol.records.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CODEC_MAX,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_CUT,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    batch_crc,
    batch_header,
    read_batch_header,
    read_record,
    record_view,
)

from cleaner.keys.proof import Unproven
from cleaner.rules.step import KeysDiffer, ReadStep
from protocol.records.compression import Codec, decompress
from protocol.wire.errors import CorruptBatch


cdef extern from *:
    void __builtin_prefetch(const void *address) noexcept nogil


cdef enum:
    SLOTS_MIN = 1024
    KEYS_MIN = 4096
    # Records whose slots are fetched from memory at the same time
    WINDOW = 32


cdef struct Slot:
    uint64_t tag
    # Where the key is among the keys.
    uint64_t place
    uint32_t key_size
    # Offsets; a slot without a marked record is empty.
    int64_t marked
    int64_t newest


cdef struct Candidate:
    # A record that was marked, or may win.
    const uint8_t *key
    uint32_t key_size
    uint64_t tag
    int64_t rank


include "batch_reader.pxi"


cdef class KeyProof(BatchReader):
    # Constant after construction
    cdef kp_sip_key secret
    cdef size_t memory_bytes
    cdef dict aborted             # by producer: (first offsets, offsets of markers), both sorted
    # The table: slots (a power of two), and the keys one after the other
    cdef Slot *slots
    cdef size_t slot_count
    cdef size_t size
    cdef uint8_t *keys
    cdef size_t keys_size
    cdef size_t keys_capacity
    # The segment whose marked records are remembered, and how many records of it were fed
    cdef const unsigned char[::1] marks
    cdef readonly int64_t marked_records
    # The segment whose records may be winners
    cdef const unsigned char[::1] winners
    cdef bint has_winners
    cdef readonly int64_t winner_records
    cdef int64_t start_offset
    cdef int64_t end_offset
    # Which of the two is fed
    cdef bint finds_winners
    # Records of the current batch that wait for their slots
    cdef Candidate[WINDOW] waiting
    cdef int waiting_count

    def __cinit__(
        self,
        bytes secret not None,
        *,
        size_t memory_bytes,
        int64_t decompressed_bytes_max,
        aborted=(),
    ):
        if len(secret) != 16:
            raise ValueError(f"a secret has 16 bytes, not {len(secret)}")
        self.secret = kp_sip_key_of(<const uint8_t *><const char *>secret)
        self.memory_bytes = memory_bytes
        self.bytes_max = decompressed_bytes_max
        self.aborted = {}
        for each in sorted(aborted, key=lambda its: its.first_offset):
            firsts, markers = self.aborted.setdefault(each.producer_id, ([], []))
            firsts.append(each.first_offset)
            markers.append(each.marker_offset)
        self.clear()

    def __dealloc__(self):
        free(self.slots)
        free(self.keys)

    def __len__(self):
        return self.size

    def clear(self):
        free(self.slots)
        free(self.keys)
        self.keys = NULL
        self.keys_size = self.keys_capacity = self.size = 0
        self.slot_count = SLOTS_MIN
        self.slots = new_slots(self.slot_count)

    @property
    def is_full(self):
        return self.fills_memory()

    cdef inline bint fills_memory(self) noexcept nogil:
        """Returns whether the next key might exceed the memory: the table doubles at three quarters."""
        cdef size_t slots_bytes = self.slot_count * sizeof(Slot)
        if self.size >= self.slot_count // 4 * 3:
            slots_bytes *= 2
        return slots_bytes + self.keys_size >= self.memory_bytes and self.size > 0

    # ------------------------------------------------------------ reading

    def begin_marked(self, const unsigned char[::1] marks not None):
        self.marks = marks
        self.marked_records = 0

    def feed_marked(self, chunk not None, *, int64_t position=0):
        self.finds_winners = False
        self.waiting_count = 0
        return self.feed(chunk, position=position)

    def begin_winners(self, *, int64_t start_offset, int64_t end_offset, winners=None):
        self.winners = winners
        self.has_winners = winners is not None
        self.winner_records = 0
        self.start_offset = start_offset
        self.end_offset = end_offset

    def feed_winners(self, chunk not None, *, int64_t position=0):
        self.finds_winners = True
        self.waiting_count = 0
        return self.feed(chunk, position=position)

    cdef bint pauses(self) noexcept nogil:
        return not self.finds_winners and self.fills_memory()

    cdef int take_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        if header.attributes & ATTRIBUTE_CONTROL:
            return 0
        if self.finds_winners and not self.has_winners:
            if header.last_offset < self.start_offset or header.base_offset >= self.end_offset:
                return 0
            if header.attributes & ATTRIBUTE_TRANSACTIONAL and self.is_aborted(header):
                return 0
        return self.read_batch(batch, header, position)

    cdef int is_aborted(self, const batch_header *header) except -1 nogil:
        with gil:
            firsts, markers = self.aborted.get(header.producer_id, ((), ()))
            number = bisect_right(firsts, header.base_offset)
            return number > 0 and header.base_offset < markers[number - 1]

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
            if self.finds_winners:
                self.take_winner(&record, offset, position)
            else:
                self.take_marked(&record, offset, position)
        return self.add_waiting()

    cdef int take_marked(
        self, const record_view *record, int64_t offset, int64_t position
    ) except -1 nogil:
        cdef int64_t number = self.marked_records
        self.marked_records += 1
        if has_bit(self.marks, number, position):
            self.wait_for_slot(record, offset)
        return 0

    cdef int take_winner(
        self, const record_view *record, int64_t offset, int64_t position
    ) except -1 nogil:
        cdef int64_t number = self.winner_records
        self.winner_records += 1
        if not self.start_offset <= offset < self.end_offset:
            return 0
        if not self.has_winners:
            self.wait_for_slot(record, offset)
        elif has_bit(self.winners, number, position):
            self.wait_for_slot(record, INT64_MAX)
        return 0

    cdef inline int wait_for_slot(self, const record_view *record, int64_t rank) except -1 nogil:
        """Add a record later, when its slot has arrived from memory."""
        cdef Candidate *each = &self.waiting[self.waiting_count]
        each.key = record.key
        each.key_size = <uint32_t>record.key_size
        each.tag = kp_sip128(&self.secret, record.key, <size_t>record.key_size).low
        each.rank = rank
        __builtin_prefetch(&self.slots[each.tag & (self.slot_count - 1)])
        self.waiting_count += 1
        if self.waiting_count == WINDOW:
            return self.add_waiting()
        return 0

    cdef int add_waiting(self) except -1 nogil:
        """Add the records whose slots were fetched."""
        cdef int count = self.waiting_count
        cdef int i
        self.waiting_count = 0
        for i in range(count):
            # The key's bytes come from memory, too.
            __builtin_prefetch(
                self.keys + self.slots[self.waiting[i].tag & (self.slot_count - 1)].place
            )
        for i in range(count):
            if self.finds_winners:
                self.add_winner(&self.waiting[i])
            else:
                self.add_marked(&self.waiting[i])
        return 0

    # ------------------------------------------------------------ the table

    cdef Slot *slot_of(self, const Candidate *each) noexcept nogil:
        """Returns the slot of a record's key, or the empty one where it belongs."""
        cdef size_t i = <size_t>each.tag & (self.slot_count - 1)
        cdef Slot *slot = &self.slots[i]
        while slot.marked >= 0 and not (
            slot.tag == each.tag
            and slot.key_size == each.key_size
            and memcmp(self.keys + slot.place, each.key, each.key_size) == 0
        ):
            i = (i + 1) & (self.slot_count - 1)
            slot = &self.slots[i]
        return slot

    cdef int add_marked(self, const Candidate *each) except -1 nogil:
        cdef Slot *slot = self.slot_of(each)
        if slot.marked < 0:
            if self.size >= self.slot_count // 4 * 3:
                self.double_slots()
                slot = self.slot_of(each)
            slot.tag = each.tag
            slot.place = self.keep_key(each)
            slot.key_size = each.key_size
            self.size += 1
        slot.marked = max(slot.marked, each.rank)
        return 0

    cdef int add_winner(self, const Candidate *each) noexcept nogil:
        cdef Slot *slot = self.slot_of(each)
        if slot.marked >= 0:
            slot.newest = max(slot.newest, each.rank)
        return 0

    cdef uint64_t keep_key(self, const Candidate *each) except? 0 nogil:
        """Returns the place of a copy of the record's key."""
        cdef uint64_t place = self.keys_size
        cdef size_t wanted = self.keys_size + each.key_size
        cdef size_t capacity = self.keys_capacity
        cdef uint8_t *moved
        if wanted > capacity:
            # By a quarter at most: more would exceed the memory by much.
            capacity = max(wanted, max(capacity + capacity // 4, <size_t>KEYS_MIN))
            moved = <uint8_t *>realloc(self.keys, capacity)
            if moved == NULL:
                with gil:
                    raise MemoryError(f"cannot allocate {capacity} bytes for keys")
            self.keys = moved
            self.keys_capacity = capacity
        memcpy(self.keys + place, each.key, each.key_size)
        self.keys_size = wanted
        return place

    cdef int double_slots(self) except -1 nogil:
        cdef Slot *former = self.slots
        cdef size_t former_count = self.slot_count
        cdef size_t i, at
        self.slots = new_slots(2 * former_count)
        self.slot_count = 2 * former_count
        for i in range(former_count):
            if former[i].marked < 0:
                continue
            at = <size_t>former[i].tag & (self.slot_count - 1)
            while self.slots[at].marked >= 0:
                at = (at + 1) & (self.slot_count - 1)
            self.slots[at] = former[i]
        free(former)
        return 0

    @property
    def unproven(self):
        cdef int64_t first = INT64_MAX
        cdef size_t keys = 0
        cdef size_t i
        with nogil:
            for i in range(self.slot_count):
                if self.slots[i].marked >= 0 and self.slots[i].newest <= self.slots[i].marked:
                    keys += 1
                    first = min(first, self.slots[i].marked)
        return Unproven(keys, first if keys else -1)


cdef inline int has_bit(
    const unsigned char[::1] bits, int64_t number, int64_t position
) except -1 nogil:
    if number >> 3 >= bits.shape[0]:
        with gil:
            raise KeysDiffer(
                f"record batch at position {position}: its segment has more records than marks"
            )
    return (bits[number >> 3] >> (number & 7)) & 1


cdef Slot *new_slots(size_t count) except NULL nogil:
    cdef Slot *slots = <Slot *>malloc(count * sizeof(Slot))
    cdef size_t i
    if slots == NULL:
        with gil:
            raise MemoryError(f"cannot allocate {count} slots for keys")
    for i in range(count):
        slots[i].marked = slots[i].newest = -1
        slots[i].place = 0
    return slots
