# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""Committed offsets: small in memory, and read by the million. `offset_commits.pyi` is the contract."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

import sys
from uuid import UUID

from protocol.records.compression import Codec, decompress
from protocol.wire.errors import CorruptBatch, UnsupportedCodec
from protocol.internal_topics.coordinator_records import UnknownRecord
from protocol.wire.primitives import ZERO_UUID
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
    load_int32,
    load_int64,
    read_batch_header,
    read_record,
    record_status_text,
    record_view,
)

cdef enum:
    COMMIT_TYPE_MAX = 1
    VALUE_VERSION_MAX = 4
    WITH_EXPIRY = 1
    WITH_EPOCH = 3
    FLEXIBLE = 4
    TOPIC_ID_TAG = 0
    TOPIC_ID_SIZE = 16
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


# A parsed key of a commit; the names point into the record.
cdef struct commit_key:
    const uint8_t *names     # group and topic, each after its length
    const uint8_t *group
    const uint8_t *topic
    int32_t names_size
    int32_t partition
    int16_t group_size
    int16_t topic_size


cdef bint parse_key(const uint8_t *at, int32_t size, commit_key *key) noexcept nogil:
    """Returns whether the bytes after the type are exactly a group, a topic and a partition."""
    cdef const uint8_t *end = at + size
    key.names = at
    if end - at < 2:
        return False
    key.group_size = load_int16(at)
    key.group = at + 2
    if key.group_size < 0 or end - key.group < key.group_size + 2:
        return False
    key.topic_size = load_int16(key.group + key.group_size)
    key.topic = key.group + key.group_size + 2
    if key.topic_size < 0 or end - key.topic != key.topic_size + 4:
        return False
    key.names_size = <int32_t> (key.topic + key.topic_size - at)
    key.partition = load_int32(key.topic + key.topic_size)
    return True


# A parsed value of a commit; the metadata and the topic's id point into the record.
cdef struct commit_value:
    int64_t offset
    int64_t commit_timestamp
    int64_t expire_timestamp
    const uint8_t *metadata
    const uint8_t *topic_id   # NULL: none
    int32_t metadata_size
    int32_t leader_epoch


cdef bint read_unsigned(const uint8_t **at, const uint8_t *end, uint32_t *value) noexcept nogil:
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while at[0] < end and shift < 35:
        byte = at[0][0]
        at[0] += 1
        value[0] |= <uint32_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return True
        shift += 7
    return False


cdef bint parse_tags(const uint8_t **at, const uint8_t *end, commit_value *value) noexcept nogil:
    cdef uint32_t count = 0
    cdef uint32_t tag = 0
    cdef uint32_t size = 0
    if not read_unsigned(at, end, &count):
        return False
    while count > 0:
        if not read_unsigned(at, end, &tag) or not read_unsigned(at, end, &size):
            return False
        if <int64_t> size > end - at[0]:
            return False
        if tag == TOPIC_ID_TAG:
            if size != TOPIC_ID_SIZE:
                return False
            value.topic_id = at[0]
        at[0] += size
        count -= 1
    return True


cdef bint parse_value(const uint8_t *at, int32_t size, int version, commit_value *value) noexcept nogil:
    """Returns whether the bytes after the version are exactly a value of that version."""
    cdef const uint8_t *end = at + size
    cdef uint32_t length = 0
    value.leader_epoch = -1
    value.expire_timestamp = -1
    value.topic_id = NULL
    if end - at < 12:
        return False
    value.offset = load_int64(at)
    at += 8
    if version >= WITH_EPOCH:
        value.leader_epoch = load_int32(at)
        at += 4
    if version >= FLEXIBLE:
        if not read_unsigned(&at, end, &length) or length == 0 or length > 0x8000:
            return False
        value.metadata_size = <int32_t> length - 1
    else:
        if end - at < 2:
            return False
        value.metadata_size = load_int16(at)
        at += 2
    if value.metadata_size < 0 or end - at < value.metadata_size + 8:
        return False
    value.metadata = at
    at += value.metadata_size
    value.commit_timestamp = load_int64(at)
    at += 8
    if version == WITH_EXPIRY:
        if end - at < 8:
            return False
        value.expire_timestamp = load_int64(at)
        at += 8
    if version >= FLEXIBLE and not parse_tags(&at, end, value):
        return False
    return at == end


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
    cdef:
        int64_t _decompressed_bytes_max
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
        self._decompressed_bytes_max = decompressed_bytes_max
        self._names = b""
        self._transaction = NO_TRANSACTION
        self._partitions = None
        self._id_bytes = ZERO_UUID.bytes
        self._id = ZERO_UUID

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
            self.take_batch(at, &header)
            next_offset = header.last_offset + 1
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
