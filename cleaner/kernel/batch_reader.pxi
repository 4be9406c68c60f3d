# Splits chunks into batches; a part of find_key.pyx, key_proof.pyx, log_comparison.pyx and verify_output.pyx.
# It shares no code with the kernel's reader (batches.pxi), because it is used to check the kernel's output.


cdef class BatchReader:
    """Splits chunks into batches and checks what any batch must hold; subclasses use the records."""

    # Constant after construction: the maximum size of one batch's records after decompression.
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
            if self.pauses():
                return 0
        return 0

    cdef bint pauses(self) noexcept nogil:
        """Returns whether the rest of the chunk must be fed again; by default it is read to its end."""
        return False

    cdef int take_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        """Handle a sound batch; by default its records are read."""
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
        """Handle the uncompressed records of a batch, which lie from `at` to `end`."""
        raise NotImplementedError


cdef int refuse(int64_t position, const char *what) except -1 nogil:
    with gil:
        raise CorruptBatch(f"record batch at position {position}: {what.decode()}")
