# Knows which batches must stay, at least as headers, for active producers; a part of kernel.pyx.


@final
cdef class ActiveProducers:
    cdef const int64_t[::1] last_offsets
    cdef ProducerTable marker_epochs

    def __cinit__(self, last_offsets, marker_epochs):
        self.last_offsets = array("q", sorted(last_offsets))
        for producer_id, epoch in (marker_epochs or {}).items():
            put_row(&self.marker_epochs, producer_id, epoch)

    def __dealloc__(self):
        free(self.marker_epochs.rows)

    cdef bint need(
        self, int64_t producer_id, int16_t producer_epoch, int64_t last_offset, bint is_control
    ) noexcept nogil:
        """Returns whether a batch is the last one with an active producer's sequence number or epoch."""
        cdef const ProducerRow *marked
        if producer_id < 0:
            return False
        if is_control:
            marked = find_row(&self.marker_epochs, producer_id)
            return marked != NULL and marked.number == producer_epoch
        return self.is_last_offset(last_offset)

    cdef bint is_last_offset(self, int64_t offset) noexcept nogil:
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.last_offsets.shape[0]
        cdef Py_ssize_t middle
        while low < high:
            middle = low + (high - low) // 2
            if self.last_offsets[middle] < offset:
                low = middle + 1
            else:
                high = middle
        return low < self.last_offsets.shape[0] and self.last_offsets[low] == offset
