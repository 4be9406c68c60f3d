"""What cleaning does to transactions: a whole log, its producers and their markers.

Source: Apache Kafka, LogCleanerTest.java; each test names the one whose behaviour it asserts. Where
Kafka needs one pass to empty a transaction and another to stamp its marker, here one pass does both.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.pick import Blocker
from cleaner.settings import CleanerSettings
from protocol.compression import Codec
from protocol.control_record import ControlType, TransactionMarker, write_transaction_marker
from protocol.error_codes import ErrorCode
from storage.config_property import LONG_MAX
from storage.validate import Refused
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.log_builder import batch_of, valid
from tests.harness.transactional_producer import TransactionalProducer

DELETE_RETENTION_MS = CONFIG.delete_retention_ms


def offsets(log: CompactedLog) -> list[int]:
    """Of all records, the markers, too."""
    return [record.offset for record in log.records()]


def batches(log: CompactedLog) -> list[int]:
    """The last offset of every batch, the empty ones, too; Kafka's `lastOffsetsPerBatchInLog`."""
    return [header.last_offset for header in log.headers()]


def values(log: CompactedLog) -> dict[bytes | None, bytes | None]:
    """What a reader of committed data is left with; keys of markers are none."""
    control = {header.base_offset for header in log.headers() if header.is_control}
    return {record.key: record.value for record in log.records() if record.offset not in control}


def horizons(log: CompactedLog) -> dict[int, int | None]:
    """The delete horizon of every marker that is left, by its offset."""
    return {
        header.base_offset: header.delete_horizon_ms
        for header in log.headers()
        if header.is_control and header.record_count
    }


def later(log: CompactedLog) -> None:
    """Let everything that was stamped by now become due."""
    log.now_ms += DELETE_RETENTION_MS


def guard(log: CompactedLog, number: int = 0) -> int:
    """Append a record behind everything, so that nothing stays only because it is the last."""
    return log.append((b"guard %d" % number, b"")).base_offset


# ------------------------------------------------------------------------- committed and aborted


def test_an_aborted_newer_value_does_not_win_over_a_committed_one() -> None:
    """testBasicTransactionAwareCleaning."""
    log = CompactedLog()
    one, two = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    one.send((b"1", b"a"), (b"2", b"a"))
    two.send((b"2", b"b"), (b"3", b"b"))
    one.send((b"3", b"a"), (b"4", b"a"))
    one.abort()
    two.commit()
    one.send((b"2", b"c"))
    one.commit()

    report = log.clean()

    assert values(log) == {b"3": b"b", b"2": b"c"}
    assert offsets(log) == [3, 6, 7, 8, 9]
    assert report.records_by_verdict["dropped_aborted"] == 4


@pytest.mark.parametrize("codec", Codec)
def test_an_aborted_batch_goes_whatever_it_is_compressed_with(codec: Codec) -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"), codec=codec)
    producer.commit()
    producer.send((b"a", b"2"), (b"b", b"2"), codec=codec)
    producer.abort()
    producer.send((b"c", b"3"), codec=codec)
    producer.commit()

    log.clean()

    assert values(log) == {b"a": b"1", b"c": b"3"}


def test_what_is_aborted_goes_though_its_keys_are_nowhere_else() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"only", b"1"), (b"gone", None))
    producer.abort()
    guard(log)

    log.clean()

    assert values(log) == {b"guard 0": b""}


def test_nothing_of_an_undecided_transaction_is_cleaned() -> None:
    """testCleanWithTransactionsSpanningSegments."""
    log = CompactedLog()
    one, two, three = (TransactionalProducer(log, number) for number in (1, 2, 3))
    one.send((b"1", b"one"), (b"2", b"one"))
    three.send((b"2", b"three"), (b"3", b"three"))
    two.send((b"3", b"two"), (b"4", b"two"))
    log.roll()
    before = log.pairs()
    two.send((b"5", b"two"))
    two.abort()

    report = log.clean()

    assert (report.end_offset, log.log.clean_offset) == (0, 0)
    assert log.pairs()[: len(before)] == before
    three.send((b"8", b"three"))
    three.commit()
    one.send((b"9", b"one"))
    one.abort()
    guard(log)
    log.clean()
    assert values(log) == {b"2": b"three", b"3": b"three", b"8": b"three", b"guard 0": b""}


def test_a_pass_ends_before_the_first_undecided_transaction() -> None:
    log = CompactedLog()
    one, two = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    log.append((b"a", b"1"))
    log.append((b"a", b"2"))
    one.send((b"a", b"3"))
    one.commit()
    undecided = two.send((b"a", b"4"))
    log.append((b"a", b"5"))

    report = log.clean()

    assert log.log.last_stable_offset == undecided
    assert (report.end_offset, report.planned_end_offset) == (undecided, undecided)
    assert log.log.clean_offset == undecided
    assert offsets(log) == [2, 3, 4, 5]
    two.commit()
    log.clean()
    assert offsets(log) == [3, 5, 6]


def test_a_transaction_decided_beyond_the_pass_waits_for_its_marker() -> None:
    log = CompactedLog()
    one, two, open_one = (TransactionalProducer(log, number) for number in (1, 2, 3))
    log.append((b"a", b"0"))
    decided_later = one.send((b"a", b"aborted"))
    two.send((b"b", b"committed"))
    open_one.send((b"x", b"x"))
    one.send((b"c", b"aborted, too"))
    one.abort()
    two.commit()
    guard(log)

    assert log.clean().end_offset == decided_later
    assert values(log).items() >= {b"b": b"committed"}.items()
    open_one.abort()
    guard(log, 1)
    log.clean()
    expected = {b"a": b"0", b"b": b"committed", b"guard 0": b"", b"guard 1": b""}
    assert values(log) == expected


def test_an_aborted_batch_at_the_end_of_a_pass_is_still_aborted_for_the_next() -> None:
    log = CompactedLog()
    one, open_one = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    log.append((b"a", b"0"))
    aborted = one.send((b"a", b"aborted"))
    open_one.send((b"x", b"x"))
    one.abort()
    guard(log)

    # Its record must stay as the pass's last; so the pass ends before it.
    assert log.clean().end_offset == aborted
    assert offsets(log) == [0, 1, 2, 3, 4]
    open_one.commit()
    guard(log, 1)
    log.clean()
    assert values(log) == {b"a": b"0", b"x": b"x", b"guard 0": b"", b"guard 1": b""}


def test_a_pass_that_cannot_move_touches_no_segment() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.clean()
    TransactionalProducer(log, 1).send((b"a", b"2"))
    files = log.files()

    log.roll()
    report = log.execute(log.plan())

    assert (report.groups, log.log.clean_offset) == (0, 1)
    assert set(files) <= set(log.files())


def test_a_log_that_an_undecided_transaction_holds_is_not_cleaned_for_ever() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    log.append((b"a", b"1"))
    producer.send((b"a", b"open"))
    log.append((b"a", b"2"))
    log.roll()
    assert log.clean_until_idle() == 1
    assert log.assess().blocker is Blocker.LAST_STABLE_OFFSET

    producer.commit()
    log.roll()

    assert log.clean_until_idle() == 1
    assert log.log.clean_offset == 4


def test_aborted_data_goes_in_the_pass_that_reaches_it_and_its_markers_after_their_time() -> None:
    """testMultiPassSegmentCleaningWithAbortedTransactions; here one pass does whatever the map takes."""
    log = CompactedLog(settings=CleanerSettings(dedupe_buffer_size=24 * 16))
    one, two = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    filler = [(b"%d" % number, b"0") for number in range(6)]
    one.send(*filler)  # 0-5
    one.send((b"2", b"a"), (b"3", b"a"))  # 6-7
    aborted_early = one.abort()  # 8
    two.send(*((key, b"b") for key, _ in filler))  # 9-14
    one.send((b"3", b"c"), (b"4", b"c"))  # 15-16
    one.commit()  # 17
    aborted_late = two.abort()  # 18
    two.send(*((b"new %d" % number, b"d") for number in range(6)))  # 19-24
    two.send(*((b"more %d" % number, b"d") for number in range(6)))  # 25-30
    two.commit()  # 31
    guard(log)
    log.roll()

    assert log.execute(log.plan()).end_offset == 33
    assert {aborted_early, aborted_late} <= set(horizons(log))
    newest = {b"3": b"c", b"4": b"c", b"guard 0": b""}
    newest |= {b"%s %d" % (name, n): b"d" for name in (b"new", b"more") for n in range(6)}
    assert values(log) == newest

    later(log)
    log.clean_until_idle()
    assert list(horizons(log)) == [17, 31]
    assert values(log) == newest


# ------------------------------------------------------------------------------------- markers


def test_a_commit_marker_stays_while_its_transaction_has_records_and_then_for_its_time() -> None:
    """testCommitMarkerRemoval."""
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"1", b""))
    producer.send((b"2", b""), (b"3", b""))
    producer.commit()
    producer.send((b"2", b""))
    producer.commit()
    log.clean()
    assert offsets(log) == [0, 2, 3, 4, 5]
    assert horizons(log) == {3: None, 5: None}

    producer.send((b"1", b""), (b"3", b""))
    producer.commit()
    log.clean()
    assert offsets(log) == [3, 4, 5, 6, 7, 8]
    assert horizons(log) == {3: log.now_ms + DELETE_RETENTION_MS, 5: None, 8: None}

    log.clean()
    assert offsets(log) == [3, 4, 5, 6, 7, 8]
    later(log)
    log.clean()
    assert offsets(log) == [4, 5, 6, 7, 8]


def test_an_abort_marker_outlives_its_data_by_the_delete_retention() -> None:
    """testAbortMarkerRemoval."""
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"1", b""))
    producer.send((b"2", b""), (b"3", b""))
    producer.abort()
    producer.send((b"3", b""))
    producer.commit()
    log.clean()
    assert offsets(log) == [3, 4, 5]
    assert horizons(log) == {3: log.now_ms + DELETE_RETENTION_MS, 5: None}

    log.now_ms += DELETE_RETENTION_MS - 1
    log.clean()
    assert offsets(log) == [3, 4, 5]
    log.now_ms += 1
    log.clean()
    assert offsets(log) == [4, 5]


def test_the_clock_retires_the_marker_of_an_idle_log() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"))
    producer.abort()
    producer.send((b"a", b"2"))
    producer.commit()
    log.clean()
    assert log.clean_until_idle() == 0

    later(log)

    assert log.clean_until_idle() == 1
    assert offsets(log) == [2, 3]


def test_cleaning_goes_on_behind_batches_that_are_gone_altogether() -> None:
    """testDeletedBatchesWithNoMessagesRead (KAFKA-6854)."""
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"1", b""))
    producer.abort()
    producer.send((b"2", b""))
    producer.send((b"2", b""))
    producer.commit()
    log.clean()
    assert offsets(log) == [1, 3, 4]

    later(log)
    log.clean()
    assert offsets(log) == [3, 4]


def test_an_empty_batch_that_holds_a_sequence_holds_its_commit_marker() -> None:
    """testCommitMarkerRetentionWithEmptyBatch."""
    log = CompactedLog()
    one, two = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    one.send((b"2", b"one"), (b"3", b"one"))
    log.roll()
    two.send((b"2", b"two"), (b"3", b"two"))
    two.commit()
    log.roll()
    log.append((b"2", b""))
    log.append((b"3", b""))
    one.commit()
    log.clean()
    assert offsets(log) == [4, 5, 6, 7]
    assert batches(log) == [1, 3, 4, 5, 6, 7]

    later(log)
    log.clean()
    assert batches(log) == [1, 3, 4, 5, 6, 7]

    # The producer's next batch takes over the sequence.
    two.send((b"1", b""))
    two.commit()
    log.clean()
    assert batches(log) == [1, 4, 5, 6, 7, 8, 9]
    later(log)
    log.clean()
    assert batches(log) == [1, 5, 6, 7, 8, 9]
    assert offsets(log) == [5, 6, 7, 8, 9]


def test_an_empty_batch_that_holds_a_sequence_holds_its_abort_marker() -> None:
    """testAbortMarkerRetentionWithEmptyBatch."""
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"1", b""), (b"2", b""))
    producer.abort()
    guard(log)
    log.clean()
    later(log)
    log.clean()
    assert batches(log) == [1, 2, 3]
    assert horizons(log) == {2: None}

    producer.send((b"1", b""))
    producer.commit()
    log.clean()
    assert batches(log) == [2, 3, 4, 5]
    later(log)
    log.clean()
    assert batches(log) == [3, 4, 5]


def test_record_and_commit_marker_in_different_segments_both_stay() -> None:
    """testCommittedTransactionSpanningSegments."""
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"1", b""))
    log.roll()
    producer.commit()
    log.roll()

    log.clean()
    later(log)
    log.clean()

    assert offsets(log) == batches(log) == [0, 1]


def test_aborted_record_and_its_marker_in_different_segments_keep_the_last_sequence() -> None:
    """testAbortedTransactionSpanningSegments."""
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"1", b""))
    log.roll()
    producer.abort()
    log.roll()

    for _ in range(2):
        log.clean()
        assert offsets(log) == [1]
        assert batches(log) == [0, 1]
        later(log)


def test_a_marker_without_data_leaves_an_empty_batch_for_its_epoch() -> None:
    """testCleanEmptyControlBatch (KAFKA-7467)."""
    log = CompactedLog()
    TransactionalProducer(log, 1).commit()
    log.append((b"2", b""))
    log.append((b"3", b""))
    log.clean()
    assert offsets(log) == [0, 1, 2]

    for _ in range(2):
        later(log)
        log.clean()
        assert offsets(log) == [1, 2]
        assert batches(log) == [0, 1, 2]


def test_the_epoch_of_a_fenced_producer_survives_cleaning_and_a_crash() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"1", b"old"))
    producer.fence()
    guard(log)
    log.clean()
    later(log)
    log.clean()
    assert batches(log) == [1, 2]

    log.reopen(is_clean=False)

    batch = batch_of(
        [(b"1", b"late")],
        producer_id=1,
        producer_epoch=0,
        base_sequence=1,
        is_transactional=True,
    )
    refused = log.log.append_as_leader(valid(batch), now_ms=log.now_ms)
    assert isinstance(refused, Refused)
    assert refused.error_code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_empty_batches_go_though_every_transaction_begins_at_sequence_zero() -> None:
    """testEmptyBatchRemovalWithSequenceReuse (KAFKA-8335): as the group coordinator writes."""
    log = CompactedLog()
    first = TransactionalProducer(log, 1)
    first.send((b"1", b""))
    first.commit()
    # The coordinator's appends are not held to their sequence.
    log.log.producers.clear()
    second = TransactionalProducer(log, 1)
    second.send((b"2", b""))
    second.commit()
    log.append((b"1", b""))
    log.append((b"2", b""))

    log.clean()
    assert batches(log) == [1, 2, 3, 4, 5]
    assert offsets(log) == [1, 3, 4, 5]
    later(log)
    log.clean()
    assert batches(log) == [2, 3, 4, 5]
    assert offsets(log) == [3, 4, 5]


def test_the_marker_at_the_end_of_a_pass_stays_until_something_follows() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"))
    producer.commit()
    producer.fence()
    log.clean()
    later(log)
    log.clean()
    assert offsets(log) == [0, 1, 2]
    assert log.clean_until_idle() == 0

    guard(log)
    log.clean()
    assert offsets(log) == [0, 1, 3]


def test_a_pass_that_skips_groups_stamps_no_marker() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=400))
    producer = TransactionalProducer(log, 1)
    log.append_segment((b"a", b"v" * 300))
    producer.send((b"b", b"v" * 300))
    log.roll()
    producer.commit()
    log.append_segment((b"t", None))
    log.append_segment((b"c", b"v" * 300))
    log.clean()
    assert horizons(log) == {2: None}
    later(log)

    report = log.execute(log.plan(requested=False))

    assert report.groups == 1
    assert horizons(log) == {2: None}


# ------------------------------------------------------------------------------ producers, keys


def test_the_last_sequence_of_a_producer_is_kept() -> None:
    """testLogCleanerRetainsProducerLastSequence, testDuplicateCheckAfterCleaning."""
    log = CompactedLog()
    for producer_id, keys in ((1, b"123"), (2, b"314"), (3, b"14")):
        pairs = [(bytes([key]), b"") for key in keys]
        log.append(*pairs, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    log.clean()
    assert batches(log) == [2, 5, 7]
    assert offsets(log) == [1, 3, 6, 7]

    log.reopen(is_clean=False)

    for producer_id, keys, base_offset in ((1, b"123", 0), (3, b"14", 6), (2, b"314", 3)):
        pairs = [(bytes([key]), b"") for key in keys]
        again = log.append(*pairs, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        assert (again.duplicate, again.base_offset) == (True, base_offset)


def test_the_last_sequence_is_kept_even_if_its_transaction_was_aborted() -> None:
    """testLogCleanerRetainsLastSequenceEvenIfTransactionAborted."""
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    for number in range(5):
        producer.send((b"%d" % number, b""))
    producer.abort()
    log.clean()
    assert batches(log) == [4, 5]
    assert offsets(log) == [5]

    later(log)
    log.clean()
    assert batches(log) == [4, 5]

    producer.send((b"1", b""))
    producer.commit()
    log.clean()
    assert batches(log) == [5, 6, 7]


def test_an_empty_batch_of_a_producer_that_expired_goes_and_its_marker_after_it() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"1", b""))
    producer.abort()
    guard(log)
    log.clean()
    assert batches(log) == [0, 1, 2]

    log.log.producers.expire(LONG_MAX)
    guard(log, 1)
    log.clean()
    assert batches(log) == [1, 2, 3]
    later(log)
    log.clean()
    assert batches(log) == [2, 3]


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_users_key_that_looks_like_a_markers_touches_no_marker(kind: ControlType) -> None:
    """testCleaningWithKeysConflictingWithTxnMarkerKeys (KAFKA-14055)."""
    key, _ = write_transaction_marker(TransactionMarker(type=kind, coordinator_epoch=0))
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"))
    producer.commit()
    log.append((key, b"older"))
    log.append((key, b"newer"))
    producer.send((b"b", b"1"))
    producer.commit()

    log.clean()

    assert offsets(log) == [0, 1, 3, 4, 5]
    assert values(log)[key] == b"newer"
