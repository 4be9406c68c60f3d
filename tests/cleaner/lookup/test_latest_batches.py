"""A view has the last record of each key from an offset on, and says how far it has looked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.lookup import latest_batches as module
from cleaner.lookup.latest_batches import LatestBatches
from protocol.records.record import Record
from protocol.records.record_batch import Codec, build_batch
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Offset
from storage.files.paths import LOG
from storage.segment.segment import Segment
from tests.harness.compacted_log import CONFIG, CompactedLog, read_bytes
from tests.harness.damage import flip
from tests.harness.latest_view import ViewReader, bytes_of
from tests.harness.log_builder import headers_in, records_in, valid
from tests.harness.open_transactions import end_transaction, in_transaction


def shown(log: CompactedLog, offset: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    records = ViewReader().records(log.log, offset)
    return [(each.offset, each.key, each.value) for each in records]


def test_each_key_has_its_last_record_at_its_own_offset() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.clean()
    log.append_segment((b"b", b"2"), (b"c", b"1"))
    log.append((b"c", b"2"), (b"d", None))

    assert shown(log) == [(0, b"a", b"1"), (2, b"b", b"2"), (4, b"c", b"2"), (5, b"d", None)]
    assert shown(log, 3) == [(4, b"c", b"2"), (5, b"d", None)]


def test_a_batch_of_last_records_stays_as_it_is() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), (b"b", b"1"))

    assert bytes_of(ViewReader().read(log.log, 0)) == read_bytes(log.log, 0)


@pytest.mark.parametrize("codec", Codec)
def test_what_remains_of_a_batch_keeps_its_offsets_timestamps_headers_and_codec(
    codec: Codec,
) -> None:
    log = CompactedLog()
    first = [
        Record(offset=number, timestamp=1_700_000_000_000 + number, key=b"k%d" % number,
               value=b"v" * 40, headers=(("h", b"%d" % number),))
        for number in range(5)
    ]  # fmt: skip
    log.append_batch(valid(build_batch(first, codec=codec)))
    log.append((b"k1", b"new"), (b"k4", b"new"))

    found = ViewReader().read(log.log, 0)
    header = headers_in(bytes_of(found))[0]
    assert records_in(bytes_of(found))[:3] == (first[0], first[2], first[3])
    assert (header.base_offset, header.last_offset, header.codec) == (0, 4, codec)
    assert header.max_timestamp == first[3].timestamp


def test_a_committed_transaction_is_shown_without_a_sign_of_it_and_an_aborted_one_is_not() -> None:
    log = CompactedLog()
    in_transaction(log, 1, (b"a", b"committed"))
    end_transaction(log, 1, is_commit=True)
    in_transaction(log, 2, (b"a", b"aborted"), (b"b", b"aborted"))
    end_transaction(log, 2, is_commit=False)

    found = ViewReader().read(log.log, 0)
    assert [(each.offset, each.value) for each in records_in(bytes_of(found))] == [
        (0, b"committed")
    ]
    assert (found.records_end, found.end_offset) == (1, log.log.log_end_offset)


def test_a_view_ends_where_a_transaction_is_open() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    in_transaction(log, 1, (b"a", b"open"))
    log.append((b"a", b"3"))

    found = ViewReader().read(log.log, 0)
    assert [each.value for each in records_in(bytes_of(found))] == [b"1"]
    assert found.end_offset == log.log.last_stable_offset == 1


def test_the_end_is_reached_where_nothing_is_left_to_show() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    log.append((b"b", b"1"), (b"a", b"2"))
    found = ViewReader().read(log.log, 1)
    assert found.end_offset == 3

    in_transaction(log, 1, (b"z", b"1"))
    end_transaction(log, 1, is_commit=False)
    found = ViewReader().read(log.log, 3)
    assert (found.records, found.records_end, found.end_offset) == ((), 3, 5)


def test_a_read_returns_as_many_batches_as_fit_but_the_first_one_whole() -> None:
    log = CompactedLog()
    for number in range(6):
        log.append((b"k%d" % number, b"v" * 100))
    size = len(read_bytes(log.log, 0)) // 6

    def offsets(found: LatestBatches) -> list[int]:
        return [each.offset for each in records_in(bytes_of(found))]

    reader = ViewReader()
    assert offsets(reader.read(log.log, 0, bytes_max=2 * size)) == [0, 1]
    assert offsets(reader.read(log.log, 0, bytes_max=3 * size - 1)) == [0, 1]
    assert offsets(reader.read(log.log, 3, bytes_max=1)) == [3]
    nothing = reader.read(log.log, 3, bytes_max=size - 1, whole_first_batch=False)
    assert (nothing.records, nothing.end_offset) == ((), 3)
    assert [each.offset for each in reader.records(log.log, 0, bytes_max=1)] == list(range(6))


def test_where_nothing_is_live_a_read_ends_after_its_budget_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=2000))
    for number in range(200):
        log.append((b"a", b"%d" % number))
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(module, "SCANNED_BYTES_MAX", 3000)
    reader = ViewReader()

    first = reader.read(log.log, 0)
    assert first.records == ()
    assert 0 < first.end_offset < 199
    assert 3000 <= first.scanned_bytes < 4000
    assert [each.offset for each in reader.records(log.log, 0)] == [199]


def test_a_batch_larger_than_a_chunk_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log = CompactedLog()
    log.append(*((b"k%d" % number, b"v" * 100) for number in range(50)))
    monkeypatch.setattr(module, "CHUNK_BYTES", 64)

    assert len(ViewReader().records(log.log, 0)) == 50


def test_offsets_that_a_pass_has_left_empty_lead_to_the_next_record() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.append_segment((b"b", b"2"))
    log.clean()

    assert shown(log, 1) == [(2, b"a", b"2"), (3, b"b", b"2")]


def test_records_without_a_key_are_not_shown() -> None:
    log = CompactedLog(replace(CONFIG, cleanup_policy=("delete",)))
    log.append((None, b"1"), (b"a", b"1"))
    log.log.update_config(CONFIG)

    assert shown(log) == [(1, b"a", b"1")]


@pytest.mark.parametrize("property_", ["timestamp", "offset"])
def test_the_topics_strategy_says_which_record_is_shown(property_: str) -> None:
    log = CompactedLog(replace(CONFIG, compaction_strategy=property_))
    for timestamp in (2000, 1000):
        batch = [Record(offset=0, timestamp=timestamp, key=b"a", value=b"%d" % timestamp)]
        log.append_batch(valid(build_batch(batch)))

    assert shown(log) == [
        (0, b"a", b"2000") if property_ == "timestamp" else (1, b"a", b"1000"),
    ]


def test_a_record_that_a_dropped_tombstone_outranked_is_shown() -> None:
    log, reader = CompactedLog(replace(CONFIG, compaction_strategy="timestamp")), ViewReader()

    def append(key: bytes, value: bytes | None, timestamp: int) -> None:
        record = Record(offset=0, timestamp=timestamp, key=key, value=value)
        log.append_batch(valid(build_batch([record])))

    append(b"a", None, 2000)
    append(b"last", b"1", 1)
    assert [each.offset for each in reader.records(log.log, 0)] == [0, 1]
    log.clean()
    log.now_ms += 2 * CONFIG.delete_retention_ms
    append(b"last", b"1", 2)
    log.clean()
    append(b"a", b"late", 1000)

    assert [each.value for each in reader.records(log.log, 0)] == [b"1", b"late"]


def test_a_damaged_batch_ends_a_read() -> None:
    log, reader = CompactedLog(), ViewReader()
    log.append_segment((b"a", b"1"))
    log.append((b"b", b"1"))
    reader.records(log.log, 0)
    flip(log.fs, log.log.segments[0].path(LOG), -1)

    with pytest.raises(CorruptBatch):
        reader.read(log.log, 0)


def test_a_pass_between_two_reads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=400))
    for number in range(60):
        log.append((b"k%d" % (number % 7), b"%d" % number))
    reader, offset, read = ViewReader(), 0, list[int]()
    while offset < log.log.last_stable_offset:
        found = reader.read(log.log, offset, bytes_max=1)
        read += [each.offset for each in records_in(bytes_of(found))]
        offset = found.end_offset
        log.clean()

    assert read == list(range(53, 60))


def test_a_segment_that_a_pass_removes_during_a_read_is_read_in_its_new_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, reader = CompactedLog(replace(CONFIG, segment_bytes=400)), ViewReader()
    for number in range(60):
        log.append((b"k%d" % (number % 7), b"%d" % number))
    reader.records(log.log, 0)
    original = Segment.reading
    left = [log.clean]

    def reading(segment: Segment, *, cached_only: bool) -> object:
        if left:
            left.pop()()
        return original(segment, cached_only=cached_only)

    monkeypatch.setattr(Segment, "reading", reading)
    assert [each.offset for each in reader.records(log.log, 0)] == list(range(53, 60))
    assert not left
    assert Offset(60) == log.log.last_stable_offset
