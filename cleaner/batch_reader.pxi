# The walk over the batches of chunks, for readers that are not the kernel: a part of find_key.pyx and
# of verify_output.pyx. It shares nothing with the kernel's own (batches.pxi), whose output it checks.


cdef class BatchReader:
    """Cuts batches out of chunks and checks what any batch must hold; a reader says what it takes."""

    # Constant after construction: the most that one batch's records may inflate to.
    cdef int64_t bytes_max

    def feed(self, const unsigned char[::1] chunk not None, *, int64_t position=0):
        cdef const uint8_t *start = &chunk[0] if chunk.shape[0] > 0 else NULL
        cdef const uint8_t *at = start
        cdef const uint8_t *end = start + chunk.shape[0]
        cdef int64_t needed = 0
        with nogil:
            self.read_chunk(&at, end, position, &needed)
        return ReadStep(consumed_bytes=at - start, needed_bytes=needed)

    cdef int read_chunk(
        self, const uint8_t **at, const uint8_t *end, int64_t position, int64_t *needed
    ) except -1 nogil:
        cdef const uint8_t *start = at[0]
        cdef batch_header header
        cdef int status
        while at[0] < end:
            status = read_batch_header(at[0], end, &header)
            if status == BATCH_CUT:
                needed[0] = header.size
                return 0
            if status != BATCH_OK:
                return refuse(position + (at[0] - start), b"its header is damaged")
            if batch_crc(at[0], header.size) != header.crc:
                return refuse(position + (at[0] - start), b"its CRC differs from its bytes")
            if header.attributes & ATTRIBUTE_CODEC_MASK > ATTRIBUTE_CODEC_MAX:
                return refuse(
                    position + (at[0] - start), b"its compression type does not exist"
                )
            self.take_batch(at[0], &header, position + (at[0] - start))
            at[0] += header.size
        return 0

    cdef int take_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        """A sound batch has come; unless a reader says otherwise, it is read."""
        return self.read_batch(batch, header, position)

    cdef int read_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        if header.attributes & ATTRIBUTE_CODEC_MASK and header.record_count > 0:
            with gil:
                self.read_compressed(batch, header, position)
        else:
            self.take_records(batch + BATCH_HEADER_SIZE, batch + header.size, header, position)
        return 0

    cdef int read_compressed(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1:
        cdef const unsigned char[::1] inflated = decompress(
            Codec(header.attributes & ATTRIBUTE_CODEC_MASK),
            (<const char *>batch)[BATCH_HEADER_SIZE : header.size],
            bytes_max=self.bytes_max,
        )
        if inflated.shape[0] == 0:
            return refuse(position, b"its records are missing")
        with nogil:
            self.take_records(&inflated[0], &inflated[0] + inflated.shape[0], header, position)
        return 0

    cdef int take_records(
        self, const uint8_t *at, const uint8_t *end, const batch_header *header, int64_t position
    ) except -1 nogil:
        """The records of a batch that is read, not compressed any more: from `at` to `end`."""
        raise NotImplementedError


cdef int refuse(int64_t position, const char *what) except -1 nogil:
    with gil:
        raise CorruptBatch(f"record batch at position {position}: {what.decode()}")
