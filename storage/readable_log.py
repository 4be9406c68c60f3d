"""A log as its readers have it: its four offsets, its segments, and what may be read of it.

    log start        last stable      high watermark      log end
        |--- sealed segments ---|--- active segment ---------|

`storage/log.py` is how it changes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from protocol.error_codes import ErrorCode
from storage.errors import SegmentRemoved, StorageError
from storage.files import FileSystem
from storage.flush import Unsynced
from storage.leader_epochs import LeaderEpochs
from storage.log_config import LogConfig
from storage.log_identity import LogIdentity
from storage.log_service import LogService
from storage.log_states import LogStates
from storage.manifest import UNKNOWN
from storage.producer_state import ProducerStates
from storage.reader import Isolation, ReadResult, find_region
from storage.segment import Segment, SegmentRegion
from storage.segment_files import Background
from storage.segment_list import LogContents, SegmentList
from storage.timestamp_lookup import TimestampOffset, first_at_or_after, youngest
from storage.topic_partition import TopicPartition

PRODUCER_EXPIRATION_MS = 86_400_000
"""Kafka's default of producer.id.expiration.ms."""

READ_TRIES = 3
"""A read takes the list of segments again when a swap removed one of them meanwhile."""

T = TypeVar("T")


class ReadableLog:
    """What there is of one partition's log. `PartitionLog` alone changes it."""

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
        """Take over what recovery found; `storage/log_opening.py` is who calls this.

        Args:
            leader_epoch: stamped on everything that is appended from now on.
            on_failure: told when the disk failed in a way that takes the directory offline.
            jitter: the part of segment.jitter.ms, 0 to 1, that is taken off segment.ms.
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
            is_written=contents.put_off is None,
        )
        self._list = SegmentList(fs, identity, contents, self._states, self._service)
        self.identity = identity
        self.leader_epoch = leader_epoch
        # State: log start <= last stable <= high watermark <= log end; none goes back.
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
        """Where its files are."""
        return self.identity.directory

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._list.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of what no transaction may still change, for readers of committed records.

        It is below the high watermark while a transaction has no marker below it.
        """
        first_unstable = self._states.transactions.first_unstable
        return max(self.log_start_offset, min(self.high_watermark, first_unstable))

    @property
    def generation(self) -> int:
        """Grows when a cleaning pass that was planned before must not commit any more."""
        return self._list.generation

    @property
    def clean_offset(self) -> int:
        """The first dirty offset: everything below was seen by a finished cleaning pass."""
        return self._list.clean_offset

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in offset order; the last one is active. Not to be changed."""
        return self._list.segments

    @property
    def size_bytes(self) -> int:
        """Bytes of all segment files."""
        return sum(segment.size for segment in self._list.segments)

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers that have written to it."""
        return self._states.producers

    @property
    def epochs(self) -> LeaderEpochs:
        """Where its leader epochs begin."""
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
        """Find what a reader at `offset` may be sent: whole batches below the high watermark.

        Args:
            max_bytes: of batches; with `whole_first_batch` the first one may be larger (KIP-74).
            last_fetched_epoch: of the last record that a follower has; where its log has left
                this one it is told so, and gets no records (KIP-595). Unknown: not checked.
            cached_only: never wait for the disk, as on the loop; else, in a worker thread, wait and
                bring what is found into memory.

        Raises:
            NotCached: `cached_only`, and it is not in memory.
            LogOffline: the log is out of service.
            DiskError, CorruptLog: what is on disk cannot be read.
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
            look = partial(
                find_region,
                offset=offset,
                bound=bound,
                max_bytes=max_bytes,
                whole_first_batch=whole_first_batch,
                cached_only=cached_only,
            )
            if is_committed:
                region, aborted = self._with_aborted(look, offset)
            else:
                region = self._with_segments(look)
        if offset < self.log_start_offset:
            # Retention has been at work meanwhile, and what was found may lie beyond a gap.
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
        self, look: Callable[[Sequence[Segment]], SegmentRegion | None], offset: int
    ) -> tuple[SegmentRegion | None, Sequence[tuple[int, int]]]:
        """Find a region, and the aborted transactions that a reader from `offset` has to skip in it.

        Again if a pass was committed meanwhile: what the region may still hold has no row any more,
        and a row for what it does not hold would hide what the producer wrote later.
        """
        while True:
            aborted = self._states.aborted
            forgotten = aborted.forgotten
            region = self._with_segments(look)
            if region is None:
                return None, ()
            found = aborted.between(offset, region.end_offset)
            if aborted.forgotten == forgotten:
                return region, found
            region.release()

    def _divergence(self, offset: int, epoch: int) -> tuple[int, int] | None:
        """Where a reader leaves this log; None if it doesn't, or did not say its epoch."""
        if epoch < 0:
            return None
        return self._led_epochs().divergence(epoch, offset, self.log_end_offset)

    def _is_in_range(self, offset: int, diverging: tuple[int, int] | None) -> bool:
        """Whether there is an answer for a reader at `offset`, if only where to go back to."""
        if diverging is not None:
            return offset >= self.log_start_offset and diverging[1] >= 0
        return self.log_start_offset <= offset <= self.log_end_offset

    def _with_segments(self, look: Callable[[Sequence[Segment]], T]) -> T:
        """Look at the segments, again if a swap removed one meanwhile."""
        for _ in range(READ_TRIES - 1):
            try:
                return look(self._list.segments)
            except SegmentRemoved:
                continue
        return look(self._list.segments)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with this timestamp or a later one; None if there is none.

        Only records below the high watermark count. Raises as `read`.
        """
        self._service.check_online()
        bounds = (self.log_start_offset, self.high_watermark)
        return self._with_segments(lambda segments: first_at_or_after(segments, timestamp, bounds))

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None if there is no record.

        Only records below the high watermark count. Raises as `read`.
        """
        self._service.check_online()
        bounds = (self.log_start_offset, self.high_watermark)
        return self._with_segments(lambda segments: youngest(segments, bounds))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and its end offset; (-1, -1) if unknown (KIP-320)."""
        return self._led_epochs().end_offset(epoch, self.log_end_offset)

    def leader_epoch_at(self, offset: int) -> int:
        """The leader epoch that `offset` was or will be written in; -1 if unknown."""
        return self._led_epochs().epoch_at(offset)

    def _led_epochs(self) -> LeaderEpochs:
        return self.epochs.led_in(self.leader_epoch, self.log_end_offset)
