# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The per-record work of a cleaning pass; `kernel.pyi` documents the interface, `record_verdict.py` the rule.

In the order of a pass: `index.pxi` makes a segment's key blocks, `transactions.pxi` and `mark.pxi` read
them, `filter.pxi` recopies by the marks; `log_sum.pxi` sums the unmarked records. Each file uses only
those that are included before it.

Records are read by `read_record` of record_format.h, which checks every bound; pointers into records
move only by what it has read.
"""

from cpython.array cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString
from cpython.bytes cimport PyBytes_FromStringAndSize
from cython cimport final
from libc.stdint cimport (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint32_t,
    uint64_t,
)
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from cleaner.kernel.digest cimport (
    kp_digest_add,
    kp_digest_copied,
    kp_digest_header,
    kp_digest_record,
    kp_hash128,
    kp_key_product,
    kp_key_resized,
    kp_xxh3,
    kp_xxh3_seeded,
)
from cleaner.kernel.offset_slots cimport (
    KP_ABOVE,
    KP_BELOW,
    KP_PUT_FULL,
    KP_SAME,
    kp_count,
    kp_counted_add,
    kp_counted_put,
    kp_counted_take,
    kp_last_put,
    kp_offset_slots,
    kp_rank,
    kp_ranked_compare,
    kp_ranked_put,
    kp_ranked_raise,
    kp_slot,
    kp_slots_clear,
    kp_slots_find,
    kp_slots_get,
    kp_slots_holds,
    kp_slots_map,
    kp_slots_offset,
    kp_slots_offsets,
    kp_slots_prefetch,
    kp_slots_put,
    kp_slots_spill,
    kp_slots_take,
    kp_slots_tally,
    kp_slots_unmap,
    kp_tally,
)
from cleaner.kernel.siphash cimport (
    kp_sip128,
    kp_sip_hash,
    kp_sip_key,
    kp_sip_key_of,
    kp_sip_load64,
    kp_sip_store64,
)
from cleaner.kernel.table_digest cimport kp_table_record
from protocol.records.record_format cimport (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CODEC_MAX,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_BAD_LENGTH,
    BATCH_BAD_MAGIC,
    BATCH_BASE_OFFSET,
    BATCH_CUT,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    RECORD_OK,
    batch_crc,
    batch_header,
    last_header,
    load_int16,
    load_int64,
    load_uint32,
    read_batch_header,
    read_record,
    read_record_inlined,
    record_status_text,
    record_view,
    restamped_size,
    store_int16,
    store_int64,
    store_uint32,
    write_batch_header,
    write_record_restamped,
)

from cleaner.rules.latest import Rank
from cleaner.rules.record_verdict import AbortedTransaction, Verdict
from cleaner.rules.step import (
    FilterStep,
    GroupAccount,
    IndexStep,
    KeySum,
    KeysDiffer,
    LatestStep,
    MapStep,
    MapTally,
    MarkStep,
    Outranked,
    SegmentSummary,
    SpillDamaged,
    VerdictCount,
)
from protocol.records.compression import Codec, compress, decompress
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from storage.formats.compaction_strategy import BY_OFFSET as BY_OFFSET_STRATEGY, Ranking
from storage.formats.key_totals import KeyTotals

SLOT_BYTES = sizeof(kp_slot)

cdef enum:
    # Records between the prefetch of a slot and its use; a power of two.
    WINDOW = 32
    VERDICT_COUNT = 12
    RECORD_BYTES_MIN = 7

# The kernel's numbers of the verdicts: their positions in `Verdict`.
cdef enum:
    KEPT_LATEST
    KEPT_UNMAPPED
    KEPT_TAIL
    KEPT_UNKEYED
    KEPT_MARKER
    KEPT_HELD
    KEPT_CONTESTED
    DROPPED_SUPERSEDED
    DROPPED_TOMBSTONE
    DROPPED_UNKEYED
    DROPPED_ABORTED
    DROPPED_MARKER

VERDICTS = (
    Verdict.KEPT_LATEST,
    Verdict.KEPT_UNMAPPED,
    Verdict.KEPT_TAIL,
    Verdict.KEPT_UNKEYED,
    Verdict.KEPT_MARKER,
    Verdict.KEPT_HELD,
    Verdict.KEPT_CONTESTED,
    Verdict.DROPPED_SUPERSEDED,
    Verdict.DROPPED_TOMBSTONE,
    Verdict.DROPPED_UNKEYED,
    Verdict.DROPPED_ABORTED,
    Verdict.DROPPED_MARKER,
)


include "buffers.pxi"
include "batches.pxi"
include "offset_map.pxi"
include "key_block.pxi"
include "key_block_writer.pxi"
include "transactions.pxi"
include "producers.pxi"
include "versions.pxi"
include "index.pxi"
include "entry_scan.pxi"
include "history.pxi"
include "dead_offsets.pxi"
include "mark.pxi"
include "spilled.pxi"
include "kept.pxi"
include "survey.pxi"
include "judged.pxi"
include "source_keys.pxi"
include "batch_writer.pxi"
include "latest.pxi"
include "account.pxi"
include "output_segment.pxi"
include "judge.pxi"
include "filter.pxi"
include "log_sum.pxi"
