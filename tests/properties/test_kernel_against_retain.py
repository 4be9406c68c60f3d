"""The compiled kernel does to any log, byte for byte, what the rule in plain Python says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleaner.kernel import BatchFilter, OffsetMap, Transactions
from cleaner.retain import PassBounds, Remains, Verdict, is_marker, is_tombstone
from protocol.compression import Codec
from protocol.control_record import ControlType
from tests.cleaner.kernel_log import (
    HASH_KEY,
    INFLATED_BYTES_MAX,
    CleanedSegment,
    IndexedLog,
    LogBatch,
    LogRecord,
    Marked,
    PlainOffsetMap,
    assert_blocks_hold,
    encode,
    expected_outputs,
    filter_log,
    index_log,
    map_log,
    mark_log,
    marker_batch,
    parts_of,
    plain_map,
    plain_transactions,
    walk_log,
    wrap,
)

KEYS = (b"", b"a", b"b", b"c", b"a key of more than sixteen bytes")
NOW_MS = 5_000
DELETE_RETENTION_MS = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A log and all that a pass over it is told."""

    batches: tuple[LogBatch, ...]
    start_offset: int
    section_end: int
    """Up to where the log is walked for transactions; the map may end before."""
    bounds: PassBounds

    @property
    def log(self) -> bytes:
        return b"".join(map(encode, self.batches))

    def plain_map(self) -> PlainOffsetMap:
        return plain_map(
            self.batches,
            start_offset=self.start_offset,
            end_offset=self.bounds.end_offset,
            aborted=self.bounds.aborted,
        )

    def indexed(self, *, chunk_bytes: int = 1 << 20) -> IndexedLog:
        return index_log(self.log, chunk_bytes=chunk_bytes)

    def transactions(self, indexed: IndexedLog) -> Transactions:
        return walk_log(indexed, start_offset=self.start_offset, end_offset=self.section_end)

    def marked(self, indexed: IndexedLog, *, parts: int = 1) -> Marked:
        return mark_log(
            indexed,
            start_offset=self.start_offset,
            end_offset=self.bounds.end_offset,
            transactions=self.transactions(indexed),
            parts=parts,
        )

    def whole_map(self, indexed: IndexedLog) -> OffsetMap:
        offset_map = OffsetMap(1 << 16, HASH_KEY)
        map_log(
            indexed,
            offset_map,
            start_offset=self.start_offset,
            end_offset=self.bounds.end_offset,
            transactions=self.transactions(indexed),
        )
        return offset_map

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
        return filter_log(indexed, marked.marks, batch_filter), batch_filter

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
        )


timestamps = st.one_of(
    st.integers(0, 9_999), st.sampled_from((-1, -(2**63), 2**63 - 1, 1_700_000_000_000))
)


@st.composite
def log_batches(draw: st.DrawFn, base_offset: int) -> LogBatch:
    count = draw(st.integers(0, 5))
    gaps = draw(st.lists(st.sampled_from((1, 1, 1, 2, 90)), min_size=count, max_size=count))
    offset, records = base_offset - 1, list[LogRecord]()
    for gap in gaps:
        offset += gap
        record = LogRecord(
            offset=offset,
            timestamp=draw(timestamps),
            key=draw(st.sampled_from((*KEYS, None))),
            value=draw(st.sampled_from((None, b"", b"value", b"v" * 200))),
            headers=draw(st.sampled_from(((), ((b"name", b"x"), (b"", None))))),
        )
        records.append(record)
    is_idempotent = draw(st.booleans())
    return LogBatch(
        base_offset=base_offset,
        last_offset=max(offset, base_offset) + draw(st.sampled_from((0, 0, 3))),
        records=tuple(records),
        codec=draw(st.sampled_from(Codec)) if records else Codec.NONE,
        is_log_append_time=draw(st.booleans()),
        is_transactional=draw(st.sampled_from((False, False, False, True))),
        is_control=draw(st.sampled_from((False, False, False, True))),
        delete_horizon_ms=draw(st.sampled_from((None, None, NOW_MS - 1, NOW_MS, NOW_MS + 1))),
        base_timestamp=draw(timestamps),
        max_timestamp=draw(timestamps),
        producer_id=9 if is_idempotent else -1,
        producer_epoch=2 if is_idempotent else -1,
        base_sequence=17 if is_idempotent else -1,
    )


@st.composite
def transaction_batches(draw: st.DrawFn, base_offset: int) -> LogBatch:
    """The next batch of one of two producers' transactions: its data, or a marker."""
    producer_id = draw(st.sampled_from((7, 8)))
    if draw(st.booleans()):
        data = draw(log_batches(base_offset))
        return replace(
            data, is_transactional=True, is_control=False, producer_id=producer_id, producer_epoch=2
        )
    kind = draw(st.sampled_from((ControlType.ABORT, ControlType.COMMIT, ControlType.LEADER_CHANGE)))
    marker = marker_batch(base_offset, producer_id, kind if kind < 2 else ControlType.ABORT)
    if kind is ControlType.LEADER_CHANGE:
        other = replace(marker.records[0], key=draw(st.sampled_from((b"\0\0\0\2", b"\0", None))))
        marker = replace(marker, records=(other,))
    return replace(
        marker,
        records=draw(st.sampled_from((marker.records, marker.records, ()))),
        producer_epoch=2,
        delete_horizon_ms=draw(st.sampled_from((None, None, NOW_MS, NOW_MS + 1))),
        codec=Codec.NONE,
    )


@st.composite
def passes(draw: st.DrawFn) -> Pass:
    batches, base_offset = list[LogBatch](), 0
    kinds = draw(st.sampled_from(((log_batches,), (log_batches, transaction_batches))))
    for _ in range(draw(st.integers(1, 9))):
        batches.append(draw(draw(st.sampled_from(kinds))(base_offset)))
        base_offset = batches[-1].last_offset + draw(st.sampled_from((1, 1, 1, 50)))
    last_offsets = [batch.last_offset for batch in batches]
    start_offset = draw(st.sampled_from([0, *(last + 1 for last in last_offsets)]))
    section_end = max(start_offset, draw(st.sampled_from(last_offsets)) + 1)
    known = plain_transactions(batches, start_offset=start_offset, end_offset=section_end)
    map_end = draw(st.sampled_from(last_offsets)) + 1
    end_offset = draw(st.sampled_from((map_end, known.end_offset)))
    end_offset = min(max(end_offset, start_offset), known.end_offset)
    bounds = PassBounds(
        end_offset=end_offset,
        tail_offset=draw(st.sampled_from([-1, *last_offsets])),
        now_ms=NOW_MS,
        delete_retention_ms=draw(st.sampled_from((0, DELETE_RETENTION_MS, 2**63 - 1))),
        producer_last_offsets=draw(st.sets(st.sampled_from(last_offsets))),
        keeps_unkeyed=draw(st.booleans()),
        producer_marker_epochs=draw(st.sampled_from(({}, {7: 2, 9: 2}, {8: 1}))),
        aborted=known.aborted,
        stamps_markers=draw(st.booleans()),
    )
    return Pass(
        batches=tuple(batches), start_offset=start_offset, section_end=section_end, bounds=bounds
    )


bounded = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@bounded
@given(passes(), st.integers(1, 700))
def test_the_walk_learns_what_became_of_every_transaction(a_pass: Pass, chunk_bytes: int) -> None:
    transactions = a_pass.transactions(a_pass.indexed(chunk_bytes=chunk_bytes))

    expected = plain_transactions(
        a_pass.batches, start_offset=a_pass.start_offset, end_offset=a_pass.section_end
    )
    assert set(transactions.aborted) == set(expected.aborted)
    assert transactions.end_offset == expected.end_offset


@bounded
@given(passes(), st.integers(1, 700))
def test_an_index_holds_every_keyed_record_and_every_special_batch(
    a_pass: Pass, chunk_bytes: int
) -> None:
    indexed = a_pass.indexed(chunk_bytes=chunk_bytes)

    assert_blocks_hold(indexed, a_pass.batches)


@bounded
@given(passes(), st.integers(1, 700), st.integers(1, 5))
def test_the_parts_of_the_map_hold_the_last_offset_of_every_key(
    a_pass: Pass, chunk_bytes: int, parts: int
) -> None:
    indexed, held = a_pass.indexed(chunk_bytes=chunk_bytes), dict[bytes, int]()
    offset_map = OffsetMap(1 << 16, HASH_KEY)
    for part in range(parts):
        offset_map.clear(part=part, parts=parts)
        map_log(
            indexed,
            offset_map,
            start_offset=a_pass.start_offset,
            end_offset=a_pass.bounds.end_offset,
            transactions=a_pass.transactions(indexed),
        )
        found = {key: offset for key in KEYS if (offset := offset_map.get(key)) is not None}
        assert not held.keys() & found.keys()
        held |= found

    assert held == a_pass.plain_map().offsets


@bounded
@given(passes(), st.integers(1, 700), st.integers(1, 5))
def test_every_entry_of_the_map_is_met_once_over_all_parts(
    a_pass: Pass, chunk_bytes: int, parts: int
) -> None:
    marked = a_pass.marked(a_pass.indexed(chunk_bytes=chunk_bytes), parts=parts)

    offsets = a_pass.plain_map().offsets.values()
    assert (marked.met, marked.met_offset_sum) == (len(offsets), sum(offsets))
    assert marked.unknown == 0
    assert marked.superseded == sum(byte.bit_count() for byte in marked.marks)


@bounded
@given(passes(), st.integers(1, 700), st.integers(1, 5))
def test_the_filter_writes_what_the_rule_leaves(a_pass: Pass, chunk_bytes: int, parts: int) -> None:
    (segment,), batch_filter = a_pass.filtered(chunk_bytes=chunk_bytes, parts=parts)

    outcomes = list(expected_outputs(a_pass.batches, a_pass.plain_map(), a_pass.bounds))
    assert segment.data == b"".join(output for _, _, output in outcomes)
    verdicts = Counter(verdict for _, remains, _ in outcomes for verdict in remains.verdicts)
    assert {v: count.records for v, count in batch_filter.counts.items()} == {
        verdict: verdicts[verdict] for verdict in Verdict
    }
    assert segment.summary.size_bytes == len(segment.data)
    assert segment.summary.records == sum(verdicts[v] for v in Verdict if v.is_kept)
    assert segment.summary.batches == sum(bool(output) for _, _, output in outcomes)


@bounded
@given(passes(), st.integers(1, 700), st.integers(0, 600))
def test_the_filters_key_blocks_are_those_of_its_output(
    a_pass: Pass, chunk_bytes: int, segment_bytes_max: int
) -> None:
    segments, _ = a_pass.filtered(chunk_bytes=chunk_bytes, segment_bytes_max=segment_bytes_max)

    for segment in segments:
        again = index_log(segment.data, base_offset=segment.summary.base_offset)
        assert parts_of(segment.as_indexed) == parts_of(again)
        assert replace(segment.totals, blocks=0) == replace(again.totals, blocks=0)
        assert segment.totals.blocks == len(segment.blocks)


@bounded
@given(passes(), st.integers(1, 700))
def test_the_filter_accounts_for_every_mark(a_pass: Pass, chunk_bytes: int) -> None:
    indexed = a_pass.indexed(chunk_bytes=chunk_bytes)
    _, batch_filter = a_pass.filtered(chunk_bytes=chunk_bytes)

    account = batch_filter.account
    assert account.marked == a_pass.marked(indexed).superseded
    kept_for_the_tail = account.marked - account.records_by_verdict[Verdict.DROPPED_SUPERSEDED]
    assert 0 <= kept_for_the_tail <= account.records_by_verdict[Verdict.KEPT_TAIL]


@bounded
@given(passes())
def test_the_summary_says_what_the_segment_holds(a_pass: Pass) -> None:
    (segment,), _ = a_pass.filtered()

    outcomes = list(expected_outputs(a_pass.batches, a_pass.plain_map(), a_pass.bounds))
    kept = [(batch, remains) for batch, remains, output in outcomes if output]
    assert segment.summary.end_offset == (kept[-1][0].last_offset + 1 if kept else 0)
    assert segment.summary.tombstones == sum(
        len(kept_tombstones(batch, remains)) for batch, remains in kept
    )
    horizons = [
        remains.stamped_horizon_ms or batch.delete_horizon_ms
        for batch, remains in kept
        if kept_tombstones(batch, remains) or is_kept_marker(batch, remains)
    ]
    assert segment.summary.delete_horizon_ms_min == min(
        (horizon for horizon in horizons if horizon is not None), default=-1
    )


def is_kept_marker(batch: LogBatch, remains: Remains[LogRecord]) -> bool:
    is_kept = any(verdict.is_kept for verdict in remains.verdicts)
    return batch.is_control and is_marker(batch.records) and is_kept


def kept_tombstones(batch: LogBatch, remains: Remains[LogRecord]) -> list[LogRecord]:
    return [
        record
        for record, verdict in zip(batch.records, remains.verdicts, strict=True)
        if verdict.is_kept and is_tombstone(record) and not batch.is_control
    ]


@bounded
@given(passes(), st.integers(1, 700), st.integers(0, 600), st.integers(0, 300))
def test_full_segments_hold_together_what_one_would(
    a_pass: Pass, chunk_bytes: int, segment_bytes_max: int, index_interval_bytes: int
) -> None:
    segments, batch_filter = a_pass.filtered(
        chunk_bytes=chunk_bytes,
        segment_bytes_max=segment_bytes_max,
        index_interval_bytes=index_interval_bytes,
    )

    outcomes = list(expected_outputs(a_pass.batches, a_pass.plain_map(), a_pass.bounds))
    assert b"".join(segment.data for segment in segments) == b"".join(o for _, _, o in outcomes)
    verdicts = Counter(verdict for _, remains, _ in outcomes for verdict in remains.verdicts)
    assert sum(count.records for count in batch_filter.counts.values()) == verdicts.total()
    for segment in segments:
        assert segment.summary.size_bytes == len(segment.data)
        assert segment.summary.batches == 1 or len(segment.data) <= max(segment_bytes_max, 61)
        assert_entries_lead_to_batches(segment.data, segment.index_entries, index_interval_bytes)


def assert_entries_lead_to_batches(
    data: bytes, entries: tuple[tuple[int, int, int, int], ...], index_interval_bytes: int
) -> None:
    previous = 0
    for last_offset, position, _, _ in entries:
        base_offset = int.from_bytes(data[position : position + 8])
        delta = int.from_bytes(data[position + 23 : position + 27])
        assert base_offset + delta == last_offset
        assert position - previous > index_interval_bytes
        previous = position


@bounded
@given(passes())
def test_a_second_pass_finds_nothing_to_do_until_a_horizon_passes(a_pass: Pass) -> None:
    if a_pass.bounds.delete_retention_ms == 0:
        return  # Its tombstones are due at once.
    (first,), _ = a_pass.filtered()
    indexed = a_pass.indexed()
    marked = Marked(bytearray(first.totals.entries // 8 + 1))
    marked.set_of(
        first.as_indexed,
        a_pass.whole_map(indexed),
        start_offset=a_pass.start_offset,
        end_offset=a_pass.bounds.end_offset,
    )
    second_filter = a_pass.batch_filter(
        indexed, segment_bytes_max=2**31 - 1, index_interval_bytes=4096
    )

    (second,) = filter_log(first.as_indexed, marked.marks, second_filter)

    assert second.data == first.data
    assert parts_of(second.as_indexed) == parts_of(first.as_indexed)


def test_timestamps_wrap_as_the_rule_says() -> None:
    assert wrap(2**63) == -(2**63)
    assert wrap(-(2**63) - 1) == 2**63 - 1
