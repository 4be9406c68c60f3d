/* The digest by which a pass verifies its output: the sum of 128-bit hashes of what must remain, so
 * that their order does not matter. All numbers are hashed big-endian.
 *
 *     a copied batch         its first 21 bytes: base offset, length, leader epoch, magic, CRC
 *     a rebuilt batch        base offset int64 | last offset int64 | delete horizon int64 (-1: none)
 *                            | max timestamp int64 | producer id int64 | leader epoch int32
 *                            | base sequence int32 | record count int32 | producer epoch int16
 *                            | attributes int16, without the horizon's bit, and without the codec
 *                            if there are no records;
 *                            and each of its records:
 *     a record               offset int64 | timestamp int64 | attributes int8 | hash of its bytes
 *                            from the offset delta on: key, value and headers, with their sizes
 *
 * and the sum of the keys in a key sidecar: of each entry, its key's hash multiplied with its offset, its
 * tombstone bit, its version and its size. The hash is secret and uniform, so that entries that differ in
 * one of these have different products, and no two differences cancel out but by chance.
 */
#ifndef KOMPAKT_CLEANER_DIGEST_H
#define KOMPAKT_CLEANER_DIGEST_H

#include "record_format.h"
#include "xxh3.h"

static inline void kp_digest_add(kp_hash128 *sum, kp_hash128 hash) {
    sum->low += hash.low;
    sum->high += hash.high + (sum->low < hash.low);
}

static inline uint64_t kp_key_product(
    uint64_t low, uint64_t high, int64_t offset, int is_tombstone, int64_t version, uint32_t size) {
    uint64_t place = (uint64_t)offset << 1 | (uint64_t)(is_tombstone != 0);
    return (low ^ place) * (high | 1) + (high ^ (uint64_t)version) * (low | 1) +
           size * ((low ^ high) | 1);
}

/* By how much the product of a key changes with the size of its record. */
static inline uint64_t kp_key_resized(uint64_t low, uint64_t high, uint32_t from, uint32_t to) {
    return ((uint64_t)to - from) * ((low ^ high) | 1);
}

/* The CRC stands for the rest of the batch: the caller must have verified it. */
static inline kp_hash128 kp_digest_copied(const uint8_t *batch) {
    return kp_xxh3(batch, BATCH_ATTRIBUTES);
}

static inline kp_hash128 kp_digest_header(
    const batch_header *header, int32_t record_count, int64_t max_timestamp, int64_t horizon) {
    uint8_t image[56];
    int dropped = ATTRIBUTE_DELETE_HORIZON | (record_count == 0 ? ATTRIBUTE_CODEC_MASK : 0);
    store_int64(image, header->base_offset);
    store_int64(image + 8, header->last_offset);
    store_int64(image + 16, horizon);
    store_int64(image + 24, max_timestamp);
    store_int64(image + 32, header->producer_id);
    store_int32(image + 40, header->leader_epoch);
    store_int32(image + 44, header->base_sequence);
    store_int32(image + 48, record_count);
    store_int16(image + 52, header->producer_epoch);
    store_int16(image + 54, (int16_t)(header->attributes & ~dropped));
    return kp_xxh3(image, sizeof image);
}

static inline kp_hash128 kp_digest_record(
    const record_view *record, int64_t base_offset, int64_t base_timestamp) {
    uint8_t image[33];
    kp_hash128 rest =
        kp_xxh3(record->offset_start, (size_t)(record->end - record->offset_start));
    store_int64(image, base_offset + record->offset_delta);
    /* Clients choose timestamps, so sums may overflow; they wrap as in Java. */
    store_int64(image + 8, (int64_t)((uint64_t)base_timestamp + (uint64_t)record->timestamp_delta));
    image[16] = (uint8_t)record->attributes;
    store_int64(image + 17, (int64_t)rest.high);
    store_int64(image + 25, (int64_t)rest.low);
    return kp_xxh3(image, sizeof image);
}

#endif
