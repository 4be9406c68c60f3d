"""Frames as Kafka's record batches, the form in which entries travel to other machines.

    frame                               batch
    index of the first entry            base offset
    term                                leader epoch
    an entry's payload                  a record's value
    only commands                       records without keys
    other kinds, or a mixture           a control batch; a record's key is
                                        version int16 (0) | type int16 (100 + the kind's number)

A frame is one batch, so that what one sync made durable on the leader is written in one piece by the
follower. Records have no timestamps: entries have none. Kafka's own control types end below 100.
"""

from __future__ import annotations

import struct

from protocol.records.batch_header import CONTROL, BatchHeader, read_header
from protocol.records.compression import Buffer
from protocol.records.record import Record
from protocol.records.record_batch import build_batch, read_records
from protocol.wire.errors import CorruptBatch
from replog.entry import Frame, Kind

CONTROL_TYPE_MIN = 100
_KEY = struct.Struct(
    ">"
    "h"  # version
    "h"  # type
)
_VERSION = 0
_NO_TIMESTAMP = -1
_KEYS = {kind: _KEY.pack(_VERSION, CONTROL_TYPE_MIN + kind) for kind in Kind}
_KINDS = {key: kind for kind, key in _KEYS.items()}


def encode_batch(frame: Frame) -> bytearray:
    """Returns the batch of a frame."""
    is_control = any(kind is not Kind.COMMAND for kind, _ in frame.contents)
    records = [
        Record(
            offset=offset,
            timestamp=_NO_TIMESTAMP,
            key=_KEYS[kind] if is_control else None,
            value=payload,
        )
        for offset, (kind, payload) in enumerate(frame.contents, frame.index)
    ]
    return build_batch(
        records, base_offset=frame.index, leader_epoch=frame.term, is_control=is_control
    )


def decode_batches(buffer: Buffer) -> list[Frame]:
    """Returns the frames of these batches, which follow each other.

    Raises:
        CorruptBatch: the bytes are no batches, or no frames as `encode_batch` writes them.
        UnsupportedMagic: a batch has another format.
    """
    view = memoryview(buffer)
    frames: list[Frame] = []
    position = 0
    while position < len(view):
        header = read_header(view, position)
        frame = _frame(header, view[position:])
        if frames and (frame.index != frames[-1].end or frame.term < frames[-1].term):
            raise CorruptBatch(
                f"entries from {frame.index} in term {frame.term} come after"
                f" {frames[-1].end} in term {frames[-1].term}"
            )
        frames.append(frame)
        position += header.size_bytes
    return frames


def _frame(header: BatchHeader, batch: memoryview) -> Frame:
    index, term = header.base_offset, header.leader_epoch
    if header.attributes & ~CONTROL:
        raise CorruptBatch(f"batch at {index} has the attributes {header.attributes:#x}")
    # The batch is not compressed, so nothing is inflated.
    records = read_records(batch, decompressed_bytes_max=0)
    if not records or header.next_offset != index + len(records):
        raise CorruptBatch(f"batch at {index} does not have an entry for each offset")
    if index < 0 or term < 0:
        raise CorruptBatch(f"batch at {index} in term {term}")
    return Frame(index, term, tuple(_content(record, header.is_control) for record in records))


def _content(record: Record, is_control: bool) -> tuple[Kind, bytes]:
    kind = _KINDS.get(record.key or b"") if is_control else Kind.COMMAND
    has_key = record.key is not None
    if kind is None or record.value is None or record.headers or has_key is not is_control:
        raise CorruptBatch(f"record {record.offset} is no entry of a log")
    return kind, record.value
