"""The markers of transactions under cleaning: which stay, and for how long.

Source: Apache Kafka, LogCleanerTest.java; each test names its Kafka counterpart.
"""

from __future__ import annotations

from dataclasses import replace

from protocol.wire.error_codes import ErrorCode
from storage.batches.validate import Refused
from tests.cleaner.transactions_seen import (
    DELETE_RETENTION_MS,
    batches,
    guard,
    horizons,
    later,
    offsets,
)
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.log_builder import batch_of, valid
from tests.harness.transactional_producer import TransactionalProducer


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

    # From now on the producer's next batch has its last sequence.
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
    refused = log.log.appender.append_as_leader(valid(batch), now_ms=log.now_ms)
    assert isinstance(refused, Refused)
    assert refused.error_code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_empty_batches_go_though_every_transaction_begins_at_sequence_zero() -> None:
    """testEmptyBatchRemovalWithSequenceReuse (KAFKA-8335): the group coordinator writes like this."""
    log = CompactedLog()
    first = TransactionalProducer(log, 1)
    first.send((b"1", b""))
    first.commit()
    # The coordinator's appends skip the sequence check.
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
