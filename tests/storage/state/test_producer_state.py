from __future__ import annotations

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.batch_header import BatchHeader
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import build_control_batch
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset, ProducerId
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.state.producer_state import (
    AppendedBatch,
    Duplicate,
    ProducerState,
    ProducerStates,
    decode_producer_states,
)
from tests.harness.compacted_log import CompactedLog
from tests.harness.log_builder import batch_of, valid
from tests.harness.transactional_producer import TransactionalProducer

INT31 = st.integers(0, (1 << 31) - 1)
STATES = st.builds(
    ProducerState,
    producer_epoch=st.integers(0, (1 << 15) - 1),
    last_timestamp=st.integers(-1, 1 << 50),
    batches=st.lists(
        st.builds(AppendedBatch, INT31, INT31, st.integers(0, 1 << 60)), max_size=5
    ).map(tuple),
    coordinator_epoch=st.integers(-1, 1 << 20),
    current_txn_first_offset=st.integers(-1, 1 << 60),
)


def header(
    sequence: int,
    *,
    count: int = 1,
    epoch: int = 0,
    producer: int = 7,
    is_transactional: bool = False,
) -> BatchHeader:
    batch = batch_of(
        [(b"k", b"v")] * count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return valid(batch).header


def states_after(*headers: BatchHeader) -> ProducerStates:
    states, offset = ProducerStates(), 100
    for each in headers:
        assert states.check_append(each) is ErrorCode.NONE
        offset += each.record_count
        states.appended(each, last_offset=Offset(offset - 1), now_ms=1)
    return states


def test_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStates().check_append(header(77)) is ErrorCode.NONE


def test_next_sequence_is_taken_and_a_gap_is_not() -> None:
    states = states_after(header(0, count=3))
    assert states.check_append(header(3)) is ErrorCode.NONE
    assert states.check_append(header(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check_append(header(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_a_duplicate_and_the_sixth_is_not() -> None:
    sent = [header(2 * number, count=2) for number in range(6)]
    states = states_after(*sent)
    for number in range(1, 6):
        first = 100 + 2 * number
        assert states.check_append(sent[number]) == Duplicate(Offset(first), Offset(first + 1))
    assert states.check_append(sent[0]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_same_first_sequence_with_another_count_is_no_duplicate() -> None:
    states = states_after(header(0, count=3))
    assert states.check_append(header(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_new_epoch_begins_at_zero_and_the_old_one_is_fenced() -> None:
    states = states_after(header(0), header(1))
    assert states.check_append(header(2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check_append(header(0, epoch=1)) is ErrorCode.NONE
    states.appended(header(0, epoch=1), last_offset=Offset(102), now_ms=2)
    assert states.check_append(header(2, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check_append(header(0, epoch=1)) == Duplicate(Offset(102), Offset(102))


def test_sequence_goes_on_at_zero_after_the_largest() -> None:
    last = (1 << 31) - 1
    states = states_after(header(last - 1, count=4))
    assert states.check_append(header(2)) is ErrorCode.NONE
    assert states.check_append(header(last - 1, count=4)) == Duplicate(Offset(100), Offset(103))


def test_batches_without_a_producer_leave_no_state() -> None:
    states = ProducerStates()
    plain = valid(batch_of([(b"k", b"v")])).header
    assert states.check_append(plain) is ErrorCode.NONE
    states.appended(plain, last_offset=Offset(0), now_ms=1)
    assert len(states) == 0


def test_idle_producers_are_forgotten_by_the_walls_clock() -> None:
    states = states_after(header(0))
    states.expire(before_ms=1)
    assert len(states) == 1
    states.expire(before_ms=2)
    assert len(states) == 0
    assert states.check_append(header(9)) is ErrorCode.NONE


def test_last_data_offsets_name_the_batches_that_cleaning_must_keep() -> None:
    states = states_after(header(0), header(1), header(0, producer=8))
    assert sorted(states.last_data_offsets()) == [101, 102]


def marker(*, epoch: int = 0, producer: int = 7) -> BatchHeader:
    batch = build_control_batch(
        TransactionMarker(type=ControlType.ABORT, coordinator_epoch=0),
        timestamp=1000,
        producer_id=producer,
        producer_epoch=epoch,
    )
    return valid(batch).header


def test_marker_has_no_place_in_the_sequence() -> None:
    states = states_after(header(0), marker(), header(1))
    assert states.check_append(header(2)) is ErrorCode.NONE
    assert states.marker_epochs() == {}


def test_marker_of_a_newer_epoch_fences_the_old_one() -> None:
    states = states_after(header(0), marker(epoch=1))
    assert states.check_append(header(1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check_append(marker()) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check_append(header(0, epoch=2)) is ErrorCode.NONE


def test_epoch_that_a_marker_began_starts_at_zero_too() -> None:
    """Otherwise a late second batch would be accepted, and the first one never again."""
    states = states_after(header(0), marker(epoch=1))
    assert states.check_append(header(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check_append(header(0, epoch=1)) is ErrorCode.NONE


def test_producers_without_a_data_batch_are_listed_with_the_epoch_of_their_markers() -> None:
    states = states_after(header(0), marker(), marker(epoch=3, producer=8))
    assert states.last_data_offsets() == (100,)
    assert states.marker_epochs() == {8: 3}


def test_brokers_own_batches_have_no_sequence_and_are_fenced_like_others() -> None:
    own = header(-1, epoch=3, is_transactional=True)
    states = states_after(own, own, marker(epoch=3), own)
    fenced = header(-1, epoch=2, is_transactional=True)
    assert states.check_append(fenced) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_nothing_else_of_a_producer_may_come_between_its_transactions_batches() -> None:
    states = states_after(header(0, is_transactional=True))
    assert states.check_append(header(1)) is ErrorCode.INVALID_TXN_STATE
    assert states.check_append(header(1, is_transactional=True)) is ErrorCode.NONE
    states.appended(marker(), last_offset=Offset(101), now_ms=1)
    assert states.check_append(header(1)) is ErrorCode.NONE


def test_open_transaction_stays_open_over_a_newer_epoch_until_a_marker() -> None:
    states = states_after(header(0, is_transactional=True))
    states.appended(header(0, epoch=1, is_transactional=True), last_offset=Offset(101), now_ms=1)
    (found,) = states.open_transactions()
    assert (found.producer_epoch, found.first_offset) == (1, 100)


@given(st.dictionaries(st.integers(0, 1 << 62).map(ProducerId), STATES, max_size=6))
def test_snapshot_is_read_back(producers: dict[ProducerId, ProducerState]) -> None:
    data = ProducerStates(producers).encode()
    read = decode_producer_states(data, "p")
    assert {producer: read.get(producer) for producer in producers} == producers
    assert len(read) == len(producers)


def test_any_flipped_bit_and_any_cut_of_a_snapshot_is_damage() -> None:
    data = states_after(header(0)).encode()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        with pytest.raises(DamagedFile):
            decode_producer_states(bytes(flipped), "p")
        with pytest.raises(DamagedFile):
            decode_producer_states(data[:position], "p")


def test_snapshot_of_a_later_release_is_refused() -> None:
    body = bytearray(states_after(header(0)).encode()[:-8])
    struct.pack_into(">H", body, 4, 2)
    data = bytes(body) + struct.pack(">Q", xxhash.xxh3_64_intdigest(body))
    with pytest.raises(FormatFromTheFuture):
        decode_producer_states(data, "p")


# -------------------------------------------------------------------- open transactions


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    log = CompactedLog()
    log.append((b"x", b"1"))
    producer = TransactionalProducer(log, 4711)
    producer.send((b"a", b"1"), (b"b", b"1"))
    producer.send((b"a", b"2"))

    (found,) = log.log.producers.open_transactions()
    assert (found.producer_id, found.first_offset) == (4711, 1)
    assert found.last_append_ms == log.now_ms

    producer.commit()
    assert log.log.producers.open_transactions() == ()
    producer.send((b"a", b"3"))
    assert log.log.producers.open_transactions()[0].first_offset == 5


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("rolls", [True, False])
def test_an_open_transaction_is_known_after_a_restart(is_clean: bool, rolls: bool) -> None:
    log = CompactedLog()
    first, second = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    first.send((b"a", b"1"))
    second.send((b"b", b"1"))
    if rolls:
        log.roll()
    for _ in range(7):
        first.send((b"a", b"2"))
    second.abort()

    log.reopen(is_clean=is_clean)

    (found,) = log.log.producers.open_transactions()
    assert (found.producer_id, found.first_offset) == (1, 0)


def test_a_producer_that_holds_a_transaction_open_does_not_expire() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"))
    producers = log.log.producers

    producers.expire(log.now_ms + 1)
    assert len(producers) == 1
    producer.abort()
    producers.expire(log.now_ms + 1)
    assert len(producers) == 0


def test_a_batch_below_the_last_one_is_a_mistake() -> None:
    states = states_after(header(0), header(1))
    with pytest.raises(AssertionError):
        states.appended(header(2), last_offset=Offset(0), now_ms=0)
