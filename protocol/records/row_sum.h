/* The digest of the state in a coordinator's topic: the sum of the hashes of its records, so that their
 * order does not matter.
 *
 *     a record     XXH3-128(key size uint32 | key | offset int64 | producer id int64 | value)
 *
 * All numbers are big-endian. The producer id is that of the open transaction that the record waits
 * for, or -1. The sum is modulo 2^128: it is the set digest of replog/digest.py.
 */
#ifndef KOMPAKT_ROW_SUM_H
#define KOMPAKT_ROW_SUM_H

#include <stdlib.h>

#include "record_format.h"
#include "xxh3.h"

#define ROW_PREFIX_BYTES 4
#define ROW_PLACE_BYTES 16

typedef struct {
    kp_hash128 sum;
    uint8_t *image; /* One record as it is hashed. */
    size_t image_size;
} kp_row_sum;

/* Add one record. Returns -1 if there is no memory. */
static inline int kp_row_add(
    kp_row_sum *rows, const record_view *record, int64_t offset, int64_t producer_id) {
    size_t value_size = record->value_size < 0 ? 0 : (size_t)record->value_size;
    size_t key_size = (size_t)record->key_size;
    size_t size = ROW_PREFIX_BYTES + key_size + ROW_PLACE_BYTES + value_size;
    if (size > rows->image_size) {
        uint8_t *image = realloc(rows->image, 2 * size);
        if (image == NULL) return -1;
        rows->image = image;
        rows->image_size = 2 * size;
    }
    uint8_t *at = rows->image;
    store_uint32(at, (uint32_t)key_size);
    memcpy(at + ROW_PREFIX_BYTES, record->key, key_size);
    at += ROW_PREFIX_BYTES + key_size;
    store_int64(at, offset);
    store_int64(at + 8, producer_id);
    if (value_size > 0) memcpy(at + ROW_PLACE_BYTES, record->value, value_size);
    kp_hash128 hash = kp_xxh3(rows->image, size);
    rows->sum.low += hash.low;
    rows->sum.high += hash.high + (rows->sum.low < hash.low);
    return 0;
}

static inline void kp_row_free(kp_row_sum *rows) {
    free(rows->image);
    rows->image = NULL;
}

#endif
