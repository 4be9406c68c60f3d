/* What is counted of each key, beside the slots of the offset map (offset_slots.h), which hold its hash and
 * the offset of the last of its records: the one that outranks the others.
 */
#ifndef KOMPAKT_CLEANER_KEY_COUNT_SLOTS_H
#define KOMPAKT_CLEANER_KEY_COUNT_SLOTS_H

#include <stdint.h>
#include <string.h>

#include "offset_slots.h"

#define KP_AGES 128u
#define KP_KEY_BYTES_MAX ((UINT64_C(1) << 48) - 1)

/* Sums that would overflow stay at their largest value. */
typedef struct {
    uint64_t bytes : 48;      /* of its records */
    uint64_t age : 7;         /* of its first record: see kp_keyed */
    uint64_t was_live : 1;    /* whether the last of its records of age 0 is a value */
    uint32_t records;
    uint32_t last_size : 31;  /* of the last of its records */
    uint32_t is_deleted : 1;  /* whether that is a tombstone */
} kp_key_count;

/* A record, as a key sidecar has it. */
typedef struct {
    kp_sip_hash hash;
    int64_t offset, version;
    uint32_t size;
    uint32_t is_tombstone;
    uint32_t age; /* below KP_AGES; records of age 0 come before all others */
} kp_keyed;

/* Returns room for the counts of all slots, in place of `counts` unless that is NULL, whose memory is
 * released; NULL if there is none. It costs nothing until it is touched. */
static inline void *kp_fresh_counts(kp_key_count *counts, size_t slot_count) {
    void *memory = kp_fresh_pages(counts, slot_count * sizeof(kp_key_count));
    return memory == MAP_FAILED ? NULL : memory;
}

static inline void kp_drop_counts(kp_key_count *counts, size_t slot_count) {
    if (counts) munmap(counts, slot_count * sizeof(kp_key_count));
}

/* Count a record; records come in the order of offsets. Returns KP_PUT_FULL if its key is new and there are
 * `keys_max` of them, or no slot is left. */
static inline int kp_key_add(
    kp_offset_slots *map, kp_key_count *counts, size_t keys_max, const kp_keyed *record) {
    size_t at = kp_slots_find(map, record->hash), hole;
    uint64_t next_offset = (uint64_t)record->offset + 1;
    int is_new = !kp_slots_holds(map, at, record->hash);
    kp_key_count *count = &counts[at];
    if (is_new) {
        if (map->size >= keys_max) return KP_PUT_FULL;
        hole = kp_slots_insert(map, at, record->hash, next_offset);
        if (hole >= map->slot_count) return KP_PUT_FULL;
        memmove(counts + at + 1, counts + at, (hole - at) * sizeof(kp_key_count));
        if (map->versions)
            memmove(map->versions + at + 1, map->versions + at, (hole - at) * sizeof(int64_t));
        memset(count, 0, sizeof(*count));
        count->age = record->age;
    }
    if (is_new || !map->versions || record->version >= map->versions[at]) {
        map->slots[at].next_offset = next_offset;
        if (map->versions) map->versions[at] = record->version;
        count->last_size = record->size & 0x7FFFFFFFu;
        count->is_deleted = record->is_tombstone != 0;
        if (record->age == 0) count->was_live = record->is_tombstone == 0;
    }
    if (count->records != UINT32_MAX) count->records++;
    count->bytes = count->bytes + record->size < KP_KEY_BYTES_MAX ? count->bytes + record->size
                                                                  : KP_KEY_BYTES_MAX;
    return is_new ? KP_PUT_NEW : KP_PUT_KNOWN;
}

static inline void kp_key_prefetch(
    const kp_offset_slots *map, const kp_key_count *counts, kp_sip_hash hash) {
    kp_slots_prefetch(map, hash);
    __builtin_prefetch(counts + kp_slots_home(map, hash));
}

static inline int kp_slot_is_used(const kp_offset_slots *map, size_t at) {
    return map->slots[at].next_offset != 0;
}

static inline kp_sip_hash kp_slot_hash(const kp_offset_slots *map, size_t at) {
    return (kp_sip_hash){map->slots[at].low, map->slots[at].high};
}

/* Returns the class of a number of records, at least 1: one for each up to 32, then sixteen for each
 * doubling (33 to 64, ...). */
#define KP_CLASSES 464u
static inline uint32_t kp_count_class(uint32_t records) {
    uint32_t beyond = records - 1, doublings;
    if (beyond < 32) return beyond;
    doublings = 31u - (uint32_t)__builtin_clz(beyond);
    return 32 + (doublings - 5) * 16 + ((beyond >> (doublings - 4)) & 15);
}

/* A key among the hottest. */
typedef struct {
    uint64_t records, bytes;
    int64_t offset;
    size_t at;
} kp_hot_key;

/* Returns whether a key is hotter than another: more records, or as many and more bytes; the offset makes the
 * order total. */
static inline int kp_is_hotter(const kp_hot_key *one, const kp_hot_key *other) {
    if (one->records != other->records) return one->records > other->records;
    if (one->bytes != other->bytes) return one->bytes > other->bytes;
    return one->offset > other->offset;
}

/* Put a key into a heap of the hottest `max` (at least 1), whose coolest is the first. Returns its new size. */
static inline size_t kp_hottest_put(kp_hot_key *heap, size_t count, size_t max, kp_hot_key key) {
    size_t at, child;
    if (count < max) {
        for (at = count++; at > 0 && kp_is_hotter(&heap[(at - 1) / 2], &key); at = (at - 1) / 2)
            heap[at] = heap[(at - 1) / 2];
        heap[at] = key;
        return count;
    }
    if (!kp_is_hotter(&key, &heap[0])) return count;
    for (at = 0; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && kp_is_hotter(&heap[child], &heap[child + 1])) child++;
        if (!kp_is_hotter(&key, &heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = key;
    return count;
}

#endif
