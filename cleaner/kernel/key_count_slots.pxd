"""Declarations of `key_count_slots.h` for compiled modules; see there for the meaning of each name."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from cleaner.kernel.offset_slots cimport kp_offset_slots
from cleaner.kernel.siphash cimport kp_sip_hash


cdef extern from "key_count_slots.h" nogil:
    enum:
        KP_AGES
        KP_CLASSES
    ctypedef struct kp_key_count:
        uint64_t bytes
        uint64_t age
        uint64_t was_live
        uint32_t records
        uint32_t last_size
        uint32_t is_deleted
    ctypedef struct kp_keyed:
        kp_sip_hash hash
        int64_t offset
        int64_t version
        uint32_t size
        uint32_t is_tombstone
        uint32_t age
    ctypedef struct kp_hot_key:
        uint64_t records
        uint64_t bytes
        int64_t offset
        size_t at
    void *kp_fresh_counts(kp_key_count *counts, size_t slot_count)
    void kp_drop_counts(kp_key_count *counts, size_t slot_count)
    int kp_key_add(
        kp_offset_slots *map, kp_key_count *counts, size_t keys_max, const kp_keyed *record
    )
    void kp_key_prefetch(
        const kp_offset_slots *map, const kp_key_count *counts, kp_sip_hash hash
    )
    int kp_slot_is_used(const kp_offset_slots *map, size_t at)
    kp_sip_hash kp_slot_hash(const kp_offset_slots *map, size_t at)
    uint32_t kp_count_class(uint32_t records)
    size_t kp_hottest_put(kp_hot_key *heap, size_t count, size_t max, kp_hot_key key)
