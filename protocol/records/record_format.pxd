"""Declares the contents of `record_format.h` for compiled modules; the header documents each name."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "record_format.h" nogil:
    enum:
        BATCH_BASE_OFFSET
        BATCH_LENGTH
        BATCH_LEADER_EPOCH
        BATCH_MAGIC
        BATCH_CRC
        BATCH_ATTRIBUTES
        BATCH_LAST_OFFSET_DELTA
        BATCH_BASE_TIMESTAMP
        BATCH_MAX_TIMESTAMP
        BATCH_PRODUCER_ID
        BATCH_PRODUCER_EPOCH
        BATCH_BASE_SEQUENCE
        BATCH_RECORD_COUNT
        BATCH_HEADER_SIZE
        BATCH_LENGTH_OVERHEAD
        BATCH_MAGIC_SERVED
        ATTRIBUTE_CODEC_MASK
        ATTRIBUTE_CODEC_MAX
        ATTRIBUTE_LOG_APPEND_TIME
        ATTRIBUTE_TRANSACTIONAL
        ATTRIBUTE_CONTROL
        ATTRIBUTE_DELETE_HORIZON
        VARINT_SIZE_MAX
        VARLONG_SIZE_MAX

    int16_t load_int16(const uint8_t *from_)
    uint32_t load_uint32(const uint8_t *from_)
    int32_t load_int32(const uint8_t *from_)
    int64_t load_int64(const uint8_t *from_)
    void store_int16(uint8_t *to, int16_t value)
    void store_uint32(uint8_t *to, uint32_t value)
    void store_int32(uint8_t *to, int32_t value)
    void store_int64(uint8_t *to, int64_t value)

    uint32_t crc32c_extend(uint32_t value, const uint8_t *data, size_t size)
    uint32_t crc32c_portable(uint32_t sum, const uint8_t *data, size_t size)

    int read_varint(const uint8_t **position, const uint8_t *end, int32_t *out)
    int read_varlong(const uint8_t **position, const uint8_t *end, int64_t *out)
    size_t varint_size(int32_t value)
    size_t varlong_size(int64_t value)
    uint8_t *write_varint(uint8_t *to, int32_t value)
    uint8_t *write_varlong(uint8_t *to, int64_t value)

    enum:
        RECORD_OK
        RECORD_CUT
        RECORD_BAD_LENGTH
        RECORD_BAD_KEY
        RECORD_BAD_VALUE
        RECORD_BAD_HEADERS
        RECORD_TRAILING

    ctypedef struct record_view:
        const uint8_t *start
        const uint8_t *offset_start
        const uint8_t *end
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        int64_t timestamp_delta
        int32_t offset_delta
        int32_t key_size
        int32_t value_size
        int32_t header_count
        int8_t attributes

    int read_record_inlined(const uint8_t **position, const uint8_t *end, record_view *out)
    int read_record(const uint8_t **position, const uint8_t *end, record_view *out)
    int32_t last_header(
        const record_view *record, const uint8_t *name, int32_t name_size, const uint8_t **value
    )
    const char *record_status_text(int status)
    size_t restamped_size(const record_view *record, int64_t timestamp_delta)
    uint8_t *write_record_restamped(uint8_t *to, const record_view *record, int64_t timestamp_delta)

    enum:
        BATCH_OK
        BATCH_CUT
        BATCH_BAD_MAGIC
        BATCH_BAD_LENGTH
        BATCH_BAD_CRC
        BATCH_BAD_HEADER

    ctypedef struct batch_header:
        int64_t size
        int64_t base_offset
        int64_t last_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int32_t leader_epoch
        int32_t base_sequence
        int32_t record_count
        uint32_t crc
        int16_t attributes
        int16_t producer_epoch

    int read_batch_header(const uint8_t *batch, const uint8_t *end, batch_header *out)
    uint32_t batch_crc(const uint8_t *batch, int64_t size)
    void write_batch_header(uint8_t *batch, const batch_header *header)
