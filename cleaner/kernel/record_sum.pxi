# Sums records without keeping a state; a part of live_records.pyx.


@cython.final
cdef class RecordSum(RecordReader):
    cdef kp_hash128 _sum
    cdef readonly int64_t records

    def __init__(self, *, int64_t decompressed_bytes_max):
        self._decompressed_bytes_max = decompressed_bytes_max
        self.records = 0

    @property
    def digest(self):
        return self._sum.low | <object> self._sum.high << 64

    def feed(self, const uint8_t[::1] batches not None):
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef batch_header header
        if batches.shape[0] == 0:
            return
        header.last_offset = -1
        at = &batches[0]
        end = at + batches.shape[0]
        with nogil:
            while at < end:
                check_batch(at, &header, read_batch_header(at, end, &header))
                self.take_records(at, &header)
                at += header.size

    cdef int take(self, record_view *record, batch_header *header) except -1 nogil:
        cdef int64_t producer_id = NO_PRODUCER
        if header.attributes & ATTRIBUTE_CONTROL or record.key_size < 0:
            return 0
        if header.attributes & ATTRIBUTE_TRANSACTIONAL:
            producer_id = header.producer_id
        self.records += 1
        kp_row_add(&self._sum, record, header.base_offset + record.offset_delta, producer_id)
        return 0
