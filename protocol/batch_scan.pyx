# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled work over whole record batches: CRC-32C. See `batch_scan.pyi` for the contract."""

from libc.stdint cimport uint8_t, uint32_t

from protocol.record_format cimport crc32c_extend


def crc32c(const uint8_t[::1] data not None, uint32_t value=0) -> int:
    cdef size_t size = <size_t> data.shape[0]
    cdef uint32_t result = value
    if size == 0:
        return value
    if size <= 1024:
        return crc32c_extend(value, &data[0], size)
    with nogil:
        result = crc32c_extend(value, &data[0], size)
    return result
