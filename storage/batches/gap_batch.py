"""A batch without records that covers a range of offsets without data."""

from __future__ import annotations

from protocol.records.batch_header import BatchHeader
from protocol.records.record_batch import build_empty_batch
from protocol.wire.numbers import Epoch, Offset, ProducerId


def gap_batch(base_offset: Offset, last_offset: Offset, leader_epoch: Epoch) -> bytearray:
    """Returns the encoded batch for [base_offset, last_offset]."""
    return build_empty_batch(
        BatchHeader(
            size_bytes=0,
            base_offset=base_offset,
            last_offset=last_offset,
            leader_epoch=leader_epoch,
            crc=0,
            attributes=0,
            base_timestamp=-1,
            max_timestamp=-1,
            producer_id=ProducerId(-1),
            producer_epoch=Epoch(-1),
            base_sequence=-1,
            record_count=0,
        )
    )
