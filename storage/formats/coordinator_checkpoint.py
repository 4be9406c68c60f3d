"""The checkpoint of a coordinator's partition (of `__consumer_offsets` or `__transaction_state`).

    file    := header | batch* | footer

    header  :=  magic: byte[4] = "KCCP" | format: uint16 = 2 | header_size: uint16 = 56
                | topic_id: byte[16] | partition: int32 | start_offset: int64 | end_offset: int64
                | last_epoch: int32 | last_crc: uint32 | crc32c of the bytes before: uint32
    batch   :=  a record batch, uncompressed, with the offsets that its records have in the log
    footer  :=  records: int64 | digest: byte[16] | xxh3-128 of everything before: byte[16]

All big-endian. It holds the state that the log's records from `start_offset` (the log start then) up to
`end_offset` add up to. `last_epoch` and `last_crc` are the leader epoch and the CRC of the batch that
ended there. Batches are in offset order and have 64 KiB or more, except where the producer changes; a
batch has a producer only if its transaction was open at the end. Their leader epochs, timestamps and
sequences are -1. `digest` is the sum of the records' hashes (`protocol/records/row_sum.h`).

The format says which records a load counts, too: it is raised when that changes, and a reader ignores
every format but its own.

    format 2    a digest that hashes keys and values where they are
    format 1    the first
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

from protocol.records.batch_scan import crc32c
from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.files.files import Buffer

MAGIC = b"KCCP"
FORMAT = 2
DIGEST_BYTES = 16

_HEADER = struct.Struct(
    ">"
    "4s"  # magic
    "H"  # format
    "H"  # header size
    "16s"  # topic id
    "i"  # partition
    "q"  # start offset
    "q"  # end offset
    "i"  # last epoch
    "I"  # last CRC
)
_CRC = struct.Struct(">I")
_FOOTER = struct.Struct(">q16s")
HEADER_BYTES = _HEADER.size + _CRC.size
FOOTER_BYTES = _FOOTER.size + DIGEST_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHeader:
    """The state that a checkpoint holds, and the place in the log where it stands."""

    topic_id: uuid.UUID
    partition: int
    start_offset: Offset
    """The log start when it was made."""
    end_offset: Offset
    last_epoch: Epoch
    last_crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFooter:
    """The number of a checkpoint's records, their digest, and the checksum of the file."""

    records: int
    digest: int
    checksum: bytes


def encode_header(header: CheckpointHeader) -> bytes:
    """Returns the bytes with which the file begins."""
    data = _HEADER.pack(
        MAGIC,
        FORMAT,
        HEADER_BYTES,
        header.topic_id.bytes,
        header.partition,
        header.start_offset,
        header.end_offset,
        header.last_epoch,
        header.last_crc,
    )
    return data + _CRC.pack(crc32c(data))


def decode_header(data: Buffer, path: str) -> CheckpointHeader:
    """Returns the header of a file; `path` is for messages only.

    Raises:
        DamagedFile: it is damaged, or of an earlier format.
        FormatFromTheFuture: a later release wrote it.
    """
    if len(data) < HEADER_BYTES:
        raise DamagedFile(path, "it is truncated")
    magic, format_, size, topic_id, *rest = _HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if magic == MAGIC and format_ > FORMAT:
        raise FormatFromTheFuture(path, format_, FORMAT)
    if magic != MAGIC or crc != crc32c(data[: _HEADER.size]) or size != HEADER_BYTES:
        raise DamagedFile(path, "its header is damaged, or it is not a checkpoint")
    if format_ < FORMAT:
        raise DamagedFile(path, f"an earlier release wrote it, in format {format_}")
    partition, start_offset, end_offset, last_epoch, last_crc = rest
    return CheckpointHeader(
        topic_id=uuid.UUID(bytes=topic_id),
        partition=partition,
        start_offset=Offset(start_offset),
        end_offset=Offset(end_offset),
        last_epoch=Epoch(last_epoch),
        last_crc=last_crc,
    )


def encode_counts(records: int, digest: int) -> bytes:
    """Returns the footer without its checksum, which is taken over these bytes too."""
    return _FOOTER.pack(records, digest.to_bytes(DIGEST_BYTES, "big"))


def decode_footer(data: Buffer, path: str) -> CheckpointFooter:
    """Returns the footer in the last `FOOTER_BYTES` bytes of a file; the caller checks the checksum.

    Raises:
        DamagedFile: there are fewer bytes.
    """
    if len(data) < FOOTER_BYTES:
        raise DamagedFile(path, "it is truncated")
    records, digest = _FOOTER.unpack_from(data)
    return CheckpointFooter(
        records=records,
        digest=int.from_bytes(digest, "big"),
        checksum=bytes(data[_FOOTER.size : FOOTER_BYTES]),
    )
