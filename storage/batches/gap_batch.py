"""A batch without records that covers a range of offsets without data."""

from __future__ import annotations

from protocol.records.batch_header import BatchHeader
from protocol.records.record_batch import build_empty_batch


def gap_batch(base_offset: int, last_offset: int, leader_epoch: int) -> bytearray:
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
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=0,
        )
    )
