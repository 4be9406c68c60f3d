"""The bytes of a segment of a log: a header, and one frame for each sync.

    segment := header frame*
    header  := magic "KRLS" | format: uint16 = 1 | flags: uint16 | base index: int64
               | term of the entry before: int32 | crc32c of the bytes before: uint32
    frame   := magic "KRLF" | size of the body: uint32 | crc32c of the body: uint32 | first index: int64
               | term: int32 | entries: uint32 | crc32c of the bytes before: uint32 | body
    body    := (kind: uint8 | size: uint32 | payload)*

Flag 1 says that the log begins here because a snapshot was installed. A frame is synced before the next
one is written, so a crash can tear only the last one (`torn.py`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from protocol.records.batch_scan import crc32c
from replog.entry import Frame, Kind
from storage.files.errors import CorruptLog, FormatFromTheFuture

FORMAT = 1
SEGMENT_MAGIC, FRAME_MAGIC = b"KRLS", b"KRLF"
RESET = 1
"""The flag of a segment that begins after an installed snapshot."""
_CRC = struct.Struct(">I")
_SEGMENT = struct.Struct(
    ">"
    "4s"  # magic
    "H"  # format
    "H"  # flags
    "q"  # base index
    "i"  # term of the entry before
)
_FRAME = struct.Struct(
    ">"
    "4s"  # magic
    "I"  # size of the body
    "I"  # crc32c of the body
    "q"  # first index
    "i"  # term
    "I"  # entries
)
_ENTRY = struct.Struct(
    ">"
    "B"  # kind
    "I"  # size
)
SEGMENT_HEADER_BYTES = _SEGMENT.size + _CRC.size
FRAME_HEADER_BYTES = _FRAME.size + _CRC.size
_KINDS = {int(kind): kind for kind in Kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The beginning of a segment."""

    base_index: int
    previous_term: int
    is_reset: bool


class FrameHead(NamedTuple):
    """The checked header of a frame."""

    size: int
    """Bytes of the body."""
    checksum: int
    first_index: int
    term: int
    entries: int


def encode_header(header: SegmentHeader) -> bytes:
    """Returns the bytes with which a segment begins."""
    flags = RESET if header.is_reset else 0
    data = _SEGMENT.pack(SEGMENT_MAGIC, FORMAT, flags, header.base_index, header.previous_term)
    return data + _CRC.pack(crc32c(data))


def decode_header(data: bytes, path: str) -> SegmentHeader:
    """Returns the header of a segment.

    Raises:
        CorruptLog: it is damaged.
        FormatFromTheFuture: a later release wrote it.
    """
    magic, format_, flags, base_index, previous_term = _SEGMENT.unpack_from(data)
    (checksum,) = _CRC.unpack_from(data, _SEGMENT.size)
    if magic != SEGMENT_MAGIC or checksum != crc32c(data[: _SEGMENT.size]):
        raise CorruptLog(path, 0, "its header is damaged")
    if format_ > FORMAT:
        raise FormatFromTheFuture(path, format_, FORMAT)
    return SegmentHeader(
        base_index=base_index, previous_term=previous_term, is_reset=bool(flags & RESET)
    )


def encode_frame(frame: Frame) -> list[bytes]:
    """Returns the bytes of a frame, in parts."""
    parts = [b""]
    for kind, payload in frame.contents:
        parts += (_ENTRY.pack(kind, len(payload)), payload)
    checksum = size = 0
    for part in parts:
        checksum, size = crc32c(part, checksum), size + len(part)
    count = len(frame.contents)
    head = _FRAME.pack(FRAME_MAGIC, size, checksum, frame.index, frame.term, count)
    parts[0] = head + _CRC.pack(crc32c(head))
    return parts


def head_at(data: bytes, position: int) -> FrameHead | None:
    """Returns the header of the frame at `position`; None if there is no sound one."""
    if position + FRAME_HEADER_BYTES > len(data):
        return None
    magic, size, body_checksum, index, term, count = _FRAME.unpack_from(data, position)
    (checksum,) = _CRC.unpack_from(data, position + _FRAME.size)
    if magic != FRAME_MAGIC or checksum != crc32c(data[position : position + _FRAME.size]):
        return None
    return FrameHead(size, body_checksum, index, term, count)


def frame_at(data: bytes, position: int) -> tuple[Frame, int] | None:
    """Returns the sound frame at `position`, and the position after it; None if there is none."""
    head = head_at(data, position)
    if head is None:
        return None
    start = position + FRAME_HEADER_BYTES
    end = start + head.size
    body = data[start:end]
    if len(body) < head.size or crc32c(body) != head.checksum:
        return None
    return Frame(head.first_index, head.term, _contents(body)), end


def _contents(body: bytes) -> tuple[tuple[Kind, bytes], ...]:
    kind, size = _ENTRY.unpack_from(body)
    position = _ENTRY.size + size
    contents = [(_KINDS[kind], body[_ENTRY.size : position])]
    while position < len(body):
        kind, size = _ENTRY.unpack_from(body, position)
        start = position + _ENTRY.size
        position = start + size
        contents.append((_KINDS[kind], body[start:position]))
    return tuple(contents)


def scan(data: bytes, header: SegmentHeader, path: str) -> tuple[list[Frame], int]:
    """Returns the sound frames of a segment, and the position where they end.

    Raises:
        CorruptLog: indexes or terms do not follow each other.
    """
    frames: list[Frame] = []
    position, index, term = SEGMENT_HEADER_BYTES, header.base_index, header.previous_term
    while (found := frame_at(data, position)) is not None:
        frame, end = found
        if frame.index != index:
            text = f"index {index} is missing before {frame.index}"
            raise CorruptLog(path, position, text)
        if frame.term < term:
            text = f"term {frame.term} is after term {term}"
            raise CorruptLog(path, position, text)
        frames.append(frame)
        position, index, term = end, frame.end, frame.term
    return frames, position
