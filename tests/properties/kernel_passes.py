"""Logs of every kind with the parameters of a pass over them, for properties of the compiled kernel."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from cleaner.kernel.kernel import BatchFilter, History, OffsetMap, Transactions
from cleaner.rules.record_verdict import PassBounds
from protocol.records.compression import Codec
from protocol.records.control_record import ControlType
from storage.formats.compaction_history import LAST_VALUE, CompactionHistory, ThinningStep
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking
from tests.cleaner.kernel_log import (
    HASH_KEY,
    INFLATED_BYTES_MAX,
    LogBatch,
    LogRecord,
    PlainOffsetMap,
    encode,
    marker_batch,
    plain_map,
    plain_transactions,
)
from tests.cleaner.kernel_steps import (
    CleanedSegment,
    IndexedLog,
    Marked,
    filter_log,
    index_log,
    map_log,
    mark_log,
    walk_log,
)

bounded = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])

KEYS = (b"", b"a", b"b", b"c", b"a key of more than sixteen bytes")
NOW_MS = 5_000
DELETE_RETENTION_MS = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A log, and all parameters of a pass over it."""

    batches: tuple[LogBatch, ...]
    start_offset: int
    section_end: int
    """Up to where the log is walked for transactions; the map may end before."""
    bounds: PassBounds
    fence_batch: int | None = None
    """The number of the batch before which a fence begins."""

    @property
    def log(self) -> bytes:
        return b"".join(map(encode, self.batches))

    @property
    def fence_offset(self) -> int | None:
        """Where a fence begins; None: nowhere."""
        return None if self.fence_batch is None else self.batches[self.fence_batch].base_offset

    def plain_map(self) -> PlainOffsetMap:
        return plain_map(
            self.batches,
            start_offset=self.start_offset,
            end_offset=self.bounds.end_offset,
            aborted=(*self.bounds.aborted, *self.bounds.undecided),
            strategy=self.bounds.strategy,
        )

    def indexed(self, *, chunk_bytes: int = 1 << 20) -> IndexedLog:
        indexed = index_log(self.log, chunk_bytes=chunk_bytes, strategy=self.bounds.strategy)
        return replace(indexed, history=self.bounds.history, now_ms=self.bounds.now_ms)

    def transactions(self, indexed: IndexedLog) -> Transactions:
        if self.fence_batch is not None:
            # A fence begins between two blocks: let each batch have its own.
            indexed = self.indexed(chunk_bytes=1)
            assert len(indexed.blocks) == len(self.batches)
        return walk_log(
            indexed,
            start_offset=self.start_offset,
            end_offset=self.section_end,
            fence_block=self.fence_batch,
        )

    def marked(self, indexed: IndexedLog, *, parts: int = 1) -> Marked:
        return mark_log(
            indexed,
            start_offset=self.start_offset,
            end_offset=self.bounds.end_offset,
            transactions=self.transactions(indexed),
            parts=parts,
        )

    def whole_map(self, indexed: IndexedLog) -> tuple[OffsetMap, History | None]:
        offset_map, history = indexed.empty_map()
        map_log(
            indexed,
            offset_map,
            start_offset=self.start_offset,
            end_offset=self.bounds.end_offset,
            transactions=self.transactions(indexed),
            history=history,
        )
        return offset_map, history

    def filtered(
        self,
        *,
        chunk_bytes: int = 1 << 20,
        parts: int = 1,
        segment_bytes_max: int = 2**31 - 1,
        index_interval_bytes: int = 4096,
    ) -> tuple[list[CleanedSegment], BatchFilter]:
        """What the kernel leaves of the log, and the filter that did it."""
        indexed = self.indexed(chunk_bytes=chunk_bytes)
        batch_filter = self.batch_filter(
            indexed,
            segment_bytes_max=segment_bytes_max,
            index_interval_bytes=index_interval_bytes,
        )
        marked = self.marked(indexed, parts=parts)
        segments = filter_log(indexed, marked.marks, batch_filter, marked.winners)
        return segments, batch_filter

    def batch_filter(
        self, indexed: IndexedLog, *, segment_bytes_max: int, index_interval_bytes: int
    ) -> BatchFilter:
        return BatchFilter(
            HASH_KEY,
            end_offset=self.bounds.end_offset,
            tail_offset=self.bounds.tail_offset,
            now_ms=self.bounds.now_ms,
            delete_retention_ms=self.bounds.delete_retention_ms,
            decompressed_bytes_max=INFLATED_BYTES_MAX,
            producer_last_offsets=self.bounds.producer_last_offsets,
            segment_bytes_max=segment_bytes_max,
            index_interval_bytes=index_interval_bytes,
            keeps_unkeyed=self.bounds.keeps_unkeyed,
            producer_marker_epochs=self.bounds.producer_marker_epochs,
            transactions=self.transactions(indexed),
            stamps_markers=self.bounds.stamps_markers,
            is_verified=True,
            hold_offset=self.bounds.hold_offset,
            strategy=self.bounds.strategy,
            codec=self.bounds.codec,
        )


@lru_cache(maxsize=None, typed=True)
def chosen(*values: Hashable) -> st.SearchStrategy[Any]:
    """Returns what draws one of these values. Made once, because that costs as much as a draw."""
    return st.sampled_from(values)


CODECS = st.sampled_from(Codec)
timestamps = st.one_of(st.integers(0, 9_999), chosen(-1, -(2**63), 2**63 - 1, 1_700_000_000_000))


headers = chosen(
    (), (), (("name", b"x"), ("", None)), *[(("name", bytes(7) + bytes([n])),) for n in range(4)]
)
THINNING = (
    ThinningStep(0, 800),
    ThinningStep(700, 2_100),
    ThinningStep(1_400, 4_000),
)
KEEPING = (
    (BY_OFFSET, LAST_VALUE),
    (BY_OFFSET, CompactionHistory(versions=2)),
    (BY_OFFSET, CompactionHistory(versions=4)),
    *(
        (CompactionStrategy(has_timestamps=True), CompactionHistory(versions, steps))
        for versions, steps in ((1, THINNING), (3, THINNING[1:]), (1, THINNING[:1]))
    ),
    (CompactionStrategy(Ranking.TIMESTAMP), LAST_VALUE),
    (CompactionStrategy(Ranking.HEADER, "name"), LAST_VALUE),
)
"""Which records win and which older ones stay."""


def log_batch(draw: st.DrawFn, base_offset: int) -> LogBatch:
    count = draw(st.integers(0, 5))
    gaps = draw(st.lists(chosen(1, 1, 1, 2, 90), min_size=count, max_size=count))
    offset, records = base_offset - 1, list[LogRecord]()
    for gap in gaps:
        offset += gap
        record = LogRecord(
            offset=offset,
            timestamp=draw(timestamps),
            key=draw(chosen(*KEYS, None)),
            value=draw(chosen(None, b"", b"value", b"v" * 200)),
            headers=draw(headers),
        )
        records.append(record)
    is_idempotent = draw(st.booleans())
    return LogBatch(
        base_offset=base_offset,
        last_offset=max(offset, base_offset) + draw(chosen(0, 0, 3)),
        records=tuple(records),
        codec=draw(CODECS) if records else Codec.NONE,
        is_log_append_time=draw(st.booleans()),
        is_transactional=draw(chosen(False, False, False, True)),
        is_control=draw(chosen(False, False, False, True)),
        delete_horizon_ms=draw(chosen(None, None, NOW_MS - 1, NOW_MS, NOW_MS + 1)),
        base_timestamp=draw(timestamps),
        max_timestamp=draw(timestamps),
        producer_id=9 if is_idempotent else -1,
        producer_epoch=2 if is_idempotent else -1,
        base_sequence=17 if is_idempotent else -1,
    )


def transaction_batch(draw: st.DrawFn, base_offset: int) -> LogBatch:
    """The next batch of one of two producers' transactions: its data, or a marker."""
    producer_id = draw(chosen(7, 8))
    if draw(st.booleans()):
        data = log_batch(draw, base_offset)
        return replace(
            data, is_transactional=True, is_control=False, producer_id=producer_id, producer_epoch=2
        )
    kind = draw(chosen(ControlType.ABORT, ControlType.COMMIT, ControlType.LEADER_CHANGE))
    marker = marker_batch(base_offset, producer_id, kind if kind < 2 else ControlType.ABORT)
    if kind is ControlType.LEADER_CHANGE:
        other = replace(marker.records[0], key=draw(chosen(b"\0\0\0\2", b"\0", None)))
        marker = replace(marker, records=(other,))
    return replace(
        marker,
        records=draw(st.sampled_from((marker.records, marker.records, ()))),
        producer_epoch=2,
        delete_horizon_ms=draw(chosen(None, NOW_MS, NOW_MS + 1)),
        codec=Codec.NONE,
    )


@st.composite
def passes(draw: st.DrawFn) -> Pass:
    batches, base_offset = list[LogBatch](), 0
    kinds = draw(chosen((log_batch,), (log_batch, transaction_batch)))
    for _ in range(draw(st.integers(1, 9))):
        batches.append(draw(st.sampled_from(kinds))(draw, base_offset))
        base_offset = batches[-1].last_offset + draw(chosen(1, 1, 1, 50))
    last_offsets = [batch.last_offset for batch in batches]
    start_offset = draw(st.sampled_from([0, *(last + 1 for last in last_offsets)]))
    section_end = max(start_offset, draw(st.sampled_from(last_offsets)) + 1)
    numbers = [n for n, batch in enumerate(batches) if batch.base_offset < section_end]
    fence_batch = draw(st.none() | st.sampled_from(numbers)) if numbers else None
    known = plain_transactions(
        batches,
        start_offset=start_offset,
        end_offset=section_end,
        fence_offset=None if fence_batch is None else batches[fence_batch].base_offset,
    )
    map_end = draw(st.sampled_from(last_offsets)) + 1
    end_offset = draw(st.sampled_from((map_end, known.end_offset)))
    end_offset = min(max(end_offset, start_offset), known.end_offset)
    strategy, history = draw(st.sampled_from(KEEPING))
    bounds = PassBounds(
        start_offset=start_offset,
        end_offset=end_offset,
        tail_offset=draw(st.sampled_from([-1, *last_offsets])),
        now_ms=NOW_MS,
        delete_retention_ms=draw(chosen(0, DELETE_RETENTION_MS, 2**63 - 1)),
        producer_last_offsets=draw(st.sets(st.sampled_from(last_offsets))),
        keeps_unkeyed=draw(st.booleans()),
        producer_marker_epochs=draw(st.sampled_from(({}, {7: 2, 9: 2}, {8: 1}))),
        aborted=known.aborted,
        undecided=known.undecided,
        stamps_markers=draw(st.booleans()),
        hold_offset=draw(st.one_of(st.just(2**63 - 1), st.integers(0, base_offset))),
        strategy=strategy,
        history=history,
        codec=draw(st.none() | CODECS),
    )
    return Pass(
        batches=tuple(batches),
        start_offset=start_offset,
        section_end=section_end,
        bounds=bounds,
        fence_batch=fence_batch,
    )
