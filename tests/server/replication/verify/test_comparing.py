"""A mirror and its source: what was cleaned where makes no difference, everything else does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cleaner.rules.log_comparison import DifferenceKind
from protocol.records.record_batch import Codec, Record
from protocol.wire.numbers import Offset
from server.replication.verify.comparing import MirrorIsBehind
from server.replication.verify.sides import CannotRead
from server.replication.verify.verdict import Verdict
from tests.harness.compacted_log import CONFIG
from tests.harness.compared_logs import ComparedLogs
from tests.harness.table_digest import live_keys, table_digest
from tests.harness.transactional_producer import TransactionalProducer

DELETES = replace(CONFIG, cleanup_policy=("delete",))


def copied() -> ComparedLogs:
    """Returns a source with a few keys, one of them deleted, and its mirror."""
    logs = ComparedLogs()
    logs.source.append_segment((b"a", b"1"), (b"b", b"1"), (b"gone", b"1"))
    logs.source.append_segment((b"a", b"2"), (b"gone", None), (b"c", b"1"))
    logs.copy()
    return logs


async def test_copies_that_were_cleaned_at_different_times_are_equal() -> None:
    logs = copied()
    logs.source.clean()
    assert (await logs.verify()).verdict is Verdict.EQUAL
    logs.mirror.clean()
    assert (await logs.verify()).verdict is Verdict.EQUAL


async def test_the_digests_are_those_of_the_last_values() -> None:
    logs = copied()
    expected = table_digest(logs.source.records())
    logs.source.clean()

    await logs.verify()

    found = logs.progress.found
    assert [each.digest for each in found.sides] == [expected, expected]
    assert [each.count for each in found.sides] == [live_keys(logs.source.records())] * 2
    assert logs.progress.end_offset == logs.source.log.last_stable_offset


async def test_a_tombstone_that_only_one_side_still_has_makes_no_difference() -> None:
    logs = copied()
    for _ in range(3):
        logs.source.clean()
        logs.pass_time(CONFIG.delete_retention_ms + 1)
        logs.source.append((b"filler", b"1"))
    logs.copy()

    assert (await logs.verify()).verdict is Verdict.EQUAL
    assert b"gone" not in {each.key for each in logs.source.records()}


async def test_another_value_at_the_same_offset_is_named() -> None:
    logs = ComparedLogs()
    logs.source.append((b"a", b"1"), (b"b", b"1"))
    logs.copy(lambda each: replace(each, value=b"?") if each.key == b"b" else each)

    judged = await logs.verify()

    assert judged.verdict is Verdict.DIFFERENT
    assert "1 key differs between the offsets 1 and 1" in judged.reason
    assert logs.keys == {1: b"b"}
    assert logs.progress.found.listed[0].kind is DifferenceKind.OTHER_CONTENT


@pytest.mark.parametrize("what", ["timestamp", "headers"])
async def test_another_timestamp_or_header_is_a_difference(what: str) -> None:
    logs = ComparedLogs()
    logs.source.append((b"a", b"1"))
    other = {"timestamp": 5} if what == "timestamp" else {"headers": (("h", b"1"),)}
    logs.copy(lambda each: replace(each, **other))

    assert (await logs.verify()).verdict is Verdict.DIFFERENT


async def test_a_lost_record_is_named_as_missing_or_as_an_older_value() -> None:
    logs = ComparedLogs()
    logs.source.append((b"a", b"1"))
    logs.source.append((b"a", b"2"))
    logs.source.append((b"b", b"1"))
    logs.source.append((b"c", b"1"))
    logs.copy(lambda each: None if each.offset in (1, 2) else each)

    judged = await logs.verify()

    assert judged.verdict is Verdict.DIFFERENT
    assert "between the offsets 0 and 2" in judged.reason
    kinds = [each.kind for each in logs.progress.found.listed]
    assert kinds == [DifferenceKind.OTHER_OFFSET, DifferenceKind.MISSING]
    assert logs.keys == {0: b"a", 2: b"b"}


async def test_a_key_that_the_source_has_deleted_and_the_mirror_has_not_is_named() -> None:
    logs = ComparedLogs()
    logs.source.append((b"a", b"1"))
    logs.source.append((b"a", None))
    logs.source.append((b"b", b"1"))
    logs.copy(lambda each: each if each.value is not None else None)

    judged = await logs.verify()

    assert judged.verdict is Verdict.DIFFERENT
    assert logs.keys == {0: b"a"}
    assert "1 only in the mirror" in judged.reason


async def test_only_ten_keys_are_listed_and_all_are_counted() -> None:
    logs = ComparedLogs()
    for number in range(200):
        logs.source.append((b"k%d" % number, b"1"))
    logs.copy(lambda each: replace(each, value=b"2") if each.offset % 2 else each)

    judged = await logs.verify(memory_bytes=4096)

    assert "100 keys differ between the offsets 1 and 199" in judged.reason
    assert sorted(logs.keys) == list(range(1, 20, 2))
    assert logs.progress.parts > 1, "the keys do not fit into the table"


async def test_keys_that_do_not_fit_into_the_table_take_more_readings() -> None:
    logs = ComparedLogs()
    for number in range(300):
        logs.source.append((b"k%d" % number, b"1"))
    logs.copy()
    expected = table_digest(logs.source.records())

    assert (await logs.verify(memory_bytes=4096)).verdict is Verdict.EQUAL

    found = logs.progress.found
    assert logs.progress.parts >= 300 // 48
    assert [(each.count, each.digest) for each in found.sides] == [(300, expected)] * 2


async def test_aborted_records_do_not_count_and_open_transactions_end_the_range() -> None:
    logs = ComparedLogs()
    source = logs.source
    source.append((b"a", b"1"))
    aborting, committing = TransactionalProducer(source, 1), TransactionalProducer(source, 2)
    aborting.send((b"a", b"aborted"), codec=Codec.ZSTD)
    committing.send((b"b", b"committed"), codec=Codec.LZ4)
    aborting.abort()
    aborting.send((b"c", b"1"))
    aborting.commit()
    committing.commit()
    TransactionalProducer(source, 3).send((b"a", b"open"))
    source.append((b"d", b"behind the open one"))
    logs.copy()

    assert (await logs.verify()).verdict is Verdict.EQUAL

    found = logs.progress.found
    assert [each.count for each in found.sides] == [3, 3]
    assert logs.progress.end_offset == source.log.last_stable_offset == 7


@pytest.mark.parametrize("codec", list(Codec))
async def test_all_codecs(codec: Codec) -> None:
    logs = ComparedLogs()
    logs.source.append(*[(b"k%d" % each, b"v" * 50) for each in range(20)], codec=codec)
    logs.copy()

    assert (await logs.verify()).verdict is Verdict.EQUAL
    assert logs.progress.found.sides[0].count == 20


async def test_empty_logs_are_equal() -> None:
    logs = ComparedLogs()
    assert (await logs.verify()).verdict is Verdict.EQUAL
    assert (await logs.verify(by_key=False)).verdict is Verdict.EQUAL


async def test_a_log_that_ends_in_a_gap() -> None:
    logs = copied()
    logs.source.log.appender.advance_end(Offset(50))
    logs.source.make_durable()
    logs.copy()

    assert (await logs.verify()).verdict is Verdict.EQUAL
    assert logs.progress.end_offset == 50


async def test_it_waits_for_the_mirror_and_then_does_not_know() -> None:
    logs = copied()
    logs.source.append((b"late", b"1"))
    with pytest.raises(MirrorIsBehind, match="below offset 6, not below 7"):
        await logs.verify(wait_seconds=2)
    later = iter(range(100))

    def copies() -> None:
        if next(later) == 20:
            logs.copy()

    assert (await logs.verify(wait_seconds=9, happens=copies)).verdict is Verdict.EQUAL


async def test_a_key_that_is_written_again_and_cleaned_while_it_reads_is_left_out() -> None:
    logs = copied()
    reads = iter(range(100))

    def writes_again() -> None:
        if next(reads) == 1:
            logs.source.roll()
            logs.source.append((b"c", b"again"))
            logs.source.clean()
            logs.copy()

    judged = await logs.verify(happens=writes_again)

    assert judged.verdict is Verdict.EQUAL
    assert 5 not in {each.offset for each in logs.source.records()}, (
        "it was cleaned before it was read"
    )


async def test_if_all_keys_are_written_again_it_does_not_know() -> None:
    logs = ComparedLogs()
    logs.source.append((b"a", b"1"))
    logs.copy()

    def writes_again() -> None:
        logs.source.append((b"a", b"again"))
        logs.copy()

    judged = await logs.verify(happens=writes_again)

    assert judged.verdict is Verdict.UNKNOWN
    assert "1 key was written again" in judged.reason


async def test_a_difference_that_removed_tombstones_would_explain_is_unknown() -> None:
    logs = copied()
    reads = iter(range(100))

    def deletes_and_forgets() -> None:
        """The mirror deletes a key that was read at the source, and removes the tombstone, too."""
        if next(reads) != 8:
            return
        logs.source.append((b"c", None))
        logs.copy()
        for _ in range(3):
            logs.mirror.clean()
            logs.pass_time(CONFIG.delete_retention_ms + 1)
            logs.source.append((b"filler", b"1"))
            logs.copy()

    judged = await logs.verify(happens=deletes_and_forgets)

    assert judged.verdict is Verdict.UNKNOWN
    assert "a longer delete.retention.ms" in judged.reason


async def test_what_a_moved_log_start_removes_does_not_count() -> None:
    logs = ComparedLogs(replace(CONFIG, cleanup_policy=("compact", "delete")))
    for number in range(20):
        logs.source.append((b"k%d" % number, b"1"))
    logs.copy()
    logs.source.log.delete_records(Offset(7))

    assert (await logs.verify()).verdict is Verdict.EQUAL
    assert logs.progress.start_offset == 7


async def test_a_log_start_that_moves_while_it_reads() -> None:
    logs = ComparedLogs(DELETES)
    for number in range(20):
        logs.source.append((b"k%d" % number, b"v" * 60))
    logs.copy()
    reads = iter(range(100))

    def deletes() -> None:
        if next(reads) == 4:
            logs.source.log.delete_records(Offset(15))

    assert (await logs.verify(by_key=False, happens=deletes)).verdict is Verdict.EQUAL


async def test_all_records_are_compared_without_keys_in_bounded_memory() -> None:
    logs = ComparedLogs(DELETES)
    for number in range(500):
        logs.source.append((None if number % 2 else b"k", b"%d" % number))
    logs.copy()

    assert (await logs.verify(by_key=False, memory_bytes=4096)).verdict is Verdict.EQUAL

    assert logs.progress.found.sides[0].count == 500
    assert logs.progress.parts >= 500 // 48


@pytest.mark.parametrize("change", ["changed", "lost", "extra"])
async def test_one_record_that_differs_is_named(change: str) -> None:
    logs = ComparedLogs(DELETES)
    for number in range(500):
        logs.source.append((b"k%d" % number, b"1"))

    def change_one(record: Record) -> Record | None:
        if record.offset != 321:
            return record
        return replace(record, value=b"2") if change == "changed" else None

    logs.copy(change_one)
    if change == "extra":
        logs.source, logs.mirror = logs.mirror, logs.source

    judged = await logs.verify(by_key=False, memory_bytes=4096)

    assert judged.verdict is Verdict.DIFFERENT
    assert "1 record differs between the offsets 321 and 321" in judged.reason
    assert logs.keys == {321: b"k321"}


async def test_a_log_that_is_cut_while_it_is_read_cannot_be_compared() -> None:
    logs = ComparedLogs(DELETES)
    for number in range(20):
        logs.source.append((b"k%d" % number, b"v" * 60))
    logs.copy()
    reads: Iterator[int] = iter(range(100))

    def cut() -> None:
        if next(reads) == 6:
            logs.source.log.truncate_to(Offset(1))

    with pytest.raises(CannotRead, match="was cut to 1"):
        await logs.verify(by_key=False, happens=cut)


async def test_a_source_that_has_deleted_everything_is_equal_to_a_mirror_that_has_not() -> None:
    """As it is with one record left, and as it is without keys."""
    logs = ComparedLogs()
    logs.source.append((b"a", b"1"))
    logs.source.append((b"b", b"1"))
    logs.copy()
    logs.source.log.delete_records(logs.source.log.high_watermark)
    assert (await logs.verify(by_key=False)).verdict is Verdict.EQUAL
    assert (await logs.verify()).verdict is Verdict.EQUAL
