"""The reading side of a log: its four offsets, its segments, and reads from them.

    log start        last stable      high watermark      log end
        |--- sealed segments ---|--- active segment ---------|

`storage/log/log.py` has the operations that change it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from protocol.wire.error_codes import ErrorCode
from storage.files.errors import SegmentRemoved, StorageError
from storage.files.files import FileSystem
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN
from storage.formats.topic_partition import TopicPartition
from storage.log.flush import Unsynced
from storage.log.segment_list import LogContents, SegmentList
from storage.log.service import LogService
from storage.segment.files import Background
from storage.segment.reader import Isolation, ReadResult, find_region
from storage.segment.segment import Segment, SegmentRegion
from storage.segment.timestamp_lookup import TimestampOffset, first_at_or_after, youngest
from storage.state.leader_epochs import LeaderEpochs
from storage.state.log_states import LogStates
from storage.state.producer_state import ProducerStates

PRODUCER_EXPIRATION_MS = 86_400_000
"""Kafka's default of producer.id.expiration.ms."""

READ_TRIES = 3
"""A read takes the list of segments again if a swap has removed one of them meanwhile."""

T = TypeVar("T")


class ReadableLog:
    """One partition's log, for readers. Only `PartitionLog` changes it."""

    __slots__ = (
        "_fs",
        "_jitter",
        "_list",
        "_service",
        "_states",
        "_unsynced",
        "config",
        "high_watermark",
        "identity",
        "leader_epoch",
        "log_end_offset",
    )

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        contents: LogContents,
        config: LogConfig,
        *,
        leader_epoch: int,
        background: Background,
        on_failure: Callable[[StorageError], None],
        jitter: float = 0.0,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
    ) -> None:
        """Take over the result of a recovery. Called by `storage/log/opening.py`.

        Args:
            leader_epoch: stamped on every batch that is appended from now on.
            on_failure: called when the disk fails in a way that takes the directory offline.
            jitter: the fraction of segment.jitter.ms, 0 to 1, that is subtracted from segment.ms.
            producer_expiration_ms: an idle producer is forgotten after this long.
        """
        # Constant after construction
        self._fs = fs
        self._jitter = jitter
        self._service = LogService(
            str(identity.topic_partition), background=background, on_failure=on_failure
        )
        self._states = LogStates(
            fs,
            identity.directory,
            contents.segments,
            log_start_offset=contents.log_start_offset,
            clean_offset=contents.clean_offset,
            epochs=contents.epochs,
            producers=contents.producers,
            aborted=contents.aborted,
            producer_expiration_ms=producer_expiration_ms,
            has_aborted_file=contents.has_aborted_file,
            is_written=contents.postponed is None,
        )
        self._list = SegmentList(fs, identity, contents, self._states, self._service)
        self.identity = identity
        self.leader_epoch = leader_epoch
        # State: log start <= last stable <= high watermark <= log end; none decreases.
        self.config = config
        self.log_end_offset = contents.segments[-1].end_offset
        self.high_watermark = self.log_end_offset
        self._unsynced = Unsynced(self.log_end_offset)

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, [{self.log_start_offset}, {self.log_end_offset}))"

    # ---------------------------------------------------------------- what it is

    @property
    def topic_partition(self) -> TopicPartition:
        return self.identity.topic_partition

    @property
    def topic_id(self) -> uuid.UUID:
        return self.identity.topic_id

    @property
    def directory(self) -> str:
        """The directory that holds its files."""
        return self.identity.directory

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._list.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of the committed part, at which read_committed consumers stop.

        It is below the high watermark while a transaction has no marker below that.
        """
        first_unstable = self._states.transactions.first_unstable
        return max(self.log_start_offset, min(self.high_watermark, first_unstable))

    @property
    def generation(self) -> int:
        """Grows when a cleaning pass that was planned before must not commit."""
        return self._list.generation

    @property
    def clean_offset(self) -> int:
        """The first dirty offset: a finished cleaning pass has seen everything below it."""
        return self._list.clean_offset

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in offset order; the last one is active. Callers must not change them."""
        return self._list.segments

    @property
    def size_bytes(self) -> int:
        """The size of all segment files."""
        return sum(segment.size for segment in self._list.segments)

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers that have written to the log."""
        return self._states.producers

    @property
    def epochs(self) -> LeaderEpochs:
        """The start offsets of its leader epochs."""
        return self._states.epochs

    @property
    def offline_reason(self) -> str | None:
        """Why the log is out of service; None while it is in service."""
        return self._service.offline_reason

    @property
    def is_retired(self) -> bool:
        """Whether its topic was deleted."""
        return self._service.is_retired

    # ---------------------------------------------------------------- reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        whole_first_batch: bool,
        isolation: Isolation,
        last_fetched_epoch: int = UNKNOWN,
        cached_only: bool = False,
    ) -> ReadResult | ErrorCode:
        """Find what a reader at `offset` may get: whole batches below the high watermark.

        Args:
            max_bytes: of batches; with `whole_first_batch` the first one may be larger (KIP-74).
            last_fetched_epoch: of the last record that a follower has; if the follower's log diverges
                from this one, the result says where and has no records (KIP-595). UNKNOWN: no check.
            cached_only: never wait for the disk, for the loop; otherwise, in a worker thread, wait and
                bring the bytes into memory.

        Raises:
            NotCached: `cached_only` is set, and the bytes are not in memory.
            LogOffline: the log is out of service.
            DiskError, CorruptLog: the files cannot be read.
        """
        self._service.check_online()
        diverging = self._divergence(offset, last_fetched_epoch)
        if not self._is_in_range(offset, diverging):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        is_committed = isolation is Isolation.READ_COMMITTED
        bound = self.last_stable_offset if is_committed else self.high_watermark
        region: SegmentRegion | None = None
        aborted: Sequence[tuple[int, int]] = ()
        if offset < bound and diverging is None:
            find = partial(
                find_region,
                offset=offset,
                bound=bound,
                max_bytes=max_bytes,
                whole_first_batch=whole_first_batch,
                cached_only=cached_only,
            )
            if is_committed:
                region, aborted = self._with_aborted(find, offset)
            else:
                region = self._with_segments(find)
        if offset < self.log_start_offset:
            # Retention has moved the log start meanwhile, so the region may lie behind a gap.
            if region is not None:
                region.release()
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ReadResult(
            regions=() if region is None else (region,),
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
            aborted=aborted,
            diverging_epoch=diverging,
        )

    def _with_aborted(
        self, find: Callable[[Sequence[Segment]], SegmentRegion | None], offset: int
    ) -> tuple[SegmentRegion | None, Sequence[tuple[int, int]]]:
        """Find a region, and the aborted transactions that a reader from `offset` has to skip in it.

        Repeats if a cleaning pass commits meanwhile: rows are gone whose records the region may still
        hold, and a row for records that it does not hold would hide later ones of the producer.
        """
        while True:
            aborted = self._states.aborted
            forgotten = aborted.forgotten
            region = self._with_segments(find)
            if region is None:
                return None, ()
            found = aborted.between(offset, region.end_offset)
            if aborted.forgotten == forgotten:
                return region, found
            region.release()

    def _divergence(self, offset: int, epoch: int) -> tuple[int, int] | None:
        """Returns where a reader diverges; None if it does not, or did not send its epoch."""
        if epoch < 0:
            return None
        return self._epochs_as_leader().divergence(epoch, offset, self.log_end_offset)

    def _is_in_range(self, offset: int, diverging: tuple[int, int] | None) -> bool:
        """Returns whether a reader at `offset` gets a result, even if only an offset to truncate to."""
        if diverging is not None:
            return offset >= self.log_start_offset and diverging[1] >= 0
        return self.log_start_offset <= offset <= self.log_end_offset

    def _with_segments(self, find: Callable[[Sequence[Segment]], T]) -> T:
        """Call `find` with the segments, again if a swap removed one meanwhile."""
        for _ in range(READ_TRIES - 1):
            try:
                return find(self._list.segments)
            except SegmentRemoved:
                continue
        return find(self._list.segments)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Returns the first record with this timestamp or a later one; None if there is none.

        Only records below the high watermark count. Raises like `read`.
        """
        self._service.check_online()
        bounds = (self.log_start_offset, self.high_watermark)
        return self._with_segments(lambda segments: first_at_or_after(segments, timestamp, bounds))

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Returns the first record with the largest timestamp; None if there is no record.

        Only records below the high watermark count. Raises like `read`.
        """
        self._service.check_online()
        bounds = (self.log_start_offset, self.high_watermark)
        return self._with_segments(lambda segments: youngest(segments, bounds))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch up to `epoch` and its end offset; (-1, -1) if unknown (KIP-320)."""
        return self._epochs_as_leader().end_offset(epoch, self.log_end_offset)

    def leader_epoch_at(self, offset: int) -> int:
        """Returns the leader epoch in which `offset` was or will be written; -1 if unknown."""
        return self._epochs_as_leader().epoch_at(offset)

    def _epochs_as_leader(self) -> LeaderEpochs:
        return self.epochs.with_leader_epoch(self.leader_epoch, self.log_end_offset)
