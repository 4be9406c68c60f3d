"""Reads from a log: batches at an offset, offsets of timestamps, ends of leader epochs.

A read waits for no lock: appends, swaps and moves of the log start continue beside it. `LogReader`
repeats what one of them has made invalid, and `storage/segment/reader.py` finds the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.files.errors import SegmentRemoved
from storage.log.log_service import LogService
from storage.log.offsets import LogOffsets
from storage.log.segment_list import SegmentList
from storage.segment.reader import Isolation, ReadResult, SegmentRegion, find_region
from storage.segment.segment import Segment
from storage.segment.timestamp_lookup import TimestampOffset, first_at_or_after, youngest
from storage.state.leader_epochs import UNKNOWN_EPOCH, EpochEnd, LeaderEpochs
from storage.state.log_states import LogStates
from storage.threads import any_thread

READ_TRIES = 3
"""A read takes the list of segments again if a swap has removed one of them meanwhile."""

T = TypeVar("T")


@any_thread
class LogReader:
    """Reads from one log. Its `PartitionLog` owns it; reading changes nothing."""

    __slots__ = ("_leader_epoch", "_list", "_offsets", "_service", "_states")

    def __init__(
        self,
        offsets: LogOffsets,
        segment_list: SegmentList,
        states: LogStates,
        service: LogService,
        *,
        leader_epoch: Epoch,
    ) -> None:
        # Constant after construction
        self._offsets = offsets
        self._list = segment_list
        self._states = states
        self._service = service
        # State
        self._leader_epoch = leader_epoch

    def lead_in(self, epoch: Epoch) -> None:
        """Answer as a leader of this epoch from now on."""
        self._leader_epoch = epoch

    def read(
        self,
        offset: Offset,
        *,
        max_bytes: int,
        whole_first_batch: bool,
        isolation: Isolation,
        last_fetched_epoch: Epoch = UNKNOWN_EPOCH,
        with_empty_batches: bool = False,
        cached_only: bool = False,
    ) -> ReadResult | ErrorCode:
        """Find what a reader at `offset` may get: whole batches below the high watermark.

        Args:
            max_bytes: of batches; with `whole_first_batch` the first one may be larger (KIP-74).
            last_fetched_epoch: of the last record that a follower has; if the follower's log diverges
                from this one, the result says where and has no records (KIP-595). -1: no check.
            with_empty_batches: begin also with a batch without records, for a follower
                (`storage/segment/reader.py`).
            cached_only: never wait for the disk, for the loop; otherwise, in a worker thread, wait and
                bring the bytes into memory.

        Raises:
            NotCached: `cached_only` is set, and the bytes are not in memory.
            LogOffline: the log is out of service.
            DiskError, CorruptLog: the files cannot be read.
        """
        self._service.check_online()
        while True:
            replacements = self._list.replacements
            result = self._read(
                offset,
                max_bytes,
                whole_first_batch,
                isolation,
                last_fetched_epoch,
                with_empty_batches,
                cached_only,
            )
            # As in `_in_one_log`, inline for speed.
            if self._list.replacements == replacements and replacements % 2 == 0:
                return result
            if isinstance(result, ReadResult):
                result.release()
            self._list.wait_for_replacement()

    def ends(
        self, offset: Offset, *, last_fetched_epoch: Epoch = UNKNOWN_EPOCH
    ) -> ReadResult | ErrorCode:
        """Returns what `read` says beside the records, for a reader that gets these otherwise.

        Raises:
            LogOffline: the log is out of service.
        """
        self._service.check_online()
        return self._in_one_log(partial(self._ends, offset, last_fetched_epoch))

    def _ends(self, offset: Offset, last_fetched_epoch: Epoch) -> ReadResult | ErrorCode:
        diverging = self._divergence(offset, last_fetched_epoch)
        if not self._is_in_range(offset, diverging):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        # The last stable offset first: both only grow, and it must not lie above the high watermark.
        last_stable = self._offsets.last_stable
        return ReadResult(
            regions=(),
            high_watermark=self._offsets.high_watermark,
            last_stable_offset=last_stable,
            log_start_offset=self._offsets.start,
            diverging_epoch=diverging,
        )

    def region_below(
        self,
        offset: Offset,
        bound: Offset,
        *,
        max_bytes: int,
        whole_first_batch: bool,
        cached_only: bool,
    ) -> SegmentRegion | None:
        """Find whole batches from `offset` on and below `bound`.

        Returns None if there are none, or if the log was replaced meanwhile. Arguments and errors as
        `read`.
        """
        self._service.check_online()
        replacements = self._list.replacements
        region = self._with_segments(
            partial(
                find_region,
                offset=offset,
                bound=bound,
                max_bytes=max_bytes,
                whole_first_batch=whole_first_batch,
                with_empty_batches=False,
                cached_only=cached_only,
            )
        )
        if region is not None and self._list.replacements != replacements:
            region.release()
            return None
        return region

    def _read(
        self,
        offset: Offset,
        max_bytes: int,
        whole_first_batch: bool,
        isolation: Isolation,
        last_fetched_epoch: Epoch,
        with_empty_batches: bool,
        cached_only: bool,
    ) -> ReadResult | ErrorCode:
        """Read once. A replacement of the log may come in between."""
        diverging = self._divergence(offset, last_fetched_epoch)
        if not self._is_in_range(offset, diverging):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        is_committed = isolation is Isolation.READ_COMMITTED
        # Read once: to a mirror or a comparison, an answer without records up to one of these means that
        # there are none, and in a worker thread they may advance after the search.
        last_stable, high_watermark = self._offsets.last_stable, self._offsets.high_watermark
        bound = last_stable if is_committed else high_watermark
        region: SegmentRegion | None = None
        aborted: Sequence[tuple[ProducerId, Offset]] = ()
        if offset < bound and diverging is None:
            find = partial(
                find_region,
                offset=offset,
                bound=bound,
                max_bytes=max_bytes,
                whole_first_batch=whole_first_batch,
                with_empty_batches=with_empty_batches,
                cached_only=cached_only,
            )
            if is_committed:
                region, aborted = self._with_aborted(find, offset)
            else:
                region = self._with_segments(find)
        if offset < self._offsets.start:
            # Retention has moved the log start meanwhile, so the region may lie after a gap.
            if region is not None:
                region.release()
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ReadResult(
            regions=() if region is None else (region,),
            high_watermark=high_watermark,
            last_stable_offset=last_stable,
            log_start_offset=self._offsets.start,
            aborted=aborted,
            diverging_epoch=diverging,
        )

    def _with_aborted(
        self, find: Callable[[Sequence[Segment]], SegmentRegion | None], offset: Offset
    ) -> tuple[SegmentRegion | None, Sequence[tuple[ProducerId, Offset]]]:
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

    def _in_one_log(self, find: Callable[[], T]) -> T:
        """Call `find`, again if a replacement of the log begins or ends meanwhile.

        The offsets, segments and states that it uses would be those of two logs: with the aborted
        transactions of the other log, a reader would skip committed records, or get aborted ones.
        """
        while True:
            replacements = self._list.replacements
            found = find()
            if self._list.replacements == replacements and replacements % 2 == 0:
                return found
            self._list.wait_for_replacement()

    def _divergence(self, offset: Offset, epoch: Epoch) -> EpochEnd | None:
        """Returns where a reader diverges; None if it does not, or did not send its epoch."""
        if epoch < 0:
            return None
        return self._epochs_as_leader().divergence(epoch, offset, self._offsets.end)

    def _is_in_range(self, offset: Offset, diverging: EpochEnd | None) -> bool:
        """Returns whether a reader at `offset` gets a result, even if only an offset to truncate to."""
        if diverging is not None:
            return offset >= self._offsets.start and diverging[1] >= 0
        return self._offsets.start <= offset <= self._offsets.end

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

        def find() -> TimestampOffset | None:
            bounds = (self._offsets.start, self._offsets.high_watermark)
            return self._with_segments(
                partial(first_at_or_after, timestamp=timestamp, bounds=bounds)
            )

        return self._in_one_log(find)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Returns the first record with the largest timestamp; None if there is no record.

        Only records below the high watermark count. Raises like `read`.
        """
        self._service.check_online()

        def find() -> TimestampOffset | None:
            bounds = (self._offsets.start, self._offsets.high_watermark)
            return self._with_segments(partial(youngest, bounds=bounds))

        return self._in_one_log(find)

    def end_offset_for_epoch(self, epoch: Epoch) -> EpochEnd:
        """Returns the largest epoch up to `epoch` and its end offset; (-1, -1) if unknown (KIP-320)."""
        return self._in_one_log(
            lambda: self._epochs_as_leader().end_offset(epoch, self._offsets.end)
        )

    def leader_epoch_at(self, offset: Offset) -> Epoch:
        """Returns the leader epoch in which `offset` was or will be written; -1 if unknown."""
        return self._in_one_log(lambda: self._epochs_as_leader().epoch_at(offset))

    def _epochs_as_leader(self) -> LeaderEpochs:
        return self._states.epochs.with_leader_epoch(self._leader_epoch, self._offsets.end)
