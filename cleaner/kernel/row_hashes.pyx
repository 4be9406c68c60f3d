# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Computes the table digest's hashes for columns of records; `row_hashes.pyi` documents the
interface."""

from libc.stdint cimport INT32_MAX, int64_t, uint8_t
from libc.string cimport memcpy

from cleaner.kernel.digest cimport kp_hash128
from cleaner.kernel.table_digest cimport kp_table_content, kp_table_header, kp_table_row


cdef struct Cells:
    # A column of bytes: cell i is in data from ends[start + i] to ends[start + i + 1].
    const uint8_t *validity
    const uint8_t *ends
    const uint8_t *data
    int64_t start
    int64_t count
    int64_t size


cdef inline int64_t number_at(const uint8_t *numbers, int64_t index) noexcept nogil:
    cdef int64_t number
    memcpy(&number, numbers + index * 8, 8)
    return number


cdef const uint8_t *bytes_of(const unsigned char[::1] view) noexcept nogil:
    # An empty view has no first element to take the address of.
    return &view[0] if view.shape[0] > 0 else NULL


cdef class BytesColumn:
    # Constant after construction; the views keep the memory alive.
    cdef const unsigned char[::1] validity
    cdef const unsigned char[::1] ends
    cdef const unsigned char[::1] data
    cdef Cells cells

    def __cinit__(self, *, int64_t start, int64_t count, validity, ends not None, data not None):
        self.ends = ends
        self.data = data
        if start < 0 or count < 0 or self.ends.shape[0] // 8 - 1 - start < count:
            raise ValueError(f"{self.ends.shape[0]} bytes of ends are too few")
        if validity is not None:
            self.validity = validity
            if self.validity.shape[0] * 8 - start < count:
                raise ValueError(f"{self.validity.shape[0]} bytes of validity are too few")
            self.cells.validity = bytes_of(self.validity)
        self.cells.ends = bytes_of(self.ends)
        self.cells.data = bytes_of(self.data)
        self.cells.start = start
        self.cells.count = count
        self.cells.size = self.data.shape[0]


cdef int read_cell(
    const Cells *cells, int64_t index, const uint8_t **data, int64_t *size
) except -1 nogil:
    """Set the address and size of a cell; the size of a null is -1."""
    cdef int64_t place = cells.start + index
    cdef int64_t first, end
    if index < 0 or index >= cells.count:
        with gil:
            raise ValueError(f"there is no cell {index} among {cells.count}")
    if cells.validity != NULL and not cells.validity[place >> 3] >> (place & 7) & 1:
        data[0] = NULL
        size[0] = -1
        return 0
    first, end = number_at(cells.ends, place), number_at(cells.ends, place + 1)
    if first < 0 or end < first or end > cells.size or end - first > INT32_MAX:
        with gil:
            raise ValueError(f"cell {index} is at [{first}, {end}) of {cells.size} bytes")
    data[0] = cells.data + first
    size[0] = end - first
    return 0


cdef class HeadersColumn:
    # Constant after construction; the views keep the memory alive.
    cdef const unsigned char[::1] firsts
    cdef const unsigned char[::1] counts
    cdef BytesColumn keys
    cdef BytesColumn values

    def __cinit__(
        self, *, firsts not None, counts not None, BytesColumn keys not None,
        BytesColumn values not None,
    ):
        self.firsts = firsts
        self.counts = counts
        self.keys = keys
        self.values = values

    cdef int read_headers(
        self, int64_t row, int64_t *count, kp_hash128 *headers
    ) except -1 nogil:
        cdef const uint8_t *key = NULL
        cdef const uint8_t *value = NULL
        cdef int64_t key_size = 0
        cdef int64_t value_size = 0
        cdef int64_t first = number_at(bytes_of(self.firsts), row)
        cdef int64_t i
        count[0] = number_at(bytes_of(self.counts), row)
        for i in range(count[0]):
            read_cell(&self.keys.cells, first + i, &key, &key_size)
            read_cell(&self.values.cells, first + i, &value, &value_size)
            headers[0] = kp_table_header(headers[0], key, key_size, value, value_size)
        return 0


def hash_rows(
    const unsigned char[::1] offsets not None,
    const unsigned char[::1] timestamps not None,
    BytesColumn keys not None,
    BytesColumn values not None,
    HeadersColumn headers=None,
):
    cdef int64_t count = keys.cells.count
    cdef bytearray hashes = bytearray(32 * count)
    cdef unsigned char[::1] out = hashes
    cdef int64_t i
    if min(offsets.shape[0], timestamps.shape[0]) < 8 * count or values.cells.count != count:
        raise ValueError(f"not all columns have {count} rows")
    if headers is not None and min(headers.firsts.shape[0], headers.counts.shape[0]) < 8 * count:
        raise ValueError(f"the header columns have fewer than {count} rows")
    if count > 0:
        with nogil:
            for i in range(count):
                hash_row(
                    number_at(&offsets[0], i), number_at(&timestamps[0], i), &keys.cells,
                    &values.cells, headers, i, count, &out[0],
                )
    return hashes


cdef int hash_row(
    int64_t offset,
    int64_t timestamp,
    const Cells *keys,
    const Cells *values,
    HeadersColumn headers,
    int64_t row,
    int64_t rows,
    uint8_t *out,
) except -1 nogil:
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef int64_t key_size = 0
    cdef int64_t value_size = 0
    cdef int64_t header_count = 0
    cdef kp_hash128 hashed = kp_hash128(0, 0)
    read_cell(keys, row, &key, &key_size)
    read_cell(values, row, &value, &value_size)
    if headers is not None:
        headers.read_headers(row, &header_count, &hashed)
    hashed = kp_table_content(timestamp, key, key_size, value, value_size, header_count, hashed)
    memcpy(out + 8 * row, &hashed.high, 8)
    memcpy(out + 8 * (rows + row), &hashed.low, 8)
    hashed = kp_table_row(offset, hashed)
    memcpy(out + 8 * (2 * rows + row), &hashed.high, 8)
    memcpy(out + 8 * (3 * rows + row), &hashed.low, 8)
    return 0
