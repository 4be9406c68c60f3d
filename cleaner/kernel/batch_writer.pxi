# Writes the bytes of what remains of a batch; a part of kernel.pyx.


@final
cdef class BatchWriter:
    # Constant after construction: the codec of rebuilt data batches, -1 to keep that of each; the level of
    # each codec
    cdef int codec
    cdef tuple levels
    # The batches written since it was last cleared, one after the other
    cdef Buffer output
    # Records on their way into a codec, reused
    cdef Buffer rebuilt

    def __cinit__(self, *, int codec, tuple levels not None):
        self.codec = codec
        self.levels = levels

    def __dealloc__(self):
        free(self.output.data)
        free(self.rebuilt.data)

    cdef bint equals(self, const uint8_t *data, size_t size) noexcept nogil:
        """Returns whether the output is identical to these bytes."""
        return self.output.size == size and memcmp(self.output.data, data, size) == 0

    cdef int copy_whole(self, const uint8_t *batch, size_t size) except -1 nogil:
        reserve(&self.output, size)
        memcpy(self.output.data + self.output.size, batch, size)
        self.output.size += size
        return 0

    cdef int write_empty(self, batch_header *remains) except -1 nogil:
        # Kafka's writeEmptyHeader: no codec, no horizon, no base timestamp.
        remains.size = BATCH_HEADER_SIZE
        remains.attributes &= (
            ATTRIBUTE_LOG_APPEND_TIME | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL
        )
        remains.base_timestamp = -1
        remains.record_count = 0
        reserve(&self.output, BATCH_HEADER_SIZE)
        write_batch_header(self.output.data + self.output.size, remains)
        self.output.size += BATCH_HEADER_SIZE
        return 0

    cdef int write_survivors(
        self,
        Judged *judged,
        batch_header *remains,
        int64_t shift,
        uint8_t *entries,
        int64_t position,
    ) except -1 nogil:
        """Append a header and the surviving records, compressed with the codec that the header gets.

        `remains` is the header; its size is set here. The timestamp deltas grow by `shift`, which may
        enlarge the records: their new sizes are stored in their `entries`, and counted in the sum of keys.
        """
        remains.attributes = rebuilt_attributes(remains, self.codec)
        if not remains.attributes & ATTRIBUTE_CODEC_MASK:
            return write_plain(&self.output, judged, remains, shift, entries, position)
        self.rebuilt.size = 0
        write_plain(&self.rebuilt, judged, remains, shift, entries, position)
        with gil:
            self.append_compressed(remains, position)
        return 0

    cdef int append_compressed(self, batch_header *remains, int64_t position) except -1:
        cdef const unsigned char[::1] data = compress(
            Codec(remains.attributes & ATTRIBUTE_CODEC_MASK),
            PyBytes_FromStringAndSize(
                <const char *>self.rebuilt.data + BATCH_HEADER_SIZE,
                self.rebuilt.size - BATCH_HEADER_SIZE,
            ),
            level=self.levels[remains.attributes & ATTRIBUTE_CODEC_MASK],
        )
        if data.shape[0] > INT32_MAX - BATCH_HEADER_SIZE:
            return corrupt(position, remains.base_offset, b"its records outgrow a batch")
        remains.size = BATCH_HEADER_SIZE + data.shape[0]
        reserve(&self.output, remains.size)
        memcpy(
            self.output.data + self.output.size + BATCH_HEADER_SIZE, bytes_of(data), data.shape[0]
        )
        write_batch_header(self.output.data + self.output.size, remains)
        self.output.size += remains.size
        return 0


cdef inline int16_t rebuilt_attributes(const batch_header *header, int codec) noexcept nogil:
    """Returns the attributes of a batch with records after it was rebuilt. Control batches have no codec."""
    if codec < 0 or header.attributes & ATTRIBUTE_CONTROL:
        return header.attributes
    return <int16_t>((header.attributes & ~ATTRIBUTE_CODEC_MASK) | codec)


cdef int write_plain(
    Buffer *output,
    Judged *judged,
    batch_header *remains,
    int64_t shift,
    uint8_t *entries,
    int64_t position,
) except -1 nogil:
    cdef int64_t records_size = judged.kept_bytes
    cdef uint8_t *header_at
    if shift != 0:
        records_size = shifted_size(judged, shift)
    if records_size > INT32_MAX - BATCH_HEADER_SIZE:
        return corrupt(position, remains.base_offset, b"its records outgrow a batch")
    reserve(output, BATCH_HEADER_SIZE + records_size)
    header_at = output.data + output.size
    if shift == 0:
        copy_runs(judged, header_at + BATCH_HEADER_SIZE)
    else:
        shift_runs(judged, header_at + BATCH_HEADER_SIZE, shift, entries)
    remains.size = BATCH_HEADER_SIZE + records_size
    write_batch_header(header_at, remains)
    output.size += remains.size
    return 0


cdef void copy_runs(const Judged *judged, uint8_t *to) noexcept nogil:
    cdef size_t i, size
    for i in range(judged.run_count):
        size = judged.runs[i].end - judged.runs[i].start
        memcpy(to, judged.runs[i].start, size)
        to += size


cdef int64_t shifted_size(const Judged *judged, int64_t shift) noexcept nogil:
    """Returns the size of the surviving records after their timestamp deltas grow by `shift`."""
    cdef int64_t total = 0
    cdef size_t i
    cdef const uint8_t *at
    cdef record_view record
    for i in range(judged.run_count):
        at = judged.runs[i].start
        while at < judged.runs[i].end:
            # The record was read before, so this cannot fail; the check is for the compiler.
            if read_record(&at, judged.runs[i].end, &record) != RECORD_OK:
                break
            total += restamped_size(&record, wrapping_add(record.timestamp_delta, shift))
    return total


cdef void shift_runs(
    Judged *judged, uint8_t *to, int64_t shift, uint8_t *entries
) noexcept nogil:
    cdef kp_sip_hash hashed
    cdef size_t i
    cdef const uint8_t *at
    cdef uint8_t *start
    cdef record_view record
    for i in range(judged.run_count):
        at = judged.runs[i].start
        while at < judged.runs[i].end:
            if read_record(&at, judged.runs[i].end, &record) != RECORD_OK:
                break
            start = to
            to = write_record_restamped(to, &record, wrapping_add(record.timestamp_delta, shift))
            # Control records have no entries, although they have keys.
            if record.key_size >= 0 and entries != NULL:
                hashed = entry_hash(entries)
                judged.key_sum += kp_key_resized(
                    hashed.low,
                    hashed.high,
                    load_uint32(entries + ENTRY_RECORD_SIZE),
                    <uint32_t>(to - start),
                )
                store_uint32(entries + ENTRY_RECORD_SIZE, <uint32_t>(to - start))
                entries += ENTRY_SIZE
