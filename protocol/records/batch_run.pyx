# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""A compiled check of a run of batches that another broker sent. `batch_run.pyi` is the contract."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from protocol.records.batch_scan import StopReason
from protocol.records.record_format cimport (
    BATCH_BAD_CRC,
    BATCH_BAD_HEADER,
    BATCH_OK,
    batch_crc,
    batch_header,
    read_batch_header,
)

cdef enum:
    OUT_OF_ORDER = BATCH_BAD_HEADER + 1
    FULL = BATCH_BAD_HEADER + 2
    # No cluster has had so many leaders; later ones would soon leave no epoch to lead with.
    EPOCH_MAX = 1 << 30


cdef class RunScan:
    cdef readonly:
        int64_t start_position
        int64_t end_position
        int64_t base_offset
        int64_t end_offset
        int64_t first_gap
        int32_t last_epoch
        object stop

    cdef int walk(
        self, const uint8_t *start, int64_t size, int64_t size_max, int64_t batches_max
    ) noexcept nogil:
        """Check batches up to the first that does not belong to the run. Returns why it stopped."""
        cdef batch_header header
        cdef int64_t count = 0
        cdef const uint8_t *at
        cdef int status
        while self.end_position < size:
            at = start + self.end_position
            status = read_batch_header(at, start + size, &header)
            # The header counts as contradictory only if its CRC is right; otherwise it is damaged.
            if status == BATCH_OK or status == BATCH_BAD_HEADER:
                if batch_crc(at, header.size) != header.crc:
                    status = BATCH_BAD_CRC
            if status != BATCH_OK:
                return status
            if header.last_offset < self.end_offset and self.is_empty():
                # A batch is sent whole, and the log may have the first ones.
                self.end_position += header.size
                self.start_position = self.end_position
                continue
            if not self.follows(&header):
                return OUT_OF_ORDER
            if count > 0 and (self.size_with(&header) > size_max or count == batches_max):
                return FULL
            self.take(&header)
            count += 1
        return BATCH_OK

    cdef inline bint is_empty(self) noexcept nogil:
        return self.start_position == self.end_position

    cdef inline int64_t size_with(self, const batch_header *header) noexcept nogil:
        return self.end_position + header.size - self.start_position

    cdef inline bint follows(self, const batch_header *header) noexcept nogil:
        return (
            header.base_offset >= self.end_offset
            and header.last_offset < INT64_MAX
            and self.last_epoch <= header.leader_epoch <= EPOCH_MAX
        )

    cdef inline void take(self, const batch_header *header) noexcept nogil:
        if self.is_empty():
            self.base_offset = header.base_offset
        if self.first_gap < 0:
            if header.base_offset > self.end_offset:
                self.first_gap = self.end_offset
            elif header.record_count < header.last_offset - header.base_offset + 1:
                self.first_gap = header.base_offset
        self.end_position += header.size
        self.end_offset = header.last_offset + 1
        self.last_epoch = header.leader_epoch


def scan_run(
    const uint8_t[::1] records not None,
    *,
    int64_t end_offset,
    int32_t last_epoch,
    int64_t size_max,
    int64_t batches_max,
):
    cdef RunScan scan = RunScan.__new__(RunScan)
    cdef int64_t size = records.shape[0]
    cdef int status = BATCH_OK
    scan.start_position = scan.end_position = 0
    scan.base_offset = scan.end_offset = end_offset
    scan.last_epoch = last_epoch
    scan.first_gap = -1
    if size > 0:
        with nogil:
            status = scan.walk(&records[0], size, size_max, batches_max)
    scan.stop = StopReason(status)
    return scan
