# Reads the records of batches one by one; a part of live_records.pyx. `LiveRecords` and `RecordSum` take them.
# A piece is read without the interpreter lock, so that the event loop does not wait for it: only compressed
# batches, transactions and finished batches of the copy need the lock.


cdef class RecordReader:
    cdef int64_t _decompressed_bytes_max

    cdef int take_records(self, const uint8_t *batch, batch_header *header) except -1 nogil:
        """Read all records of a batch and hand each to `take`."""
        cdef const uint8_t *packed = batch + BATCH_HEADER_SIZE
        cdef Py_ssize_t size = <Py_ssize_t> (header.size - BATCH_HEADER_SIZE)
        if header.record_count == 0:
            return 0
        if header.attributes & ATTRIBUTE_CODEC_MASK == 0:
            return self.take_plain(packed, packed + size, header)
        with gil:
            return self.take_compressed(packed, size, header)

    cdef int take_compressed(
        self, const uint8_t *packed, Py_ssize_t size, batch_header *header
    ) except -1:
        cdef int codec = header.attributes & ATTRIBUTE_CODEC_MASK
        cdef const uint8_t[::1] plain
        if codec > ATTRIBUTE_CODEC_MAX:
            raise UnsupportedCodec(codec)
        plain = memoryview(
            decompress(
                Codec(codec),
                PyBytes_FromStringAndSize(<const char *> packed, size),
                bytes_max=self._decompressed_bytes_max,
            )
        )
        if plain.shape[0] == 0:
            raise CorruptBatch(f"batch at offset {header.base_offset} has no records")
        return self.take_plain(&plain[0], &plain[0] + plain.shape[0], header)

    cdef int take_plain(
        self, const uint8_t *at, const uint8_t *end, batch_header *header
    ) except -1 nogil:
        cdef record_view record
        cdef int32_t index
        cdef int status
        for index in range(header.record_count):
            status = read_record(&at, end, &record)
            if status != RECORD_OK:
                return bad_record(index, header, status)
            self.take(&record, header)
        return 0

    cdef int take(self, record_view *record, batch_header *header) except -1 nogil:
        with gil:
            raise NotImplementedError


cdef int bad_record(int32_t index, batch_header *header, int status) except -1 nogil:
    with gil:
        raise CorruptBatch(
            f"record {index} of the batch at offset {header.base_offset} "
            + record_status_text(status).decode()
        )


cdef int check_batch(const uint8_t *at, batch_header *header, int status) except -1 nogil:
    if status != BATCH_OK:
        with gil:
            raise CorruptBatch(f"no batch after offset {header.last_offset}")
    if batch_crc(at, header.size) != header.crc:
        with gil:
            raise CorruptBatch(f"batch at offset {header.base_offset} fails its CRC")
    return 0
