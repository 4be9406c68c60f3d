# Columns in Arrow's layout, in memory that grows: validity, ends, bytes; a part of record_columns.pyx.


cdef enum:
    CAPACITY_MIN = 4096


cdef struct growing:
    uint8_t *data
    int64_t size
    int64_t capacity


cdef int reserve(growing *buffer, int64_t more) noexcept nogil:
    """Allocate space for `more` bytes. Returns whether that succeeded."""
    cdef int64_t wanted = buffer.size + more
    cdef int64_t capacity
    cdef uint8_t *grown
    if wanted <= buffer.capacity:
        return 1
    capacity = max(max(wanted, 2 * buffer.capacity), <int64_t> CAPACITY_MIN)
    grown = <uint8_t *> realloc(buffer.data, <size_t> capacity)
    if grown == NULL:
        return 0
    buffer.data = grown
    buffer.capacity = capacity
    return 1


cdef class ColumnBuffer:
    cdef growing held

    def __dealloc__(self):
        free(self.held.data)

    def __len__(self):
        return self.held.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.held.data, self.held.size, 1, flags)


cdef ColumnBuffer handed_over(growing *buffer):
    cdef ColumnBuffer owner = ColumnBuffer.__new__(ColumnBuffer)
    if buffer.data == NULL and not reserve(buffer, 1):
        raise MemoryError("no memory for a column")
    owner.held = buffer[0]
    buffer.data = NULL
    buffer.size = buffer.capacity = 0
    return owner


# ------------------------------------------------------------- columns of byte strings


cdef struct strings:
    growing validity
    growing offsets
    growing data
    int64_t count
    int64_t nulls


cdef int reserve_strings(strings *column, int64_t count, int64_t size) noexcept nogil:
    """Allocate space for `count` strings with a total of `size` bytes."""
    return (
        reserve(&column.validity, count // 8 + 2)
        and reserve(&column.offsets, 4 * (count + 1))
        and reserve(&column.data, size)
    )


cdef inline void set_valid(growing *validity, int64_t number, bint is_valid) noexcept nogil:
    if number % 8 == 0:
        validity.data[number // 8] = 0
        validity.size = number // 8 + 1
    validity.data[number // 8] |= <uint8_t> is_valid << (number % 8)


cdef inline void append_end(growing *offsets, int64_t end) noexcept nogil:
    """Append an entry's end. Space for it, and for the 0 before the first one, is reserved."""
    if offsets.size == 0:
        (<int32_t *> offsets.data)[0] = 0
        offsets.size = 4
    (<int32_t *> (offsets.data + offsets.size))[0] = <int32_t> end
    offsets.size += 4


cdef inline void append(strings *column, const uint8_t *data, int32_t size) noexcept nogil:
    """Append a string, null if its size is -1. Space for it is reserved."""
    set_valid(&column.validity, column.count, size >= 0)
    if size > 0:
        memcpy(column.data.data + column.data.size, data, <size_t> size)
        column.data.size += size
    elif size < 0:
        column.nulls += 1
    append_end(&column.offsets, column.data.size)
    column.count += 1


cdef void free_strings(strings *column) noexcept nogil:
    free(column.validity.data)
    free(column.offsets.data)
    free(column.data.data)


cdef class BinaryColumn:
    cdef readonly ColumnBuffer validity, offsets, data
    cdef readonly int64_t null_count
    cdef int64_t count

    def __len__(self):
        return self.count


cdef BinaryColumn strings_handed_over(strings *column):
    cdef BinaryColumn owner = BinaryColumn.__new__(BinaryColumn)
    if column.offsets.size == 0 and reserve(&column.offsets, 4):
        (<int32_t *> column.offsets.data)[0] = 0
        column.offsets.size = 4
    owner.validity = handed_over(&column.validity)
    owner.offsets = handed_over(&column.offsets)
    owner.data = handed_over(&column.data)
    owner.count = column.count
    owner.null_count = column.nulls
    column.count = column.nulls = 0
    return owner
