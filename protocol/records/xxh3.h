/* XXH3, 128 bits: the hash function of the digests of passes, tables and coordinators' states.
 *
 * It has five variants, by the size of the input; instead of padding, each of them reads the last bytes
 * twice. The tests compare each with the `xxhash` package.
 *
 * Source: Cyan4973/xxHash 0.8, doc/xxhash_spec.md, "XXH3 Algorithm Overview".
 */
#ifndef KOMPAKT_CLEANER_XXH3_H
#define KOMPAKT_CLEANER_XXH3_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XXH_P32_1 0x9E3779B1u
#define XXH_P32_2 0x85EBCA77u
#define XXH_P32_3 0xC2B2AE3Du
#define XXH_P64_1 UINT64_C(0x9E3779B185EBCA87)
#define XXH_P64_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define XXH_P64_3 UINT64_C(0x165667B19E3779F9)
#define XXH_P64_4 UINT64_C(0x85EBCA77C2B2AE63)
#define XXH_P64_5 UINT64_C(0x27D4EB2F165667C5)

#define XXH_SECRET_BYTES 192
#define XXH_SECRET_BYTES_MIN 136
#define XXH_STRIPE_BYTES 64
#define XXH_BLOCK_STRIPES ((XXH_SECRET_BYTES - XXH_STRIPE_BYTES) / 8)
#define XXH_BLOCK_BYTES (XXH_BLOCK_STRIPES * XXH_STRIPE_BYTES)

typedef struct {
    uint64_t low, high;
} kp_hash128;

static const uint8_t xxh_secret[XXH_SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static inline uint64_t xxh_load64(const uint8_t *from) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline uint32_t xxh_load32(const uint8_t *from) {
    uint32_t word;
    memcpy(&word, from, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

static inline void xxh_store64(uint8_t *to, uint64_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    memcpy(to, &word, sizeof word);
}

static inline kp_hash128 xxh_multiply(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (kp_hash128){(uint64_t)product, (uint64_t)(product >> 64)};
}

static inline uint64_t xxh_fold(uint64_t a, uint64_t b) {
    kp_hash128 product = xxh_multiply(a, b);
    return product.low ^ product.high;
}

static inline uint64_t xxh_avalanche(uint64_t word) {
    word = (word ^ (word >> 37)) * UINT64_C(0x165667919E3779F9);
    return word ^ (word >> 32);
}

static inline uint64_t xxh_avalanche_short(uint64_t word) {
    word = (word ^ (word >> 33)) * XXH_P64_2;
    word = (word ^ (word >> 29)) * XXH_P64_3;
    return word ^ (word >> 32);
}

/* Returns two words of the secret combined into one. */
static inline uint64_t xxh_secret_pair(size_t at) {
    return xxh_load64(xxh_secret + at) ^ xxh_load64(xxh_secret + at + 8);
}

static inline kp_hash128 xxh_of_0_to_3(const uint8_t *data, size_t size, uint64_t seed) {
    if (size == 0)
        return (kp_hash128){
            xxh_avalanche_short(seed ^ xxh_secret_pair(64)),
            xxh_avalanche_short(seed ^ xxh_secret_pair(80))};
    uint32_t low = ((uint32_t)data[0] << 16) | ((uint32_t)data[size >> 1] << 24) |
                   data[size - 1] | ((uint32_t)size << 8);
    uint32_t swapped = __builtin_bswap32(low);
    uint32_t high = (swapped << 13) | (swapped >> 19);
    uint64_t low_key = (uint64_t)(xxh_load32(xxh_secret) ^ xxh_load32(xxh_secret + 4)) + seed;
    uint64_t high_key = (uint64_t)(xxh_load32(xxh_secret + 8) ^ xxh_load32(xxh_secret + 12)) - seed;
    return (kp_hash128){xxh_avalanche_short(low ^ low_key), xxh_avalanche_short(high ^ high_key)};
}

static inline kp_hash128 xxh_of_4_to_8(const uint8_t *data, size_t size, uint64_t seed) {
    uint64_t word = xxh_load32(data) + ((uint64_t)xxh_load32(data + size - 4) << 32);
    uint64_t key = xxh_secret_pair(16) + (seed ^ ((uint64_t)__builtin_bswap32((uint32_t)seed) << 32));
    kp_hash128 hash = xxh_multiply(word ^ key, XXH_P64_1 + (size << 2));
    hash.high += hash.low << 1;
    hash.low ^= hash.high >> 3;
    hash.low = (hash.low ^ (hash.low >> 35)) * UINT64_C(0x9FB21C651E98DF25);
    hash.low ^= hash.low >> 28;
    hash.high = xxh_avalanche(hash.high);
    return hash;
}

static inline kp_hash128 xxh_of_9_to_16(const uint8_t *data, size_t size, uint64_t seed) {
    uint64_t first = xxh_load64(data), last = xxh_load64(data + size - 8);
    kp_hash128 mixed = xxh_multiply(first ^ last ^ (xxh_secret_pair(32) - seed), XXH_P64_1), hash;
    mixed.low += (uint64_t)(size - 1) << 54;
    last ^= xxh_secret_pair(48) + seed;
    mixed.high += last + (last & UINT32_MAX) * (XXH_P32_2 - 1);
    mixed.low ^= __builtin_bswap64(mixed.high);
    hash = xxh_multiply(mixed.low, XXH_P64_2);
    hash.high += mixed.high * XXH_P64_2;
    return (kp_hash128){xxh_avalanche(hash.low), xxh_avalanche(hash.high)};
}

static inline uint64_t xxh_mix16(const uint8_t *data, const uint8_t *secret, uint64_t seed) {
    return xxh_fold(
        xxh_load64(data) ^ (xxh_load64(secret) + seed),
        xxh_load64(data + 8) ^ (xxh_load64(secret + 8) - seed));
}

static inline void xxh_mix32(
    kp_hash128 *sum,
    const uint8_t *left,
    const uint8_t *right,
    const uint8_t *secret,
    uint64_t seed) {
    sum->low += xxh_mix16(left, secret, seed);
    sum->low ^= xxh_load64(right) + xxh_load64(right + 8);
    sum->high += xxh_mix16(right, secret + 16, seed);
    sum->high ^= xxh_load64(left) + xxh_load64(left + 8);
}

static inline kp_hash128 xxh_finish(kp_hash128 sum, size_t size, uint64_t seed) {
    uint64_t high = sum.low * XXH_P64_1 + sum.high * XXH_P64_4 + (size - seed) * XXH_P64_2;
    return (kp_hash128){xxh_avalanche(sum.low + sum.high), 0 - xxh_avalanche(high)};
}

static inline kp_hash128 xxh_of_17_to_128(const uint8_t *data, size_t size, uint64_t seed) {
    kp_hash128 sum = {size * XXH_P64_1, 0};
    for (size_t i = (size - 1) / 32 + 1; i-- > 0;)
        xxh_mix32(&sum, data + 16 * i, data + size - 16 * (i + 1), xxh_secret + 32 * i, seed);
    return xxh_finish(sum, size, seed);
}

static inline kp_hash128 xxh_of_129_to_240(const uint8_t *data, size_t size, uint64_t seed) {
    const uint8_t *last = data + size - 16;
    kp_hash128 sum = {size * XXH_P64_1, 0};
    for (size_t i = 0; i < 128; i += 32)
        xxh_mix32(&sum, data + i, data + i + 16, xxh_secret + i, seed);
    sum = (kp_hash128){xxh_avalanche(sum.low), xxh_avalanche(sum.high)};
    for (size_t i = 128; i + 32 <= size; i += 32)
        xxh_mix32(&sum, data + i, data + i + 16, xxh_secret + 3 + i - 128, seed);
    xxh_mix32(&sum, last, last - 16, xxh_secret + XXH_SECRET_BYTES_MIN - 17 - 16, 0 - seed);
    return xxh_finish(sum, size, seed);
}

static inline void xxh_add_stripe(uint64_t sums[8], const uint8_t *data, const uint8_t *secret) {
    for (size_t i = 0; i < 8; i++) {
        uint64_t word = xxh_load64(data + 8 * i), keyed = word ^ xxh_load64(secret + 8 * i);
        sums[i ^ 1] += word;
        sums[i] += (keyed & UINT32_MAX) * (keyed >> 32);
    }
}

static inline uint64_t xxh_merge(const uint64_t sums[8], const uint8_t *secret, uint64_t start) {
    for (size_t i = 0; i < 8; i += 2)
        start += xxh_fold(
            sums[i] ^ xxh_load64(secret + 8 * i), sums[i + 1] ^ xxh_load64(secret + 8 * i + 8));
    return xxh_avalanche(start);
}

static kp_hash128 xxh_of_241_or_more(const uint8_t *data, size_t size, const uint8_t *secret) {
    uint64_t sums[8] = {XXH_P32_3, XXH_P64_1, XXH_P64_2, XXH_P64_3,
                        XXH_P64_4, XXH_P32_2, XXH_P64_5, XXH_P32_1};
    const uint8_t *at = data, *end = data + size;
    const uint8_t *secret_end = secret + XXH_SECRET_BYTES - XXH_STRIPE_BYTES;
    for (; end - at > XXH_BLOCK_BYTES; at += XXH_BLOCK_BYTES) {
        for (size_t i = 0; i < XXH_BLOCK_STRIPES; i++)
            xxh_add_stripe(sums, at + i * XXH_STRIPE_BYTES, secret + 8 * i);
        for (size_t i = 0; i < 8; i++)
            sums[i] = (sums[i] ^ (sums[i] >> 47) ^ xxh_load64(secret_end + 8 * i)) * XXH_P32_1;
    }
    for (size_t i = 0; i < (size_t)(end - at - 1) / XXH_STRIPE_BYTES; i++)
        xxh_add_stripe(sums, at + i * XXH_STRIPE_BYTES, secret + 8 * i);
    xxh_add_stripe(sums, end - XXH_STRIPE_BYTES, secret_end - 7);
    return (kp_hash128){
        xxh_merge(sums, secret + 11, size * XXH_P64_1),
        xxh_merge(sums, secret_end - 11, ~(size * XXH_P64_2))};
}

/* Returns the hash of a long input with a secret that is derived from the seed. */
static inline kp_hash128 xxh_of_long_seeded(const uint8_t *data, size_t size, uint64_t seed) {
    uint8_t secret[XXH_SECRET_BYTES];
    for (size_t i = 0; i < XXH_SECRET_BYTES; i += 16) {
        xxh_store64(secret + i, xxh_load64(xxh_secret + i) + seed);
        xxh_store64(secret + i + 8, xxh_load64(xxh_secret + i + 8) - seed);
    }
    return xxh_of_241_or_more(data, size, secret);
}

static inline kp_hash128 kp_xxh3_seeded(const uint8_t *data, size_t size, uint64_t seed) {
    if (size <= 3) return xxh_of_0_to_3(data, size, seed);
    if (size <= 8) return xxh_of_4_to_8(data, size, seed);
    if (size <= 16) return xxh_of_9_to_16(data, size, seed);
    if (size <= 128) return xxh_of_17_to_128(data, size, seed);
    if (size <= 240) return xxh_of_129_to_240(data, size, seed);
    if (seed == 0) return xxh_of_241_or_more(data, size, xxh_secret);
    return xxh_of_long_seeded(data, size, seed);
}

static inline kp_hash128 kp_xxh3(const uint8_t *data, size_t size) {
    return kp_xxh3_seeded(data, size, 0);
}

#endif
