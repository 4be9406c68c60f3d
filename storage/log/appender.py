"""Appends batches to a log, and rolls its active segment before a batch that does not belong in it.

    as a leader      one batch; it gets the next offsets and the leader epoch
    as a follower    a run of batches, with the offsets and epochs that a leader gave them
    gap              batches without records, over offsets that no record has

`storage/log/roll.py` decides when a segment rolls. What an append changes: the segment, the states, the
log's end, and what is not synced (`storage/log/syncs.py`).
"""

from __future__ import annotations

from protocol.records.batch_header import BatchHeader, read_header, stamp
from protocol.records.batch_scan import StopReason
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import build_control_batch
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from protocol.wire.value_class import value_class
from storage.batches.batch_run import BatchRun
from storage.batches.gap_batch import gap_batch
from storage.batches.validate import Refused, ValidBatch
from storage.files.errors import NoSpace, StorageError
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN
from storage.log.commits import LogCommits
from storage.log.log_service import LogService
from storage.log.offsets import LogOffsets
from storage.log.roll import OFFSET_SPAN_MAX, is_old, must_roll, run_bytes_max
from storage.log.segment_list import SegmentList
from storage.log.syncs import LogSyncs
from storage.state.log_states import LogStates
from storage.state.producer_state import Duplicate
from storage.threads import loop_thread


@value_class
class Appended:
    """A batch that was appended, or was in the log before (`duplicate`): offsets [base, next)."""

    base_offset: Offset
    next_offset: Offset
    log_append_time_ms: int = -1
    duplicate: bool = False


@loop_thread
class LogAppender:
    """The appends to one log. Its `PartitionLog` owns it."""

    __slots__ = (
        "_commits",
        "_jitter",
        "_list",
        "_offsets",
        "_service",
        "_states",
        "_syncs",
        "config",
        "leader_epoch",
    )

    def __init__(
        self,
        config: LogConfig,
        offsets: LogOffsets,
        segment_list: SegmentList,
        commits: LogCommits,
        states: LogStates,
        syncs: LogSyncs,
        service: LogService,
        *,
        leader_epoch: Epoch,
        jitter: float,
    ) -> None:
        """Take over the parts of a log that appends change. See `PartitionLog` for the arguments."""
        # Constant after construction
        self._offsets = offsets
        self._list = segment_list
        self._commits = commits
        self._states = states
        self._syncs = syncs
        self._service = service
        self._jitter = jitter
        # State
        self.config = config
        self.leader_epoch = leader_epoch
        """The epoch of the batches that are appended as a leader."""

    # ---------------------------------------------------------------- as a leader

    def append_as_leader(self, batch: ValidBatch, *, now_ms: int) -> Appended | Refused:
        """Stamp the batch with its offsets and the leader epoch, and write it.

        A duplicate of one of its producer's last five batches is not written again; the result has the
        offsets of the first one.

        Raises:
            LogOffline: the log or its directory is out of service.
            DiskError: the write failed, and nothing of the batch is in the log.
        """
        self._service.check_online()
        verdict = self._states.producers.check_append(batch.header, batch.marker)
        if isinstance(verdict, Duplicate):
            next_offset = Offset(verdict.last_offset + 1)
            return Appended(verdict.base_offset, next_offset, duplicate=True)
        if verdict is not ErrorCode.NONE:
            return self._refuse(batch, verdict)
        base_offset = self._offsets.end
        last_offset = Offset(base_offset + batch.header.last_offset - batch.header.base_offset)
        stamp(batch.view, base_offset=base_offset, leader_epoch=self.leader_epoch)
        self._states.assign_epoch(self.leader_epoch, base_offset)
        self._write(batch, last_offset, now_ms)
        return Appended(base_offset, self._offsets.end, batch.log_append_time_ms)

    def append_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: Epoch,
        *,
        is_commit: bool,
        coordinator_epoch: Epoch,
        now_ms: int,
    ) -> Appended | Refused:
        """Write the COMMIT or ABORT that ends a producer's transaction in this partition.

        The marker is written even if the producer has no open transaction here: it raises the epoch.
        A producer epoch below the one in the log is refused with INVALID_PRODUCER_EPOCH, a coordinator
        epoch below that of the producer's last marker with TRANSACTION_COORDINATOR_FENCED.

        Raises like `append_as_leader`.
        """
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        batch = build_control_batch(
            TransactionMarker(type=kind, coordinator_epoch=coordinator_epoch),
            timestamp=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        valid = ValidBatch(read_header(batch), memoryview(batch))
        return self.append_as_leader(valid, now_ms=now_ms)

    # ---------------------------------------------------------------- as a follower

    def append_as_follower(self, run: BatchRun, *, now_ms: int) -> Appended:
        """Write a checked run of batches with the offsets and epochs that a leader gave them.

        Gaps are legal. There is one write for each segment that the run touches, and everything else is
        as if the batches had been appended one by one. If clients read the log, call
        `PartitionLog.lead_above` first for an epoch that is not below `leader_epoch`.

        Raises:
            ValueError: it begins below the log's end.
            LogOffline: like `append_as_leader`.
            DiskError: the write failed. The batches in earlier segments stay in the log.
        """
        self._service.check_online()
        if run.base_offset < self._offsets.end:
            raise ValueError(f"offset {run.base_offset} is below {self._offsets.end}")
        rest = run.view
        while len(rest):
            rest = self._append_first_of(rest, now_ms)
        return Appended(run.base_offset, self._offsets.end)

    def _append_first_of(self, batches: memoryview, now_ms: int) -> memoryview:
        """Write the batches that belong in the active segment; if none does, make way for the first.

        Returns the batches that are left.
        """
        if self._list.moment is not None:
            self.take_moment(now_ms)
            self._service.check_online()
        config, active = self.config, self._list.active
        tally = active.tally(
            index_interval_bytes=config.index_interval_bytes,
            size_max=run_bytes_max(config, jitter=self._jitter),
            index_bytes_max=config.segment_index_bytes,
            is_checked=True,
        )
        is_over = is_old(active, config, jitter=self._jitter, now_ms=now_ms)
        reason = StopReason.FULL if is_over else tally.feed(batches)
        assert reason in (StopReason.END, StopReason.FULL), "the run was checked"
        size = tally.position - active.size
        if not size:
            self._make_way(read_header(batches), now_ms)
            return batches
        active.append_run(batches[:size], tally, now_ms=now_ms)
        self._states.appended_run(tally, now_ms=now_ms)
        self._offsets.end = active.end_offset
        self._syncs.appended(now_ms)
        assert self._offsets.end > self._offsets.high_watermark
        return batches[size:]

    def _make_way(self, header: BatchHeader, now_ms: int) -> None:
        """Roll, because a follower's next batch does not belong in the active segment.

        An empty segment never rolls. If its indexes cannot express the batch's relative offset, a gap
        batch of the same epoch covers the offsets before the batch.
        """
        if self._list.active.size:
            self.roll(now_ms)
        else:
            epoch = header.leader_epoch
            self.advance_end(header.base_offset, now_ms=now_ms, leader_epoch=epoch)

    def advance_end(
        self, offset: Offset, *, now_ms: int = UNKNOWN, leader_epoch: Epoch | None = None
    ) -> None:
        """Move the log's end over a gap, for example if the cleaner has removed the leader's tail.

        Batches without records cover the gap, so that it is as durable as the data before it;
        readers skip them.

        Args:
            leader_epoch: of the gap; None for the log's own, as a leader.

        Raises:
            LogOffline, DiskError: like `append_as_leader`.
        """
        self._service.check_online()
        epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        while self._offsets.end < offset:
            last_offset = Offset(min(offset - 1, self._offsets.end + OFFSET_SPAN_MAX))
            empty = memoryview(gap_batch(self._offsets.end, last_offset, epoch))
            self._states.assign_epoch(epoch, self._offsets.end)
            self._write(ValidBatch(read_header(empty), empty), last_offset, now_ms)

    def _refuse(self, batch: ValidBatch, error_code: ErrorCode) -> Refused:
        header = batch.header
        text = (
            f"Producer {header.producer_id} epoch {header.producer_epoch} sent sequence"
            f" {header.base_sequence} to {self._service.name}: {error_code.message}"
        )
        return Refused(error_code=error_code, message=text, record_count=header.record_count)

    def _write(self, batch: ValidBatch, last_offset: Offset, now_ms: int) -> None:
        if self._list.moment is not None:
            self.take_moment(now_ms)
            self._service.check_online()
        header = batch.header
        active = self._list.active
        if must_roll(
            active,
            self.config,
            batch_bytes=len(batch.view),
            last_offset=last_offset,
            jitter=self._jitter,
            now_ms=now_ms,
        ):
            self.roll(now_ms)
            active = self._list.active
        active.append(
            batch.view,
            last_offset=last_offset,
            record_count=header.record_count,
            is_control=header.is_control,
            max_timestamp=header.max_timestamp,
            now_ms=now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        self._states.appended(batch, last_offset=last_offset, now_ms=now_ms)
        self._offsets.end = active.end_offset
        self._syncs.appended(now_ms)
        assert self._offsets.end > last_offset >= self._offsets.high_watermark

    # ---------------------------------------------------------------- rolling

    def roll_if_old(self, now_ms: int) -> bool:
        """Roll the active segment if it has reached its age. Returns whether it rolled."""
        is_due = is_old(self._list.active, self.config, jitter=self._jitter, now_ms=now_ms)
        if self._service.offline_reason is not None or not is_due:
            return False
        self.roll(now_ms)
        return True

    def roll(self, now_ms: int) -> None:
        """Start a new active segment. See `PartitionLog.roll`."""
        self._service.check_online()
        if not self._list.active.size:
            return
        reserved_bytes = self.config.reserved_segment_bytes
        with self._service.failing_with_the_disk(NoSpace):
            producers = self._states.producers.copy()
            self._list.roll(producers, now_ms, reserved_bytes=reserved_bytes)
        self._service.in_background(self._commits.commit_rolls)

    # ---------------------------------------------------------------- moments

    def take_moment(self, now_ms: int) -> None:
        """Take the moment once it has begun, unless it was taken. See `storage/state/moment.py`.

        Raises nothing: the snapshot finds the reason in the moment. An append continues without it,
        unless the disk failed and the log is out of service now.
        """
        moment = self._list.moment
        if moment is None or not moment.moment.has_begun:
            return
        if moment.is_taken or moment.failure is not None:
            return
        try:
            self.roll(now_ms)
        except StorageError as error:
            moment.failure = error
            return
        moment.producers = self._states.producers.copy()
        moment.last_stable_offset = self._offsets.last_stable
        moment.end_offset = self._offsets.end
