# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Reads the output of a pass; `verify_output.pyi` documents the interface.

It shares with the kernel that wrote the output only record_format.h, the codecs and the hash, so a bug
in the kernel's judging, copying or writing is not repeated here.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from cleaner.kernel.digest cimport (
    kp_digest_add,
    kp_digest_copied,
    kp_digest_header,
    kp_digest_record,
    kp_hash128,
    kp_key_product,
)
from cleaner.kernel.siphash cimport kp_sip_load64
from protocol.records.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CODEC_MAX,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    BATCH_CUT,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    batch_crc,
    batch_header,
    load_int64,
    load_uint32,
    read_batch_header,
    read_record,
    record_view,
)

from cleaner.rules.step import OutputFound, ReadStep, SegmentSummary
from protocol.records.compression import Codec, decompress
from protocol.wire.errors import CorruptBatch


cdef struct Found:
    # What one segment holds.
    int64_t base_offset
    int64_t size
    int64_t end_offset
    int64_t batches
    int64_t records
    int64_t controls
    int64_t tombstones
    int64_t tombstone_bytes
    int64_t delete_horizon_min
    int64_t tombstone_horizon_max
    int64_t max_timestamp
    int64_t max_timestamp_offset


include "batch_reader.pxi"


cdef class OutputReader(BatchReader):
    # Constant after construction
    cdef bytes rebuilt
    cdef const uint8_t *bits
    cdef int64_t batches_expected
    # State
    cdef Found segment_found
    cdef kp_hash128 digest
    cdef int64_t batches
    cdef int64_t records
    cdef uint64_t offset_sum

    def __cinit__(self, *, bytes rebuilt not None, int64_t batches, int64_t decompressed_bytes_max):
        if len(rebuilt) * 8 < batches:
            raise ValueError(f"{len(rebuilt)} bytes have no bit for each of {batches} batches")
        self.rebuilt = rebuilt
        self.bits = <const uint8_t *><const char *>rebuilt
        self.batches_expected = batches
        self.bytes_max = decompressed_bytes_max
        self.start_segment(0)

    def start_segment(self, int64_t base_offset):
        memset(&self.segment_found, 0, sizeof(Found))
        self.segment_found.base_offset = self.segment_found.end_offset = base_offset
        self.segment_found.delete_horizon_min = self.segment_found.tombstone_horizon_max = -1
        self.segment_found.max_timestamp = self.segment_found.max_timestamp_offset = -1

    @property
    def segment(self):
        return SegmentSummary(
            base_offset=self.segment_found.base_offset,
            size_bytes=self.segment_found.size,
            end_offset=self.segment_found.end_offset,
            batches=self.segment_found.batches,
            records=self.segment_found.records,
            controls=self.segment_found.controls,
            tombstones=self.segment_found.tombstones,
            tombstone_bytes=self.segment_found.tombstone_bytes,
            delete_horizon_ms_min=self.segment_found.delete_horizon_min,
            tombstone_horizon_ms_max=self.segment_found.tombstone_horizon_max,
            max_timestamp=self.segment_found.max_timestamp,
            max_timestamp_offset=self.segment_found.max_timestamp_offset,
        )

    @property
    def found(self):
        return OutputFound(
            digest=self.digest.low | <object>self.digest.high << 64,
            batches=self.batches,
            rebuilt_records=self.records,
            rebuilt_offset_sum=self.offset_sum,
        )

    cdef int take_batch(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        if header.base_offset < self.segment_found.end_offset:
            return refuse(position, b"its offsets do not follow the batch before it")
        if self.batches == self.batches_expected:
            return refuse(position, b"there are more batches than were written")
        if self.is_rebuilt():
            self.read_rebuilt(batch, header, position)
        else:
            kp_digest_add(&self.digest, kp_digest_copied(batch))
        self.batches += 1
        self.note(header)
        return 0

    cdef bint is_rebuilt(self) noexcept nogil:
        return self.bits[self.batches >> 3] >> (self.batches & 7) & 1

    cdef void note(self, const batch_header *header) noexcept nogil:
        cdef Found *found = &self.segment_found
        found.batches += 1
        found.size += header.size
        found.end_offset = header.last_offset + 1
        found.records += header.record_count
        if header.attributes & ATTRIBUTE_CONTROL:
            found.controls += header.record_count
        if header.record_count == 0:
            return
        if header.max_timestamp > found.max_timestamp:
            found.max_timestamp = header.max_timestamp
            found.max_timestamp_offset = header.last_offset

    cdef void note_horizon(self, const batch_header *header) noexcept nogil:
        cdef Found *found = &self.segment_found
        if found.delete_horizon_min < 0 or header.base_timestamp < found.delete_horizon_min:
            found.delete_horizon_min = header.base_timestamp

    cdef void note_tombstones(self, const batch_header *header) noexcept nogil:
        """Note when the tombstones of a batch may go; without a delete horizon that is not known yet."""
        cdef Found *found = &self.segment_found
        cdef int64_t horizon = INT64_MAX
        if header.attributes & ATTRIBUTE_DELETE_HORIZON:
            horizon = header.base_timestamp
        found.tombstone_horizon_max = max(found.tombstone_horizon_max, horizon)

    cdef int read_rebuilt(
        self, const uint8_t *batch, const batch_header *header, int64_t position
    ) except -1 nogil:
        cdef bint has_horizon = header.attributes & ATTRIBUTE_DELETE_HORIZON
        cdef int64_t tombstones = self.segment_found.tombstones
        kp_digest_add(
            &self.digest,
            kp_digest_header(
                header,
                header.record_count,
                header.max_timestamp,
                header.base_timestamp if has_horizon else -1,
            ),
        )
        self.read_batch(batch, header, position)
        if self.segment_found.tombstones > tombstones:
            self.note_tombstones(header)
        # A horizon only matters in a batch with a tombstone, or in a marker's batch.
        if has_horizon and (
            self.segment_found.tombstones > tombstones or header.attributes & ATTRIBUTE_CONTROL
        ):
            self.note_horizon(header)
        return 0

    cdef int take_records(
        self, const uint8_t *at, const uint8_t *end, const batch_header *header, int64_t position
    ) except -1 nogil:
        cdef record_view record
        cdef int64_t last_offset = header.base_offset - 1
        cdef int64_t offset
        cdef int32_t i
        for i in range(header.record_count):
            if read_record(&at, end, &record) != RECORD_OK:
                return refuse(position, b"one of its records is damaged")
            offset = header.base_offset + record.offset_delta
            if offset <= last_offset or offset > header.last_offset:
                return refuse(position, b"its records' offsets do not increase")
            last_offset = offset
            self.offset_sum += <uint64_t>offset
            # Control records are not tombstones, even without a value.
            if (
                record.key_size >= 0
                and record.value_size < 0
                and not header.attributes & ATTRIBUTE_CONTROL
            ):
                self.segment_found.tombstones += 1
                self.segment_found.tombstone_bytes += record.end - record.start
            kp_digest_add(
                &self.digest, kp_digest_record(&record, header.base_offset, header.base_timestamp)
            )
        if at != end:
            return refuse(position, b"it has bytes after its last record")
        self.records += header.record_count
        return 0


cdef enum:
    # As storage/formats/key_sidecar.py draws an entry and a version.
    ENTRY_BYTES = 24
    VERSION_BYTES = 8
    TOMBSTONE_BIT = 31


def sum_keys(
    const unsigned char[::1] entries not None,
    const unsigned char[::1] versions not None,
    *,
    int64_t base_offset,
):
    cdef int64_t count = entries.shape[0] // ENTRY_BYTES
    cdef uint64_t total = 0
    if entries.shape[0] % ENTRY_BYTES or versions.shape[0] not in (0, count * VERSION_BYTES):
        raise ValueError(f"{entries.shape[0]} bytes of entries, {versions.shape[0]} of versions")
    if count > 0:
        with nogil:
            total = sum_of_keys(
                &entries[0], &versions[0] if versions.shape[0] > 0 else NULL, count, base_offset
            )
    return total


cdef uint64_t sum_of_keys(
    const uint8_t *entry, const uint8_t *version, int64_t count, int64_t base_offset
) noexcept nogil:
    cdef uint64_t total = 0
    cdef uint32_t place
    cdef int64_t i
    for i in range(count):
        place = load_uint32(entry + 16)
        total += kp_key_product(
            kp_sip_load64(entry),
            kp_sip_load64(entry + 8),
            base_offset + (place & 0x7FFFFFFF),
            place >> TOMBSTONE_BIT,
            load_int64(version + i * VERSION_BYTES) if version != NULL else 0,
            load_uint32(entry + 20),
        )
        entry += ENTRY_BYTES
    return total
