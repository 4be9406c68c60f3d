"""Declarations of `digest.h` for compiled modules; see there for the meaning of each name."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from protocol.records.record_format cimport batch_header, record_view


cdef extern from "digest.h" nogil:
    ctypedef struct kp_hash128:
        uint64_t low
        uint64_t high

    void kp_digest_add(kp_hash128 *sum, kp_hash128 hash)
    kp_hash128 kp_xxh3(const uint8_t *data, size_t size)
    kp_hash128 kp_xxh3_seeded(const uint8_t *data, size_t size, uint64_t seed)
    uint64_t kp_key_product(
        uint64_t low,
        uint64_t high,
        int64_t offset,
        bint is_tombstone,
        int64_t version,
        uint32_t size,
    )
    uint64_t kp_key_resized(uint64_t low, uint64_t high, uint32_t size, uint32_t to)
    kp_hash128 kp_digest_copied(const uint8_t *batch)
    kp_hash128 kp_digest_header(
        const batch_header *header, int32_t record_count, int64_t max_timestamp, int64_t horizon
    )
    kp_hash128 kp_digest_record(
        const record_view *record, int64_t base_offset, int64_t base_timestamp
    )
