"""Invariants of producers and transactions in a cleaned log."""

from __future__ import annotations

import struct

from tests.cleaner.invariants.scenes import RETENTION_MS
from tests.harness.compacted_log import CompactedLog
from tests.harness.transactional_producer import TransactionalProducer


def test_invariant_06_the_last_batch_of_each_active_producer_stays_if_need_be_empty() -> None:
    log = CompactedLog()
    for producer, sequence in ((1, 0), (2, 0), (1, 1), (2, 1)):
        key = b"%d" % producer
        log.append((key, b"1"), producer_id=producer, producer_epoch=0, base_sequence=sequence)
    log.append((b"1", b"2"), (b"2", b"2"))

    log.clean()
    log.reopen(is_clean=False)

    empty = [header for header in log.headers() if header.record_count == 0]
    assert [(each.producer_id, each.last_sequence) for each in empty] == [(1, 1), (2, 1)]
    for producer in (1, 2):
        key = b"%d" % producer
        assert log.append(
            (key, b"1"), producer_id=producer, producer_epoch=0, base_sequence=1
        ).duplicate
    log.append((b"1", b"3"), producer_id=1, producer_epoch=0, base_sequence=2)
    log.clean()
    assert [each.producer_id for each in log.headers() if each.record_count == 0] == [2]


def markers(log: CompactedLog) -> list[int]:
    return [header.base_offset for header in log.headers() if header.is_control]


def test_invariant_06_the_marker_of_a_producer_without_data_stays_for_its_epoch() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.commit()
    producer.abort()
    log.append((b"a", b"1"))

    for _ in range(3):
        log.clean()
        log.now_ms += RETENTION_MS
        log.append((b"a", b"2"))

    # Both markers stay, because both have the producer's epoch.
    assert markers(log) == [0, 1]
    log.append((b"b", b"1"), producer_id=1, producer_epoch=0, base_sequence=0)
    log.clean()
    assert markers(log) == []


def test_invariant_07_control_batches_are_never_deduplicated_and_never_in_the_map() -> None:
    """KAFKA-14055: a user's key may have the same bytes as a marker's key."""
    log = CompactedLog()
    for number in (7, 8):
        producer = TransactionalProducer(log, number)
        producer.send((b"%d" % number, b"1"))
        producer.commit()
    commit_key = struct.pack(">hh", 0, 1)
    log.append((commit_key, b"of a user"))
    log.append((b"last", b"1"))

    log.clean()

    assert markers(log) == [1, 3]
    assert (4, commit_key, b"of a user") in log.pairs()


def test_invariant_08_aborted_data_goes_at_once_and_supersedes_nothing() -> None:
    log = CompactedLog()
    one, two = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    one.send((b"a", b"committed"), (b"b", b"committed"))
    one.commit()
    two.send((b"a", b"aborted"), (b"only aborted", b"1"))
    two.abort()
    log.append((b"last", b"1"))

    report = log.clean()

    data = [pair for pair in log.pairs() if pair[0] not in markers(log)]
    assert data == [(0, b"a", b"committed"), (1, b"b", b"committed"), (6, b"last", b"1")]
    assert report.records_by_verdict["dropped_aborted"] == 2


def test_invariant_08_nothing_undecided_is_cleaned() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    TransactionalProducer(log, 2).send((b"a", b"open"))
    log.append((b"a", b"2"))

    log.clean()

    assert [value for _offset, _key, value in log.pairs()] == [b"1", b"open", b"2"]
    assert log.log.clean_offset <= 1


def test_invariant_09_an_abort_marker_outlives_its_data_and_then_waits_a_horizon() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 2)
    producer.send((b"a", b"aborted"))
    producer.abort()
    log.append((b"b", b"1"))
    for _ in range(2):
        log.now_ms += RETENTION_MS
        log.append((b"b", b"1"))
        log.clean()
        # It stays as an empty batch, because it has the producer's sequence.
        assert [header.record_count for header in log.headers()][:2] == [0, 1]
        assert log.headers()[1].delete_horizon_ms is None

    producer.send((b"c", b"1"))
    producer.commit()
    log.append((b"b", b"2"))
    log.clean()
    log.append((b"b", b"3"))
    log.clean()
    marker = log.headers()[0]
    assert (marker.base_offset, marker.is_control) == (1, True)
    assert marker.delete_horizon_ms is not None

    log.now_ms = marker.delete_horizon_ms - 1
    log.append((b"b", b"4"))
    log.clean()
    assert markers(log)[0] == 1
    log.now_ms += 1
    log.append((b"b", b"5"))
    log.clean()
    assert 1 not in markers(log)
