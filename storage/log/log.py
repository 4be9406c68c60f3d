"""A partition's log: its state, and the objects that append to it, read, sync and commit it.

The loop's thread appends, reads and rolls. Worker threads sync the log, commit manifests, swap in
cleaned segments, and delete. Work that an append causes but need not wait for (sealing a segment,
committing the roll) runs in the background. Each part of the state has one owner:

    appender.py       the configuration and the leader epoch, by which it appends and rolls
    offsets.py        the offsets between which `reader.py` reads
    segment_list.py   the segments in memory, and what of them is not synced
    syncs.py          how long appends have been waiting for a sync
    commits.py        the manifest; `log_start.py`, `cleaning.py` and `truncate.py` commit through it
    new_files.py      the files of a new log, until they are safe
    log_service.py    whether the log is in service
    ../undo/          the passes that can be undone
    ../state/         the producers, the transactions and the epochs
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.batches.validate import ValidationRules
from storage.counts.log_counts import RecordsView
from storage.files.errors import LogOffline
from storage.files.files import BegunSync, FileSystem
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN
from storage.formats.topic_partition import TopicPartition
from storage.log.appender import LogAppender
from storage.log.cleaning import NOTHING_KEPT, LogCleaning, Undone
from storage.log.cleaning_view import CleaningView, TailView, cleaning_view, tail_view
from storage.log.commits import LogCommits
from storage.log.linking import LinkedLog, link_log
from storage.log.log_service import LogService
from storage.log.log_start import DeletedSegment, LogStart
from storage.log.new_files import NewFiles
from storage.log.offsets import LogOffsets
from storage.log.reader import LogReader
from storage.log.replacement import LogParts, Replacement
from storage.log.segment_list import SegmentList
from storage.log.syncs import LogSyncs
from storage.recovery.checkpoint import CHECKPOINT_BYTES_MIN
from storage.segment.segment import Segment
from storage.state.leader_epochs import LeaderEpochs
from storage.state.log_states import LogStates
from storage.state.moment import LogMoment, Moment
from storage.state.producer_state import ProducerStates
from storage.threads import any_thread, loop_thread
from storage.undo.kept_passes import KeptPasses
from storage.undo.undo_file import EndReason, KeptPass
from storage.undo.undo_rule import refusal


@any_thread
class PartitionLog:
    """One partition's log. The loop appends to it; worker threads call the methods that say so."""

    __slots__ = (
        "_commits",
        "_fs",
        "_list",
        "_service",
        "_states",
        "_syncs",
        "appender",
        "identity",
        "new_files",
        "offsets",
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
        self.offsets = offsets
        """Its offsets, for reading: only the parts of the log change them."""
        self._list = segment_list
        self._commits = commits
        self._states = states
        self._service = service
        self._syncs = LogSyncs(offsets, segment_list, service)
        self.identity = identity
        self.new_files = new_files
        """Its files while it is new: a crash may take them until they are safe."""
        self.reader = LogReader(offsets, segment_list, states, service, leader_epoch=leader_epoch)
        """Reads from the log."""
        self.appender = LogAppender(
            config,
            offsets,
            segment_list,
            commits,
            states,
            self._syncs,
            service,
            leader_epoch=leader_epoch,
            jitter=jitter,
        )
        """Appends to the log."""

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
    def config(self) -> LogConfig:
        """Its topic's settings; `update_config` changes them."""
        return self.appender.config

    @property
    def leader_epoch(self) -> Epoch:
        """The epoch in which this broker leads; above those of all batches that clients can read."""
        return self.appender.leader_epoch

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that may be read."""
        return self.offsets.start

    @property
    def last_stable_offset(self) -> Offset:
        """The end of the committed part, at which read_committed consumers stop."""
        return self.offsets.last_stable

    @property
    def high_watermark(self) -> Offset:
        """The end of what may be read."""
        return self.offsets.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self.offsets.end

    @property
    def generation(self) -> int:
        """Grows when a cleaning pass that was planned before must not commit."""
        return self._list.generation

    @property
    def clean_offset(self) -> Offset:
        """The first dirty offset: a finished cleaning pass has seen everything below it."""
        return self._list.clean_offset

    @property
    def has_history(self) -> bool:
        """Whether keys may have older values below the clean offset, because a pass has kept them."""
        return self._commits.has_history

    @property
    def cut_offset_min(self) -> Offset:
        """The least offset at which a cut loses no key.

        Below it, cleaning may have removed records because of later ones that such a cut would take
        away. It is the clean offset, or, while a pass that has swapped segments is not finished, or has
        left its last record dirty, the base of the active segment.
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
    def aborted_transactions(self) -> list[tuple[ProducerId, Offset, Offset]]:
        """Producer id, first offset and marker's offset of each aborted transaction with records above
        the clean offset. The first use may read a file."""
        return self._states.aborted.rows

    @property
    def rewrites(self) -> int:
        """Grows when the log is truncated or replaced: records that were read before may be gone."""
        return self._list.rewrites

    @property
    def swaps(self) -> int:
        """Grows when a cleaning pass replaces segments: records that were read before may be cleaned."""
        return self._list.swaps

    @property
    def copy_id(self) -> uuid.UUID | None:
        """The id of the last copy that has replaced its records (`replace_with`); None if none has."""
        return self._commits.copy_id

    @property
    def copied_from(self) -> uuid.UUID | None:
        """Names the source that is known to have had all records that are here; None if none is.

        It stays when this broker appends as a leader. So the name of a source must be another one after
        the broker has led (`LinkSource.name_of`).
        """
        return self._commits.copied_from

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
    def lead_above(self, epoch: Epoch) -> None:
        """Lead with an epoch above `epoch`, which batches of another broker have.

        The directory's counter must be raised first (`LogDirectory.raise_epoch`): a later start would
        otherwise lead with an epoch that such batches have.
        """
        if self.leader_epoch <= epoch:
            leader_epoch = Epoch(epoch + 1)
            self.appender.leader_epoch = leader_epoch
            self.reader.lead_in(leader_epoch)

    # ---------------------------------------------------------------- rolling

    @loop_thread
    def roll_if_due(self, now_ms: int) -> bool:
        """Roll the active segment if it has reached its age, with or without appends.

        Called by a timer; it also forgets idle producers. Returns whether it rolled.
        """
        self._states.expire_producers(now_ms)
        return self.appender.roll_if_old(now_ms)

    @loop_thread
    def roll(self, now_ms: int) -> None:
        """Start a new active segment and seal the old one in the background. An empty one does not roll.

        Raises:
            LogOffline, NoSpace: nothing has changed.
            DiskError: nothing has changed; the log's directory takes no new names and is offline.
        """
        self.appender.roll(now_ms)

    # ---------------------------------------------------------------- durability

    def sync(self) -> Offset:
        """Make everything that was appended before durable. Returns the offset it reaches.

        Raises:
            StorageError: final; the log's directory is offline.
        """
        return self._syncs.sync()

    @loop_thread
    def begin_sync(self) -> BegunSync | None:
        """Start a sync whose fdatasync another thread performs.

        Calling `end` on the result makes everything durable that is in the log now; if it fails, the
        log's directory goes offline. Returns None if the log needs more than the fdatasync of one file:
        then use `sync`.
        """
        return self._syncs.begin()

    def is_flush_due(self, now_ms: int = UNKNOWN) -> bool:
        """Returns whether flush.messages or, with a time, flush.ms asks for a sync."""
        return self._syncs.is_due(self.config, now_ms)

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

        For a log that clients write to, only `server/durability/group_commit.py` calls this: with the
        synced end, or with the log end if appends need no sync (`flush.on.acks.all`, `flush.messages`).
        """
        self.offsets.advance_high_watermark(offset)
        self._states.forget_transactions_below(self.offsets.high_watermark)

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
        return LogStart(self, self.offsets, self._list, self._commits, self._service)

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
            self.offsets,
            self._states.producers,
            as_if_rolled=as_if_rolled,
            has_history=self._commits.has_history,
            has_unfinished_pass=self._commits.has_unfinished_pass,
        )

    @loop_thread
    def records_view(self) -> RecordsView | None:
        """Returns a frozen view to count records with; None while the log is truncated or replaced."""
        with self._list.state_lock:
            if self._list.is_changing:
                return None
            return RecordsView(
                segments=self._list.segments,
                active_row=self._list.active.full_row(),
                log_start_offset=self.offsets.start,
                high_watermark=self.offsets.high_watermark,
                rewrites=self._list.rewrites,
            )

    @loop_thread
    def tail_view(self, from_offset: Offset) -> TailView:
        """Returns a frozen view of the segments with offsets at and above `from_offset`."""
        return tail_view(self._list, self.offsets, from_offset)

    @property
    def cleaning(self) -> LogCleaning:
        """The operations of a cleaning pass on the log."""
        return LogCleaning(
            self,
            self._fs,
            self.identity,
            self.offsets,
            self._list,
            self._commits,
            self._states,
            self._service,
        )

    # ---------------------------------------------------------------- moments

    @loop_thread
    def prepare_moment(self, moment: Moment) -> None:
        """Prepare for a moment that a snapshot keeps. See `storage/state/moment.py`. One at a time."""
        self._list.moment = LogMoment(moment=moment, rewrites=self._list.rewrites)

    @loop_thread
    def take_moment(self, now_ms: int) -> None:
        """Take the moment once it has begun, unless an append has. Raises nothing."""
        self.appender.take_moment(now_ms)

    def link_moment(self, directory: str) -> LinkedLog:
        """Make the log as it was at the moment in a new directory. A worker thread.

        Raises like `link_log`.
        """
        moment = self._list.moment
        assert moment is not None
        return link_log(self._fs, self._parts, moment, directory)

    def end_moment(self) -> None:
        """Let passes see the whole log again. No `link_moment` may be running."""
        self._list.moment = None

    # ---------------------------------------------------------------- undoing

    @property
    def passes_kept(self) -> tuple[KeptPass, ...]:
        """The cleaning passes whose replaced segments are kept, oldest first; only the last one can be
        undone. `KeptPass.sources` are these segments."""
        kept = self._commits.kept
        return () if kept is None else kept.stack.kept

    @property
    def kept_bytes(self) -> int:
        """The size of the segments that are kept for an undo. They are not part of `size_bytes`."""
        return sum(each.size_bytes for each in self.passes_kept)

    def undo_refusal(self, number: int) -> str | None:
        """Returns why a pass cannot be undone now, as a clause for people; None if it can be."""
        kept = self._commits.kept
        return NOTHING_KEPT if kept is None else refusal(kept.stack, number)

    def undo_pass(self, number: int) -> Undone:
        """Put back what a cleaning pass has replaced, in one manifest commit. A worker thread.

        The log is then as before the pass, with what was appended since: segments, clean offset, aborted
        transactions. Its start stays. Passes that are running cannot commit.

        Args:
            number: one of `passes_kept`.

        Raises:
            UndoRefused: with the reason; nothing has changed.
            NoSpace: the disk is full; the log is unchanged.
            LogOffline: the log is out of service.
            StorageError: the disk failed; the log's directory is offline.
        """
        return self.cleaning.undo(number)

    def drop_passes_kept(self, reason: EndReason) -> None:
        """Let everything go that is kept for an undo. A worker thread. Its files go with their last
        reader.

        Raises:
            StorageError: the disk failed; the log's directory is offline.
        """
        self._change_kept(lambda kept: kept.end_all(reason))

    def kept_is_due(self, now_ms: int) -> bool:
        """Returns whether `expire_kept` has something to do. Called by a timer."""
        return bool(self.passes_kept) and bool(
            not self.config.keeps_replaced_segments
            or self.passes_kept[0].kept_ms + self.config.compaction_undo_ms <= now_ms
        )

    def expire_kept(self, now_ms: int) -> None:
        """Let the passes go whose time to be undone is over. A worker thread.

        Raises:
            StorageError: the disk failed; the log's directory is offline.
        """
        if self.config.keeps_replaced_segments:
            undo_ms = self.config.compaction_undo_ms
            self._change_kept(lambda kept: kept.end_expired(undo_ms, now_ms))
        else:
            self.drop_passes_kept(EndReason.OFF)

    def _change_kept(self, change: Callable[[KeptPasses], None]) -> None:
        with self._service.failing_with_the_disk(LogOffline), self._commits.commit_lock:
            self._service.check_online()
            if self._commits.kept is not None:
                change(self._commits.kept)

    # ---------------------------------------------------------------- changing and ending

    def update_config(self, config: LogConfig) -> None:
        """Use another configuration from now on: appends, rolls, retention and the cleaner read `config`
        each time they need it. If it changes which records cleaning keeps (`_kept_records_rules`),
        passes that were planned earlier fail.

        A commit that is running may still follow the old configuration; `wait_for_commit` waits for it.
        """
        if _kept_records_rules(config) != _kept_records_rules(self.config):
            self._list.raise_generation()
        self.appender.config = config

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Set the idle time after which producers are forgotten (producer.id.expiration.ms)."""
        self._states.expire_producers_after(expiration_ms)

    @loop_thread
    def forget_producers(self, now_ms: int) -> None:
        """Forget every producer, because another cluster gave them their ids. None has an open
        transaction.

        The log rolls, so that the state of its new segment is what a restart begins with.

        Raises:
            LogOffline, DiskError: like `LogAppender.append_as_leader`.
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

    def remember_source(self, copied_from: uuid.UUID) -> None:
        """Set `copied_from`, durably. A worker thread.

        Raises:
            NoSpace: the disk is full; nothing has changed.
            LogOffline: the log is out of service.
            StorageError: the disk failed; the log's directory is offline.
        """
        self._commits.remember_source(copied_from)

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
            NoSpace: the disk is full; nothing has changed.
            LogOffline: the log is out of service.
            StorageError: the disk failed; the log's directory is offline.
        """
        self._commits.truncate_to(offset, keeps_keys=keeps_keys)
        self._syncs.truncated()

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything and continue at `offset`, which becomes the log's start and end.

        A worker thread, while nothing is appended. Raises like `truncate_to`.
        """
        self._commits.truncate_fully_and_start_at(offset)
        self._syncs.truncated()

    def replace_with(
        self,
        copy: PartitionLog,
        *,
        puts_aside: bool,
        copy_id: uuid.UUID | None = None,
        copied_from: uuid.UUID | None = None,
    ) -> str | None:
        """Make the records of a copy those of this log, by one manifest commit. A worker thread.

        See `storage/log/replacement.py`. No append to and no sync of either log may run meanwhile, as
        for `truncate_to`, and this log must lead above the epochs of the copy (`lead_above`). All of the
        copy is readable then, and the copy is out of service.

        Args:
            copy: of this log, from `LogDirectory.begin_copy`; its directory is left, so the caller drops
                it afterwards.
            puts_aside: keep what the log holds now, as a log in a directory beside it.
            copy_id, copied_from: these values from then on, also after a start.

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
        aside = replacement.run(copy_id, copied_from, puts_aside=puts_aside)
        self._syncs.replaced()
        copy.retire()
        return aside

    @property
    def _parts(self) -> LogParts:
        return LogParts(
            identity=self.identity,
            segments=self._list,
            commits=self._commits,
            states=self._states,
            offsets=self.offsets,
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
        config.compaction_unkeyed_records,
        config.compaction_unkeyed_topic,
        config.compaction_hold_groups,
        config.strategy,
        config.history,
    )
