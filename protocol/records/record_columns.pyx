# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""Records of whole batches as Arrow's columns. `record_columns.pyi` is the contract."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy

from protocol.records.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CODEC_MAX,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_BAD_CRC,
    BATCH_BAD_LENGTH,
    BATCH_BAD_MAGIC,
    BATCH_CUT,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    batch_crc,
    batch_header,
    read_batch_header,
    read_record,
    read_varint,
    record_status_text,
    record_view,
)

from protocol.records.compression import Codec, decompress
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge

cdef enum:
    # A record takes at least one byte for each of its seven fields.
    RECORD_BYTES_MIN = 7
    # Results of a walk over batches, in addition to the statuses of a batch's header.
    ENDED = 100
    CUT = 101
    STOPPED = 102
    COMPRESSED = 103
    OUT_OF_ORDER = 104
    BAD_CODEC = 105
    BAD_RECORD = 106
    OFFSET_OUT_OF_PLACE = 107
    BYTES_LEFT = 108
    TIME_TOO_LARGE = 109
    TOO_MANY_BYTES = 110
    NO_MEMORY = 111

cdef enum:
    BYTES_TARGET = 8 << 20
    ROWS_TARGET = 1 << 18
    DECOMPRESSED_BYTES_MAX = 1 << 30


include "column_buffers.pxi"
include "aborted_transactions.pxi"


cdef class Columns:
    cdef readonly ColumnBuffer offset, timestamp, timestamp_type
    cdef readonly BinaryColumn key, value
    cdef readonly ColumnBuffer headers_validity, headers_offsets
    cdef readonly int64_t headers_null_count
    cdef readonly BinaryColumn header_names, header_values
    cdef int64_t count

    def __len__(self):
        return self.count


cdef struct trouble:
    int64_t position     # Position of the batch.
    int64_t number       # Number of the record, if a record is at fault.
    int record_status


cdef class RecordColumns:
    # Constant after construction
    cdef int64_t first_offset, end_offset, first_timestamp, end_timestamp
    cdef int64_t bytes_target, rows_target, decompressed_bytes_max
    cdef bint with_key, with_value, with_headers, with_markers
    cdef aborted_transactions aborted
    # State
    cdef growing offset, timestamp, timestamp_type, headers_validity, headers_offsets
    cdef strings key, value, header_names, header_values
    cdef int64_t count, headers_null_count
    cdef int64_t end_of_batch    # Of the last batch in this file: the next must not begin before it.
    cdef readonly int64_t next_offset, needed_bytes
    cdef readonly bint is_done
    cdef trouble fault

    def __cinit__(
        self,
        *,
        int64_t first_offset,
        int64_t end_offset,
        int64_t first_timestamp=INT64_MIN,
        int64_t end_timestamp=INT64_MAX,
        aborted=(),
        bint with_key=True,
        bint with_value=True,
        bint with_headers=False,
        bint with_markers=False,
        int64_t bytes_target=BYTES_TARGET,
        int64_t rows_target=ROWS_TARGET,
        int64_t decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
    ):
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.first_timestamp = first_timestamp
        self.end_timestamp = end_timestamp
        self.with_key = with_key
        self.with_value = with_value
        self.with_headers = with_headers
        self.with_markers = with_markers
        self.bytes_target = bytes_target
        self.rows_target = rows_target
        self.decompressed_bytes_max = decompressed_bytes_max
        self.next_offset = 0
        take_aborted(&self.aborted, aborted)

    def __dealloc__(self):
        free(self.aborted.rows)
        free(self.offset.data)
        free(self.timestamp.data)
        free(self.timestamp_type.data)
        free(self.headers_validity.data)
        free(self.headers_offsets.data)
        free_strings(&self.key)
        free_strings(&self.value)
        free_strings(&self.header_names)
        free_strings(&self.header_values)

    def __len__(self):
        return self.count

    @property
    def is_full(self):
        return self.has_enough()

    cdef bint has_enough(self) noexcept nogil:
        return self.count >= self.rows_target or self.bytes_held() >= self.bytes_target

    cdef int64_t bytes_held(self) noexcept nogil:
        return (
            self.key.data.size
            + self.value.data.size
            + self.header_names.data.size
            + self.header_values.data.size
        )

    def begin_file(self, int64_t first_offset):
        self.first_offset = max(max(self.first_offset, first_offset), self.next_offset)
        self.end_of_batch = 0

    def feed(self, const uint8_t[::1] chunk not None, *, int64_t position):
        cdef const uint8_t *start = &chunk[0] if chunk.shape[0] > 0 else NULL
        cdef const uint8_t *at = start
        cdef const uint8_t *end = start + chunk.shape[0]
        cdef batch_header header
        cdef int status
        self.needed_bytes = 0
        while True:
            with nogil:
                status = self.walk(&at, end, &header)
            if status == COMPRESSED:
                status = self.read_compressed(chunk, at - start, &header, position)
                if status == BATCH_OK:
                    at += header.size
                    continue
            if status == CUT:
                self.needed_bytes = header.size
            elif status != ENDED and status != STOPPED:
                self.refuse(status, position + (at - start))
            return at - start

    cdef int walk(
        self, const uint8_t **at, const uint8_t *end, batch_header *header
    ) noexcept nogil:
        """Walk to the end, the first fault, or a batch whose records have to be inflated."""
        cdef int status
        while at[0] < end:
            if self.is_done or self.has_enough():
                return STOPPED
            status = read_batch_header(at[0], end, header)
            if status == BATCH_CUT:
                return CUT
            if status == BATCH_BAD_MAGIC or status == BATCH_BAD_LENGTH:
                return status
            # The header counts as contradictory only if its CRC is right; otherwise it is damaged.
            if batch_crc(at[0], header.size) != header.crc:
                return BATCH_BAD_CRC
            if status != BATCH_OK:
                return status
            if header.base_offset < self.end_of_batch:
                return OUT_OF_ORDER
            if header.base_offset >= self.end_offset:
                self.is_done = True
                return STOPPED
            self.end_of_batch = header.last_offset + 1
            self.next_offset = max(self.next_offset, self.end_of_batch)
            if self.is_wanted(header):
                if header.attributes & ATTRIBUTE_CODEC_MASK > ATTRIBUTE_CODEC_MAX:
                    return BAD_CODEC
                if header.attributes & ATTRIBUTE_CODEC_MASK:
                    return COMPRESSED
                status = self.take_records(at[0] + BATCH_HEADER_SIZE, at[0] + header.size, header)
                if status != BATCH_OK:
                    return status
            at[0] += header.size
        return ENDED

    cdef bint is_wanted(self, const batch_header *header) noexcept nogil:
        """Returns whether a batch may contain requested rows."""
        if header.record_count == 0:
            return False
        if header.attributes & ATTRIBUTE_CONTROL and not self.with_markers:
            return False
        if header.last_offset < self.first_offset:
            return False
        if header.max_timestamp < self.first_timestamp:
            return False
        return not (header.attributes & ATTRIBUTE_TRANSACTIONAL and is_aborted(&self.aborted, header))

    cdef int read_compressed(
        self, const uint8_t[::1] chunk, int64_t at, const batch_header *header, int64_t position
    ) except -1:
        cdef const uint8_t[::1] inflated
        cdef const uint8_t *start
        cdef int status
        try:
            inflated = decompress(
                Codec(header.attributes & ATTRIBUTE_CODEC_MASK),
                memoryview(chunk)[at + BATCH_HEADER_SIZE : at + header.size],
                bytes_max=self.decompressed_bytes_max,
            )
        except (CorruptBatch, DecompressionTooLarge) as error:
            raise CorruptBatch(f"record batch at position {position + at}: {error}") from error
        if inflated.shape[0] == 0:
            self.fault.number = 0
            return BYTES_LEFT
        start = &inflated[0]
        with nogil:
            status = self.take_records(start, start + inflated.shape[0], header)
        return status

    # ------------------------------------------------------------------------- records

    cdef int take_records(
        self, const uint8_t *at, const uint8_t *end, const batch_header *header
    ) noexcept nogil:
        """Read the records of a batch, which fill [at, end). Returns a status."""
        cdef record_view record
        cdef int64_t last_delta = -1
        cdef int64_t span = header.last_offset - header.base_offset
        cdef int32_t number
        cdef int status = self.make_room(header.record_count, end - at)
        if status != BATCH_OK:
            return status
        for number in range(header.record_count):
            self.fault.number = number
            status = read_record(&at, end, &record)
            if status != RECORD_OK:
                self.fault.record_status = status
                return BAD_RECORD
            if record.offset_delta <= last_delta or record.offset_delta > span:
                return OFFSET_OUT_OF_PLACE
            last_delta = record.offset_delta
            status = self.take_record(&record, header)
            if status != BATCH_OK:
                return status
        return BATCH_OK if at == end else BYTES_LEFT

    cdef int make_room(self, int64_t count, int64_t size) noexcept nogil:
        """Reserve space for everything that a batch can add, so that adding a record cannot fail."""
        cdef int64_t headers = size // 2
        if count > size // RECORD_BYTES_MIN:
            # It has fewer records; the walk finds out where they end.
            count = size // RECORD_BYTES_MIN
        if self.bytes_held() + size > INT32_MAX:
            return TOO_MANY_BYTES
        if not (
            reserve(&self.offset, 8 * count)
            and reserve(&self.timestamp, 8 * count)
            and reserve(&self.timestamp_type, 4 * count)
            and (not self.with_key or reserve_strings(&self.key, count, size))
            and (not self.with_value or reserve_strings(&self.value, count, size))
        ):
            return NO_MEMORY
        if self.with_headers and not (
            reserve(&self.headers_validity, count // 8 + 2)
            and reserve(&self.headers_offsets, 4 * (count + 1))
            and reserve_strings(&self.header_names, headers, size)
            and reserve_strings(&self.header_values, headers, size)
        ):
            return NO_MEMORY
        return BATCH_OK

    cdef int take_record(
        self, const record_view *record, const batch_header *header
    ) noexcept nogil:
        cdef int64_t offset = header.base_offset + record.offset_delta
        cdef int64_t timestamp
        cdef bint is_brokers_time = (header.attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0
        if offset < self.first_offset or offset >= self.end_offset:
            return BATCH_OK
        # Unsigned, because it wraps as in Java.
        timestamp = <int64_t> (<uint64_t> header.base_timestamp + <uint64_t> record.timestamp_delta)
        if is_brokers_time:
            timestamp = header.max_timestamp
        if timestamp < self.first_timestamp or timestamp >= self.end_timestamp:
            return BATCH_OK
        if timestamp > INT64_MAX // 1000 or timestamp < INT64_MIN // 1000:
            return TIME_TOO_LARGE
        (<int64_t *> self.offset.data)[self.count] = offset
        (<int64_t *> self.timestamp.data)[self.count] = 1000 * timestamp
        (<int32_t *> self.timestamp_type.data)[self.count] = is_brokers_time
        self.offset.size += 8
        self.timestamp.size += 8
        self.timestamp_type.size += 4
        if self.with_key:
            append(&self.key, record.key, record.key_size)
        if self.with_value:
            append(&self.value, record.value, record.value_size)
        if self.with_headers:
            self.take_headers(record)
        self.count += 1
        return BATCH_OK

    cdef void take_headers(self, const record_view *record) noexcept nogil:
        """Append a record's headers, which `read_record` has found to be sound."""
        cdef const uint8_t *at = record.headers
        cdef const uint8_t *name
        cdef int32_t number
        cdef int32_t name_size = 0
        cdef int32_t size = 0
        for number in range(record.header_count):
            read_varint(&at, record.end, &name_size)
            name = at
            at += name_size
            read_varint(&at, record.end, &size)
            append(&self.header_names, name, name_size)
            append(&self.header_values, at, size)
            if size > 0:
                at += size
        set_valid(&self.headers_validity, self.count, record.header_count > 0)
        self.headers_null_count += record.header_count == 0
        append_end(&self.headers_offsets, self.header_names.count)

    # ------------------------------------------------------------------------- outcome

    cdef int refuse(self, int status, int64_t position) except -1:
        if status == NO_MEMORY:
            raise MemoryError("no memory for the columns")
        raise CorruptBatch(f"record batch at position {position}: {self.reason(status)}")

    cdef str reason(self, int status):
        if status == BATCH_BAD_MAGIC:
            return "its message format is not 2"
        if status == BATCH_BAD_LENGTH:
            return "its length is smaller than a header"
        if status == BATCH_BAD_CRC:
            return "its CRC differs from its bytes"
        if status == OUT_OF_ORDER:
            return f"it begins below offset {self.end_of_batch}, where the batch before it ends"
        if status == BAD_CODEC:
            return "its compression type does not exist"
        if status == BAD_RECORD:
            return f"record {self.fault.number} " + record_status_text(
                self.fault.record_status
            ).decode()
        if status == OFFSET_OUT_OF_PLACE:
            return f"record {self.fault.number} has an offset out of place"
        if status == BYTES_LEFT:
            return "its records do not fill it exactly"
        if status == TIME_TOO_LARGE:
            return f"record {self.fault.number} has a time beyond what a timestamp can hold"
        if status == TOO_MANY_BYTES:
            return "it is too large for a column of 2 GB"
        return "it has more records than offsets"

    def take(self):
        cdef Columns columns = Columns.__new__(Columns)
        columns.count = self.count
        columns.offset = handed_over(&self.offset)
        columns.timestamp = handed_over(&self.timestamp)
        columns.timestamp_type = handed_over(&self.timestamp_type)
        if self.with_key:
            columns.key = strings_handed_over(&self.key)
        if self.with_value:
            columns.value = strings_handed_over(&self.value)
        if self.with_headers:
            if self.headers_offsets.size == 0 and reserve(&self.headers_offsets, 4):
                (<int32_t *> self.headers_offsets.data)[0] = 0
                self.headers_offsets.size = 4
            columns.headers_validity = handed_over(&self.headers_validity)
            columns.headers_offsets = handed_over(&self.headers_offsets)
            columns.headers_null_count = self.headers_null_count
            columns.header_names = strings_handed_over(&self.header_names)
            columns.header_values = strings_handed_over(&self.header_values)
            self.headers_null_count = 0
        self.count = 0
        return columns
