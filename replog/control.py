"""The payloads of the entries that are about snapshots.

    START      term of the entry before: int32
    CHUNK      index of the START: int64 | number, from 0: uint32 | bytes of the snapshot's file
    END        index of the START: int64 | chunks: uint32 (0: the snapshot is a file) | bytes: int64
               | set digest: 16 bytes | checksum of the file: 16 bytes
    ABANDONED  index of the START: int64

A snapshot covers the entries up to and including its START, so its end is the START's index + 1. The
paper puts the cluster's configuration into the START; an arbiter keeps ours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from replog.digest import DIGEST_BYTES
from replog.entry import Entry, Kind, SnapshotId

CHUNK_BYTES = 64 << 10
_START = struct.Struct(">i")
_CHUNK = struct.Struct(">qI")
_END = struct.Struct(">qIq16s16s")
_ABANDONED = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The contents of an END entry."""

    start_index: int
    chunks: int
    size: int
    digest: int
    checksum: bytes


def start_payload(previous_term: int) -> bytes:
    """Returns the payload of a START."""
    return _START.pack(previous_term)


def chunk_payload(start_index: int, number: int, data: bytes) -> bytes:
    """Returns the payload of a CHUNK."""
    return _CHUNK.pack(start_index, number) + data


def end_payload(end: End) -> bytes:
    """Returns the payload of an END."""
    digest = end.digest.to_bytes(DIGEST_BYTES, "big")
    return _END.pack(end.start_index, end.chunks, end.size, digest, end.checksum)


def abandoned_payload(start_index: int) -> bytes:
    """Returns the payload of an ABANDONED."""
    return _ABANDONED.pack(start_index)


def decode_end(payload: bytes) -> End:
    """Returns the contents of an END."""
    start_index, chunks, size, digest, checksum = _END.unpack(payload)
    return End(
        start_index=start_index,
        chunks=chunks,
        size=size,
        digest=int.from_bytes(digest, "big"),
        checksum=checksum,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """A complete snapshot in the log."""

    snapshot: SnapshotId
    end: End
    end_index: int
    """The index of its END."""
    data: bytes
    """The bytes of its file."""


def snapshot_in(entries: Iterable[Entry], start_index: int) -> LogSnapshot | None:
    """Returns the snapshot whose START is at `start_index`; None if it is not complete.

    The first pass of a replay: chunks of other snapshots may be in between, and are skipped.
    """
    chunks: list[bytes] = []
    term = None
    for entry in entries:
        if entry.index == start_index and entry.kind is Kind.START:
            term = entry.term
        elif entry.kind is Kind.CHUNK and term is not None:
            of, number = _CHUNK.unpack_from(entry.payload)
            if of == start_index and number == len(chunks):
                chunks.append(entry.payload[_CHUNK.size :])
        elif entry.kind is Kind.END and term is not None:
            end = decode_end(entry.payload)
            if end.start_index == start_index:
                if end.chunks != len(chunks) or not chunks:
                    return None
                return LogSnapshot(
                    snapshot=SnapshotId(start_index + 1, term),
                    end=end,
                    end_index=entry.index,
                    data=b"".join(chunks),
                )
    return None
