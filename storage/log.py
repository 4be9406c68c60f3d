"""The log of one partition: its four offsets, how it grows, and what may be read of it.

    log start        last stable      high watermark      log end
        |--- sealed segments ---|--- active segment ---------|

The loop's thread appends, reads and rolls. Worker threads sync it, commit manifests, and swap in what
the cleaner made. What an append causes but need not wait for (sealing a segment, committing the roll)
is given to `background`. `storage/segment_list.py` has the segments and their commits,
`storage/log_states.py` what is remembered of producers and epochs.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from protocol.error_codes import ErrorCode
from protocol.record_batch import BatchHeader, build_empty_batch, read_header, stamp
from storage.checkpoint import CHECKPOINT_BYTES_MIN
from storage.cleaned_segment import CleanedSegment, CleanedSegmentWriter
from storage.cleaning_view import CleanableSegment, CleaningView
from storage.config_property import LONG_MAX
from storage.errors import NoSpace, SegmentRemoved, StorageError, SwapRefused
from storage.files import FileSystem
from storage.flush import Unsynced
from storage.leader_epochs import LeaderEpochs
from storage.log_config import LogConfig
from storage.log_identity import LogIdentity
from storage.log_service import LogService
from storage.log_start import DeletedSegment, LogStart
from storage.log_states import LogStates
from storage.manifest import UNKNOWN, SegmentRow
from storage.producer_state import Duplicate, ProducerStates
from storage.reader import ReadResult, find_region
from storage.segment import Background, Segment
from storage.segment_list import LogContents, SegmentList
from storage.timestamp_lookup import TimestampOffset, first_at_or_after, youngest
from storage.topic_partition import TopicPartition
from storage.truncate import Cut, plan_cut
from storage.validate import Refused, ValidationRules, ValidBatch

OFFSET_SPAN_MAX = (1 << 31) - 1

PRODUCER_EXPIRATION_MS = 86_400_000
"""Kafka's default of producer.id.expiration.ms."""

READ_TRIES = 3
"""A read takes the list of segments again when a swap removed one of them meanwhile."""

T = TypeVar("T")


class Isolation(enum.IntEnum):
    """What a reader may see; the values are the protocol's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class Appended:
    """A batch that is in the log, or was before (`duplicate`): offsets [base, next)."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


class PartitionLog:
    """One partition's log. Changed by its broker's loop thread, and by `sync` and `swap`."""

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
            epochs=contents.epochs,
            producers=contents.producers,
            producer_expiration_ms=producer_expiration_ms,
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
        """The end of what no open transaction may still change; there are no transactions yet."""
        return self.high_watermark

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

    def validation_rules(self, *, now_ms: int) -> ValidationRules:
        """What `validate_batch` needs to know of this log's configuration."""
        config = self.config
        return ValidationRules(
            log=str(self.topic_partition),
            is_compacted=config.is_compacted,
            is_log_append_time=config.is_log_append_time,
            max_message_bytes=config.max_message_bytes,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            has_narrow_bounds=config.has_narrow_timestamp_bounds,
            stored_codec=config.stored_codec,
            now_ms=now_ms,
        )

    # ---------------------------------------------------------------- appending

    def append_as_leader(self, batch: ValidBatch, *, now_ms: int) -> Appended | Refused:
        """Give the batch its offsets and the leader epoch, and write it.

        A duplicate of one of its producer's last five batches is answered with the first one's
        offsets and not written again.

        Raises:
            LogOffline: the log or its directory is out of service.
            DiskError: the write failed, and nothing of the batch is in the log.
        """
        self._service.check_online()
        verdict = self._states.producers.judge(batch.header)
        if isinstance(verdict, Duplicate):
            return Appended(verdict.base_offset, verdict.last_offset + 1, duplicate=True)
        if verdict is not ErrorCode.NONE:
            return self._refuse(batch, verdict)
        base_offset = self.log_end_offset
        last_offset = base_offset + batch.header.last_offset - batch.header.base_offset
        stamp(batch.view, base_offset=base_offset, leader_epoch=self.leader_epoch)
        self._states.assign_epoch(self.leader_epoch, base_offset)
        self._write(batch, last_offset, now_ms)
        return Appended(base_offset, last_offset + 1, batch.log_append_time_ms)

    def append_as_follower(self, batch: ValidBatch, *, now_ms: int) -> Appended:
        """Write a batch that has its offsets and epoch from a leader; gaps are legal.

        Raises:
            ValueError: it begins below the log's end.
            LogOffline, DiskError: as `append_as_leader`.
        """
        self._service.check_online()
        header = batch.header
        if header.base_offset < self.log_end_offset:
            raise ValueError(f"offset {header.base_offset} is below {self.log_end_offset}")
        active = self._list.active
        if active.size == 0 and header.last_offset - active.base_offset > OFFSET_SPAN_MAX:
            # An empty segment never rolls, and its indexes cannot say an offset that far away.
            # The gap is no newer than what follows it.
            epoch = header.leader_epoch
            self.advance_end(header.base_offset, now_ms=now_ms, leader_epoch=epoch)
        self._states.assign_epoch(header.leader_epoch, header.base_offset)
        self._write(batch, header.last_offset, now_ms)
        return Appended(header.base_offset, header.next_offset, batch.log_append_time_ms)

    def advance_end(
        self, offset: int, *, now_ms: int = UNKNOWN, leader_epoch: int | None = None
    ) -> None:
        """Move the log's end over a gap, as where a leader's tail was compacted away.

        Batches without records cover the gap, so that it is as durable as what stands before it;
        readers skip them.

        Args:
            leader_epoch: of the gap; None for the log's own, as a leader.

        Raises:
            LogOffline, DiskError: as `append_as_leader`.
        """
        self._service.check_online()
        epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        while self.log_end_offset < offset:
            last_offset = min(offset - 1, self.log_end_offset + OFFSET_SPAN_MAX)
            empty = memoryview(_gap(self.log_end_offset, last_offset, epoch))
            self._states.assign_epoch(epoch, self.log_end_offset)
            self._write(ValidBatch(read_header(empty), empty), last_offset, now_ms)

    def _refuse(self, batch: ValidBatch, error_code: ErrorCode) -> Refused:
        header = batch.header
        text = (
            f"Producer {header.producer_id} epoch {header.producer_epoch} sent sequence"
            f" {header.base_sequence} to {self.topic_partition}, which does not follow."
        )
        return Refused(error_code=error_code, message=text, record_count=header.record_count)

    def _write(self, batch: ValidBatch, last_offset: int, now_ms: int) -> None:
        header = batch.header
        self._list.appending()
        if self._must_roll(len(batch.view), last_offset, now_ms):
            self.roll(now_ms)
        self._list.active.append(
            batch.view,
            last_offset=last_offset,
            record_count=header.record_count,
            max_timestamp=header.max_timestamp,
            now_ms=now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        self._states.producers.appended(header, last_offset=last_offset, now_ms=now_ms)
        self.log_end_offset = last_offset + 1
        self._unsynced.appended(now_ms)

    # ---------------------------------------------------------------- rolling

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll the active segment if its time has come, appends or not; whether it did.

        Called by a clock; idle producers are forgotten in passing.
        """
        self._states.expire_producers(now_ms)
        if self.offline_reason is not None or not self._is_old(now_ms):
            return False
        self.roll(now_ms)
        return True

    def roll(self, now_ms: int) -> None:
        """Begin a new active segment; an empty one stays. The old one is sealed in the background.

        Raises:
            LogOffline, NoSpace: nothing has changed.
            DiskError: nothing has changed; the log's directory takes no new names and is offline.
        """
        self._service.check_online()
        if not self._list.active.size:
            return
        try:
            self._list.roll(self.log_end_offset, now_ms)
        except NoSpace:
            raise
        except StorageError as error:
            self._service.fail(error)
            raise

    def _must_roll(self, batch_bytes: int, last_offset: int, now_ms: int) -> bool:
        active, config = self._list.active, self.config
        if active.size == 0:
            return last_offset - active.base_offset > OFFSET_SPAN_MAX
        return (
            active.size + batch_bytes > config.segment_bytes
            or last_offset - active.base_offset > OFFSET_SPAN_MAX
            or active.index_bytes >= config.segment_index_bytes
            or self._is_old(now_ms)
        )

    def _is_old(self, now_ms: int) -> bool:
        """Whether the active segment's first append was segment.ms ago, by the clock on the wall."""
        active, config = self._list.active, self.config
        if active.size == 0 or active.first_append_ms == UNKNOWN:
            return False
        age_max = config.segment_ms - int(self._jitter * config.segment_jitter_ms)
        if config.is_compacted:
            age_max = min(age_max, config.max_compaction_lag_ms)
        return age_max < LONG_MAX and now_ms - active.first_append_ms >= age_max

    # ---------------------------------------------------------------- durability

    def sync(self) -> int:
        """Make everything that was appended before safe; the offset up to which it is. Any thread.

        Raises:
            StorageError: final; the log's directory is offline.
        """
        self._unsynced.sync_begins()
        try:
            end_offset = self._list.sync(lambda: self.log_end_offset)
        except StorageError as error:
            if self._service.is_retired:
                return self.high_watermark
            self._service.fail(error)
            raise
        self._unsynced.synced(end_offset)
        return end_offset

    def is_flush_due(self, now_ms: int = UNKNOWN) -> bool:
        """Whether flush.messages or, if the time is given, flush.ms asks for a sync."""
        return self._unsynced.is_due(self.config, self.log_end_offset, now_ms)

    def checkpoint(
        self, *, grown_bytes_min: int = CHECKPOINT_BYTES_MIN
    ) -> Callable[[], None] | None:
        """Take the log as it is now for a new recovery point; the loop's thread, called by a clock.

        Returns the work that makes it one, for a worker thread, which raises nothing: a full disk
        puts it off, any other failure takes the directory offline. None if the log has grown by less
        than `grown_bytes_min` since its last recovery point, or is out of service.
        """
        segments = self._list
        if self.offline_reason is not None or segments.grown_since_checkpoint < grown_bytes_min:
            return None
        taken = segments.take_checkpoint()
        return self._service.guarded(lambda: segments.commit_checkpoint(taken))

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see up to `offset`, which is durable as the broker is set to mean it."""
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))

    # ---------------------------------------------------------------- reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        whole_first_batch: bool,
        isolation: Isolation,
        last_fetched_epoch: int = UNKNOWN,
    ) -> ReadResult | ErrorCode:
        """Find what a reader at `offset` may be sent: whole batches below the high watermark.

        Args:
            max_bytes: of batches; with `whole_first_batch` the first one may be larger (KIP-74).
            last_fetched_epoch: of the last record that a follower has; where its log has left
                this one it is told so, and gets no records (KIP-595). Unknown: not checked.

        Raises:
            LogOffline: the log is out of service.
            DiskError, CorruptLog: what is on disk cannot be read.
        """
        self._service.check_online()
        diverging = self._divergence(offset, last_fetched_epoch)
        if not self._is_in_range(offset, diverging):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        committed = isolation is Isolation.READ_COMMITTED
        bound = self.last_stable_offset if committed else self.high_watermark
        region = None
        if offset < bound and diverging is None:
            region = self._with_segments(
                lambda segments: find_region(
                    segments,
                    offset,
                    bound=bound,
                    max_bytes=max_bytes,
                    whole_first_batch=whole_first_batch,
                )
            )
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
            diverging_epoch=diverging,
        )

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

    # ---------------------------------------------------------------- retention

    def retention_is_due(self, now_ms: int) -> bool:
        """Whether `retain` has something to do; an active segment that must go is rolled for it.

        Called by a clock, on the loop. Raises as `roll`.
        """
        due = self._log_start().due(now_ms)
        if len(due.reasons) == len(self._list.segments):
            self.roll(now_ms)
        return bool(due.reasons)

    def retain(self, now_ms: int) -> tuple[DeletedSegment, ...]:
        """Delete the segments that have to go, as `storage/retention.py` says. A worker thread.

        The new log start offset is on disk before anybody sees it.

        Raises:
            LogOffline: the log is out of service.
            NoSpace: the disk is full, and the log as before.
            StorageError: the disk failed; the log's directory is offline.
        """
        return self._log_start().retain(now_ms)

    def delete_records(self, offset: int) -> tuple[DeletedSegment, ...] | ErrorCode:
        """Move the log start up to `offset`, and delete the segments below it. A worker thread.

        An offset up to the log start changes nothing; one above the high watermark is
        OFFSET_OUT_OF_RANGE. Raises as `retain`.
        """
        return self._log_start().delete_records(offset, self.sync)

    def _log_start(self) -> LogStart:
        return LogStart(self, self._list, self._service)

    # ---------------------------------------------------------------- cleaning

    def cleaning_view(self) -> CleaningView:
        """A frozen picture for the cleaner to plan by. Any thread."""
        producers = self.producers
        with self._list.state_lock:
            segments = self._list.segments
            return CleaningView(
                topic_partition=self.topic_partition,
                config=self.config,
                segments=tuple(CleanableSegment(each.row(), each) for each in segments[:-1]),
                generation=self.generation,
                clean_offset=max(self.clean_offset, self.log_start_offset),
                active_base_offset=segments[-1].base_offset,
                log_start_offset=self.log_start_offset,
                last_stable_offset=self.last_stable_offset,
                high_watermark=self.high_watermark,
                log_end_offset=self.log_end_offset,
                producer_last_offsets=producers.last_data_offsets(),
                hash_key=self.identity.hash_key,
            )

    def new_cleaned_segment(self, base_offset: int) -> CleanedSegmentWriter:
        """Begin a cleaned segment beside the log. Any thread; end it with finish or discard."""
        self._service.check_online()
        version = self._list.next_version()
        return CleanedSegmentWriter(self._fs, self.directory, base_offset, version)

    def swap(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: int | None,
    ) -> None:
        """Put cleaned segments in the place of their sources: one manifest commit. A worker thread.

        Args:
            generation: the one of the view that the pass was planned by.
            clean_offset: the new first dirty offset, with the last swap of a pass; else None.

        Raises:
            SwapRefused: the log was truncated, deleted or changed policy since, or a source is
                gone. Nothing has changed; the cleaned files are the caller's to discard.
            NoSpace: the disk is full. The log is as before, and the cleaned files are removed.
            StorageError: the disk failed; the log's directory is offline.
        """
        try:
            self._list.swap(sources, cleaned, generation=generation, clean_offset=clean_offset)
        except (SwapRefused, NoSpace):
            raise
        except StorageError as error:
            self._service.fail(error)
            raise

    # ---------------------------------------------------------------- changing and ending

    def update_config(self, config: LogConfig) -> None:
        """Use another configuration; a changed cleanup policy ends passes planned before.

        What is being committed at this moment may be from before; `settle` waits for it.
        """
        if config.cleanup_policy != self.config.cleanup_policy:
            self._list.raise_generation()
        self.config = config

    def settle(self) -> None:
        """Wait for the commit that is under way, if any. A worker thread."""
        with self._list.commit_lock:
            return

    def truncate_to(self, offset: int) -> None:
        """Cut the log back so that nothing reaches `offset`. See `storage/truncate.py`.

        A worker thread, while nothing is appended and no sync is under way, whose answer would
        speak of bytes that are gone. A batch across `offset` goes as a whole, and the
        log then ends where it began.

        Raises:
            ValueError: `offset` is below the log start offset.
            LogOffline: the log is out of service.
            StorageError: the disk failed; the log's directory is offline.
        """
        if offset < self.log_start_offset:
            raise ValueError(f"offset {offset} is below the log start {self.log_start_offset}")
        with self._list.commit_lock:
            self._service.check_online()
            if offset < self.log_end_offset:
                cut = plan_cut(self._list.segments, offset)
                if cut.end_offset < self.log_start_offset:
                    # All that may be read is in the batch that goes; the log start stays.
                    cut = Cut((), 0, self.log_start_offset)
                self._truncate(cut, start_offset=self.log_start_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`, which becomes the log's start and end.

        A worker thread, while nothing is appended. Raises as `truncate_to`.
        """
        with self._list.commit_lock:
            self._service.check_online()
            self._truncate(Cut((), 0, offset), start_offset=offset)

    def _truncate(self, cut: Cut, *, start_offset: int) -> None:
        def forget(end_offset: int) -> None:
            self.log_end_offset = end_offset
            self._unsynced.truncated(end_offset)
            self.high_watermark = max(start_offset, min(self.high_watermark, end_offset))

        try:
            self._list.truncate(cut, start_offset=start_offset, forget=forget)
        except StorageError as error:
            self._service.fail(error)
            raise

    def go_offline(self, reason: str) -> None:
        """Serve no more until the next start; nothing on disk is touched."""
        self._service.go_offline(reason)

    def close(self) -> None:
        """Write down all that the next start would otherwise have to find out, and let go.

        A worker thread, after the last append. Raises StorageError; the next start then recovers.
        """
        try:
            self._list.close()
        except StorageError as error:
            self._service.fail(error)
            raise

    def retire(self) -> None:
        """Serve no more: the topic is deleted. The files go with the directory."""
        self._list.raise_generation()
        self._service.retire()


def _gap(base_offset: int, last_offset: int, leader_epoch: int) -> bytearray:
    """A batch that covers offsets at which there is nothing."""
    return build_empty_batch(
        BatchHeader(
            size_bytes=0,
            base_offset=base_offset,
            last_offset=last_offset,
            leader_epoch=leader_epoch,
            crc=0,
            attributes=0,
            base_timestamp=-1,
            max_timestamp=-1,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=0,
        )
    )
