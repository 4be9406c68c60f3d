"""Transactions in the log of a test: records of a producer, and the marker that ends them."""

from __future__ import annotations

from protocol.wire.numbers import Epoch, ProducerId
from tests.harness.compacted_log import CompactedLog
from tests.harness.log_builder import batch_of, valid


def in_transaction(log: CompactedLog, producer: int, *pairs: tuple[bytes, bytes | None]) -> None:
    """Append records to the producer's transaction, which begins with the first."""
    state = log.log.producers.get(ProducerId(producer))
    sequence = state.batches[-1].last_sequence + 1 if state and state.batches else 0
    log.append_batch(
        valid(
            batch_of(
                pairs,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
        )
    )


def end_transaction(log: CompactedLog, producer: int, *, is_commit: bool) -> None:
    """Append the marker that ends the producer's transaction."""
    log.log.appender.append_marker(
        ProducerId(producer),
        Epoch(0),
        is_commit=is_commit,
        coordinator_epoch=Epoch(0),
        now_ms=log.now_ms,
    )
    log.make_durable()
