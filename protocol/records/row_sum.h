/* The digest of the state in a coordinator's topic: a sum of hashes, so that the order of its records
 * does not matter. Each record adds two of them:
 *
 *     XXH3-128(key; seed = place) + XXH3-128(value; seed = place + 0xC2B2AE3D27D4EB4F)
 *     place  = offset + producer id * 0x9E3779B185EBCA87
 *
 * Seeds and sum are modulo 2^64 and 2^128. The producer id is that of the open transaction that the
 * record waits for, or -1. The place, which no other record has, ties both hashes together. Key and value
 * are hashed where they are, and neither hash waits for the other: a copy of both into one image took
 * twice the time.
 */
#ifndef KOMPAKT_ROW_SUM_H
#define KOMPAKT_ROW_SUM_H

#include "record_format.h"
#include "xxh3.h"

static inline void kp_row_sum(kp_hash128 *sum, const uint8_t *data, size_t size, uint64_t seed) {
    kp_hash128 hash = kp_xxh3_seeded(data, size, seed);
    sum->low += hash.low;
    sum->high += hash.high + (sum->low < hash.low);
}

/* Add one record that has a key. */
static inline void kp_row_add(
    kp_hash128 *sum, const record_view *record, int64_t offset, int64_t producer_id) {
    size_t value_size = record->value_size < 0 ? 0 : (size_t)record->value_size;
    uint64_t place = (uint64_t)offset + (uint64_t)producer_id * XXH_P64_1;
    kp_row_sum(sum, record->key, (size_t)record->key_size, place);
    kp_row_sum(sum, record->value, value_size, place + XXH_P64_2);
}

#endif
