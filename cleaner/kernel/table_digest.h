/* The table digest: 128 bits over the last value of each key in a log. It is the sum, modulo 2^128, of
 * the row hashes of the last record of each key, if that record has a value. A row hash covers what a
 * reader gets of a record, independently of batches and compression. All numbers are hashed
 * big-endian, a hash as its high and its low half, and the size of a null is -1.
 *
 *     row hash      XXH3 of  offset int64 | content hash
 *     content hash  XXH3 of  timestamp int64 | key size int32 | value size int32 | header count int32
 *                            | XXH3 of the key | XXH3 of the value | hash of the headers
 *     headers       zeros; then for each header, in order, XXH3 of
 *                            hash so far | key size int32 | value size int32
 *                            | XXH3 of its key | XXH3 of its value
 *
 * The hash of a null is zeros. Tombstones and records without a key have hashes too, but are in no sum,
 * because a cleaning pass may drop them.
 */
#ifndef KOMPAKT_CLEANER_TABLE_DIGEST_H
#define KOMPAKT_CLEANER_TABLE_DIGEST_H

#include "digest.h"

static inline uint8_t *kp_table_store(uint8_t *to, kp_hash128 hash) {
    store_int64(to, (int64_t)hash.high);
    store_int64(to + 8, (int64_t)hash.low);
    return to + 16;
}

static inline kp_hash128 kp_table_bytes(const uint8_t *data, int64_t size) {
    kp_hash128 none = {0, 0};
    return size < 0 ? none : kp_xxh3(data, (size_t)size);
}

/* Returns the hash of the headers after one more header. */
static inline kp_hash128 kp_table_header(
    kp_hash128 headers,
    const uint8_t *key,
    int64_t key_size,
    const uint8_t *value,
    int64_t value_size) {
    uint8_t image[56], *to = kp_table_store(image, headers);
    store_int32(to, (int32_t)key_size);
    store_int32(to + 4, (int32_t)value_size);
    to = kp_table_store(to + 8, kp_table_bytes(key, key_size));
    kp_table_store(to, kp_table_bytes(value, value_size));
    return kp_xxh3(image, sizeof image);
}

static inline kp_hash128 kp_table_content(
    int64_t timestamp,
    const uint8_t *key,
    int64_t key_size,
    const uint8_t *value,
    int64_t value_size,
    int64_t header_count,
    kp_hash128 headers) {
    uint8_t image[68], *to;
    store_int64(image, timestamp);
    store_int32(image + 8, (int32_t)key_size);
    store_int32(image + 12, (int32_t)value_size);
    store_int32(image + 16, (int32_t)header_count);
    to = kp_table_store(image + 20, kp_table_bytes(key, key_size));
    to = kp_table_store(to, kp_table_bytes(value, value_size));
    kp_table_store(to, headers);
    return kp_xxh3(image, sizeof image);
}

static inline kp_hash128 kp_table_row(int64_t offset, kp_hash128 content) {
    uint8_t image[24];
    store_int64(image, offset);
    kp_table_store(image + 8, content);
    return kp_xxh3(image, sizeof image);
}

/* Returns the hash of the headers of a record that `read_record` has accepted. */
static inline kp_hash128 kp_table_headers_of(const record_view *record) {
    kp_hash128 headers = {0, 0};
    const uint8_t *at = record->headers;
    const uint8_t *key, *value;
    int32_t key_size, value_size;
    for (int32_t i = 0; i < record->header_count; i++) {
        if (read_sized(&at, record->end, 0, &key, &key_size) != 0 ||
            read_sized(&at, record->end, 1, &value, &value_size) != 0)
            break;
        headers = kp_table_header(headers, key, key_size, value, value_size);
    }
    return headers;
}

static inline kp_hash128 kp_table_record(
    const record_view *record, int64_t offset, int64_t timestamp) {
    return kp_table_row(
        offset,
        kp_table_content(
            timestamp,
            record->key,
            record->key_size,
            record->value,
            record->value_size,
            record->header_count,
            kp_table_headers_of(record)));
}

#endif
