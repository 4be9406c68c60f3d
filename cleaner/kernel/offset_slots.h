/* The offset map's memory: 128-bit hashes and offsets, in one flat array.
 *
 *     slot: hash low uint64 | hash high uint64 | offset + 1 uint64     (0: the slot is empty)
 *
 * If the topic's strategy gives its records versions, a second array has the version of each used slot,
 * an int64. A record outranks another of its key if its version is higher or, with the same version, its
 * offset is; without versions the offset decides (cleaner/rules/latest.py).
 *
 * If the topic keeps a history, the second array counts the records of each used slot's key instead
 * (cleaner/rules/history.py): those that were put, less those that the marking has taken.
 *
 * The map holds one of `parts` equal parts of the hash space: the hashes with
 * floor(low / 2^64 * parts) == part. The fraction after the point, scaled to [0, home_count), is a
 * hash's home slot, so home slots rise with hashes, and each run of slots is sorted by hash. A search
 * therefore ends at the first larger hash: at load 0.9 a missing key costs about 5 slots instead of
 * the 50 of plain linear probing. Slots after the last home form the spill, up to 1024 slots; the
 * probability that more are needed is e^-107 at load 0.95, because without the secret key clients
 * cannot choose hashes.
 *
 * The array is mapped, not allocated: zeroed pages cost nothing until they are touched.
 *
 * Source: Amble, Knuth, "Ordered hash tables" (1974).
 */
#ifndef KOMPAKT_CLEANER_OFFSET_SLOTS_H
#define KOMPAKT_CLEANER_OFFSET_SLOTS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "siphash.h"

#define KP_SPILL_MAX 1024
#define KP_HUGE_PAGE_BYTES (2u << 20)

typedef struct {
    uint64_t low, high;
    uint64_t next_offset; /* offset + 1; 0 marks an empty slot, as fresh pages are zero */
} kp_slot;

/* Records of a key, those of them that are tombstones, and whether the marking has met one that stays
 * beside the last. Counts that would overflow stay, so that the marking finds more records than were
 * counted and fails. */
typedef struct {
    uint32_t records;
    uint32_t tombstones : 31;
    uint32_t has_older : 1;
} kp_count;

#define KP_COUNT_MAX 0x7FFFFFFFu

typedef struct {
    kp_slot *slots;
    int64_t *versions; /* of the used slots; NULL if records have no versions */
    kp_count *counts;  /* of the used slots; NULL if the topic keeps no history */
    size_t slot_count; /* all slots; home_count + spill <= slot_count */
    size_t home_count; /* home slots of hashes; changes only while the map is empty */
    uint64_t part, parts; /* which hashes belong to the map; changes only while it is empty */
    size_t size;       /* slots taken */
    uint64_t offset_sum; /* of all offsets held, modulo 2^64; updated by each put, and
                          * compared with the slots by the verification */
    uint64_t left;       /* the sum of all counted records */
} kp_offset_slots;

enum { KP_PUT_FULL = -1, KP_PUT_KNOWN = 0, KP_PUT_NEW = 1 };

/* How a record's rank compares with that of the map's record of its key. */
typedef enum { KP_NO_KEY, KP_BELOW, KP_SAME, KP_ABOVE } kp_rank;

/* In a small map all keys could spill, so half of it is spill. */
static inline size_t kp_slots_spill(size_t slot_count) {
    return slot_count / 2 < KP_SPILL_MAX ? slot_count / 2 : KP_SPILL_MAX;
}

/* Returns zeroed pages, at `at` unless that is NULL; MAP_FAILED if there are none. */
static inline void *kp_fresh_pages(void *at, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    return mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
}

/* Map zeroed pages; if the map has pages already, replace them at the same addresses. */
static inline int kp_slots_map(kp_offset_slots *map, int has_versions, int has_counts) {
    void *memory = kp_fresh_pages(map->slots, map->slot_count * sizeof(kp_slot));
    if (memory == MAP_FAILED) return -1;
    map->slots = memory;
    if (has_versions) {
        memory = kp_fresh_pages(map->versions, map->slot_count * sizeof(int64_t));
        if (memory == MAP_FAILED) return -1;
        map->versions = memory;
    }
    if (has_counts) {
        memory = kp_fresh_pages(map->counts, map->slot_count * sizeof(kp_count));
        if (memory == MAP_FAILED) return -1;
        map->counts = memory;
    }
    map->size = 0;
    map->offset_sum = 0;
    map->left = 0;
    return 0;
}

/* Release all pages, and spread the hashes of one part over `home_count` slots from now on. */
static inline int kp_slots_clear(
    kp_offset_slots *map, size_t home_count, uint64_t part, uint64_t parts) {
    if (map->size != 0 && kp_slots_map(map, map->versions != NULL, map->counts != NULL) != 0)
        return -1;
    map->home_count = home_count;
    map->part = part;
    map->parts = parts;
#ifdef MADV_HUGEPAGE
    /* Slots are accessed in random order: with huge pages a probe rarely misses the TLB. A small map
     * keeps small pages, or a few keys would take megabytes. This is a hint and may fail. */
    size_t bytes = (home_count + kp_slots_spill(map->slot_count)) * sizeof(kp_slot);
    madvise(map->slots, map->slot_count * sizeof(kp_slot),
            bytes >= 8 * KP_HUGE_PAGE_BYTES ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
    return 0;
}

static inline void kp_slots_unmap(kp_offset_slots *map) {
    if (map->slots) munmap(map->slots, map->slot_count * sizeof(kp_slot));
    if (map->versions) munmap(map->versions, map->slot_count * sizeof(int64_t));
    if (map->counts) munmap(map->counts, map->slot_count * sizeof(kp_count));
    map->slots = NULL;
    map->versions = NULL;
    map->counts = NULL;
}

/* Returns whether the hash is in the map's part. */
static inline int kp_slots_take(const kp_offset_slots *map, kp_sip_hash hash) {
    return (uint64_t)(((unsigned __int128)hash.low * map->parts) >> 64) == map->part;
}

static inline size_t kp_slots_home(const kp_offset_slots *map, kp_sip_hash hash) {
    return (size_t)(((unsigned __int128)(hash.low * map->parts) * map->home_count) >> 64);
}

static inline void kp_slots_prefetch(const kp_offset_slots *map, kp_sip_hash hash) {
    const kp_slot *home = map->slots + kp_slots_home(map, hash);
    __builtin_prefetch(home);
    __builtin_prefetch((const char *)home + 64);
}

static inline int kp_slot_precedes(const kp_slot *slot, kp_sip_hash hash) {
    return slot->low < hash.low || (slot->low == hash.low && slot->high < hash.high);
}

/* Returns the slot that holds the hash, or the one where it would be inserted. */
static inline size_t kp_slots_find(const kp_offset_slots *map, kp_sip_hash hash) {
    size_t at = kp_slots_home(map, hash);
    while (at < map->slot_count && map->slots[at].next_offset != 0 &&
           kp_slot_precedes(&map->slots[at], hash))
        at++;
    return at;
}

static inline int kp_slots_holds(const kp_offset_slots *map, size_t at, kp_sip_hash hash) {
    return at < map->slot_count && map->slots[at].next_offset != 0 &&
           map->slots[at].low == hash.low && map->slots[at].high == hash.high;
}

/* Returns the offset that a used slot holds. */
static inline int64_t kp_slots_offset(const kp_offset_slots *map, size_t at) {
    return (int64_t)map->slots[at].next_offset - 1;
}

/* Returns the offset of the record of the hash that outranks the others put, or -1. */
static inline int64_t kp_slots_get(const kp_offset_slots *map, kp_sip_hash hash) {
    size_t at = kp_slots_find(map, hash);
    return kp_slots_holds(map, at, hash) ? (int64_t)map->slots[at].next_offset - 1 : -1;
}

/* Make room at `at` and put the hash there. Returns the slot that was empty; slot_count if none was. */
static inline size_t kp_slots_insert(
    kp_offset_slots *map, size_t at, kp_sip_hash hash, uint64_t next_offset) {
    size_t hole = at;
    while (hole < map->slot_count && map->slots[hole].next_offset != 0) hole++;
    if (hole >= map->slot_count) return hole;
    memmove(map->slots + at + 1, map->slots + at, (hole - at) * sizeof(kp_slot));
    map->slots[at] = (kp_slot){hash.low, hash.high, next_offset};
    map->size++;
    map->offset_sum += next_offset - 1;
    return hole;
}

/* Store the offset (>= 0) unless the map has a larger one. For maps without versions. */
static inline int kp_slots_put(kp_offset_slots *map, kp_sip_hash hash, int64_t offset) {
    size_t at = kp_slots_find(map, hash);
    uint64_t next_offset = (uint64_t)offset + 1;
    if (kp_slots_holds(map, at, hash)) {
        if (map->slots[at].next_offset < next_offset) {
            map->offset_sum += next_offset - map->slots[at].next_offset;
            map->slots[at].next_offset = next_offset;
        }
        return KP_PUT_KNOWN;
    }
    return kp_slots_insert(map, at, hash, next_offset) < map->slot_count ? KP_PUT_NEW : KP_PUT_FULL;
}

/* Returns how a record's rank compares with that of the map's record of its key; sets *held to that
 * one's offset unless there is none. For maps with versions. */
static inline kp_rank kp_ranked_compare(
    const kp_offset_slots *map, kp_sip_hash hash, int64_t offset, int64_t version, int64_t *held) {
    size_t at = kp_slots_find(map, hash);
    if (!kp_slots_holds(map, at, hash)) return KP_NO_KEY;
    *held = (int64_t)map->slots[at].next_offset - 1;
    if (map->versions[at] != version) return version < map->versions[at] ? KP_BELOW : KP_ABOVE;
    return offset < *held ? KP_BELOW : offset == *held ? KP_SAME : KP_ABOVE;
}

/* Put the record if the map has its key, and it outranks the map's record. Returns whether the map has
 * the key. */
static inline int kp_ranked_raise(
    kp_offset_slots *map, kp_sip_hash hash, int64_t offset, int64_t version) {
    size_t at = kp_slots_find(map, hash);
    int64_t held;
    kp_rank rank = kp_ranked_compare(map, hash, offset, version, &held);
    if (rank == KP_ABOVE) {
        map->offset_sum += (uint64_t)(offset - held);
        map->slots[at].next_offset = (uint64_t)offset + 1;
        map->versions[at] = version;
    }
    return rank != KP_NO_KEY;
}

/* Put the record (offset >= 0) unless the map has one of its key that outranks it. */
static inline int kp_ranked_put(
    kp_offset_slots *map, kp_sip_hash hash, int64_t offset, int64_t version) {
    size_t at = kp_slots_find(map, hash), hole;
    if (kp_ranked_raise(map, hash, offset, version)) return KP_PUT_KNOWN;
    hole = kp_slots_insert(map, at, hash, (uint64_t)offset + 1);
    if (hole >= map->slot_count) return KP_PUT_FULL;
    memmove(map->versions + at + 1, map->versions + at, (hole - at) * sizeof(int64_t));
    map->versions[at] = version;
    return KP_PUT_NEW;
}

/* Put the record (offset >= 0) as the last one of its key, unless the map has one that outranks it. Sets
 * *lost to the offset of the record that is not the last one now, -1: none. For maps without counts. */
static inline int kp_last_put(
    kp_offset_slots *map, kp_sip_hash hash, int64_t offset, int64_t version, int64_t *lost) {
    size_t at = kp_slots_find(map, hash);
    int64_t held;
    int wins;
    *lost = -1;
    if (!kp_slots_holds(map, at, hash)) {
        if (map->versions) return kp_ranked_put(map, hash, offset, version);
        return kp_slots_put(map, hash, offset);
    }
    held = (int64_t)map->slots[at].next_offset - 1;
    if (held == offset) return KP_PUT_KNOWN;
    wins = offset > held;
    if (map->versions && map->versions[at] != version) wins = version > map->versions[at];
    *lost = wins ? held : offset;
    if (wins) {
        map->offset_sum += (uint64_t)(offset - held);
        map->slots[at].next_offset = (uint64_t)offset + 1;
        if (map->versions) map->versions[at] = version;
    }
    return KP_PUT_KNOWN;
}

static inline void kp_count_up(kp_offset_slots *map, size_t at, int is_tombstone) {
    kp_count *count = &map->counts[at];
    if (count->records == KP_COUNT_MAX) return;
    count->records++;
    count->tombstones += is_tombstone != 0;
    map->left++;
}

/* Count the record if the map has its key. For maps with counts. */
static inline void kp_counted_add(kp_offset_slots *map, kp_sip_hash hash, int is_tombstone) {
    size_t at = kp_slots_find(map, hash);
    if (kp_slots_holds(map, at, hash)) kp_count_up(map, at, is_tombstone);
}

/* Like kp_slots_put, and count the record. For maps with counts. */
static inline int kp_counted_put(
    kp_offset_slots *map, kp_sip_hash hash, int64_t offset, int is_tombstone) {
    size_t at = kp_slots_find(map, hash), hole;
    uint64_t next_offset = (uint64_t)offset + 1;
    int outcome = KP_PUT_KNOWN;
    if (!kp_slots_holds(map, at, hash)) {
        hole = kp_slots_insert(map, at, hash, next_offset);
        if (hole >= map->slot_count) return KP_PUT_FULL;
        memmove(map->counts + at + 1, map->counts + at, (hole - at) * sizeof(kp_count));
        map->counts[at] = (kp_count){0, 0, 0};
        outcome = KP_PUT_NEW;
    } else if (map->slots[at].next_offset < next_offset) {
        map->offset_sum += next_offset - map->slots[at].next_offset;
        map->slots[at].next_offset = next_offset;
    }
    kp_count_up(map, at, is_tombstone);
    return outcome;
}

/* Take a record from its key's count; records are taken in the order of offsets. Returns how many were
 * left before, this one included; 0: the count has no such record. *later_tombstones: among those after
 * it. */
static inline uint32_t kp_counted_take(
    kp_offset_slots *map, size_t at, int is_tombstone, uint32_t *later_tombstones) {
    kp_count *count = &map->counts[at];
    uint32_t left = count->records;
    is_tombstone = is_tombstone != 0;
    if (left == 0 || count->tombstones < (uint32_t)is_tombstone) return 0;
    count->records--;
    count->tombstones -= is_tombstone;
    map->left--;
    *later_tombstones = count->tombstones;
    return left;
}

/* A number of offsets, and their sum modulo 2^64. */
typedef struct {
    uint64_t count, sum;
} kp_tally;

/* Count all used slots. tallies[i] gets the offsets in [bounds[i - 1], bounds[i]), the first those below
 * all `bounds`, which must not decrease, and the last, tallies[bound_count], those at or above the last
 * bound. */
static inline void kp_slots_tally(
    const kp_offset_slots *map, const int64_t *bounds, size_t bound_count, kp_tally *tallies) {
    for (size_t at = 0; at < map->home_count ||
                        (at < map->slot_count && map->slots[at].next_offset != 0); at++) {
        int64_t offset = (int64_t)map->slots[at].next_offset - 1;
        size_t low = 0, high = bound_count;
        if (offset < 0) continue;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (bounds[middle] <= offset)
                low = middle + 1;
            else
                high = middle;
        }
        tallies[low].count++;
        tallies[low].sum += (uint64_t)offset;
    }
}

/* Copy the offsets of all keys, in the order of the slots. `offsets` has room for `size` of them. */
static inline void kp_slots_offsets(const kp_offset_slots *map, int64_t *offsets) {
    for (size_t at = 0; at < map->home_count ||
                        (at < map->slot_count && map->slots[at].next_offset != 0); at++) {
        if (map->slots[at].next_offset != 0)
            *offsets++ = (int64_t)map->slots[at].next_offset - 1;
    }
}

#endif
