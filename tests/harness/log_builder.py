"""Builds batches and validated batches in one line, for tests of storage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import (
    Codec,
    Record,
    build_batch,
    build_control_batch,
    read_records,
)
from protocol.wire.numbers import Epoch, Offset
from storage.batches.batch_run import BatchRun, check_run
from storage.batches.validate import ValidBatch

KeyValue = tuple[bytes | None, bytes | None]

PLENTY = 1 << 30


def batch_of(
    pairs: Sequence[KeyValue],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamps: Sequence[int] | None = None,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Returns a batch of key-value pairs, as a producer sends it; timestamps default to 1000 on."""
    times = timestamps if timestamps is not None else range(1000, 1000 + len(pairs))
    records = [
        Record(offset=base_offset + number, timestamp=time, key=key, value=value)
        for number, ((key, value), time) in enumerate(zip(pairs, times, strict=True))
    ]
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


def marker_of(kind: ControlType, producer_id: int, producer_epoch: int = 0) -> bytearray:
    """Returns the batch that ends a producer's transaction: a COMMIT or an ABORT marker."""
    return build_control_batch(
        TransactionMarker(type=kind, coordinator_epoch=0),
        timestamp=1000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def valid(batch: bytearray) -> ValidBatch:
    """Returns the batch in the form that validation produces."""
    view = memoryview(batch)
    return ValidBatch(read_header(view), view)


def run_of(*batches: bytes | bytearray) -> BatchRun:
    """Returns the batches as a run that a follower may append."""
    run = check_run(memoryview(b"".join(batches)), end=Offset(0), last_epoch=Epoch(-1))
    assert not run.fault, run.fault
    assert not len(run.rest)
    return run


@lru_cache(maxsize=512)
def records_in(data: bytes) -> Sequence[Record]:
    """Returns every record of consecutive batches. Cached, because sweeps repeat themselves."""
    records: list[Record] = []
    position = 0
    while position < len(data):
        records += read_records(data, position, decompressed_bytes_max=PLENTY)
        position += read_header(data, position).size_bytes
    return tuple(records)


@lru_cache(maxsize=512)
def headers_in(data: bytes) -> Sequence[BatchHeader]:
    """Returns the headers of consecutive batches."""
    headers: list[BatchHeader] = []
    position = 0
    while position < len(data):
        headers.append(read_header(data, position))
        position += headers[-1].size_bytes
    return tuple(headers)


def end_of(data: bytes) -> int:
    """Returns the offset after the last of consecutive batches."""
    headers = headers_in(data)
    return headers[-1].next_offset if headers else 0
