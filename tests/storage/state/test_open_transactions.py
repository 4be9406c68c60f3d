from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.formats.config_property import LONG_MAX
from storage.segment.reader import Isolation, ReadResult
from storage.state.open_transactions import OpenTransactions
from tests.harness.compacted_log import CompactedLog
from tests.harness.log_builder import headers_in, run_of
from tests.harness.transactional_producer import TransactionalProducer


def pairs(*plain: tuple[int, int]) -> list[tuple[ProducerId, Offset]]:
    return [(ProducerId(producer_id), Offset(first)) for producer_id, first in plain]


def test_a_transaction_is_unstable_from_its_first_batch_until_its_marker_is_readable() -> None:
    open_ = OpenTransactions()
    open_.begin(ProducerId(1), Offset(10))
    open_.begin(ProducerId(1), Offset(12))
    assert open_.first_unstable == 10
    assert open_.end(ProducerId(1), Offset(15)) == 10
    open_.advance(Offset(15))
    assert open_.first_unstable == 10
    open_.advance(Offset(16))
    assert open_.first_unstable == LONG_MAX


def test_the_first_of_several_counts_however_they_end() -> None:
    open_ = OpenTransactions(pairs((2, 20), (1, 10), (3, 30)))
    open_.end(ProducerId(1), Offset(40))
    open_.end(ProducerId(3), Offset(41))
    open_.advance(Offset(41))
    assert open_.first_unstable == 20
    open_.end(ProducerId(2), Offset(42))
    open_.advance(Offset(42))
    assert open_.first_unstable == 20
    open_.advance(Offset(43))
    assert open_.first_unstable == LONG_MAX


def test_a_marker_without_a_transaction_ends_nothing() -> None:
    open_ = OpenTransactions(pairs((1, 10)))
    assert open_.end(ProducerId(2), Offset(20)) == -1
    assert (len(open_), open_.first_unstable) == (1, 10)


STEPS = st.lists(
    st.tuples(st.sampled_from(["batch", "marker", "sync", "truncate"]), st.integers(0, 3)),
    max_size=40,
)


@given(STEPS)
def test_first_unstable_offset_is_that_of_the_whole_history(steps: list[tuple[str, int]]) -> None:
    """The model goes through the whole history each time."""
    open_, history, watermark = OpenTransactions(), list[tuple[str, int]](), 0
    for kind, number in steps:
        end = len(history)
        if kind == "sync":
            watermark = max(watermark, end - number)
            open_.advance(Offset(watermark))
        elif kind == "truncate":
            del history[end - number :]
            watermark = min(watermark, len(history))
            truncated = OpenTransactions(pairs(*_open_since(history)))
            truncated.keep_ended(open_, Offset(len(history)))
            open_ = truncated
        else:
            history.append((kind, number))
            (open_.begin if kind == "batch" else open_.end)(ProducerId(number), Offset(end))
        assert open_.first_unstable == _first_unstable(history, watermark)


def _open_since(history: list[tuple[str, int]]) -> list[tuple[int, int]]:
    since: dict[int, int] = {}
    for offset, (kind, producer) in enumerate(history):
        if kind == "batch":
            since.setdefault(producer, offset)
        else:
            since.pop(producer, None)
    return list(since.items())


def _first_unstable(history: list[tuple[str, int]], watermark: int) -> int:
    unstable = [first for _, first in _open_since(history)]
    for marker in range(watermark, len(history)):
        kind, producer = history[marker]
        unstable += [first for who, first in _open_since(history[:marker]) if who == producer] * (
            kind == "marker"
        )
    return min(unstable, default=LONG_MAX)


# -------------------------------------------------------------------- in a log


def read_committed(log: CompactedLog, offset: int) -> list[int]:
    """Returns the base offsets of the batches that a read_committed fetch returns."""
    result = log.log.reader.read(
        Offset(offset),
        max_bytes=1 << 20,
        whole_first_batch=True,
        isolation=Isolation.READ_COMMITTED,
    )
    assert isinstance(result, ReadResult)
    data = b"".join(region.read_bytes() for region in result.regions)
    result.release()
    return [header.base_offset for header in headers_in(data)]


def test_read_committed_stops_at_the_first_open_transaction() -> None:
    log = CompactedLog()
    log.append((b"x", b"1"))
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"))
    log.append((b"x", b"2"))
    assert (log.log.last_stable_offset, log.log.high_watermark) == (1, 3)
    assert read_committed(log, 0) == [0]
    assert read_committed(log, 1) == []

    producer.commit()

    assert log.log.last_stable_offset == 4
    assert read_committed(log, 0) == [0, 1, 2, 3]


def test_a_marker_counts_only_once_it_is_durable() -> None:
    log = CompactedLog()
    TransactionalProducer(log, 1).send((b"a", b"1"))
    log.log.appender.append_marker(
        ProducerId(1), Epoch(0), is_commit=True, coordinator_epoch=Epoch(0), now_ms=1
    )
    assert (log.log.last_stable_offset, log.log.log_end_offset) == (0, 2)
    log.make_durable()
    assert log.log.last_stable_offset == 2


def test_last_stable_offset_is_as_before_after_a_restart() -> None:
    for is_clean in (True, False):
        log = CompactedLog()
        log.append((b"x", b"1"))
        TransactionalProducer(log, 1).send((b"a", b"1"))
        TransactionalProducer(log, 2).send((b"b", b"1"))
        log.reopen(is_clean=is_clean)
        assert (log.log.last_stable_offset, log.log.high_watermark) == (1, 3)
        log.log.appender.append_marker(
            ProducerId(1), Epoch(0), is_commit=False, coordinator_epoch=Epoch(0), now_ms=1
        )
        log.make_durable()
        assert log.log.last_stable_offset == 2


def test_last_stable_offset_is_never_below_the_log_start() -> None:
    log = CompactedLog()
    TransactionalProducer(log, 1).send((b"a", b"1"))
    log.append((b"x", b"1"))
    log.log.delete_records(Offset(2))
    assert log.log.last_stable_offset == log.log.log_start_offset == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_transaction_whose_first_records_are_deleted_is_open_over_a_restart(
    is_clean: bool,
) -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"))
    log.append((b"x", b"1"))
    producer.send((b"a", b"2"))
    log.log.delete_records(Offset(1))
    log.reopen(is_clean=is_clean)
    assert (log.log.last_stable_offset, log.log.high_watermark) == (1, 3)
    producer.commit()
    assert log.log.last_stable_offset == 4


def test_truncation_opens_again_what_a_marker_had_ended() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"))
    log.append((b"x", b"1"))
    marker_offset = producer.commit()
    assert log.log.last_stable_offset == 3
    log.log.truncate_to(Offset(marker_offset))
    assert (log.log.last_stable_offset, log.log.high_watermark) == (0, 2)


def test_a_followers_log_knows_its_transactions_too() -> None:
    leader, follower = CompactedLog(), CompactedLog()
    TransactionalProducer(leader, 1).send((b"a", b"1"))
    copy = bytearray(leader.log.segments[-1].files.open().read_at(0, 1 << 20))
    follower.log.appender.append_as_follower(run_of(copy), now_ms=1)
    follower.make_durable()
    assert (follower.log.last_stable_offset, follower.log.high_watermark) == (0, 1)


def test_a_transaction_that_begins_before_a_known_one_is_a_mistake() -> None:
    open_ = OpenTransactions(pairs((1, 10)))
    with pytest.raises(AssertionError):
        open_.begin(ProducerId(2), Offset(9))
