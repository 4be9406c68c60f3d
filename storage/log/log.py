"""A partition's log: appends to it, and the way to its reads, its syncs and its commits.

The loop's thread appends, reads and rolls. Worker threads sync the log, commit manifests, swap in
cleaned segments, and delete. Work that an append causes but need not wait for (sealing a segment,
committing the roll) runs in the background. Each part of the state has one owner:

    offsets.py        the offsets between which `reader.py` reads
    segment_list.py   the segments in memory, and what of them is not synced
    commits.py        the manifest; `start.py`, `cleaning.py` and `truncate.py` commit through it
    new_files.py      the files of a new log, until they are safe
    service.py        whether the log is in service
    ../state/         the producers, the transactions and the epochs
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from protocol.records.batch_header import BatchHeader, read_header, stamp
from protocol.records.batch_scan import StopReason
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import build_control_batch
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from protocol.wire.value_class import value_class
from storage.batches.batch_run import BatchRun
from storage.batches.gap_batch import gap_batch
from storage.batches.validate import Refused, ValidationRules, ValidBatch
from storage.files.errors import NoSpace, StorageError
from storage.files.files import BegunSync, FileSystem
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN
from storage.formats.topic_partition import TopicPartition
from storage.log.cleaning import LogCleaning
from storage.log.cleaning_view import CleaningView, cleaning_view
from storage.log.commits import LogCommits
from storage.log.flush import Unsynced
from storage.log.log_service import LogService
from storage.log.log_start import DeletedSegment, LogStart
from storage.log.new_files import NewFiles
from storage.log.offsets import LogOffsets
from storage.log.reader import LogReader
from storage.log.replacement import LogParts, Replacement
from storage.log.roll import OFFSET_SPAN_MAX, is_old, must_roll, run_bytes_max
from storage.log.segment_list import SegmentList
from storage.recovery.checkpoint import CHECKPOINT_BYTES_MIN
from storage.segment.segment import Segment
from storage.state.leader_epochs import LeaderEpochs
from storage.state.log_states import LogStates
from storage.state.producer_state import Duplicate, ProducerStates
from storage.threads import any_thread, loop_thread


@value_class
class Appended:
    """A batch that was appended, or was in the log before (`duplicate`): offsets [base, next)."""

    base_offset: Offset
    next_offset: Offset
    log_append_time_ms: int = -1
    duplicate: bool = False


@any_thread
class PartitionLog:
    """One partition's log. The loop appends to it; worker threads call the methods that say so."""

    __slots__ = (
        "_commits",
        "_fs",
        "_jitter",
        "_list",
        "_offsets",
        "_service",
        "_states",
        "_unsynced",
        "config",
        "identity",
        "leader_epoch",
        "new_files",
        "reader",
    )

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        config: LogConfig,
        offsets: LogOffsets,
        segment_list: SegmentList,
        commits: LogCommits,
        states: LogStates,
        new_files: NewFiles,
        service: LogService,
        *,
        leader_epoch: Epoch,
        jitter: float = 0.0,
    ) -> None:
        """Take over the parts of a log. Called by `storage/log/opening.py`.

        Args:
            leader_epoch: stamped on every batch that is appended from now on, unless `lead_above` raises
                it.
            jitter: the fraction of segment.jitter.ms, 0 to 1, that is subtracted from segment.ms.
        """
        # Constant after construction
        self._fs = fs
        self._offsets = offsets
        self._list = segment_list
        self._commits = commits
        self._states = states
        self._service = service
        self._unsynced = Unsynced(offsets.end)
        self._jitter = jitter
        self.identity = identity
        self.new_files = new_files
        """Its files while it is new: a crash may take them until they are safe."""
        self.reader = LogReader(offsets, segment_list, states, service, leader_epoch=leader_epoch)
        """Reads from the log."""
        # State
        self.config = config
        self.leader_epoch = leader_epoch
        """The epoch in which this broker leads; above those of all batches that clients can read."""

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
    def log_start_offset(self) -> Offset:
        """The first offset that may be read."""
        return self._offsets.start

    @property
    def last_stable_offset(self) -> Offset:
        """The end of the committed part, at which read_committed consumers stop."""
        return self._offsets.last_stable

    @property
    def high_watermark(self) -> Offset:
        """The end of what may be read."""
        return self._offsets.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._offsets.end

    @property
    def generation(self) -> int:
        """Grows when a cleaning pass that was planned before must not commit."""
        return self._list.generation

    @property
    def clean_offset(self) -> Offset:
        """The first dirty offset: a finished cleaning pass has seen everything below it."""
        return self._list.clean_offset

    @property
    def cut_offset_min(self) -> Offset:
        """The least offset at which a cut loses no key.

        Below it, cleaning may have removed records because of later ones that such a cut would take
        away. It is the clean offset, or, while a pass that has swapped segments is not finished, the
        base of the active segment.
        """
        return self._commits.cut_offset_min

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
    def rewrites(self) -> int:
        """Grows when the log is truncated or replaced: records that were read before may be gone."""
        return self._list.truncations + self._list.replacements

    @property
    def copy_id(self) -> uuid.UUID | None:
        """The id of the last copy that has replaced its records (`replace_with`); None if none has."""
        return self._commits.copy_id

    @property
    def offline_reason(self) -> str | None:
        """Why the log is out of service; None while it is in service."""
        return self._service.offline_reason

    @property
    def is_retired(self) -> bool:
        """Whether its topic was deleted."""
        return self._service.is_retired

    # ---------------------------------------------------------------- appending

    def validation_rules(self, *, now_ms: int) -> ValidationRules:
        """Returns the rules for `validate_batch`."""
        return ValidationRules(self.topic_partition, self.config, now_ms)

    @loop_thread
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

    @loop_thread
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

    @loop_thread
    def lead_above(self, epoch: Epoch) -> None:
        """Lead with an epoch above `epoch`, which batches of another broker have.

        The directory's counter must be raised first (`LogDirectory.raise_epoch`): a later start would
        otherwise lead with an epoch that such batches have.
        """
        if self.leader_epoch <= epoch:
            self.leader_epoch = Epoch(epoch + 1)
            self.reader.lead_in(self.leader_epoch)

    @loop_thread
    def append_as_follower(self, run: BatchRun, *, now_ms: int) -> Appended:
        """Write a checked run of batches with the offsets and epochs that a leader gave them.

        Gaps are legal. There is one write for each segment that the run touches, and everything else is
        as if the batches had been appended one by one. If clients read the log, call `lead_above` first
        for an epoch that is not below `leader_epoch`.

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
        self._unsynced.appended(now_ms)
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

    @loop_thread
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
            f" {header.base_sequence} to {self.topic_partition}: {error_code.message}"
        )
        return Refused(error_code=error_code, message=text, record_count=header.record_count)

    def _write(self, batch: ValidBatch, last_offset: Offset, now_ms: int) -> None:
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
            max_timestamp=header.max_timestamp,
            now_ms=now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        self._states.appended(batch, last_offset=last_offset, now_ms=now_ms)
        self._offsets.end = active.end_offset
        self._unsynced.appended(now_ms)
        assert self._offsets.end > last_offset >= self._offsets.high_watermark

    # ---------------------------------------------------------------- rolling

    @loop_thread
    def roll_if_due(self, now_ms: int) -> bool:
        """Roll the active segment if it has reached its age, with or without appends.

        Called by a timer; it also forgets idle producers. Returns whether it rolled.
        """
        self._states.expire_producers(now_ms)
        is_due = is_old(self._list.active, self.config, jitter=self._jitter, now_ms=now_ms)
        if self.offline_reason is not None or not is_due:
            return False
        self.roll(now_ms)
        return True

    @loop_thread
    def roll(self, now_ms: int) -> None:
        """Start a new active segment and seal the old one in the background. An empty one does not roll.

        Raises:
            LogOffline, NoSpace: nothing has changed.
            DiskError: nothing has changed; the log's directory takes no new names and is offline.
        """
        self._service.check_online()
        if not self._list.active.size:
            return
        reserved_bytes = self.config.reserved_segment_bytes
        with self._service.failing_with_the_disk(NoSpace):
            producers = self._states.producers.copy()
            self._list.roll(producers, now_ms, reserved_bytes=reserved_bytes)
        self._service.in_background(self._commits.commit_rolls)

    # ---------------------------------------------------------------- durability

    def sync(self) -> Offset:
        """Make everything that was appended before durable. Returns the offset it reaches.

        Raises:
            StorageError: final; the log's directory is offline.
        """
        self._unsynced.sync_begins()
        try:
            end_offset = self._list.sync()
        except StorageError as error:
            if self._service.is_retired:
                return self.high_watermark
            self._service.fail(error)
            raise
        self._unsynced.synced(end_offset)
        return end_offset

    @loop_thread
    def begin_sync(self) -> BegunSync | None:
        """Start a sync whose fdatasync another thread performs.

        Calling `end` on the result makes everything durable that is in the log now; if it fails, the
        log's directory goes offline. Returns None if the log needs more than the fdatasync of one file:
        then use `sync`.
        """
        active = self._list.only_unsynced()
        if active is None:
            return None
        self._unsynced.sync_begins()
        try:
            begun = active.files.begin_sync()
        except StorageError:
            return None
        if begun is None:
            return None
        end_offset = self._offsets.end

        def end(error: int) -> None:
            with self._service.failing_with_the_disk():
                begun.end(error)
            self._unsynced.synced(end_offset)

        return BegunSync(begun.descriptor, end, begun.abandon)

    def is_flush_due(self, now_ms: int = UNKNOWN) -> bool:
        """Returns whether flush.messages or, with a time, flush.ms asks for a sync."""
        return self._unsynced.is_due(self.config, self.log_end_offset, now_ms)

    @loop_thread
    def checkpoint(
        self, *, grown_bytes_min: int = CHECKPOINT_BYTES_MIN
    ) -> Callable[[], None] | None:
        """Take a checkpoint for a new recovery point. Called by a timer.

        Returns the function that commits it, for a worker thread. It raises nothing: a full disk
        postpones it, any other failure takes the directory offline. Returns None if the log has grown by
        less than `grown_bytes_min` since its last recovery point, or is out of service.
        """
        commits = self._commits
        if self.offline_reason is not None or commits.grown_since_checkpoint < grown_bytes_min:
            return None
        taken = commits.take_checkpoint()
        return self._service.guarded(lambda: commits.commit_checkpoint(taken))

    @loop_thread
    def advance_high_watermark(self, offset: Offset) -> None:
        """Advance the high watermark to `offset`, unless it is further on already.

        Only `server/durability/group_commit.py` calls this: with the synced end, or with the log end if
        appends need no sync (`flush.on.acks.all`, `flush.messages`).
        """
        self._offsets.advance_high_watermark(offset)
        self._states.forget_transactions_below(self._offsets.high_watermark)

    # ---------------------------------------------------------------- retention

    @loop_thread
    def retention_is_due(self, now_ms: int) -> bool:
        """Returns whether `retain` has something to delete; rolls an active segment that must go.

        Called by a timer. Raises like `roll`.
        """
        self._service.check_online()
        due = self._log_start().due(now_ms)
        if len(due.reasons) == len(self._list.segments):
            self.roll(now_ms)
        return bool(due.reasons)

    def retain(self, now_ms: int) -> tuple[DeletedSegment, ...]:
        """Delete the segments that `storage/log/retention.py` selects. A worker thread.

        The new log start offset is on disk before anyone sees it.

        Raises:
            LogOffline: the log is out of service.
            NoSpace: the disk is full, and the log is unchanged.
            StorageError: the disk failed; the log's directory is offline.
        """
        return self._log_start().retain(now_ms)

    def delete_records(self, offset: Offset) -> tuple[DeletedSegment, ...] | ErrorCode:
        """Move the log start up to `offset`, and delete the segments below it. A worker thread.

        An offset up to the log start changes nothing; one above the high watermark returns
        OFFSET_OUT_OF_RANGE. Raises like `retain`.
        """
        return self._log_start().delete_records(offset, self.sync)

    def _log_start(self) -> LogStart:
        return LogStart(self, self._offsets, self._list, self._commits, self._service)

    # ---------------------------------------------------------------- cleaning

    def cleaning_view(self, *, as_if_rolled: bool = False) -> CleaningView:
        """Returns a frozen view by which the cleaner plans.

        Its values of the active segment are exact only if called on the loop's thread: elsewhere an
        append may come in between. Those of sealed segments are always exact.

        Args:
            as_if_rolled: return the view that a `roll` now would give. Only on the loop's thread,
                because it reads what appends change.
        """
        return cleaning_view(
            self.identity,
            self.config,
            self._list,
            self._offsets,
            self._states.producers,
            as_if_rolled=as_if_rolled,
        )

    @property
    def cleaning(self) -> LogCleaning:
        """The operations of a cleaning pass on the log."""
        return LogCleaning(
            self._fs,
            self.identity,
            self._offsets,
            self._list,
            self._commits,
            self._states,
            self._service,
        )

    # ---------------------------------------------------------------- changing and ending

    def update_config(self, config: LogConfig) -> None:
        """Use another configuration from now on: appends, rolls, retention and the cleaner read `config`
        each time they need it. If it changes which records cleaning keeps (`_kept_records_rules`),
        passes that were planned earlier fail.

        A commit that is running may still follow the old configuration; `wait_for_commit` waits for it.
        """
        if _kept_records_rules(config) != _kept_records_rules(self.config):
            self._list.raise_generation()
        self.config = config

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Set the idle time after which producers are forgotten (producer.id.expiration.ms)."""
        self._states.expire_producers_after(expiration_ms)

    @loop_thread
    def forget_producers(self, now_ms: int) -> None:
        """Forget every producer, because another cluster gave them their ids. None has an open
        transaction.

        The log rolls, so that the state of its new segment is what a restart begins with.

        Raises:
            LogOffline, DiskError: like `append_as_leader`.
        """
        self._service.check_online()
        self._states.forget_producers()
        if self._list.active.size:
            self.roll(now_ms)

    def refuse_planned_passes(self) -> None:
        """Make the swaps of passes that were planned before fail: other records have to stay now.

        A commit that is running may still follow its plan; `wait_for_commit` waits for it.
        """
        self._list.raise_generation()

    def wait_for_commit(self) -> None:
        """Wait for the running commit, if any. A worker thread."""
        with self._commits.commit_lock:
            return

    def truncate_to(self, offset: Offset, *, keeps_keys: bool = False) -> None:
        """Truncate the log so that no batch reaches `offset`. See `storage/log/truncate.py`.

        Runs on a worker thread, while nothing is appended and no sync is running (its result would cover
        bytes that are gone). A batch that spans `offset` goes as a whole, and the log then ends at its
        base offset.

        Args:
            keeps_keys: refuse a cut below `cut_offset_min`. A pass that is running may raise that until
                this call has the log for itself.

        Raises:
            ValueError: `offset` is below the log start offset.
            CutRefused: the cut would lose keys; nothing has changed.
            LogOffline: the log is out of service.
            StorageError: the disk failed; the log's directory is offline.
        """
        self._commits.truncate_to(offset, keeps_keys=keeps_keys)
        self._unsynced.truncated(self._offsets.end)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything and continue at `offset`, which becomes the log's start and end.

        A worker thread, while nothing is appended. Raises like `truncate_to`.
        """
        self._commits.truncate_fully_and_start_at(offset)
        self._unsynced.truncated(self._offsets.end)

    def replace_with(
        self, copy: PartitionLog, *, puts_aside: bool, copy_id: uuid.UUID | None = None
    ) -> str | None:
        """Make the records of a copy those of this log, by one manifest commit. A worker thread.

        See `storage/log/replacement.py`. No append to and no sync of either log may run meanwhile, as
        for `truncate_to`, and this log must lead above the epochs of the copy (`lead_above`). All of the
        copy is readable then, and the copy is out of service.

        Args:
            copy: of this log, from `LogDirectory.begin_copy`; its directory is left, so the caller drops
                it afterwards.
            puts_aside: keep what the log holds now, as a log in a directory beside it.
            copy_id: `copy_id` from then on, also after a start.

        Returns the directory into which the old log was put aside, or None.

        Raises:
            ValueError: the copy has an epoch that this log does not lead above.
            LogOffline: one of the logs is out of service.
            NoSpace, LinksRefused: the disk is full, or its file system has no hard links; nothing has
                changed, and the copy can be used again, unless it is out of service now.
            StorageError: the disk failed; the log's directory is offline.
        """
        if copy.epochs.latest >= self.leader_epoch:
            raise ValueError(f"{self} does not lead above epoch {copy.epochs.latest} of its copy")
        replacement = Replacement(self._fs, self._parts, copy._parts)
        aside = replacement.run(copy_id, puts_aside=puts_aside)
        self._unsynced.replaced(self._offsets.end)
        copy.retire()
        return aside

    @property
    def _parts(self) -> LogParts:
        return LogParts(
            identity=self.identity,
            segments=self._list,
            commits=self._commits,
            states=self._states,
            offsets=self._offsets,
            service=self._service,
        )

    def go_offline(self, reason: str) -> None:
        """Take the log out of service until the next start. Nothing on disk changes."""
        self._service.go_offline(reason)

    def close(self) -> None:
        """Write everything that the next start would otherwise have to recover, and close the files.

        A worker thread, after the last append. Raises StorageError; the next start then recovers.
        """
        with self._service.failing_with_the_disk():
            self._commits.close()

    def retire(self) -> None:
        """Take the log out of service, because its topic is deleted.

        Deleting the topic's directory removes the names. The disk gets its space back when the last
        descriptor closes, so each file is closed as soon as its last reader is done.
        """
        self._list.raise_generation()
        self._service.retire()
        self._service.remove_in_background(self._commits.close_when_unused)


def _kept_records_rules(config: LogConfig) -> tuple[object, ...]:
    return (
        config.is_compacted,
        config.is_deleted,
        config.keeps_unkeyed_records,
        config.compaction_hold_groups,
    )
