# Splits a chunk into record batches and records, and checks them; a part of kernel.pyx.


cdef int corrupt(int64_t position, int64_t base_offset, const char *what) except -1 nogil:
    with gil:
        raise CorruptBatch(
            f"record batch at position {position}, base offset {base_offset}: {what.decode()}"
        )


cdef int corrupt_record(
    int64_t position, int64_t base_offset, int64_t index, const char *what
) except -1 nogil:
    with gil:
        raise CorruptBatch(
            f"record batch at position {position}, base offset {base_offset}: "
            f"record {index} {what.decode()}"
        )


cdef int next_batch(
    const uint8_t *at, const uint8_t *end, int64_t position, batch_header *header, int64_t *needed
) except -1 nogil:
    """Read and verify the batch at `at`. Returns 1, or 0 and the size it needs if it is cut."""
    cdef int status
    cdef int64_t base_offset
    needed[0] = 0
    if at == end:
        return 0
    status = read_batch_header(at, end, header)
    if status == BATCH_CUT:
        needed[0] = header.size
        return 0
    base_offset = load_int64(at + BATCH_BASE_OFFSET)
    if status == BATCH_BAD_MAGIC:
        return corrupt(position, base_offset, b"its message format is not 2")
    if status == BATCH_BAD_LENGTH:
        return corrupt(position, base_offset, b"its length is less than a header's")
    if batch_crc(at, header.size) != header.crc:
        return corrupt(position, base_offset, b"its CRC differs from its bytes")
    if status != BATCH_OK or base_offset < 0:
        return corrupt(position, base_offset, b"its offsets or its record count are impossible")
    if header.attributes & ATTRIBUTE_CODEC_MASK > ATTRIBUTE_CODEC_MAX:
        return corrupt(position, base_offset, b"its compression type does not exist")
    return 1


@final
cdef class Records:
    """The uncompressed records of one batch: inside the batch itself, or inflated."""

    cdef const uint8_t *start
    cdef const uint8_t *end
    cdef int64_t bytes_max
    # The chunk as an object: a codec's error may outlive the call, so the memory it refers to must too.
    cdef object chunk
    cdef const uint8_t *chunk_start
    cdef Py_buffer inflated
    cdef bint holds_inflated

    def __cinit__(self, int64_t bytes_max):
        self.bytes_max = bytes_max
        self.holds_inflated = False

    def __dealloc__(self):
        self.release()

    cdef int read_from(self, object chunk, const uint8_t *chunk_start) except -1:
        self.chunk = memoryview(chunk).cast("B")
        self.chunk_start = chunk_start
        return 0

    cdef int release(self) except -1:
        self.chunk = None
        return self.drop_inflated()

    cdef int drop_inflated(self) except -1:
        if self.holds_inflated:
            self.holds_inflated = False
            PyBuffer_Release(&self.inflated)
        return 0

    cdef int open(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        self.start = batch + BATCH_HEADER_SIZE
        self.end = batch + header.size
        if header.attributes & ATTRIBUTE_CODEC_MASK and header.record_count > 0:
            with gil:
                self.inflate(header, position)
        if header.record_count > (self.end - self.start) // RECORD_BYTES_MIN:
            return corrupt(
                position, header.base_offset, b"it counts more records than it has bytes"
            )
        return 0

    cdef int inflate(self, const batch_header *header, int64_t position) except -1:
        where = f"record batch at position {position}, base offset {header.base_offset}"
        compressed = self.chunk[self.start - self.chunk_start : self.end - self.chunk_start]
        self.drop_inflated()
        try:
            data = decompress(
                Codec(header.attributes & ATTRIBUTE_CODEC_MASK),
                compressed,
                bytes_max=self.bytes_max,
            )
        except CorruptBatch as error:
            raise CorruptBatch(f"{where}: {error}") from error
        except DecompressionTooLarge as error:
            error.add_note(where)
            raise
        PyObject_GetBuffer(data, &self.inflated, PyBUF_SIMPLE)
        self.holds_inflated = True
        self.start = <const uint8_t *>self.inflated.buf
        self.end = self.start + self.inflated.len
        return 0


cdef inline int next_record(
    Records records,
    const uint8_t **at,
    int32_t index,
    int32_t *last_delta,
    const batch_header *header,
    int64_t position,
    record_view *record,
) except -1 nogil:
    """Read record `index`; its offset must be above the previous one and inside the batch."""
    cdef int status = read_record_inlined(at, records.end, record)
    if status != RECORD_OK:
        return corrupt_record(position, header.base_offset, index, record_status_text(status))
    if (
        record.offset_delta <= last_delta[0]
        or record.offset_delta > header.last_offset - header.base_offset
    ):
        return corrupt_record(position, header.base_offset, index, b"has an offset out of order")
    last_delta[0] = record.offset_delta
    return 0


cdef inline int check_end(
    Records records, const uint8_t *at, const batch_header *header, int64_t position
) except -1 nogil:
    if at != records.end:
        return corrupt(position, header.base_offset, b"it has bytes after its last record")
    return 0


cdef inline int64_t wrapping_add(int64_t a, int64_t b) noexcept nogil:
    # Clients choose timestamps, so sums may overflow; they wrap as in Java.
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline int64_t wrapping_subtract(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a - <uint64_t>b)
