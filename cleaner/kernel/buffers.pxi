# Reusable memory that grows; a part of kernel.pyx.


cdef struct Buffer:
    uint8_t *data
    size_t size
    size_t capacity


cdef void *grow(
    void *memory, size_t *capacity, size_t wanted, size_t item_bytes
) except NULL nogil:
    """Returns memory for at least `wanted` items with the content of `memory`, which it invalidates."""
    cdef size_t count = max(wanted, max(2 * capacity[0], <size_t>64))
    cdef void *moved = realloc(memory, count * item_bytes)
    if moved == NULL:
        with gil:
            raise MemoryError(f"cannot allocate {count * item_bytes} bytes for the cleaner")
    capacity[0] = count
    return moved


cdef inline int reserve(Buffer *buffer, size_t more) except -1 nogil:
    if buffer.capacity - buffer.size < more:
        buffer.data = <uint8_t *>grow(buffer.data, &buffer.capacity, buffer.size + more, 1)
    return 0


cdef object bytes_in(const Buffer *buffer):
    return PyBytes_FromStringAndSize(<const char *>buffer.data, buffer.size)
