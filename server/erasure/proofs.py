"""What a broker has read of logs for erasures: which keys are gone, and which files must go.

A proof begins with a view of the log. First the files beside the log are listed that the view lacks:
these may have records that the log no longer has. Then every record of the view is read. Files that
appear later are made from the segments of the view. Nothing of it is stored: a restart does it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cleaner.inspect.key_traces import KeyTraces
from cleaner.pool.pool import CleanerPool
from protocol.records.batch_header import read_header
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.erasure.certificate import PartitionProof
from server.erasure.needs import Tombstone
from server.runtime.executors import Executor
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.kept_copies import KeptCopy, SegmentName, kept_copies
from storage.formats.key_sidecar import hash_key_check
from storage.log.cleaning_view import CleaningView
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation
from storage.threads import loop_thread
from storage.undo.undo_file import EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProof:
    """The result of one reading of a log, for several keys."""

    traces: KeyTraces
    suspects: frozenset[str]
    """Paths of files beside the log that may have had records which the log no longer has."""
    read_ms: int
    rewrites: int
    """`PartitionLog.rewrites` before the reading: records may come back when it grows."""

    def holds_for(self, log: PartitionLog) -> bool:
        """Returns whether no undo, truncation or resync has changed the log since: one of these may have
        brought records back that were gone."""
        return self.rewrites == log.rewrites

    def partition_proof(
        self, key_hash: bytes, below: int, *, tombstone: int | None, had_records: bool, now_ms: int
    ) -> PartitionProof:
        """Returns what it shows about one key, for a certificate."""
        view = self.traces.view
        return PartitionProof(
            partition=view.topic_partition.partition,
            below=below,
            had_records=had_records,
            tombstone=tombstone,
            key_hash=key_hash.hex(),
            secret=hash_key_check(view.hash_key).hex(),
            generation=view.generation,
            clean_offset=view.clean_offset,
            log_start_offset=view.log_start_offset,
            segments=len(view.segments),
            records_read=self.traces.records,
            bytes_read=self.traces.bytes_read,
            read_ms=self.read_ms,
            unlinked_ms=now_ms,
        )


@loop_thread
class Prover:
    """Reads logs for erasures."""

    __slots__ = ("_fs", "_pool", "_threads")

    def __init__(self, pool: CleanerPool, fs: FileSystem, *, threads: Executor) -> None:
        """
        Args:
            threads: list directories, sync them, and read single batches.
        """
        self._pool = pool
        self._fs = fs
        self._threads = threads

    async def prove(
        self, log: PartitionLog, hashes: Collection[bytes], end_offset: int, now_ms: int
    ) -> LogProof:
        """Read a log below an offset, without trusting any key sidecar. Changes nothing.

        Raises:
            CleaningAborted, ProtocolError, StorageError: as `CleanerPool.trace_keys`.
        """
        suspects: frozenset[str] = frozenset()
        rewrites = log.rewrites

        def list_files(view: CleaningView) -> None:
            nonlocal suspects
            suspects = suspects_beside(self._fs, log.directory, view)

        traces = await self._pool.trace_keys(
            log,
            hashes,
            end_offset=Offset(end_offset),
            trusts_sidecars=False,
            before=list_files,
        )
        return LogProof(traces=traces, suspects=suspects, read_ms=now_ms, rewrites=rewrites)

    async def left_of(self, log: PartitionLog, proof: LogProof, *, drops: bool) -> list[KeptCopy]:
        """Returns the suspects that are still there. If there is none, their removal is durable.

        Args:
            drops: remove those that are kept solely for an undo. Only once the proof has found
                nothing: else they may be needed.

        Raises StorageError.
        """
        return await self._threads.run(left_of, self._fs, log, proof.suspects, drops=drops)

    async def drop_key_sidecars(self, proof: LogProof) -> None:
        """Remove the key sidecars of the segments that were read, because one is wrong.

        Raises StorageError.
        """
        await self._threads.run(_drop_key_sidecars, proof.traces.view)

    async def tombstones_at(
        self, log: PartitionLog, offsets: Sequence[int]
    ) -> Mapping[int, Tombstone]:
        """Returns the tombstones at these offsets, as they are now. Raises StorageError."""
        return await self._threads.run(tombstones_at, log, offsets)


def suspects_beside(fs: FileSystem, directory: str, view: CleaningView) -> frozenset[str]:
    """Returns the paths of files beside a log that a view of it lacks. A worker thread. Raises
    DiskError."""
    names = {(each.row.base_offset, each.row.file_version) for each in view.segments}
    return frozenset(each.path for each in kept_copies(fs, directory, lambda: names))


def left_of(
    fs: FileSystem, log: PartitionLog, suspects: frozenset[str], *, drops: bool
) -> list[KeptCopy]:
    """Returns the suspects that are still there. See `Prover.left_of`. A worker thread."""
    if drops and suspects and log.passes_kept:
        log.drop_passes_kept(EndReason.ERASED)
    copies = kept_copies(fs, log.directory, lambda: _segments(log), _undoable(log))
    left = [each for each in copies if each.path in suspects]
    if not left:
        fs.sync_directory(log.directory)
    return left


def _undoable(log: PartitionLog) -> set[SegmentName]:
    return {(row.base_offset, row.file_version) for each in log.passes_kept for row in each.sources}


def _segments(log: PartitionLog) -> set[SegmentName]:
    return {(each.base_offset, each.file_version) for each in log.segments}


def _drop_key_sidecars(view: CleaningView) -> None:
    for segment in view.segments:
        segment.drop_key_sidecar()


def tombstones_at(log: PartitionLog, offsets: Sequence[int]) -> dict[int, Tombstone]:
    """Returns the tombstones at these offsets, as they are now. A worker thread."""
    return {offset: _tombstone_at(log, Offset(offset)) for offset in offsets}


def _tombstone_at(log: PartitionLog, offset: Offset) -> Tombstone:
    """Returns the tombstone at an offset, which is a batch of its own."""
    result = log.reader.read(
        offset, max_bytes=1, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    if isinstance(result, ErrorCode):
        if result is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise StorageError(f"{log.topic_partition}: {result.message}")
        return Tombstone(is_gone=offset < log.log_start_offset)
    if not result.regions:
        # Nothing is left at or above it that a reader gets.
        return Tombstone(is_gone=offset < log.high_watermark)
    (region, *others) = result.regions
    try:
        header = read_header(region.read_bytes())
    finally:
        for each in (region, *others):
            each.release()
    is_there = header.base_offset <= offset <= header.last_offset and header.record_count > 0
    return Tombstone(
        is_gone=not is_there, horizon_ms=header.delete_horizon_ms if is_there else None
    )
