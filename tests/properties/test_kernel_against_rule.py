"""The compiled kernel does to any log, byte for byte, what the rule in plain Python says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cleaner.rules.history import due_ms_of
from cleaner.rules.record_verdict import Remains, Verdict, is_marker, is_tombstone
from protocol.wire.numbers import OFFSET_MAX
from storage.formats.config_property import LONG_MAX
from tests.cleaner.kernel_log import (
    LogBatch,
    LogRecord,
    expected_outputs,
    plain_transactions,
    wrap,
)
from tests.cleaner.kernel_steps import Marked, assert_blocks_hold, filter_log, map_log
from tests.properties.kernel_passes import KEYS, Pass, bounded, passes


@bounded
@given(passes(), st.integers(1, 700))
def test_the_walk_learns_what_became_of_every_transaction(a_pass: Pass, chunk_bytes: int) -> None:
    transactions = a_pass.transactions(a_pass.indexed(chunk_bytes=chunk_bytes))

    expected = plain_transactions(
        a_pass.batches,
        start_offset=a_pass.start_offset,
        end_offset=a_pass.section_end,
        fence_offset=a_pass.fence_offset,
    )
    undecided = [transaction.first_offset for transaction in expected.undecided]
    assert set(transactions.aborted) == set(expected.aborted)
    assert transactions.end_offset == expected.end_offset
    assert transactions.first_undecided == min(undecided, default=OFFSET_MAX)


@bounded
@given(passes(), st.integers(1, 700))
def test_an_index_holds_every_keyed_record_and_every_special_batch(
    a_pass: Pass, chunk_bytes: int
) -> None:
    indexed = a_pass.indexed(chunk_bytes=chunk_bytes)

    assert_blocks_hold(indexed)


@bounded
@given(passes(), st.integers(1, 700), st.integers(1, 5))
def test_the_parts_of_the_map_hold_the_last_offset_of_every_key(
    a_pass: Pass, chunk_bytes: int, parts: int
) -> None:
    indexed, held = a_pass.indexed(chunk_bytes=chunk_bytes), dict[bytes, int]()
    offset_map, history = indexed.empty_map()
    for part in range(parts):
        offset_map.clear(part=part, parts=parts)
        map_log(
            indexed,
            offset_map,
            start_offset=a_pass.start_offset,
            end_offset=a_pass.bounds.end_offset,
            transactions=a_pass.transactions(indexed),
            history=history,
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
@given(passes(), st.integers(1, 700))
def test_a_history_is_due_when_the_rule_says_so(a_pass: Pass, chunk_bytes: int) -> None:
    marked = a_pass.marked(a_pass.indexed(chunk_bytes=chunk_bytes))

    history, now_ms = a_pass.bounds.history, a_pass.bounds.now_ms
    moments = [
        due_ms_of(sorted(records), history, now_ms)
        for records in a_pass.plain_map().records.values()
    ]
    assert marked.due_ms == min(moments, default=LONG_MAX)


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
        assert_blocks_hold(segment.as_indexed)


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
    size, has_versions = first.totals.entries // 8 + 1, a_pass.bounds.strategy.has_versions
    marked = Marked(bytearray(size), bytearray(size) if has_versions else None)
    left = replace(first.as_indexed, history=indexed.history, now_ms=indexed.now_ms)
    # Counts are those of what the first pass has left.
    counted = left if indexed.history.keeps_more else indexed
    offset_map, history = a_pass.whole_map(counted)
    marked.set_of(
        left,
        offset_map,
        history=history,
        start_offset=a_pass.start_offset,
        end_offset=a_pass.bounds.end_offset,
    )
    second_filter = a_pass.batch_filter(
        indexed, segment_bytes_max=2**31 - 1, index_interval_bytes=4096
    )

    (second,) = filter_log(first.as_indexed, marked.marks, second_filter, marked.winners)

    assert second.data == first.data
    assert second.blocks == first.blocks


def test_timestamps_wrap_as_the_rule_says() -> None:
    assert wrap(2**63) == -(2**63)
    assert wrap(-(2**63) - 1) == 2**63 - 1
