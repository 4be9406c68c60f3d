# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Finds the records of one key; `find_key.pyi` documents the interface."""

from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from protocol.records.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CODEC_MAX,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_CUT,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    batch_crc,
    batch_header,
    last_header,
    load_int16,
    load_int64,
    read_batch_header,
    read_record,
    record_view,
)

from cleaner.rules.step import Decision, KeyHit, ReadStep
from protocol.records.compression import Codec, decompress
from protocol.wire.errors import CorruptBatch
from storage.formats.compaction_strategy import BY_OFFSET as BY_OFFSET_STRATEGY, Ranking
from storage.formats.compaction_ttl import CompactionTtl

NO_TTL = CompactionTtl()

cdef enum:
    PLAIN = 0
    OPEN = 1
    COMMITTED = 2
    ABORTED = 3
    # A marker's key is a version and this type (protocol/records/control_record.py).
    TYPE_ABORT = 0
    TYPE_COMMIT = 1

DECISIONS = (None, Decision.OPEN, Decision.COMMITTED, Decision.ABORTED)


cdef struct Hit:
    int64_t offset
    int64_t version
    int64_t timestamp
    int64_t delete_horizon
    int64_t producer_id
    int32_t size
    int32_t value_size
    int8_t decision
    int64_t expires


include "batch_reader.pxi"
include "versions.pxi"
include "ttl.pxi"


cdef class KeyFinder(BatchReader):
    # Constant after construction
    cdef readonly bytes key
    cdef const uint8_t *key_bytes
    cdef int32_t key_size
    cdef int64_t hits_max
    cdef Versions versions
    cdef Ttl ttl
    # State: hit number n is at n % hits_max.
    cdef Hit *found
    cdef readonly int64_t count
    cdef int64_t undecided

    def __cinit__(
        self,
        bytes key not None,
        *,
        int64_t decompressed_bytes_max,
        int64_t hits_max,
        strategy=BY_OFFSET_STRATEGY,
        ttl=NO_TTL,
    ):
        if hits_max <= 0:
            raise ValueError(f"hits_max is {hits_max}, not positive")
        self.key = key
        self.key_bytes = <const uint8_t *><const char *>key
        self.key_size = <int32_t>len(key)
        self.bytes_max = decompressed_bytes_max
        self.hits_max = hits_max
        self.versions = Versions(strategy.ranking, strategy.header)
        self.ttl = Ttl(ttl.topic_ms, ttl.header)
        self.found = <Hit *>malloc(hits_max * sizeof(Hit))
        if self.found == NULL:
            raise MemoryError("no memory for the hits")

    def __dealloc__(self):
        free(self.found)

    @property
    def hits(self):
        cdef int64_t number
        cdef Hit *hit
        cdef list listed = []
        for number in range(max(self.count - self.hits_max, 0), self.count):
            hit = &self.found[number % self.hits_max]
            listed.append(
                KeyHit(
                    offset=hit.offset,
                    version=hit.version,
                    timestamp=hit.timestamp,
                    size_bytes=hit.size,
                    value_bytes=hit.value_size if hit.value_size >= 0 else None,
                    delete_horizon_ms=hit.delete_horizon if hit.delete_horizon >= 0 else None,
                    producer_id=hit.producer_id if hit.producer_id >= 0 else None,
                    decision=DECISIONS[hit.decision],
                    expires_ms=hit.expires,
                )
            )
        return listed

    cdef int take_records(
        self, const uint8_t *at, const uint8_t *end, const batch_header *header, int64_t position
    ) except -1 nogil:
        cdef record_view record
        cdef int32_t i
        for i in range(header.record_count):
            if read_record(&at, end, &record) != RECORD_OK:
                return refuse(position, b"one of its records is damaged")
            if header.attributes & ATTRIBUTE_CONTROL:
                self.take_marker(&record, header)
            elif record.key_size == self.key_size and (
                self.key_size == 0 or memcmp(record.key, self.key_bytes, self.key_size) == 0
            ):
                self.take_hit(&record, header)
        return 0

    cdef void take_hit(self, const record_view *record, const batch_header *header) noexcept nogil:
        cdef Hit *hit = &self.found[self.count % self.hits_max]
        if self.count >= self.hits_max and hit.decision == OPEN:
            self.undecided -= 1
        hit.offset = header.base_offset + record.offset_delta
        hit.version = self.versions.of(record, header)
        hit.timestamp = timestamp_of(record, header)
        hit.delete_horizon = -1
        if header.attributes & ATTRIBUTE_DELETE_HORIZON:
            hit.delete_horizon = header.base_timestamp
        hit.producer_id = header.producer_id
        hit.size = <int32_t>(record.end - record.start)
        hit.value_size = record.value_size
        hit.expires = INT64_MAX
        if record.value_size >= 0:
            hit.expires = self.ttl.expires(record, hit.timestamp)
        hit.decision = PLAIN
        if header.attributes & ATTRIBUTE_TRANSACTIONAL:
            hit.decision = OPEN
            self.undecided += 1
        self.count += 1

    cdef void take_marker(
        self, const record_view *record, const batch_header *header
    ) noexcept nogil:
        """Set the decision of the hits in the producer's transaction."""
        cdef int64_t number
        cdef Hit *hit
        cdef int kind
        if self.undecided == 0 or record.key_size < 4:
            return
        kind = load_int16(record.key + 2)
        if kind != TYPE_ABORT and kind != TYPE_COMMIT:
            return
        for number in range(min(self.count, self.hits_max)):
            hit = &self.found[number]
            if hit.decision == OPEN and hit.producer_id == header.producer_id:
                hit.decision = COMMITTED if kind == TYPE_COMMIT else ABORTED
                self.undecided -= 1
