# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""Committed offsets: small in memory, and read by the million. `offset_commits.pyi` is the contract."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

import sys
from uuid import UUID

from protocol.records.compression import Codec, decompress
from protocol.wire.errors import CorruptBatch, UnsupportedCodec
from protocol.internal_topics.coordinator_records import UnknownRecord
from protocol.wire.primitives import ZERO_UUID
from protocol.records.commit_format cimport (
    COMMIT_TYPE_MAX,
    TOPIC_ID_SIZE,
    VALUE_VERSION_MAX,
    commit_key,
    commit_value,
    parse_key,
    parse_value,
)
from protocol.records.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CODEC_MAX,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    batch_crc,
    batch_header,
    load_int16,
    read_batch_header,
    read_record,
    record_status_text,
    record_view,
)
from protocol.records.row_sum cimport kp_hash128, kp_row_add

cdef enum:
    # A control record's key: version and type (`control_record.py` draws it).
    CONTROL_KEY_SIZE = 4
    ABORT = 0
    COMMIT = 1
    NO_TRANSACTION = -1


@cython.final
@cython.no_gc  # It cannot be part of a reference cycle, and the collector's header would enlarge it.
cdef class CommittedOffset:
    cdef readonly:
        int64_t offset
        int64_t commit_timestamp
        int64_t expire_timestamp
        int64_t record_offset
        str metadata
        object topic_id
        int32_t leader_epoch

    def __init__(
        self,
        *,
        int64_t offset,
        int64_t commit_timestamp,
        int32_t leader_epoch=-1,
        str metadata not None="",
        int64_t expire_timestamp=-1,
        topic_id=ZERO_UUID,
        int64_t record_offset=-1,
    ):
        self.offset = offset
        self.commit_timestamp = commit_timestamp
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.expire_timestamp = expire_timestamp
        self.topic_id = topic_id
        self.record_offset = record_offset

    def __eq__(self, other):
        if not isinstance(other, CommittedOffset):
            return NotImplemented
        return fields_of(self) == fields_of(other)

    def __hash__(self):
        return hash(fields_of(self))

    def __repr__(self):
        return (
            f"CommittedOffset(offset={self.offset}, commit_timestamp={self.commit_timestamp},"
            f" leader_epoch={self.leader_epoch}, metadata={self.metadata!r},"
            f" expire_timestamp={self.expire_timestamp}, topic_id={self.topic_id!r},"
            f" record_offset={self.record_offset})"
        )


cdef tuple fields_of(CommittedOffset each):
    """Returns its fields. A method would add a pointer to a method table to each object."""
    return (
        each.offset, each.commit_timestamp, each.leader_epoch, each.metadata,
        each.expire_timestamp, each.topic_id, each.record_offset,
    )


cdef int64_t transaction_of(batch_header *header) noexcept nogil:
    """Returns the producer whose transaction contains a batch."""
    return header.producer_id if header.attributes & ATTRIBUTE_TRANSACTIONAL else NO_TRANSACTION


cdef int hold(dict target, partition, CommittedOffset committed) except -1:
    cdef CommittedOffset known = target.get(partition)
    if known is None or known.record_offset < committed.record_offset:
        target[partition] = committed
    return 0


cdef class OffsetScan:
    cdef readonly:
        dict offsets
        dict pending
        dict others
        int64_t records_count
        int64_t unreadable_count
        int64_t unreadable_offset
        bint is_gapless
    cdef:
        int64_t _decompressed_bytes_max
        int64_t _next_offset
        bint _sums
        kp_hash128 _sum
        # Cache of the last commit: its names, its transaction and the dictionary of its partitions.
        # Commits come in runs of the same topic.
        bytes _names
        int64_t _transaction
        dict _partitions
        bytes _id_bytes
        object _id

    def __init__(self, *, int64_t decompressed_bytes_max):
        self.offsets = {}
        self.pending = {}
        self.others = {}
        self.records_count = 0
        self.unreadable_count = 0
        self.unreadable_offset = -1
        self.is_gapless = True
        self._next_offset = -1
        self._sums = False
        self._decompressed_bytes_max = decompressed_bytes_max
        self._names = b""
        self._transaction = NO_TRANSACTION
        self._partitions = None
        self._id_bytes = ZERO_UUID.bytes
        self._id = ZERO_UUID

    def sum_records(self, bint sums):
        self._sums = sums

    @property
    def digest(self):
        return self._sum.low | <object> self._sum.high << 64

    def expect(self, int64_t next_offset):
        self._next_offset = next_offset
        self.is_gapless = True

    def feed(self, const uint8_t[::1] buffer not None):
        cdef const uint8_t *start
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef batch_header header
        cdef int64_t next_offset = -1
        if buffer.shape[0] == 0:
            return next_offset
        start = at = &buffer[0]
        end = start + buffer.shape[0]
        while at < end:
            if read_batch_header(at, end, &header) != BATCH_OK:
                raise CorruptBatch(f"no batch at byte {at - start} of the bytes read")
            if batch_crc(at, header.size) != header.crc:
                raise CorruptBatch(f"batch at offset {header.base_offset} fails its CRC")
            if header.base_offset != self._next_offset or (
                header.record_count != header.last_offset - header.base_offset + 1
            ):
                self.is_gapless = False
            self.take_batch(at, &header)
            next_offset = self._next_offset = header.last_offset + 1
            at += header.size
        return next_offset

    cdef int take_batch(self, const uint8_t *batch, batch_header *header) except -1:
        cdef int codec = header.attributes & ATTRIBUTE_CODEC_MASK
        cdef const uint8_t *packed = batch + BATCH_HEADER_SIZE
        cdef Py_ssize_t size = <Py_ssize_t> (header.size - BATCH_HEADER_SIZE)
        cdef const uint8_t[::1] plain
        if header.record_count == 0:
            return 0
        if codec == 0:
            return self.take_records(packed, packed + size, header)
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
        return self.take_records(&plain[0], &plain[0] + plain.shape[0], header)

    cdef int take_records(self, const uint8_t *at, const uint8_t *end, batch_header *header) except -1:
        cdef record_view record
        cdef int64_t offset
        cdef int status
        cdef int32_t index
        for index in range(header.record_count):
            status = read_record(&at, end, &record)
            if status != RECORD_OK:
                raise CorruptBatch(
                    f"record {index} of the batch at offset {header.base_offset} "
                    + record_status_text(status).decode()
                )
            if header.attributes & ATTRIBUTE_CONTROL:
                self.take_control(&record, header)
            else:
                self.records_count += 1
                offset = header.base_offset + record.offset_delta
                if self._sums and record.key_size >= 0:
                    kp_row_add(&self._sum, &record, offset, transaction_of(header))
                self.take_record(&record, offset, transaction_of(header))
        return 0

    cdef int take_control(self, record_view *record, batch_header *header) except -1:
        cdef int type
        if record.key_size < CONTROL_KEY_SIZE:
            self.unreadable(header.base_offset)
            return 0
        type = load_int16(record.key + 2)
        if type == ABORT or type == COMMIT:
            self.end_transaction(header.producer_id, type == COMMIT)
        return 0

    cdef int end_transaction(self, int64_t producer_id, bint is_commit) except -1:
        """Commit a transaction's pending offsets, unless a later record replaced them, or drop them."""
        cdef dict pending = self.pending.pop(producer_id, None)
        cdef dict target
        if pending is None:
            return 0
        if self._transaction == producer_id:
            self._partitions = None
        if not is_commit:
            return 0
        for group, topics in pending.items():
            for topic, partitions in topics.items():
                target = self.offsets.setdefault(group, {}).setdefault(topic, {})
                for partition, committed in partitions.items():
                    hold(target, partition, committed)
        return 0

    cdef int take_record(self, record_view *record, int64_t offset, int64_t transaction) except -1:
        cdef commit_key key
        if record.key_size < 2:
            self.unreadable(offset)
        elif not 0 <= load_int16(record.key) <= COMMIT_TYPE_MAX:
            self.take_other(record, offset, transaction)
        elif not parse_key(record.key + 2, record.key_size - 2, &key):
            self.unreadable(offset)
        elif record.value_size < 0:
            self.take_tombstone(&key, offset)
        else:
            self.take_commit(&key, record, offset, transaction)
        return 0

    cdef int take_other(self, record_view *record, int64_t offset, int64_t transaction) except -1:
        if transaction != NO_TRANSACTION:
            # Transactions contain only offsets.
            self.unreadable(offset)
            return 0
        key = PyBytes_FromStringAndSize(<const char *> record.key, record.key_size)
        # Removed first, so that the keys stay in the order of their last records.
        self.others.pop(key, None)
        if record.value_size >= 0:
            self.others[key] = PyBytes_FromStringAndSize(
                <const char *> record.value, record.value_size
            )
        return 0

    cdef int take_tombstone(self, commit_key *key, int64_t offset) except -1:
        """Remove every earlier offset of the key, committed or pending."""
        self.partitions_of(key, offset, NO_TRANSACTION).pop(key.partition, None)
        if self.pending:
            self.forget_pending(key)
        return 0

    cdef int forget_pending(self, commit_key *key) except -1:
        try:
            group = text_of(key.group, key.group_size)
            topic = text_of(key.topic, key.topic_size)
        except UnicodeDecodeError:
            return 0
        for groups in self.pending.values():
            groups.get(group, {}).get(topic, {}).pop(key.partition, None)
        return 0

    cdef int take_commit(
        self, commit_key *key, record_view *record, int64_t offset, int64_t transaction
    ) except -1:
        cdef commit_value value
        cdef int version
        version = load_int16(record.value) if record.value_size >= 2 else -1
        if version > VALUE_VERSION_MAX:
            raise UnknownRecord(f"OffsetCommitValue of version {version} at offset {offset}")
        if version < 0 or not parse_value(record.value + 2, record.value_size - 2, version, &value):
            self.unreadable(offset)
            return 0
        try:
            committed = self.committed(&value, offset)
        except UnicodeDecodeError:
            self.unreadable(offset)
            return 0
        self.partitions_of(key, offset, transaction)[key.partition] = committed
        return 0

    cdef CommittedOffset committed(self, commit_value *value, int64_t record_offset):
        cdef CommittedOffset found = CommittedOffset.__new__(CommittedOffset)
        found.offset = value.offset
        found.commit_timestamp = value.commit_timestamp
        found.leader_epoch = value.leader_epoch
        found.expire_timestamp = value.expire_timestamp
        found.record_offset = record_offset
        found.topic_id = ZERO_UUID if value.topic_id == NULL else self.topic_id(value.topic_id)
        found.metadata = ""
        if value.metadata_size > 0:
            found.metadata = text_of(value.metadata, value.metadata_size)
        return found

    cdef object topic_id(self, const uint8_t *at):
        if memcmp(PyBytes_AS_STRING(self._id_bytes), at, TOPIC_ID_SIZE) != 0:
            self._id_bytes = PyBytes_FromStringAndSize(<const char *> at, TOPIC_ID_SIZE)
            self._id = UUID(bytes=self._id_bytes)
        return self._id

    cdef dict partitions_of(self, commit_key *key, int64_t offset, int64_t transaction):
        """Returns the group's offsets in the topic, by partition: the committed ones, or those
        pending in a transaction."""
        cdef dict groups
        if self.is_last_place(key, transaction):
            return self._partitions
        try:
            group = text_of(key.group, key.group_size)
            # Groups share one string per topic, because many read the same topics.
            topic = sys.intern(text_of(key.topic, key.topic_size))
        except UnicodeDecodeError:
            self.unreadable(offset)
            return {}
        groups = self.offsets
        if transaction != NO_TRANSACTION:
            groups = self.pending.setdefault(transaction, {})
        self._partitions = groups.setdefault(group, {}).setdefault(topic, {})
        self._transaction = transaction
        self._names = PyBytes_FromStringAndSize(<const char *> key.names, key.names_size)
        return self._partitions

    cdef bint is_last_place(self, commit_key *key, int64_t transaction) noexcept:
        if self._partitions is None or self._transaction != transaction:
            return False
        if PyBytes_GET_SIZE(self._names) != key.names_size:
            return False
        return memcmp(PyBytes_AS_STRING(self._names), key.names, key.names_size) == 0

    cdef int unreadable(self, int64_t offset) except -1:
        if self.unreadable_count == 0:
            self.unreadable_offset = offset
        self.unreadable_count += 1
        return 0


cdef str text_of(const uint8_t *at, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<const char *> at, size, NULL)
