/* Record batches (message format 2) for compiled code: layout, CRC-32C, varints, one record.
 *
 *     base offset             int64   0    outside the CRC: the broker stamps it
 *     batch length            int32   8    of everything after this field
 *     partition leader epoch  int32  12    outside the CRC: the broker stamps it
 *     magic                   int8   16    2
 *     crc                     uint32 17    CRC-32C of everything from attributes to the end
 *     attributes              int16  21    0-2 codec, 3 log append time, 4 transactional,
 *                                          5 control, 6 base timestamp is the delete horizon
 *     last offset delta       int32  23
 *     base timestamp          int64  27
 *     max timestamp           int64  35
 *     producer id             int64  43
 *     producer epoch          int16  51
 *     base sequence           int32  53
 *     record count            int32  57
 *     records                        61    all remaining bytes; compressed as one unit
 *
 *     record: length varint | attributes int8 | timestamp delta varlong | offset delta varint
 *             | key length varint (-1: null), key | value length varint (-1: null), value
 *             | header count varint, headers
 *     header: key length varint, key | value length varint (-1: null), value
 *
 * Integers are big-endian; varints are zigzag and least significant group first, as in Protocol
 * Buffers. Everything here is static and uses no lock and no Python object, so that it may run
 * without the GIL. No function reads at or beyond the `end` that it gets.
 *
 * Source: Apache Kafka, DefaultRecordBatch.java, DefaultRecord.java, ByteUtils.java; KIP-98,
 * KIP-534.
 */
#ifndef KOMPAKT_RECORD_FORMAT_H
#define KOMPAKT_RECORD_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if !defined(__GNUC__)
#error "record_format.h needs gcc or clang"
#endif

#define RF_UNUSED __attribute__((unused))
#define RF_INLINE static inline RF_UNUSED
#define RF_LIKELY(condition) __builtin_expect(!!(condition), 1)

/* Positions of the header's fields. */
#define BATCH_BASE_OFFSET 0
#define BATCH_LENGTH 8
#define BATCH_LEADER_EPOCH 12
#define BATCH_MAGIC 16
#define BATCH_CRC 17
#define BATCH_ATTRIBUTES 21
#define BATCH_LAST_OFFSET_DELTA 23
#define BATCH_BASE_TIMESTAMP 27
#define BATCH_MAX_TIMESTAMP 35
#define BATCH_PRODUCER_ID 43
#define BATCH_PRODUCER_EPOCH 51
#define BATCH_BASE_SEQUENCE 53
#define BATCH_RECORD_COUNT 57
#define BATCH_HEADER_SIZE 61
#define BATCH_LENGTH_OVERHEAD 12 /* Bytes of a batch that its length field does not include. */
#define BATCH_MAGIC_SERVED 2

#define ATTRIBUTE_CODEC_MASK 0x07
#define ATTRIBUTE_CODEC_MAX 4 /* zstd; larger numbers name no codec. */
#define ATTRIBUTE_LOG_APPEND_TIME 0x08
#define ATTRIBUTE_TRANSACTIONAL 0x10
#define ATTRIBUTE_CONTROL 0x20
#define ATTRIBUTE_DELETE_HORIZON 0x40

/* ------------------------------------------------------------------ big-endian integers */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define RF_BE16(value) __builtin_bswap16(value)
#define RF_BE32(value) __builtin_bswap32(value)
#define RF_BE64(value) __builtin_bswap64(value)
#define RF_LE64(value) (value)
#else
#define RF_BE16(value) (value)
#define RF_BE32(value) (value)
#define RF_BE64(value) (value)
#define RF_LE64(value) __builtin_bswap64(value)
#endif

RF_INLINE int16_t load_int16(const uint8_t *from) {
    uint16_t raw;
    memcpy(&raw, from, sizeof raw);
    return (int16_t)RF_BE16(raw);
}

RF_INLINE uint32_t load_uint32(const uint8_t *from) {
    uint32_t raw;
    memcpy(&raw, from, sizeof raw);
    return RF_BE32(raw);
}

RF_INLINE int32_t load_int32(const uint8_t *from) { return (int32_t)load_uint32(from); }

RF_INLINE int64_t load_int64(const uint8_t *from) {
    uint64_t raw;
    memcpy(&raw, from, sizeof raw);
    return (int64_t)RF_BE64(raw);
}

RF_INLINE void store_int16(uint8_t *to, int16_t value) {
    uint16_t raw = RF_BE16((uint16_t)value);
    memcpy(to, &raw, sizeof raw);
}

RF_INLINE void store_uint32(uint8_t *to, uint32_t value) {
    uint32_t raw = RF_BE32(value);
    memcpy(to, &raw, sizeof raw);
}

RF_INLINE void store_int32(uint8_t *to, int32_t value) { store_uint32(to, (uint32_t)value); }

RF_INLINE void store_int64(uint8_t *to, int64_t value) {
    uint64_t raw = RF_BE64((uint64_t)value);
    memcpy(to, &raw, sizeof raw);
}

/* ---------------------------------------------------------------------------- CRC-32C
 *
 * The processor's CRC instruction has a latency of three cycles but starts one each cycle, so
 * large buffers are summed as three lanes at once. A lane's sum is moved over the lanes that
 * follow it by multiplying it with x^(8 * lane bytes) modulo the polynomial, by table.
 */

#define CRC32C_POLYNOMIAL 0x82f63b78u /* Castagnoli's, reflected. */
#define CRC32C_LANE_LONG 4096
#define CRC32C_LANE_SHORT 256

static uint32_t crc32c_bytes[8][256];       /* [n][b]: byte b followed by n zero bytes. */
static uint32_t crc32c_over_long[4][256];   /* Byte n of a sum, moved over a long lane. */
static uint32_t crc32c_over_short[4][256];  /* The same over a short lane. */
static int crc32c_in_hardware;

/* a * b modulo the polynomial; the most significant bit is x^0. */
static uint32_t crc32c_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = (b & 1) ? (b >> 1) ^ CRC32C_POLYNOMIAL : b >> 1;
    }
    return product;
}

static void crc32c_fill_over(uint32_t table[4][256], size_t lane_bytes) {
    uint32_t factor = 0x80000000u;        /* x^0 */
    const uint32_t x8 = 0x00800000u;      /* x^8 */
    for (size_t i = 0; i < lane_bytes; i++)
        factor = crc32c_multiply(factor, x8);
    for (uint32_t n = 0; n < 4; n++)
        for (uint32_t byte = 0; byte < 256; byte++)
            table[n][byte] = crc32c_multiply(byte << (8 * n), factor);
}

static int crc32c_detect_hardware(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__aarch64__) && defined(__linux__)
    return (getauxval(AT_HWCAP) & (1ul << 7)) != 0; /* HWCAP_CRC32 */
#elif defined(__aarch64__) && defined(__APPLE__)
    return 1;
#else
    return 0;
#endif
}

/* Runs when the extension module is loaded, before any call. */
__attribute__((constructor)) static void crc32c_fill_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = (sum & 1) ? (sum >> 1) ^ CRC32C_POLYNOMIAL : sum >> 1;
        crc32c_bytes[0][byte] = sum;
    }
    for (int n = 1; n < 8; n++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc32c_bytes[n - 1][byte];
            crc32c_bytes[n][byte] = (before >> 8) ^ crc32c_bytes[0][before & 0xff];
        }
    crc32c_fill_over(crc32c_over_long, CRC32C_LANE_LONG);
    crc32c_fill_over(crc32c_over_short, CRC32C_LANE_SHORT);
    crc32c_in_hardware = crc32c_detect_hardware();
}

RF_INLINE uint64_t crc32c_load64(const uint8_t *from) {
    uint64_t raw;
    memcpy(&raw, from, sizeof raw);
    return RF_LE64(raw);
}

/* `sum` is the raw register, inverted by the caller. */
static RF_UNUSED uint32_t crc32c_portable(uint32_t sum, const uint8_t *data, size_t size) {
    while (size >= 8) {
        uint64_t word = crc32c_load64(data) ^ sum;
        sum = crc32c_bytes[7][word & 0xff] ^ crc32c_bytes[6][(word >> 8) & 0xff] ^
              crc32c_bytes[5][(word >> 16) & 0xff] ^ crc32c_bytes[4][(word >> 24) & 0xff] ^
              crc32c_bytes[3][(word >> 32) & 0xff] ^ crc32c_bytes[2][(word >> 40) & 0xff] ^
              crc32c_bytes[1][(word >> 48) & 0xff] ^ crc32c_bytes[0][word >> 56];
        data += 8;
        size -= 8;
    }
    for (; size > 0; size--)
        sum = (sum >> 8) ^ crc32c_bytes[0][(sum ^ *data++) & 0xff];
    return sum;
}

#if defined(__x86_64__)
#define CRC32C_TARGET __attribute__((target("sse4.2")))
#define CRC32C_STEP64(sum, word) ((uint32_t)_mm_crc32_u64((sum), (word)))
#define CRC32C_STEP8(sum, byte) _mm_crc32_u8((sum), (byte))
#elif defined(__aarch64__)
/* Written as assembly because compilers disagree on how to allow the intrinsics for one function. */
#define CRC32C_TARGET
RF_INLINE uint32_t crc32c_step64(uint32_t sum, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(sum) : "r"(word));
    return sum;
}
RF_INLINE uint32_t crc32c_step8(uint32_t sum, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(sum) : "r"((uint32_t)byte));
    return sum;
}
#define CRC32C_STEP64(sum, word) crc32c_step64((sum), (word))
#define CRC32C_STEP8(sum, byte) crc32c_step8((sum), (byte))
#endif

#if defined(CRC32C_STEP64)

RF_INLINE uint32_t crc32c_over(uint32_t table[4][256], uint32_t sum) {
    return table[0][sum & 0xff] ^ table[1][(sum >> 8) & 0xff] ^ table[2][(sum >> 16) & 0xff] ^
           table[3][sum >> 24];
}

/* Sum three neighbouring lanes of `lane` bytes each at once. */
CRC32C_TARGET RF_INLINE uint32_t crc32c_three_lanes(
    uint32_t sum, const uint8_t *data, size_t lane, uint32_t table[4][256]) {
    uint32_t second = 0, third = 0;
    for (const uint8_t *lane_end = data + lane; data < lane_end; data += 8) {
        sum = CRC32C_STEP64(sum, crc32c_load64(data));
        second = CRC32C_STEP64(second, crc32c_load64(data + lane));
        third = CRC32C_STEP64(third, crc32c_load64(data + 2 * lane));
    }
    return crc32c_over(table, crc32c_over(table, sum) ^ second) ^ third;
}

CRC32C_TARGET static RF_UNUSED uint32_t crc32c_hardware(
    uint32_t sum, const uint8_t *data, size_t size) {
    for (; size >= 3 * CRC32C_LANE_LONG; data += 3 * CRC32C_LANE_LONG, size -= 3 * CRC32C_LANE_LONG)
        sum = crc32c_three_lanes(sum, data, CRC32C_LANE_LONG, crc32c_over_long);
    for (; size >= 3 * CRC32C_LANE_SHORT;
         data += 3 * CRC32C_LANE_SHORT, size -= 3 * CRC32C_LANE_SHORT)
        sum = crc32c_three_lanes(sum, data, CRC32C_LANE_SHORT, crc32c_over_short);
    for (; size >= 8; data += 8, size -= 8)
        sum = CRC32C_STEP64(sum, crc32c_load64(data));
    for (; size > 0; size--)
        sum = CRC32C_STEP8(sum, *data++);
    return sum;
}

#else
#define crc32c_hardware crc32c_portable
#endif

/* Returns the CRC-32C of `data`, continued from `value`, the CRC of the bytes before it (0: none). */
RF_INLINE uint32_t crc32c_extend(uint32_t value, const uint8_t *data, size_t size) {
    return ~(crc32c_in_hardware ? crc32c_hardware(~value, data, size)
                                : crc32c_portable(~value, data, size));
}

/* ---------------------------------------------------------------------------- varints
 *
 * A reader returns 0 and moves *position to the byte after the number. If the bytes end inside the
 * number, or it does not fit its type, it returns -1 and changes neither. (Kafka drops the bits that
 * do not fit; no encoder writes them.) A size function returns the number of bytes that the writer
 * will write; a writer returns the position after its bytes and relies on the caller for space.
 */

#define VARINT_SIZE_MAX 5
#define VARLONG_SIZE_MAX 10

RF_INLINE int read_unsigned_varlong(const uint8_t **position, const uint8_t *end, uint64_t *out) {
    const uint8_t *at = *position;
    uint64_t value = 0;
    for (int shift = 0; at < end && shift < 64; shift += 7) {
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1)
            return -1;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            *position = at;
            return 0;
        }
    }
    return -1;
}

RF_INLINE int read_varlong(const uint8_t **position, const uint8_t *end, int64_t *out) {
    uint64_t raw;
    if (read_unsigned_varlong(position, end, &raw) != 0)
        return -1;
    *out = (int64_t)((raw >> 1) ^ (0 - (raw & 1)));
    return 0;
}

RF_INLINE int read_varint(const uint8_t **position, const uint8_t *end, int32_t *out) {
    const uint8_t *at = *position;
    uint64_t raw;
    if (RF_LIKELY(at < end && *at < 0x80)) {
        raw = *at++;
    } else if (read_unsigned_varlong(&at, end, &raw) != 0 || raw > UINT32_MAX ||
               at - *position > VARINT_SIZE_MAX) {
        return -1;
    }
    *position = at;
    *out = (int32_t)((uint32_t)(raw >> 1) ^ (0 - (uint32_t)(raw & 1)));
    return 0;
}

RF_INLINE uint64_t zigzag(int64_t value) {
    return ((uint64_t)value << 1) ^ (0 - ((uint64_t)value >> 63));
}

RF_INLINE size_t varlong_size(int64_t value) {
    int bits = 64 - __builtin_clzll(zigzag(value) | 1);
    return (size_t)((bits + 6) / 7);
}

RF_INLINE size_t varint_size(int32_t value) { return varlong_size(value); }

RF_INLINE uint8_t *write_varlong(uint8_t *to, int64_t value) {
    uint64_t raw = zigzag(value);
    for (; raw >= 0x80; raw >>= 7)
        *to++ = (uint8_t)(raw | 0x80);
    *to++ = (uint8_t)raw;
    return to;
}

RF_INLINE uint8_t *write_varint(uint8_t *to, int32_t value) { return write_varlong(to, value); }

/* ------------------------------------------------------------------------- one record */

typedef enum {
    RECORD_OK = 0,
    RECORD_CUT = 1,          /* The bytes end inside it, or a number in it is malformed. */
    RECORD_BAD_LENGTH = 2,   /* Its length is negative or too small. */
    RECORD_BAD_KEY = 3,      /* Its key's length does not fit. */
    RECORD_BAD_VALUE = 4,    /* Its value's length does not fit. */
    RECORD_BAD_HEADERS = 5,  /* Its headers do not fit, or one has no key. */
    RECORD_TRAILING = 6,     /* Its length includes bytes that belong to no field. */
} record_status;

/* One record; every pointer points into the buffer that it was read from. */
typedef struct {
    const uint8_t *start;         /* Its length varint. */
    const uint8_t *offset_start;  /* Its offset delta; the bytes from here to `end` do not depend */
                                  /* on the batch's base timestamp. */
    const uint8_t *end;           /* The byte after it. */
    const uint8_t *key;           /* Meaningless when key_size is -1. */
    const uint8_t *value;         /* Meaningless when value_size is -1. */
    const uint8_t *headers;       /* The first header, or `end`. */
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_size;             /* -1: null */
    int32_t value_size;           /* -1: null, a tombstone */
    int32_t header_count;
    int8_t attributes;
} record_view;

/* Reads a length and that many bytes; length -1 is null, and allowed if `nullable`. */
RF_INLINE int read_sized(
    const uint8_t **position, const uint8_t *end, int nullable, const uint8_t **data,
    int32_t *size) {
    if (read_varint(position, end, size) != 0)
        return -1;
    *data = *position;
    if (*size < 0)
        return *size == -1 && nullable ? 0 : -1;
    if (*size > end - *position)
        return -1;
    *position += *size;
    return 0;
}

static RF_UNUSED int skip_headers(const uint8_t **position, const uint8_t *end, int32_t count) {
    const uint8_t *data;
    int32_t size;
    /* A header takes two bytes or more, so a wrong count ends the loop early. */
    for (; count > 0; count--)
        if (read_sized(position, end, 0, &data, &size) != 0 ||
            read_sized(position, end, 1, &data, &size) != 0)
            return -1;
    return 0;
}

/* Reads one whole record and checks that its fields fill its length exactly. Returns a record_status.
 * Only with RECORD_OK does it move *position past the record and is `out` valid. */
static inline __attribute__((always_inline)) int read_record_inlined(
    const uint8_t **position, const uint8_t *end, record_view *out) {
    const uint8_t *at = *position;
    int32_t length;
    out->start = at;
    if (read_varint(&at, end, &length) != 0)
        return RECORD_CUT;
    if (length < 1)
        return RECORD_BAD_LENGTH;
    if (length > end - at)
        return RECORD_CUT;
    end = at + length;
    out->end = end;
    out->attributes = (int8_t)*at++;
    if (read_varlong(&at, end, &out->timestamp_delta) != 0)
        return RECORD_BAD_LENGTH;
    out->offset_start = at;
    if (read_varint(&at, end, &out->offset_delta) != 0)
        return RECORD_BAD_LENGTH;
    if (read_sized(&at, end, 1, &out->key, &out->key_size) != 0)
        return RECORD_BAD_KEY;
    if (read_sized(&at, end, 1, &out->value, &out->value_size) != 0)
        return RECORD_BAD_VALUE;
    if (read_varint(&at, end, &out->header_count) != 0 || out->header_count < 0)
        return RECORD_BAD_HEADERS;
    out->headers = at;
    if (out->header_count != 0 && skip_headers(&at, end, out->header_count) != 0)
        return RECORD_BAD_HEADERS;
    if (at != end)
        return RECORD_TRAILING;
    *position = end;
    return RECORD_OK;
}

/* The same, inlined where the compiler decides so. In modules with many callers it does not, which costs
 * loops over all records 5 %: these call the function above. */
RF_INLINE int read_record(const uint8_t **position, const uint8_t *end, record_view *out) {
    return read_record_inlined(position, end, out);
}

/* Finds the last header of a whole record with this name. Returns the size of its value, and sets
 * *value; -1 if its value is null or there is no such header. */
static RF_UNUSED int32_t last_header(
    const record_view *record, const uint8_t *name, int32_t name_size, const uint8_t **value) {
    const uint8_t *at = record->headers, *key, *data;
    int32_t key_size, data_size, found = -1;
    for (int32_t i = 0; i < record->header_count; i++) {
        /* The record was read before, so this cannot fail; the check is for the compiler. */
        if (read_sized(&at, record->end, 0, &key, &key_size) != 0 ||
            read_sized(&at, record->end, 1, &data, &data_size) != 0)
            break;
        if (key_size == name_size && memcmp(key, name, (size_t)name_size) == 0) {
            found = data_size;
            *value = data;
        }
    }
    return found;
}

static RF_UNUSED const char *record_status_text(int status) {
    switch (status) {
    case RECORD_OK: return "is sound";
    case RECORD_CUT: return "is cut off";
    case RECORD_BAD_LENGTH: return "has a length that its fields do not fit";
    case RECORD_BAD_KEY: return "has a key whose length does not fit";
    case RECORD_BAD_VALUE: return "has a value whose length does not fit";
    case RECORD_BAD_HEADERS: return "has headers that do not fit, or one without a key";
    case RECORD_TRAILING: return "has bytes that belong to no field";
    default: return "has an unknown fault";
    }
}

/* Returns the number of bytes that `write_record_restamped` writes for this record. */
RF_INLINE size_t restamped_size(const record_view *record, int64_t timestamp_delta) {
    size_t length = 1 + varlong_size(timestamp_delta) + (size_t)(record->end - record->offset_start);
    return varlong_size((int64_t)length) + length;
}

/* Writes the record with another timestamp delta (its batch's base timestamp moved, or it starts
 * another batch); everything else byte for byte. Returns the position after it. */
RF_INLINE uint8_t *write_record_restamped(
    uint8_t *to, const record_view *record, int64_t timestamp_delta) {
    size_t kept = (size_t)(record->end - record->offset_start);
    to = write_varlong(to, (int64_t)(1 + varlong_size(timestamp_delta) + kept));
    *to++ = (uint8_t)record->attributes;
    to = write_varlong(to, timestamp_delta);
    memcpy(to, record->offset_start, kept);
    return to + kept;
}

/* ------------------------------------------------------------------------ batch header */

typedef enum {
    BATCH_OK = 0,
    BATCH_CUT = 1,         /* The bytes end inside it. */
    BATCH_BAD_MAGIC = 2,   /* It has another message format. */
    BATCH_BAD_LENGTH = 3,  /* Its length is smaller than a header. */
    BATCH_BAD_CRC = 4,
    BATCH_BAD_HEADER = 5,  /* Negative counts, or more records than offsets. */
} batch_status;

typedef struct {
    int64_t size;  /* Size of the whole batch, in bytes. */
    int64_t base_offset;
    int64_t last_offset;  /* Inclusive. */
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t leader_epoch;
    int32_t base_sequence;
    int32_t record_count;
    uint32_t crc;
    int16_t attributes;
    int16_t producer_epoch;
} batch_header;

RF_INLINE int check_batch_header(const batch_header *header, int32_t last_offset_delta) {
    int64_t last_offset;
    if (last_offset_delta < 0 || header->record_count < 0)
        return BATCH_BAD_HEADER;
    if (header->record_count > (int64_t)last_offset_delta + 1)
        return BATCH_BAD_HEADER;
    if (__builtin_add_overflow(header->base_offset, last_offset_delta, &last_offset))
        return BATCH_BAD_HEADER;
    return BATCH_OK;
}

/* Reads the header at `batch`. Returns a batch_status; `out` is valid with BATCH_OK and
 * BATCH_BAD_HEADER. With BATCH_CUT and 17 bytes or more, out->size is the batch's full size. It does
 * not check the CRC: see batch_crc. */
RF_INLINE int read_batch_header(const uint8_t *batch, const uint8_t *end, batch_header *out) {
    int32_t length, last_offset_delta;
    out->size = BATCH_HEADER_SIZE;
    if (end - batch < BATCH_CRC)
        return BATCH_CUT;
    if (batch[BATCH_MAGIC] != BATCH_MAGIC_SERVED)
        return BATCH_BAD_MAGIC;
    length = load_int32(batch + BATCH_LENGTH);
    if (length < BATCH_HEADER_SIZE - BATCH_LENGTH_OVERHEAD)
        return BATCH_BAD_LENGTH;
    out->size = (int64_t)length + BATCH_LENGTH_OVERHEAD;
    if (out->size > end - batch)
        return BATCH_CUT;
    last_offset_delta = load_int32(batch + BATCH_LAST_OFFSET_DELTA);
    out->base_offset = load_int64(batch + BATCH_BASE_OFFSET);
    out->last_offset = (int64_t)((uint64_t)out->base_offset + (uint64_t)(int64_t)last_offset_delta);
    out->leader_epoch = load_int32(batch + BATCH_LEADER_EPOCH);
    out->crc = load_uint32(batch + BATCH_CRC);
    out->attributes = load_int16(batch + BATCH_ATTRIBUTES);
    out->base_timestamp = load_int64(batch + BATCH_BASE_TIMESTAMP);
    out->max_timestamp = load_int64(batch + BATCH_MAX_TIMESTAMP);
    out->producer_id = load_int64(batch + BATCH_PRODUCER_ID);
    out->producer_epoch = load_int16(batch + BATCH_PRODUCER_EPOCH);
    out->base_sequence = load_int32(batch + BATCH_BASE_SEQUENCE);
    out->record_count = load_int32(batch + BATCH_RECORD_COUNT);
    return check_batch_header(out, last_offset_delta);
}

/* Returns the CRC that a whole batch of `size` bytes should have. */
RF_INLINE uint32_t batch_crc(const uint8_t *batch, int64_t size) {
    return crc32c_extend(0, batch + BATCH_ATTRIBUTES, (size_t)(size - BATCH_ATTRIBUTES));
}

/* Writes the header and the CRC of the batch whose records are already at batch + BATCH_HEADER_SIZE.
 * header->size must include both and fit an int32; header->crc is not read.
 * last_offset - base_offset must fit an int32. */
RF_INLINE void write_batch_header(uint8_t *batch, const batch_header *header) {
    store_int64(batch + BATCH_BASE_OFFSET, header->base_offset);
    store_int32(batch + BATCH_LENGTH, (int32_t)(header->size - BATCH_LENGTH_OVERHEAD));
    store_int32(batch + BATCH_LEADER_EPOCH, header->leader_epoch);
    batch[BATCH_MAGIC] = BATCH_MAGIC_SERVED;
    store_int16(batch + BATCH_ATTRIBUTES, header->attributes);
    store_int32(batch + BATCH_LAST_OFFSET_DELTA,
                (int32_t)(header->last_offset - header->base_offset));
    store_int64(batch + BATCH_BASE_TIMESTAMP, header->base_timestamp);
    store_int64(batch + BATCH_MAX_TIMESTAMP, header->max_timestamp);
    store_int64(batch + BATCH_PRODUCER_ID, header->producer_id);
    store_int16(batch + BATCH_PRODUCER_EPOCH, header->producer_epoch);
    store_int32(batch + BATCH_BASE_SEQUENCE, header->base_sequence);
    store_int32(batch + BATCH_RECORD_COUNT, header->record_count);
    store_uint32(batch + BATCH_CRC, batch_crc(batch, header->size));
}

#endif
