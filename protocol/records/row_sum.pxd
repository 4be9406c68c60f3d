"""Declarations of `row_sum.h` for compiled modules; see there for the meaning of each name."""

from libc.stdint cimport int64_t, uint64_t

from protocol.records.record_format cimport record_view


cdef extern from "row_sum.h" nogil:
    ctypedef struct kp_hash128:
        uint64_t low
        uint64_t high

    void kp_row_add(kp_hash128 *sum, const record_view *record, int64_t offset, int64_t producer_id)
