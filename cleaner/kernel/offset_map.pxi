# Hash functions, and the offset map over the slots of offset_slots.h; a part of kernel.pyx.


cdef kp_sip_key sip_key_of(bytes hash_key) except *:
    if len(hash_key) != 16:
        raise ValueError(f"a hash key has 16 bytes, not {len(hash_key)}")
    return kp_sip_key_of(<const uint8_t *><const char *>hash_key)


cdef kp_sip_hash hash_from(bytes hashed) except *:
    cdef kp_sip_hash read
    if len(hashed) != 16:
        raise ValueError(f"a hash has 16 bytes, not {len(hashed)}")
    read.low = kp_sip_load64(<const uint8_t *><const char *>hashed)
    read.high = kp_sip_load64(<const uint8_t *><const char *>hashed + 8)
    return read


def siphash128(bytes hash_key not None, const unsigned char[::1] data not None):
    cdef kp_sip_key key = sip_key_of(hash_key)
    cdef kp_sip_hash hashed = kp_sip128(&key, bytes_of(data), data.shape[0])
    cdef uint8_t[16] out
    kp_sip_store64(out, hashed.low)
    kp_sip_store64(out + 8, hashed.high)
    return PyBytes_FromStringAndSize(<const char *>out, 16)


def xxh3_128(const unsigned char[::1] data not None, uint64_t seed=0):
    return number_of(kp_xxh3_seeded(bytes_of(data), data.shape[0], seed))


cdef object number_of(kp_hash128 hashed):
    return hashed.low | <object>hashed.high << 64


cdef inline const uint8_t *bytes_of(const unsigned char[::1] view) noexcept nogil:
    # An empty view has no first element to take the address of.
    return &view[0] if view.shape[0] > 0 else NULL


cdef size_t slot_extra_bytes(bint has_versions, bint has_counts) noexcept:
    cdef size_t size = 0
    if has_versions:
        size += sizeof(int64_t)
    if has_counts:
        size += sizeof(kp_count)
    return size


@final
cdef class OffsetMap:
    # Constant after construction
    cdef kp_sip_key key
    cdef double load_factor
    cdef size_t home_count_max
    # State: slots.size <= capacity_keys
    cdef kp_offset_slots slots
    cdef size_t capacity_keys

    def __cinit__(
        self,
        memory_bytes,
        bytes hash_key not None,
        double load_factor=0.9,
        *,
        bint has_versions=False,
        bint has_counts=False,
    ):
        cdef size_t slot_bytes = sizeof(kp_slot) + slot_extra_bytes(has_versions, has_counts)
        self.slots.slots = NULL
        self.slots.versions = NULL
        self.slots.counts = NULL
        if not 0.0 < load_factor <= 0.95:
            raise ValueError(f"load factor {load_factor} is not in (0, 0.95]")
        if memory_bytes < 16 * slot_bytes:
            raise ValueError(f"{memory_bytes} bytes hold fewer than 16 slots")
        self.key = sip_key_of(hash_key)
        self.load_factor = load_factor
        self.slots.slot_count = memory_bytes // slot_bytes
        self.home_count_max = self.slots.slot_count - kp_slots_spill(self.slots.slot_count)
        if kp_slots_map(&self.slots, has_versions, has_counts) != 0:
            raise MemoryError(f"cannot map {memory_bytes} bytes for an offset map")
        self.clear()

    def __dealloc__(self):
        kp_slots_unmap(&self.slots)

    def clear(self, keys_max=None, *, uint64_t part=0, uint64_t parts=1):
        cdef size_t home_count = self.home_count_max
        cdef size_t capacity = max(<size_t>1, <size_t>(self.home_count_max * self.load_factor))
        if part >= parts:
            raise ValueError(f"there is no part {part} of {parts}")
        if keys_max is not None and keys_max < capacity:
            capacity = max(1, keys_max)
            home_count = min(home_count, <size_t>(capacity / self.load_factor) + 1)
        if kp_slots_clear(&self.slots, home_count, part, parts) != 0:
            raise MemoryError("cannot map fresh pages for an offset map")
        self.capacity_keys = capacity

    @property
    def memory_bytes(self):
        cdef size_t extra_bytes = slot_extra_bytes(
            self.slots.versions != NULL, self.slots.counts != NULL
        )
        return self.slots.slot_count * (sizeof(kp_slot) + extra_bytes)

    @property
    def capacity(self):
        return self.capacity_keys

    @property
    def size(self):
        return self.slots.size

    def __len__(self):
        return self.slots.size

    def get(self, const unsigned char[::1] key not None):
        cdef int64_t offset
        offset = kp_slots_get(&self.slots, kp_sip128(&self.key, bytes_of(key), key.shape[0]))
        return None if offset < 0 else offset

    def rank(self, const unsigned char[::1] key not None):
        cdef kp_sip_hash hashed = kp_sip128(&self.key, bytes_of(key), key.shape[0])
        cdef size_t at = kp_slots_find(&self.slots, hashed)
        if not kp_slots_holds(&self.slots, at, hashed):
            return None
        return Rank(
            version=0 if self.slots.versions == NULL else self.slots.versions[at],
            offset=kp_slots_get(&self.slots, hashed),
        )

    @property
    def left(self):
        return self.slots.left

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

    def offsets(self):
        cdef bytearray found = bytearray(self.slots.size * sizeof(int64_t))
        cdef int64_t *at = <int64_t *>PyByteArray_AsString(found)
        with nogil:
            kp_slots_offsets(&self.slots, at)
        return found

    def put(self, const unsigned char[::1] key not None, int64_t offset, int64_t version=0):
        cdef kp_sip_hash hashed = kp_sip128(&self.key, bytes_of(key), key.shape[0])
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        if not kp_slots_take(&self.slots, hashed):
            raise ValueError(f"the key is not in part {self.slots.part} of {self.slots.parts}")
        if self.slots.size >= self.capacity_keys and kp_slots_get(&self.slots, hashed) < 0:
            raise OverflowError(f"the offset map is full: {self.slots.size} keys")
        if self.put_hash(hashed, offset, version) == KP_PUT_FULL:
            raise OverflowError("the offset map has no slot left")

    def rank_of(self, bytes hashed not None):
        cdef kp_sip_hash wanted = hash_from(hashed)
        cdef size_t at = kp_slots_find(&self.slots, wanted)
        if not kp_slots_holds(&self.slots, at, wanted):
            return None
        return Rank(
            version=0 if self.slots.versions == NULL else self.slots.versions[at],
            offset=kp_slots_offset(&self.slots, at),
        )

    def put_rank(self, bytes hashed not None, rank not None):
        if self.put_hash(hash_from(hashed), rank.offset, rank.version) == KP_PUT_FULL:
            raise OverflowError("the offset map has no slot left")

    cdef int put_hash(self, kp_sip_hash hashed, int64_t offset, int64_t version) noexcept nogil:
        if self.slots.counts != NULL:
            return kp_counted_put(&self.slots, hashed, offset, False)
        if self.slots.versions == NULL:
            return kp_slots_put(&self.slots, hashed, offset)
        return kp_ranked_put(&self.slots, hashed, offset, version)
