"""Transaction markers in a log: their contents, and the producers that may write them."""

from __future__ import annotations

import pytest

from protocol.records.batch_header import read_header
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import read_marker
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.batches.validate import Refused
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from tests.harness.compacted_log import CompactedLog, read_bytes
from tests.harness.log_builder import batch_of, records_in, valid
from tests.harness.transactional_producer import TransactionalProducer

NOW_MS = 1_700_000_000_123


def mark(
    log: PartitionLog,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    is_commit: bool = True,
    coordinator_epoch: int = 3,
) -> Appended | Refused:
    return log.appender.append_marker(
        ProducerId(producer_id),
        Epoch(epoch),
        is_commit=is_commit,
        coordinator_epoch=Epoch(coordinator_epoch),
        now_ms=NOW_MS,
    )


def refusal(answer: Appended | Refused) -> ErrorCode:
    assert isinstance(answer, Refused)
    return answer.error_code


def written(log: CompactedLog) -> bytes:
    log.make_durable()
    return read_bytes(log.log, log.log.log_end_offset - 1)


@pytest.mark.parametrize(
    ("is_commit", "kind"), [(True, ControlType.COMMIT), (False, ControlType.ABORT)]
)
def test_marker_is_a_control_batch_as_kafka_writes_it(is_commit: bool, kind: ControlType) -> None:
    log = CompactedLog()
    log.append((b"k", b"v"))

    answer = mark(log.log, epoch=5, is_commit=is_commit)

    assert answer == Appended(Offset(1), Offset(2))
    data = written(log)
    batch = read_header(data)
    assert batch.attributes == 0x30
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (1, 1, 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 5, -1)
    assert batch.leader_epoch == log.log.leader_epoch
    assert read_marker(data) == TransactionMarker(type=kind, coordinator_epoch=3)
    (record,) = records_in(data)
    assert record.timestamp == batch.max_timestamp == NOW_MS
    assert record.key == bytes([0, 0, 0, kind])
    assert record.value == b"\0\0\0\0\0\3"


def test_marker_ends_its_producers_transaction() -> None:
    log = CompactedLog()
    TransactionalProducer(log, 7).send((b"a", b"1"))

    mark(log.log)

    assert log.log.producers.open_transactions() == ()


def test_marker_of_an_unknown_producer_is_written_and_fences() -> None:
    log = CompactedLog()
    assert isinstance(mark(log.log, epoch=2), Appended)
    late = batch_of([(b"k", b"v")], producer_id=7, producer_epoch=1, base_sequence=0)
    assert refusal(log.log.appender.append_as_leader(valid(late), now_ms=1)) is (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )


def test_marker_of_an_older_producer_epoch_is_refused_and_the_log_as_before() -> None:
    log = CompactedLog()
    TransactionalProducer(log, 7, producer_epoch=4).send((b"a", b"1"))

    assert refusal(mark(log.log, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH

    assert log.log.log_end_offset == 1
    assert len(log.log.producers.open_transactions()) == 1


def test_marker_of_a_deposed_coordinator_is_refused() -> None:
    log = CompactedLog()
    mark(log.log, coordinator_epoch=3)
    assert refusal(mark(log.log, coordinator_epoch=2)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert isinstance(mark(log.log, coordinator_epoch=3), Appended)
    assert isinstance(mark(log.log, coordinator_epoch=4), Appended)


def test_deposed_coordinator_stays_so_when_the_producers_epoch_grows() -> None:
    log = CompactedLog()
    mark(log.log, coordinator_epoch=3)
    answer = mark(log.log, epoch=1, coordinator_epoch=2)
    assert refusal(answer) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
