"""Declarations of `table_digest.h` for compiled modules; see there for the meaning of each name."""

from libc.stdint cimport int64_t, uint8_t

from cleaner.kernel.digest cimport kp_hash128
from protocol.records.record_format cimport record_view


cdef extern from "table_digest.h" nogil:
    kp_hash128 kp_table_header(
        kp_hash128 headers,
        const uint8_t *key,
        int64_t key_size,
        const uint8_t *value,
        int64_t value_size,
    )
    kp_hash128 kp_table_content(
        int64_t timestamp,
        const uint8_t *key,
        int64_t key_size,
        const uint8_t *value,
        int64_t value_size,
        int64_t header_count,
        kp_hash128 headers,
    )
    kp_hash128 kp_table_row(int64_t offset, kp_hash128 content)
    kp_hash128 kp_table_record(const record_view *record, int64_t offset, int64_t timestamp)
