"""Feeds the state of a coordinator's partition to a scan: from its checkpoint and the log after it.

If the checkpoint does not count, it is removed and the whole log is fed: a checkpoint saves time and
never decides what the state is. It is removed before the partition is served, because the log may grow
past its end later, with other records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cleaner.checkpoints.reading import CheckpointReader
from cleaner.checkpoints.validity import GAP, objection, place_in
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Offset
from storage.files.errors import (
    DamagedFile,
    FormatFromTheFuture,
    MissingFile,
    StorageError,
)
from storage.files.files import unlink_if_there
from storage.files.paths import checkpoint_path
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation

_log = logging.getLogger("server.coordination.state_loading")

PIECE_BYTES = 256 << 10
"""Size of a piece that a load reads; decoding one holds the interpreter for about a millisecond."""


class LoadFailed(StorageError):
    """A partition cannot be loaded: its content is not understood, or it cannot be read."""


class Scan(Protocol):
    """The state that records add up to, fed in log order. `OffsetScan` is one."""

    def feed(self, buffer: bytes | memoryview, /) -> int:
        """Read whole batches. Returns the offset after the last one."""

    def sum_records(self, sums: bool, /) -> None: ...
    def expect(self, next_offset: int, /) -> None: ...
    @property
    def is_gapless(self) -> bool: ...
    @property
    def digest(self) -> int: ...


S = TypeVar("S", bound=Scan)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint:
    """A checkpoint that a load has used."""

    end_offset: Offset
    size: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """How a partition was loaded."""

    checkpoint: LoadedCheckpoint | None
    """None if the whole log was read."""
    bytes_read: int
    seconds: float


class _DoesNotCount(Exception):
    """The checkpoint cannot be used, for the reason given."""


def load_state(
    log: PartitionLog, end_offset: Offset, new_scan: Callable[[], S]
) -> tuple[S, LoadReport]:
    """Feed a new scan with the state of a partition at `end_offset`, its high watermark. Blocks.

    Raises:
        ProtocolError, StorageError: the log cannot be read.
    """
    started = time.monotonic()
    scan = new_scan()
    found = _with_checkpoint(log, end_offset, scan)
    if found is None:
        scan = new_scan()
        found = None, feed_log(log, log.log_start_offset, end_offset, scan.feed)
    used, bytes_read = found
    seconds = time.monotonic() - started
    return scan, LoadReport(checkpoint=used, bytes_read=bytes_read, seconds=seconds)


def _with_checkpoint(
    log: PartitionLog, end_offset: Offset, scan: Scan
) -> tuple[LoadedCheckpoint | None, int] | None:
    """Feed a scan with the checkpoint and the log after it. Returns the checkpoint and the bytes read;
    None if no checkpoint counts: what the scan was fed is worth nothing then."""
    try:
        used = _feed_checkpoint(log, scan)
        return used, used.size + _feed_after(log, used.end_offset, end_offset, scan)
    except MissingFile:
        return None
    except _DoesNotCount as reason:
        _give_up(log, str(reason))
        return None


def _feed_checkpoint(log: PartitionLog, scan: Scan) -> LoadedCheckpoint:
    """Feed a scan with the partition's checkpoint.

    Raises:
        MissingFile: there is none.
        _DoesNotCount: it cannot be used.
    """
    fs, path = log.segments[-1].fs, checkpoint_path(log.directory)
    try:
        with CheckpointReader(fs, path) as reader:
            reason = objection(reader.header, place_in(log, reader.header.end_offset))
            if reason is not None:
                raise _DoesNotCount(reason)
            scan.sum_records(True)
            for piece in reader.pieces():
                scan.feed(piece)
            scan.sum_records(False)
            if scan.digest != reader.footer.digest:
                raise _DoesNotCount("the digest of its records differs")
            return LoadedCheckpoint(
                end_offset=reader.header.end_offset,
                size=reader.size,
                records=reader.footer.records,
            )
    except (DamagedFile, FormatFromTheFuture, ProtocolError) as error:
        raise _DoesNotCount(str(error)) from error


def _feed_after(log: PartitionLog, start: Offset, end_offset: Offset, scan: Scan) -> int:
    """Feed a scan with the log after a checkpoint. Returns the bytes read."""
    next_offset: int = start
    scan.expect(start)

    def feed(piece: bytes) -> int:
        nonlocal next_offset
        next_offset = scan.feed(piece)
        if not scan.is_gapless:
            raise _DoesNotCount(GAP)
        return next_offset

    bytes_read = feed_log(log, start, end_offset, feed)
    if next_offset < end_offset:
        raise _DoesNotCount(GAP)
    return bytes_read


def _give_up(log: PartitionLog, reason: str) -> None:
    """Remove a checkpoint that does not count, durably. Raises StorageError."""
    path = checkpoint_path(log.directory)
    _log.warning("%s does not count: %s; reading the whole log", path, reason)
    fs = log.segments[-1].fs
    unlink_if_there(fs, path)
    fs.sync_directory(path.rpartition("/")[0])


def feed_log(
    log: PartitionLog, offset: Offset, end_offset: int, feed: Callable[[bytes], int]
) -> int:
    """Read a log from `offset` up to `end_offset`, in pieces of whole batches. Blocks.

    Args:
        feed: takes a piece; returns the offset after its last batch.

    Returns:
        The bytes read.

    Raises:
        StorageError: it cannot be read.
    """
    bytes_read = 0
    while offset < end_offset:
        read = log.reader.read(
            offset,
            max_bytes=PIECE_BYTES,
            whole_first_batch=True,
            isolation=Isolation.READ_UNCOMMITTED,
        )
        if isinstance(read, ErrorCode):
            raise LoadFailed(f"{log.topic_partition}: offset {offset}: {read.message}")
        try:
            pieces = [region.read_bytes() for region in read.regions]
        finally:
            read.release()
        if not pieces:
            break  # Only batches without records are left.
        for piece in pieces:
            offset = Offset(feed(piece))
            bytes_read += len(piece)
    return bytes_read
