"""The undo file of a log: which passes can be undone, and what that takes.

    <log's directory>/undo

    file   := magic: byte[4] = "KUND" | format: uint16 | header_size: uint16 | row_size: uint16
              | reserved: uint16 | pass_count: uint32 | pass{pass_count} | checksum
    pass   := size: uint32, of what follows | number: int64 | kept_ms: int64 | clean_offset: int64
              | state: uint16 | flags: uint16 | swap_count: uint32 | aborted_count: uint32
              | swap{swap_count} | aborted{aborted_count}
    swap   := source_count: uint32 | output_count: uint32 | row{source_count} | row{output_count}
    row    := as in the manifest (storage/formats/manifest.py)
    aborted := producer_id: int64 | first_offset: int64 | marker_offset: int64
    checksum := xxh3-64 of all before it: uint64

All big-endian. Passes are in their order, the newest last. State 0: the pass can be undone; other
states are reasons why it no longer can be (`EndReason`), and such a pass has no swaps. `row_size` is
that of the manifest's rows, which a later release may lengthen; a reader skips what it does not know at
the end of a row, of a pass and of the header.

The file counts only if the manifest's flag `FLAG_UNDO_FILE` is set. So a commit that clears the flag
ends all entries at once.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import xxhash

from protocol.wire.numbers import Offset
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.formats.manifest import ROW, TOMBSTONES, SegmentRow, decode_row, encode_row
from storage.state.aborted_transactions import Row as AbortedRow

MAGIC = b"KUND"
FORMAT = 1
HEADER = struct.Struct(">4sHHHHI")
SIZE = struct.Struct(">I")
PASS = struct.Struct(">qqqHHII")
ROW_BYTES = ROW.size + TOMBSTONES.size
COUNTS = struct.Struct(">II")
ABORTED = struct.Struct(">qqq")
CHECKSUM = struct.Struct(">Q")

# On disk: values never change.
FLAG_HISTORY = 1
"""Before the pass, keys could have older values below the clean offset."""
FLAG_UNFINISHED_PASS = 2
"""Before the pass, another pass had swapped segments and not ended."""

assert HEADER.size == 16
assert PASS.size == 36


class EndReason(enum.IntEnum):
    """Why a pass can no longer be undone. On disk: values never change."""

    UNDONE = 1
    EXPIRED = 2
    BYTES = 3
    DISK = 4
    OFF = 5
    LATER_PASS = 6
    TRUNCATED = 7
    RETENTION = 8
    ERASED = 9
    REPLACED = 10
    LOST = 11
    COUNT = 12

    @classmethod
    def _missing_(cls, value: object) -> EndReason:
        """A reason that a later release has written."""
        return cls.LOST


@dataclass(frozen=True, slots=True)
class KeptSwap:
    """One swap of a pass: adjacent segments, and what has replaced them."""

    sources: tuple[SegmentRow, ...]
    outputs: tuple[SegmentRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPass:
    """A pass whose replaced segments are kept."""

    number: int
    """A file version of the log, so no pass of the log has it again."""
    kept_ms: int
    """The wall time of its last swap; `compaction.undo.ms` counts from here."""
    clean_offset: Offset
    """The clean offset before the pass."""
    has_history: bool = False
    has_unfinished_pass: bool = False
    """These two flags of the manifest before the pass."""
    swaps: tuple[KeptSwap, ...] = ()
    aborted: tuple[AbortedRow, ...] = field(default=(), repr=False)
    """The aborted transactions that the log has forgotten because of the pass, in the order of their
    markers."""

    @property
    def size_bytes(self) -> int:
        """The size of the segments that it keeps."""
        return sum(row.size for swap in self.swaps for row in swap.sources)

    @property
    def sources(self) -> tuple[SegmentRow, ...]:
        """The rows of all segments that it keeps."""
        return tuple(row for swap in self.swaps for row in swap.sources)

    @property
    def outputs(self) -> tuple[SegmentRow, ...]:
        """The rows of all segments that have replaced them."""
        return tuple(row for swap in self.swaps for row in swap.outputs)


@dataclass(frozen=True, slots=True)
class EndedPass:
    """A pass that can no longer be undone, and why."""

    number: int
    ended_ms: int
    reason: EndReason


def encode(ended: Sequence[EndedPass], kept: Sequence[KeptPass]) -> bytes:
    """Returns the bytes of an undo file."""
    body = bytearray(HEADER.pack(MAGIC, FORMAT, HEADER.size, ROW_BYTES, 0, len(ended) + len(kept)))
    for end in ended:
        entry = PASS.pack(end.number, end.ended_ms, 0, end.reason, 0, 0, 0)
        body += SIZE.pack(len(entry)) + entry
    for each in kept:
        entry = _encode_pass(each)
        body += SIZE.pack(len(entry)) + entry
    return bytes(body + CHECKSUM.pack(xxhash.xxh3_64_intdigest(body)))


def _encode_pass(each: KeptPass) -> bytes:
    flags = FLAG_HISTORY * each.has_history | FLAG_UNFINISHED_PASS * each.has_unfinished_pass
    numbers = (each.number, each.kept_ms, each.clean_offset, 0, flags)
    entry = bytearray(PASS.pack(*numbers, len(each.swaps), len(each.aborted)))
    for swap in each.swaps:
        entry += COUNTS.pack(len(swap.sources), len(swap.outputs))
        for row in (*swap.sources, *swap.outputs):
            entry += encode_row(row)
    for aborted in each.aborted:
        entry += ABORTED.pack(*aborted)
    return bytes(entry)


def decode(data: bytes, path: str) -> tuple[tuple[EndedPass, ...], tuple[KeptPass, ...]]:
    """Decode an undo file; `path` is for messages only.

    Raises:
        FormatFromTheFuture: a later release wrote it in a format that this one cannot read.
        DamagedFile: it is cut short, its checksum differs, or it contradicts itself.
    """
    header_size, row_size, count = _check_frame(data, path)
    ended: list[EndedPass] = []
    kept: list[KeptPass] = []
    position = header_size
    try:
        for _ in range(count):
            (size,) = SIZE.unpack_from(data, position)
            position += SIZE.size
            number, at_ms, _, state, *_ = PASS.unpack_from(data, position)
            if state == 0:
                kept.append(_decode_pass(data, position, row_size))
            else:
                ended.append(EndedPass(number, at_ms, EndReason(state)))
            position += size
    except (struct.error, ValueError) as error:
        raise DamagedFile(path, f"a pass in it does not decode: {error}") from error
    if position != len(data) - CHECKSUM.size:
        raise DamagedFile(path, f"{len(data)} bytes do not hold {count} passes")
    return tuple(ended), tuple(kept)


def _check_frame(data: bytes, path: str) -> tuple[int, int, int]:
    """Check magic, checksum and format. Returns the sizes of header and row, and the count of passes."""
    if len(data) < HEADER.size + CHECKSUM.size:
        raise DamagedFile(path, f"only {len(data)} bytes long")
    magic, format_version, header_size, row_size, _, count = HEADER.unpack_from(data)
    checked = memoryview(data)[: -CHECKSUM.size]
    (checksum,) = CHECKSUM.unpack_from(data, len(checked))
    if magic != MAGIC or checksum != xxhash.xxh3_64_intdigest(checked):
        raise DamagedFile(path, "its checksum differs")
    if format_version > FORMAT:
        raise FormatFromTheFuture(path, format_version, FORMAT)
    if header_size < HEADER.size or row_size < ROW_BYTES:
        raise DamagedFile(path, f"header of {header_size} and rows of {row_size} bytes")
    return header_size, row_size, count


def _decode_pass(data: bytes, position: int, row_size: int) -> KeptPass:
    number, kept_ms, clean_offset, _, flags, swap_count, aborted_count = PASS.unpack_from(
        data, position
    )
    position += PASS.size
    swaps: list[KeptSwap] = []
    for _ in range(swap_count):
        source_count, output_count = COUNTS.unpack_from(data, position)
        position += COUNTS.size
        starts = range(position, position + row_size * (source_count + output_count), row_size)
        rows = tuple(decode_row(data, start, row_size) for start in starts)
        swaps.append(KeptSwap(rows[:source_count], rows[source_count:]))
        position += row_size * len(rows)
    return KeptPass(
        number=number,
        kept_ms=kept_ms,
        clean_offset=clean_offset,
        has_history=bool(flags & FLAG_HISTORY),
        has_unfinished_pass=bool(flags & FLAG_UNFINISHED_PASS),
        swaps=tuple(swaps),
        aborted=tuple(
            ABORTED.unpack_from(data, position + ABORTED.size * index)
            for index in range(aborted_count)
        ),
    )
