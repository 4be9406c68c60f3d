# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Adds the keys of a sidecar's block to a sketch; `key_sketch.pyi` documents the interface."""

from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t, uint64_t

from cleaner.kernel.siphash cimport kp_sip_hash, kp_sip_load64
from protocol.records.record_format cimport load_int16, load_int64, load_uint32

from cleaner.rules.step import KeysDiffer


cdef extern from *:
    """
    /* The number of zeros before the first one bit; 64 if there is none. */
    static inline int kp_leading_zeros(uint64_t word) { return word ? __builtin_clzll(word) : 64; }
    """
    int kp_leading_zeros(uint64_t word) nogil


cdef inline const uint8_t *bytes_of(const unsigned char[::1] view) noexcept nogil:
    # An empty view has no first element to take the address of.
    return &view[0] if view.shape[0] > 0 else NULL


cdef inline int64_t wrapping_add(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a + <uint64_t>b)


include "key_block.pxi"


cdef enum:
    PRECISION_MIN = 4
    PRECISION_MAX = 16


cdef int precision_of(Py_ssize_t count) except -1:
    cdef int precision
    for precision in range(PRECISION_MIN, PRECISION_MAX + 1):
        if count == <Py_ssize_t>1 << precision:
            return precision
    raise ValueError(f"a sketch cannot have {count} registers")


def add_keys(
    unsigned char[::1] registers not None,
    const unsigned char[::1] block not None,
    *,
    int64_t base_offset,
    int64_t start_offset,
    int64_t end_offset,
):
    cdef KeyBlock keys
    cdef kp_sip_hash hashed
    cdef const uint8_t *entry
    cdef uint8_t *register_
    cdef uint8_t rank
    cdef int64_t i
    cdef int64_t added = 0
    cdef uint64_t span = <uint64_t>max(0, end_offset - start_offset)
    cdef int shift = 64 - precision_of(registers.shape[0])
    read_key_block(block, &keys)
    with nogil:
        entry = keys.entries
        for i in range(keys.entry_count):
            # One comparison for both ends of [start_offset, end_offset).
            if <uint64_t>(entry_offset(entry, base_offset) - start_offset) < span:
                hashed = entry_hash(entry)
                rank = kp_leading_zeros(hashed.high) + 1
                register_ = &registers[0] + (hashed.low >> shift)
                register_[0] = max(register_[0], rank)
                added += 1
            entry += ENTRY_SIZE
    return added
