# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""Compiled scans over whole record batches. `batch_scan.pyi` is the contract."""

from enum import IntEnum

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from protocol.records.record_format cimport (
    BATCH_BAD_CRC,
    BATCH_BAD_HEADER,
    BATCH_BAD_LENGTH,
    BATCH_BAD_MAGIC,
    BATCH_CUT,
    BATCH_MAGIC,
    BATCH_OK,
    batch_crc,
    batch_header,
    crc32c_extend,
    crc32c_portable,
    read_batch_header,
)

# Below this size, releasing the GIL costs more than the work.
cdef enum:
    NOGIL_BYTES_MIN = 1024


def crc32c(const uint8_t[::1] data not None, uint32_t value=0):
    cdef size_t size = <size_t> data.shape[0]
    cdef uint32_t result = value
    if size == 0:
        return value
    if size <= NOGIL_BYTES_MIN:
        return crc32c_extend(value, &data[0], size)
    with nogil:
        result = crc32c_extend(value, &data[0], size)
    return result


def _crc32c_portable(const uint8_t[::1] data not None, uint32_t value=0):
    if data.shape[0] == 0:
        return value
    return ~crc32c_portable(~value, &data[0], <size_t> data.shape[0]) & 0xFFFFFFFFu


class StopReason(IntEnum):
    END = BATCH_OK
    TRUNCATED = BATCH_CUT
    BAD_MAGIC = BATCH_BAD_MAGIC
    BAD_LENGTH = BATCH_BAD_LENGTH
    BAD_CRC = BATCH_BAD_CRC
    BAD_HEADER = BATCH_BAD_HEADER
    OUT_OF_ORDER = BATCH_BAD_HEADER + 1
    FULL = BATCH_BAD_HEADER + 2


cdef class ScannedBatch:
    cdef readonly:
        int64_t position
        int64_t size_bytes
        int64_t base_offset
        int64_t last_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int32_t leader_epoch
        int32_t base_sequence
        int32_t record_count
        int16_t attributes
        int16_t producer_epoch

    @property
    def next_offset(self):
        return self.last_offset + 1

    def __repr__(self):
        return (
            f"<ScannedBatch at {self.position}: offsets {self.base_offset}-{self.last_offset}, "
            f"{self.record_count} records, {self.size_bytes} bytes>"
        )


cdef class BatchScan:
    cdef readonly:
        list batches
        Py_ssize_t end_position
        object stop
        str detail


# Headers collected before the GIL is taken to hand them over: 20 KiB of stack.
cdef enum:
    ROUND_BATCHES = 256


# The result of a walk over at most ROUND_BATCHES batches.
cdef struct round_result:
    batch_header headers[ROUND_BATCHES]
    int count
    int status
    uint32_t crc      # The computed CRC of a batch with BATCH_BAD_CRC.
    int64_t size      # Full size of the batch at which it stopped, if known.


cdef const uint8_t *walk(const uint8_t *at, const uint8_t *end, round_result *found) noexcept nogil:
    """Collect valid batches from `at` on. Returns the position where it stopped."""
    cdef batch_header *header
    found.count = 0
    found.status = BATCH_OK
    while at < end and found.count < ROUND_BATCHES:
        header = &found.headers[found.count]
        found.status = read_batch_header(at, end, header)
        found.size = header.size
        # The header counts as contradictory only if its CRC is right; otherwise it is damaged.
        if found.status == BATCH_OK or found.status == BATCH_BAD_HEADER:
            found.crc = batch_crc(at, header.size)
            if found.crc != header.crc:
                found.status = BATCH_BAD_CRC
        if found.status != BATCH_OK:
            break
        at += header.size
        found.count += 1
    return at


cdef ScannedBatch handed_over(const batch_header *header, int64_t position):
    cdef ScannedBatch batch = ScannedBatch.__new__(ScannedBatch)
    batch.position = position
    batch.size_bytes = header.size
    batch.base_offset = header.base_offset
    batch.last_offset = header.last_offset
    batch.base_timestamp = header.base_timestamp
    batch.max_timestamp = header.max_timestamp
    batch.producer_id = header.producer_id
    batch.leader_epoch = header.leader_epoch
    batch.base_sequence = header.base_sequence
    batch.record_count = header.record_count
    batch.attributes = header.attributes
    batch.producer_epoch = header.producer_epoch
    return batch


cdef str stop_detail(const uint8_t *at, int64_t left, int64_t position, round_result *found):
    cdef batch_header *header = &found.headers[found.count]
    place = f"batch at position {position}"
    if found.status == BATCH_OK:
        return f"every batch is valid up to position {position}"
    if found.status == BATCH_CUT:
        return f"{place} needs {found.size} bytes, {left} are left"
    if found.status == BATCH_BAD_MAGIC:
        return f"{place} has message format {<int> (<const signed char *> at)[BATCH_MAGIC]}, not 2"
    if found.status == BATCH_BAD_LENGTH:
        return f"{place} has a length that is smaller than a header"
    if found.status == BATCH_BAD_CRC:
        return f"{place} of {found.size} bytes carries CRC {header.crc:08x}, sums to {found.crc:08x}"
    return f"{place} has {header.record_count} records in offsets {header.base_offset}-{header.last_offset}"


def scan_batches(const uint8_t[::1] buffer not None, Py_ssize_t position=0, end=None):
    cdef Py_ssize_t stop_at = buffer.shape[0] if end is None else end
    cdef const uint8_t *start
    cdef const uint8_t *limit
    cdef const uint8_t *at
    cdef round_result found
    cdef int64_t batch_position = position
    cdef int i
    cdef BatchScan scan = BatchScan.__new__(BatchScan)
    if not 0 <= position <= stop_at <= buffer.shape[0]:
        raise ValueError(f"no range: {position} to {stop_at} of {buffer.shape[0]} bytes")
    scan.batches = []
    # An empty buffer has no first byte to point to, so take any other pointer.
    start = &buffer[0] if buffer.shape[0] > 0 else <const uint8_t *> &found
    at = start + position
    limit = start + stop_at
    while True:
        with nogil:
            at = walk(at, limit, &found)
        for i in range(found.count):
            scan.batches.append(handed_over(&found.headers[i], batch_position))
            batch_position += found.headers[i].size
        if found.status != BATCH_OK or at == limit:
            break
    scan.end_position = batch_position
    scan.stop = StopReason(found.status)
    scan.detail = stop_detail(at, limit - at, batch_position, &found)
    return scan
