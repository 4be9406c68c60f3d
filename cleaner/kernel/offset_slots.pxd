"""Declarations of `offset_slots.h` for compiled modules; see there for the meaning of each name."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from cleaner.kernel.siphash cimport kp_sip_hash


cdef extern from "offset_slots.h" nogil:
    ctypedef struct kp_slot:
        uint64_t low
        uint64_t high
        uint64_t next_offset
    ctypedef struct kp_count:
        uint32_t records
        uint32_t tombstones
        uint32_t has_older
    ctypedef struct kp_offset_slots:
        kp_slot *slots
        int64_t *versions
        kp_count *counts
        size_t slot_count
        size_t home_count
        uint64_t part
        uint64_t parts
        size_t size
        uint64_t offset_sum
        uint64_t left
    ctypedef struct kp_tally:
        uint64_t count
        uint64_t sum
    ctypedef enum kp_rank:
        KP_NO_KEY
        KP_BELOW
        KP_SAME
        KP_ABOVE
    enum:
        KP_PUT_FULL
        KP_SPILL_MAX
    size_t kp_slots_spill(size_t slot_count)
    int kp_slots_map(kp_offset_slots *slots, int has_versions, int has_counts)
    int kp_slots_clear(
        kp_offset_slots *slots, size_t home_count, uint64_t part, uint64_t parts
    )
    void kp_slots_unmap(kp_offset_slots *slots)
    int kp_slots_take(const kp_offset_slots *slots, kp_sip_hash hash)
    void kp_slots_prefetch(const kp_offset_slots *slots, kp_sip_hash hash)
    size_t kp_slots_find(const kp_offset_slots *slots, kp_sip_hash hash)
    int kp_slots_holds(const kp_offset_slots *slots, size_t at, kp_sip_hash hash)
    int64_t kp_slots_offset(const kp_offset_slots *slots, size_t at)
    int64_t kp_slots_get(const kp_offset_slots *slots, kp_sip_hash hash)
    int kp_slots_put(kp_offset_slots *slots, kp_sip_hash hash, int64_t offset)
    kp_rank kp_ranked_compare(
        const kp_offset_slots *slots,
        kp_sip_hash hash,
        int64_t offset,
        int64_t version,
        int64_t *held,
    )
    int kp_ranked_raise(kp_offset_slots *slots, kp_sip_hash hash, int64_t offset, int64_t version)
    int kp_ranked_put(kp_offset_slots *slots, kp_sip_hash hash, int64_t offset, int64_t version)
    int kp_last_put(
        kp_offset_slots *slots, kp_sip_hash hash, int64_t offset, int64_t version, int64_t *lost
    )
    void kp_counted_add(kp_offset_slots *slots, kp_sip_hash hash, int is_tombstone)
    int kp_counted_put(
        kp_offset_slots *slots, kp_sip_hash hash, int64_t offset, int is_tombstone
    )
    uint32_t kp_counted_take(
        kp_offset_slots *slots, size_t at, int is_tombstone, uint32_t *later_tombstones
    )
    void kp_slots_offsets(const kp_offset_slots *slots, int64_t *offsets)
    void kp_slots_tally(
        const kp_offset_slots *slots, const int64_t *bounds, size_t bound_count, kp_tally *tallies
    )
