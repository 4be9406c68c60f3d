# Writes the batches of a copy of records; a part of live_records.pyx.


cdef enum:
    # A batch of the copy is finished when its records have reached this size.
    BATCH_BYTES = 64 << 10


@cython.final
cdef class CopiedBatches:
    cdef:
        kp_hash128 sum
        int64_t records
        list finished
        batch_header batch   # the batch being built; its size counts the bytes
        uint8_t *built
        size_t built_size

    def __cinit__(self):
        self.records = 0
        self.finished = []
        self.batch.record_count = 0
        self.built = NULL
        self.built_size = 0

    def __dealloc__(self):
        free(self.built)

    cdef int write(
        self, record_view *record, int64_t offset, int64_t producer_id, int16_t producer_epoch
    ) except -1 nogil:
        kp_row_add(&self.sum, record, offset, producer_id)
        if self.batch.record_count > 0 and (
            self.batch.size >= BATCH_BYTES
            or self.batch.producer_id != producer_id
            or self.batch.producer_epoch != producer_epoch
            or offset - self.batch.base_offset > INT32_MAX
        ):
            with gil:
                self.finish_batch()
        if self.batch.record_count == 0:
            self.start_batch(offset, producer_id, producer_epoch)
        self.write_record(record, <int32_t> (offset - self.batch.base_offset))
        self.batch.last_offset = offset
        self.batch.record_count += 1
        self.records += 1
        return 0

    cdef int start_batch(
        self, int64_t offset, int64_t producer_id, int16_t producer_epoch
    ) except -1 nogil:
        self.batch.size = BATCH_HEADER_SIZE
        self.batch.base_offset = offset
        self.batch.base_timestamp = self.batch.max_timestamp = -1
        self.batch.producer_id = producer_id
        self.batch.producer_epoch = producer_epoch
        self.batch.base_sequence = -1
        self.batch.leader_epoch = -1
        self.batch.attributes = 0 if producer_id == NO_PRODUCER else ATTRIBUTE_TRANSACTIONAL
        return 0

    cdef int write_record(self, record_view *record, int32_t delta) except -1 nogil:
        cdef int32_t value_size = record.value_size
        cdef int32_t length
        cdef uint8_t *at
        length = <int32_t> (
            3 + varint_size(delta)
            + varint_size(record.key_size) + record.key_size
            + varint_size(value_size) + value_size
        )
        self.reserve(self.batch.size + VARINT_SIZE_MAX + length)
        at = self.built + self.batch.size
        at = write_varint(at, length)
        at[0] = 0  # attributes
        at[1] = 0  # timestamp delta
        at = write_varint(at + 2, delta)
        at = write_varint(at, record.key_size)
        memcpy(at, record.key, record.key_size)
        at = write_varint(at + record.key_size, value_size)
        memcpy(at, record.value, value_size)
        at[value_size] = 0  # no headers
        self.batch.size = at + value_size + 1 - self.built
        return 0

    cdef int reserve(self, size_t size) except -1 nogil:
        cdef uint8_t *built
        if size <= self.built_size:
            return 0
        built = <uint8_t *> realloc(self.built, 2 * size)
        if built == NULL:
            with gil:
                raise MemoryError
        self.built = built
        self.built_size = 2 * size
        return 0

    cdef int finish_batch(self) except -1:
        if self.batch.record_count > 0:
            write_batch_header(self.built, &self.batch)
            self.finished.append(
                PyBytes_FromStringAndSize(<const char *> self.built, self.batch.size)
            )
            self.batch.record_count = 0
        return 0

    cdef bytes take_finished(self):
        cdef bytes found = b"".join(self.finished)
        self.finished.clear()
        return found
