# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False
"""The records of which a coordinator's state consists. `live_records.pyi` is the contract."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from cleaner.kernel.offset_slots cimport (
    KP_PUT_FULL,
    KP_SPILL_MAX,
    kp_offset_slots,
    kp_slots_clear,
    kp_slots_get,
    kp_slots_map,
    kp_slots_put,
    kp_slots_unmap,
)
from cleaner.kernel.siphash cimport kp_sip128, kp_sip_key, kp_sip_key_of
from cleaner.rules.step import LiveStep
from protocol.internal_topics.coordinator_records import UnknownRecord
from protocol.records.commit_format cimport (
    COMMIT_TYPE_MAX,
    VALUE_VERSION_MAX,
    commit_key,
    commit_value,
    parse_key,
    parse_value,
)
from protocol.records.compression import Codec, decompress
from protocol.records.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CODEC_MAX,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_CUT,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    VARINT_SIZE_MAX,
    batch_crc,
    batch_header,
    load_int16,
    read_batch_header,
    read_record,
    record_status_text,
    record_view,
    varint_size,
    write_batch_header,
    write_varint,
)
from protocol.records.row_sum cimport kp_hash128, kp_row_add
from protocol.wire.errors import CorruptBatch, UnsupportedCodec


cdef enum:
    NO_PRODUCER = -1
    CONTROL_KEY_SIZE = 4
    ABORT = 0
    COMMIT = 1

# What a walk over a piece has done.
cdef struct walked:
    int64_t consumed_bytes
    int64_t needed_bytes
    bint is_end


# What a load makes of a record.
cdef enum:
    IGNORED
    VALUE
    TOMBSTONE


include "record_reader.pxi"
include "record_sum.pxi"
include "copied_batches.pxi"


@cython.final
cdef class LiveRecords(RecordReader):
    cdef:
        # Constant after construction
        kp_sip_key _key
        size_t _keys_max
        int64_t _start_offset
        bint _has_commits
        # State of `find`. The slots have offset * 2 + 1 for a tombstone, offset * 2 for a value.
        kp_offset_slots _slots
        dict _pending        # producer id -> {key: offset}
        Py_ssize_t _pending_count
        set _held            # keys with a record in a transaction that the checkpoint has open
        bint _has_held
        # State of `copy`
        CopiedBatches _copied
        # State of the current call
        bint _in_checkpoint
        bint _copies
        readonly bint is_full
        readonly bint is_gapless
        readonly int64_t next_offset
        readonly int32_t last_epoch
        readonly uint32_t last_crc

    def __cinit__(
        self,
        bytes hash_key not None,
        *,
        size_t keys_max,
        int64_t start_offset,
        bint has_commits,
        int64_t decompressed_bytes_max,
    ):
        cdef size_t home_count = keys_max + keys_max // 8 + 1
        if len(hash_key) != 16:
            raise ValueError(f"a hash key has 16 bytes, not {len(hash_key)}")
        self._slots.slots = NULL
        self._slots.slot_count = home_count + KP_SPILL_MAX
        if kp_slots_map(&self._slots, False, False) != 0:
            raise MemoryError(f"cannot map memory for {keys_max} keys")
        if kp_slots_clear(&self._slots, home_count, 0, 1) != 0:
            raise MemoryError(f"cannot map memory for {keys_max} keys")
        self._key = kp_sip_key_of(<const uint8_t *><const char *> hash_key)
        self._keys_max = keys_max
        self._start_offset = self.next_offset = start_offset
        self._has_commits = has_commits
        self._decompressed_bytes_max = decompressed_bytes_max
        self._pending = {}
        self._pending_count = 0
        self._held = set()
        self._copied = CopiedBatches()
        self.is_full = False
        self.is_gapless = True
        self.last_epoch = -1
        self.last_crc = 0

    def __dealloc__(self):
        kp_slots_unmap(&self._slots)

    @property
    def copied(self):
        return self._copied.records

    @property
    def digest(self):
        return self._copied.sum.low | <object> self._copied.sum.high << 64

    def find(self, const uint8_t[::1] piece not None, *, int64_t end_offset, bint in_checkpoint=False):
        self._in_checkpoint = in_checkpoint
        self._copies = False
        return self.walk(piece, end_offset)

    def copy(self, const uint8_t[::1] piece not None, *, int64_t end_offset, bint in_checkpoint=False):
        self._in_checkpoint = in_checkpoint
        self._copies = True
        return self.walk(piece, end_offset)

    def finish(self):
        self._copied.finish_batch()
        return self._copied.take_finished()

    cdef object walk(self, const uint8_t[::1] piece, int64_t end_offset):
        cdef walked found = walked(0, 0, False)
        if piece.shape[0] > 0:
            with nogil:
                self.walk_batches(&piece[0], piece.shape[0], end_offset, &found)
        return LiveStep(
            consumed_bytes=found.consumed_bytes,
            needed_bytes=found.needed_bytes,
            is_end=found.is_end,
            output=self._copied.take_finished(),
        )

    cdef int walk_batches(
        self, const uint8_t *start, Py_ssize_t size, int64_t end_offset, walked *found
    ) except -1 nogil:
        cdef const uint8_t *at = start
        cdef const uint8_t *end = start + size
        cdef batch_header header
        cdef int status
        header.last_offset = self.next_offset - 1
        while at < end:
            found.consumed_bytes = at - start
            status = read_batch_header(at, end, &header)
            if status == BATCH_CUT:
                found.needed_bytes = header.size
                return 0
            if status == BATCH_OK and self.is_past(&header, end_offset):
                found.is_end = True
                return 0
            if status != BATCH_OK or not self.is_before(&header):
                check_batch(at, &header, status)
                self.take_batch(at, &header)
            at += header.size
        found.consumed_bytes = size
        return 0

    cdef bint is_before(self, batch_header *header) noexcept nogil:
        """Returns whether a batch of the log lies below the part that is read."""
        return not self._in_checkpoint and header.last_offset < self._start_offset

    cdef bint is_past(self, batch_header *header, int64_t end_offset) noexcept nogil:
        """Returns whether the log ends before this batch, or there is no room for its keys."""
        if self._in_checkpoint:
            return False
        if header.last_offset >= end_offset:
            return True
        if self._copies:
            return False
        self.is_full = (
            self._slots.size + self._pending_count + header.record_count > self._keys_max
        )
        return self.is_full

    cdef int take_batch(self, const uint8_t *batch, batch_header *header) except -1 nogil:
        if not self._copies and not self._in_checkpoint:
            self.note_place(header)
        if not (self._copies and header.attributes & ATTRIBUTE_CONTROL):
            self.take_records(batch, header)
        return 0

    cdef int note_place(self, batch_header *header) except -1 nogil:
        if header.base_offset != self.next_offset or (
            header.record_count != header.last_offset - header.base_offset + 1
        ):
            self.is_gapless = False
        self.next_offset = header.last_offset + 1
        self.last_epoch = header.leader_epoch
        self.last_crc = header.crc
        return 0

    cdef int take(self, record_view *record, batch_header *header) except -1 nogil:
        cdef int64_t offset = header.base_offset + record.offset_delta
        cdef bint in_transaction = False
        cdef int its_kind
        if header.attributes & ATTRIBUTE_CONTROL:
            if self._has_commits:
                with gil:
                    self.take_control(record, header)
            return 0
        if self._has_commits and header.attributes & ATTRIBUTE_TRANSACTIONAL:
            in_transaction = True
        its_kind = self.kind_of(record, offset, in_transaction)
        if its_kind == IGNORED:
            return 0
        # A tombstone counts at once, also in a transaction.
        in_transaction = in_transaction and its_kind == VALUE
        if self._copies:
            if its_kind == VALUE:
                self.copy_if_live(record, header, offset, in_transaction)
        elif in_transaction:
            with gil:
                self.note_pending(record, header, offset)
        elif not self._in_checkpoint:
            self.note(record, offset, its_kind)
        elif self._has_held:
            self.note_held(record, offset)
        return 0

    cdef int kind_of(
        self, record_view *record, int64_t offset, bint in_transaction
    ) except -1 nogil:
        """Returns what a load makes of a record: `OffsetScan.take_record`, or the last of each key."""
        cdef commit_key key
        if record.key_size < 0:
            return IGNORED
        if self._has_commits:
            if record.key_size < 2:
                return IGNORED
            if not 0 <= load_int16(record.key) <= COMMIT_TYPE_MAX:
                if in_transaction:
                    return IGNORED
            elif not parse_key(record.key + 2, record.key_size - 2, &key):
                return IGNORED
            elif record.value_size >= 0 and not is_commit(record, offset):
                return IGNORED
        return TOMBSTONE if record.value_size < 0 else VALUE

    cdef int take_control(self, record_view *record, batch_header *header) except -1:
        cdef int16_t type
        cdef dict its
        cdef bytes key
        if record.key_size < CONTROL_KEY_SIZE:
            return 0
        type = load_int16(record.key + 2)
        if type != ABORT and type != COMMIT:
            return 0
        its = self._pending.pop(header.producer_id, None)
        if its is None:
            return 0
        self._pending_count -= len(its)
        if type == COMMIT:
            for key, offset in its.items():
                self.put(<const uint8_t *><const char *> key, len(key), 2 * <int64_t> offset)
        return 0

    cdef int note_pending(self, record_view *record, batch_header *header, int64_t offset) except -1:
        cdef bytes key = key_of(record)
        cdef dict its = self._pending.setdefault(header.producer_id, {})
        self._pending_count += key not in its
        its[key] = offset
        if self._in_checkpoint:
            self._held.add(key)
            self._has_held = True
        return 0

    cdef int note_held(self, record_view *record, int64_t offset) except -1 nogil:
        """Note a key that a transaction of the checkpoint has too: its older record would be copied, too."""
        with gil:
            if key_of(record) in self._held:
                self.put(record.key, record.key_size, 2 * offset)
        return 0

    cdef int note(self, record_view *record, int64_t offset, int its_kind) except -1 nogil:
        self.put(record.key, record.key_size, 2 * offset + (its_kind == TOMBSTONE))
        if its_kind == TOMBSTONE and self._pending_count > 0:
            with gil:
                self.forget_pending(key_of(record))
        return 0

    cdef int forget_pending(self, bytes key) except -1:
        cdef dict its
        for its in self._pending.values():
            self._pending_count -= its.pop(key, None) is not None
        return 0

    cdef int put(self, const uint8_t *key, int32_t size, int64_t place) except -1 nogil:
        if kp_slots_put(&self._slots, kp_sip128(&self._key, key, size), place) == KP_PUT_FULL:
            with gil:
                raise MemoryError("no slot is left for a key")
        return 0

    cdef int copy_if_live(
        self, record_view *record, batch_header *header, int64_t offset, bint in_transaction
    ) except -1 nogil:
        cdef int64_t place
        cdef bint is_open = False
        if in_transaction:
            with gil:
                is_open = self.is_pending(record, header.producer_id, offset)
        if is_open:
            return self._copied.write(record, offset, header.producer_id, header.producer_epoch)
        place = kp_slots_get(
            &self._slots, kp_sip128(&self._key, record.key, record.key_size)
        )
        if place == 2 * offset or (
            self._in_checkpoint and not in_transaction and place < 2 * offset
        ):
            return self._copied.write(record, offset, NO_PRODUCER, -1)
        return 0

    cdef bint is_pending(
        self, record_view *record, int64_t producer_id, int64_t offset
    ) except -1:
        """Returns whether a record is the last of its key in the producer's open transaction."""
        cdef dict its = self._pending.get(producer_id)
        return its is not None and its.get(key_of(record)) == offset


cdef bytes key_of(record_view *record):
    return PyBytes_FromStringAndSize(<const char *> record.key, record.key_size)


cdef bint is_commit(record_view *record, int64_t offset) except -1 nogil:
    """Returns whether the value of a commit can be read: otherwise a load ignores it."""
    cdef commit_value value
    cdef int version = load_int16(record.value) if record.value_size >= 2 else -1
    if version > VALUE_VERSION_MAX:
        with gil:
            raise UnknownRecord(f"OffsetCommitValue of version {version} at offset {offset}")
    if version < 0 or not parse_value(record.value + 2, record.value_size - 2, version, &value):
        return False
    return is_ascii(value.metadata, value.metadata_size) or is_text(&value)


cdef bint is_ascii(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef uint8_t bits = 0
    cdef Py_ssize_t i
    for i in range(size):
        bits |= data[i]
    return bits < 0x80


cdef bint is_text(commit_value *value) except -1 nogil:
    with gil:
        try:
            PyUnicode_DecodeUTF8(<const char *> value.metadata, value.metadata_size, NULL)
        except UnicodeDecodeError:
            return False
        return True
