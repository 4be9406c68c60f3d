/* SipHash-2-4 with 128 bits of output: the identity of a key in the cleaner's offset map.
 *
 * Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF" (2012), and the 128-bit variant
 * that its authors published with the reference code.
 */
#ifndef KOMPAKT_CLEANER_SIPHASH_H
#define KOMPAKT_CLEANER_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The secret key with SipHash's constants already mixed in. */
typedef struct {
    uint64_t v0, v1, v2, v3;
} kp_sip_key;

typedef struct {
    uint64_t low, high; /* bytes 0-7 and 8-15 of the hash, little-endian */
} kp_sip_hash;

static inline uint64_t kp_sip_load64(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline void kp_sip_store64(uint8_t *bytes, uint64_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    memcpy(bytes, &word, 8);
}

static inline kp_sip_key kp_sip_key_of(const uint8_t secret[16]) {
    uint64_t k0 = kp_sip_load64(secret), k1 = kp_sip_load64(secret + 8);
    kp_sip_key key = {
        k0 ^ UINT64_C(0x736f6d6570736575),
        /* 0xee marks the 128-bit variant. */
        k1 ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
        k0 ^ UINT64_C(0x6c7967656e657261),
        k1 ^ UINT64_C(0x7465646279746573),
    };
    return key;
}

#define KP_SIP_ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))

#define KP_SIP_ROUND                   \
    do {                               \
        v0 += v1;                      \
        v2 += v3;                      \
        v1 = KP_SIP_ROTATE(v1, 13);    \
        v3 = KP_SIP_ROTATE(v3, 16);    \
        v1 ^= v0;                      \
        v3 ^= v2;                      \
        v0 = KP_SIP_ROTATE(v0, 32);    \
        v2 += v1;                      \
        v0 += v3;                      \
        v1 = KP_SIP_ROTATE(v1, 17);    \
        v3 = KP_SIP_ROTATE(v3, 21);    \
        v1 ^= v2;                      \
        v3 ^= v0;                      \
        v2 = KP_SIP_ROTATE(v2, 32);    \
    } while (0)

static inline kp_sip_hash kp_sip128(const kp_sip_key *key, const uint8_t *data, size_t size) {
    uint64_t v0 = key->v0, v1 = key->v1, v2 = key->v2, v3 = key->v3;
    const uint8_t *end = data + (size & ~(size_t)7);
    uint64_t word;
    kp_sip_hash hash;

    for (; data != end; data += 8) {
        word = kp_sip_load64(data);
        v3 ^= word;
        KP_SIP_ROUND;
        KP_SIP_ROUND;
        v0 ^= word;
    }

    /* The last word: the bytes left over, and the size's low byte on top. */
    word = (uint64_t)size << 56;
    for (size_t i = 0; i < (size & 7); i++) word |= (uint64_t)data[i] << (8 * i);
    v3 ^= word;
    KP_SIP_ROUND;
    KP_SIP_ROUND;
    v0 ^= word;

    v2 ^= 0xee;
    KP_SIP_ROUND;
    KP_SIP_ROUND;
    KP_SIP_ROUND;
    KP_SIP_ROUND;
    hash.low = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    KP_SIP_ROUND;
    KP_SIP_ROUND;
    KP_SIP_ROUND;
    KP_SIP_ROUND;
    hash.high = v0 ^ v1 ^ v2 ^ v3;
    return hash;
}

#endif
