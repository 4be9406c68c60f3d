"""Transactions under cleaning: whole logs with producers and markers.

Source: Apache Kafka, LogCleanerTest.java; each test names its Kafka counterpart. Kafka needs one pass to
empty a transaction and another to stamp its marker; here one pass does both.
"""

from __future__ import annotations

import pytest

from cleaner.pacing.settings import CleanerSettings
from cleaner.rules.pick import Blocker
from protocol.records.compression import Codec
from protocol.records.control_record import ControlType, TransactionMarker, write_transaction_marker
from storage.formats.config_property import LONG_MAX
from tests.cleaner.transactions_seen import batches, guard, horizons, later, offsets, values
from tests.harness.compacted_log import CompactedLog
from tests.harness.transactional_producer import TransactionalProducer

# -------------------------------------------------------------------------- committed and aborted


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

    # As the last record of the pass it would have to stay, so the pass ends before it.
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
    """testMultiPassSegmentCleaningWithAbortedTransactions; here one pass suffices for any map size."""
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


# -------------------------------------------------------------------------------- producers, keys


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
