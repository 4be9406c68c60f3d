"""The log of one partition: what is in it, in which segments, and how it grows.

    log start        last stable      high watermark      log end
        |--- sealed segments ---|--- active segment ---------|

The loop's thread appends, reads and rolls. Worker threads sync it, commit manifests, and swap in what
the cleaner made. `_state_lock` guards the few lines that change both sides' view, and is never held
over a wait for the disk; `_commit_lock` puts manifest commits in order and is never taken on the loop.
What an append causes but need not wait for (sealing a segment, committing the roll) is given to
`background`. See ARCHITECTURE.md, "On disk", for what a commit means.
"""

from __future__ import annotations

import enum
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from protocol.error_codes import ErrorCode
from protocol.record_batch import BatchHeader, build_empty_batch, read_header, stamp
from storage.cleaned_segment import CleanedSegment, CleanedSegmentWriter, discard_staged
from storage.cleaning_view import CleanableSegment, CleaningView
from storage.config_property import LONG_MAX
from storage.errors import LogOffline, NoSpace, SegmentRemoved, StorageError
from storage.files import FileSystem
from storage.leader_epochs import LeaderEpochs
from storage.log_config import LogConfig
from storage.log_identity import LogIdentity
from storage.manifest import UNKNOWN, Manifest, SegmentRow, encode
from storage.paths import (
    LEADER_EPOCH_CHECKPOINT,
    MANIFEST,
    join,
    snapshot_file,
)
from storage.producer_recovery import producers_of, remove_snapshots_past, snapshot_offsets
from storage.producer_state import Duplicate, ProducerStates
from storage.reader import ReadResult, find_region
from storage.segment import Background, Segment
from storage.swap import check_swap, place_files, swapped
from storage.timestamp_lookup import TimestampOffset, first_at_or_after, youngest
from storage.topic_partition import TopicPartition
from storage.truncate import Cut, make_cut, plan_cut
from storage.validate import Refused, ValidationRules, ValidBatch

_log = logging.getLogger("storage.log")

OFFSET_SPAN_MAX = (1 << 31) - 1
SNAPSHOTS_KEPT = 2
"""Producer snapshots of the last rolls; one more than needed, in case the newest is damaged."""

READ_TRIES = 3
"""A read takes the list of segments again when a swap removed one of them meanwhile."""

T = TypeVar("T")

# What is loaded at the first need may be needed by the loop and by the cleaner at once.
_loading = threading.Lock()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContents:
    """What recovery found: the state that a log starts from."""

    segments: tuple[Segment, ...]
    """In offset order; the last one is active."""
    version: int
    generation: int
    log_start_offset: int
    clean_offset: int
    is_as_stopped: bool
    """Whether all files are as a clean stop leaves them."""
    load_epochs: Callable[[], LeaderEpochs]
    load_producers: Callable[[], ProducerStates]
    """Both are called at the first need, so that a start need not read these files."""


class PartitionLog:
    """One partition's log. Changed by its broker's loop thread, and by `sync` and `swap`."""

    __slots__ = (
        "_background",
        "_clean_offset",
        "_commit_lock",
        "_contents",
        "_directory_is_dirty",
        "_epochs",
        "_epochs_are_dirty",
        "_fs",
        "_is_as_stopped",
        "_jitter_ms",
        "_listed",
        "_on_failure",
        "_producers",
        "_rolled",
        "_segments",
        "_state_lock",
        "_unsynced",
        "_version",
        "config",
        "generation",
        "high_watermark",
        "identity",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "offline_reason",
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
        jitter_ms: int = 0,
    ) -> None:
        """Take over what recovery found; `storage/recovery.py` is who calls this.

        Args:
            leader_epoch: stamped on everything that is appended from now on.
            on_failure: told when the disk failed in a way that takes the directory offline.
            jitter_ms: taken off the roll time (segment.jitter.ms).
        """
        # Constant after construction
        self._fs = fs
        self._background = background
        self._on_failure = on_failure
        self._jitter_ms = jitter_ms
        self.identity = identity
        self.leader_epoch = leader_epoch
        self._state_lock = threading.Lock()
        self._commit_lock = threading.Lock()
        # State: log start <= last stable <= high watermark <= log end; none goes back.
        self.config = config
        self.generation = contents.generation
        self.log_start_offset = contents.log_start_offset
        self.log_end_offset = contents.segments[-1].end_offset
        self.high_watermark = self.log_end_offset
        self.offline_reason: str | None = None
        self._version = contents.version
        self._clean_offset = contents.clean_offset
        self._segments: tuple[Segment, ...] = contents.segments
        self._contents = contents
        self._epochs: LeaderEpochs | None = None
        self._producers: ProducerStates | None = None
        self._epochs_are_dirty = False
        self._is_as_stopped = contents.is_as_stopped
        # Segments with bytes that no sync has covered, the active one last; and whether the
        # directory has a name that no sync has covered.
        self._unsynced: list[Segment] = [contents.segments[-1]]
        self._directory_is_dirty = False
        # What the manifest lists (changed under `_commit_lock`), and the rolls that it does not
        # know yet: the sealed segment, and the producers at its end.
        self._listed: tuple[Segment, ...] = contents.segments
        self._rolled: list[tuple[Segment, ProducerStates]] = []

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
    def last_stable_offset(self) -> int:
        """The end of what no open transaction may still change; there are no transactions yet."""
        return self.high_watermark

    @property
    def clean_offset(self) -> int:
        """The first dirty offset: everything below was seen by a finished cleaning pass."""
        return self._clean_offset

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in offset order; the last one is active. Not to be changed."""
        return self._segments

    @property
    def size_bytes(self) -> int:
        """Bytes of all segment files."""
        return sum(segment.size for segment in self._segments)

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers that have written to it."""
        if self._producers is None:
            with _loading:
                if self._producers is None:
                    self._producers = self._contents.load_producers()
        return self._producers

    @property
    def epochs(self) -> LeaderEpochs:
        """Where its leader epochs begin."""
        if self._epochs is None:
            with _loading:
                if self._epochs is None:
                    self._epochs = self._contents.load_epochs()
        return self._epochs

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
        self._check_online()
        verdict = self.producers.judge(batch.header)
        if isinstance(verdict, Duplicate):
            return Appended(verdict.base_offset, verdict.last_offset + 1, duplicate=True)
        if verdict is not ErrorCode.NONE:
            return self._refuse(batch, verdict)
        base_offset = self.log_end_offset
        last_offset = base_offset + batch.header.last_offset - batch.header.base_offset
        stamp(batch.view, base_offset=base_offset, leader_epoch=self.leader_epoch)
        self._assign_epoch(self.leader_epoch, base_offset)
        self._write(batch, last_offset, now_ms)
        return Appended(base_offset, last_offset + 1, batch.log_append_time_ms)

    def append_as_follower(self, batch: ValidBatch, *, now_ms: int) -> Appended:
        """Write a batch that has its offsets and epoch from a leader; gaps are legal.

        Raises:
            ValueError: it begins below the log's end.
            LogOffline, DiskError: as `append_as_leader`.
        """
        self._check_online()
        header = batch.header
        if header.base_offset < self.log_end_offset:
            raise ValueError(f"offset {header.base_offset} is below {self.log_end_offset}")
        self._assign_epoch(header.leader_epoch, header.base_offset)
        self._write(batch, header.last_offset, now_ms)
        return Appended(header.base_offset, header.next_offset, batch.log_append_time_ms)

    def advance_end(self, offset: int, *, now_ms: int = UNKNOWN) -> None:
        """Move the log's end over a gap, as where a leader's tail was compacted away.

        Batches without records cover the gap, so that it is as durable as what stands before it;
        readers skip them.

        Raises:
            LogOffline, DiskError: as `append_as_leader`.
        """
        self._check_online()
        while self.log_end_offset < offset:
            last_offset = min(offset - 1, self.log_end_offset + OFFSET_SPAN_MAX)
            empty = memoryview(_gap(self.log_end_offset, last_offset, self.leader_epoch))
            self._assign_epoch(self.leader_epoch, self.log_end_offset)
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
        self._is_as_stopped = False
        if self._must_roll(len(batch.view), last_offset, now_ms):
            self.roll(now_ms)
        self._segments[-1].append(
            batch.view,
            last_offset=last_offset,
            record_count=header.record_count,
            max_timestamp=header.max_timestamp,
            now_ms=now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        self.producers.appended(header, last_offset=last_offset, now_ms=now_ms)
        self.log_end_offset = last_offset + 1

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note where an epoch begins; the batch carries it until the next commit writes it down."""
        if self.epochs.assign(epoch, start_offset):
            self._epochs_are_dirty = True

    # ---------------------------------------------------------------- rolling

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll the active segment if its time has come, appends or not; whether it did."""
        if self.offline_reason is not None or not self._is_old(now_ms):
            return False
        self.roll(now_ms)
        return True

    def roll(self, now_ms: int) -> None:
        """Begin a new active segment; an empty one stays. The old one is sealed in the background."""
        self._check_online()
        old = self._segments[-1]
        if old.size == 0 and old.end_offset == old.base_offset:
            return
        new = self._new_segment(self.log_end_offset, now_ms)
        producers = self.producers.copy()
        with self._state_lock:
            old.seal()
            self._segments = (*self._segments, new)
            self._rolled.append((old, producers))
            self._unsynced.append(new)
            self._directory_is_dirty = True
        self._in_background(self._commit_rolls)

    def _must_roll(self, batch_bytes: int, last_offset: int, now_ms: int) -> bool:
        active, config = self._segments[-1], self.config
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
        active, config = self._segments[-1], self.config
        if active.size == 0 or active.first_append_ms == UNKNOWN:
            return False
        age_max = config.segment_ms - self._jitter_ms
        if config.is_compacted:
            age_max = min(age_max, config.max_compaction_lag_ms)
        return age_max < LONG_MAX and now_ms - active.first_append_ms >= age_max

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        row = SegmentRow(
            base_offset=base_offset, file_version=self._next_version(), created_ms=now_ms
        )
        segment = Segment(self._fs, self.directory, row, background=self._remove_in_background)
        segment.create()
        return segment

    def _commit_rolls(self) -> None:
        with self._commit_lock:
            self._list_rolled()

    def _list_rolled(self) -> None:
        """Make all rolls so far durable: first what the manifest will promise, then the manifest."""
        with self._state_lock:
            rolled, self._rolled = self._rolled, []
            segments = self._segments
        if not rolled:
            return
        try:
            for segment, _ in rolled:
                with segment.pinned() as file:
                    file.sync()
                segment.write_index()
                segment.drop_index()
            last, producers = rolled[-1]
            self._write_snapshot(last.end_offset, producers)
            self._commit(segments)
        except NoSpace:
            # Recovery finds rolls without a manifest too, so this waits for the next commit.
            with self._state_lock:
                self._rolled[:0] = rolled
            raise
        self._remove_snapshots(keep=SNAPSHOTS_KEPT)

    def _write_snapshot(self, offset: int, producers: ProducerStates) -> None:
        """Keep the producers of everything below `offset`, which is synced.

        Where there never was a producer there is no snapshot; else a newer one, if empty, tells
        that the older ones are out of date.
        """
        if len(producers) or snapshot_offsets(self._fs, self.directory):
            self._fs.replace_durably(self._path(snapshot_file(offset)), producers.encode())

    def _remove_snapshots(self, *, keep: int) -> None:
        for offset in snapshot_offsets(self._fs, self.directory)[:-keep]:
            self._fs.unlink(self._path(snapshot_file(offset)))

    # ---------------------------------------------------------------- committing

    def _next_version(self) -> int:
        with self._state_lock:
            self._version += 1
            return self._version

    def _commit(
        self,
        segments: Sequence[Segment],
        *,
        rows: Sequence[SegmentRow] | None = None,
        clean_offset: int | None = None,
        truncate_to: int = UNKNOWN,
    ) -> None:
        """Replace the manifest; the caller holds `_commit_lock`, and all but the last are synced.

        Args:
            rows: of the segments, where they are not what the segments themselves say.
        """
        self._is_as_stopped = False
        if self._epochs_are_dirty:
            self._epochs_are_dirty = False
            try:
                self._fs.replace_durably(self._path(LEADER_EPOCH_CHECKPOINT), self.epochs.encode())
            except NoSpace:
                self._epochs_are_dirty = True
                raise
        clean_offset = self._clean_offset if clean_offset is None else clean_offset
        manifest = Manifest(
            version=self._next_version(),
            generation=self.generation,
            topic_id=self.topic_id,
            partition=self.topic_partition.partition,
            log_start_offset=self.log_start_offset,
            clean_offset=clean_offset,
            truncate_to=truncate_to,
            segments=tuple(_rows(segments) if rows is None else rows),
        )
        self._fs.replace_durably(self._path(MANIFEST), encode(manifest))
        self._listed = tuple(segments)
        self._clean_offset = clean_offset

    def _in_background(self, work: Callable[[], None]) -> None:
        """Do `work` soon, unless the log is out of service by then."""
        self._background(lambda: self._guard(work, even_offline=False))

    def _remove_in_background(self, work: Callable[[], None]) -> None:
        """Remove files soon; a closed log's last readers may be the ones who let go of them."""
        self._background(lambda: self._guard(work, even_offline=True))

    def _guard(self, work: Callable[[], None], *, even_offline: bool) -> None:
        """Do `work`; a disk that fails there takes the directory offline, unless it is full only."""
        try:
            if even_offline or self.offline_reason is None:
                work()
        except NoSpace as error:
            _log.warning("%s: put off until there is space: %s", self.topic_partition, error)
        except StorageError as error:
            self._fail(error)

    def _fail(self, error: StorageError) -> None:
        self.go_offline(str(error))
        self._on_failure(error)

    def go_offline(self, reason: str) -> None:
        """Serve no more until the next start; nothing on disk is touched."""
        if self.offline_reason is None:
            self.offline_reason = reason

    def _check_online(self) -> None:
        if self.offline_reason is not None:
            raise LogOffline(str(self.topic_partition), self.offline_reason)

    def _path(self, name: str) -> str:
        return join(self.directory, name)

    # ---------------------------------------------------------------- durability

    def sync(self) -> int:
        """Make everything that was appended before safe; the offset up to which it is. Any thread.

        Raises:
            StorageError: final; the log's directory is offline.
        """
        try:
            return self._sync()
        except StorageError as error:
            self._fail(error)
            raise

    def _sync(self) -> int:
        with self._state_lock:
            end_offset, unsynced = self.log_end_offset, list(self._unsynced)
            # The active one may take more bytes before this sync is over, and be sealed with them.
            sealed = unsynced[:-1]
            directory_is_dirty, self._directory_is_dirty = self._directory_is_dirty, False
        for segment in unsynced:
            try:
                with segment.pinned() as file:
                    file.sync()
            except SegmentRemoved:
                continue
        if directory_is_dirty:
            self._fs.sync_directory(self.directory)
        with self._state_lock:
            self._unsynced = [each for each in self._unsynced if each not in sealed]
        return end_offset

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see up to `offset`, which is durable as the broker is set to mean it."""
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))

    # ---------------------------------------------------------------- reading

    def read(
        self, offset: int, *, max_bytes: int, whole_first_batch: bool, isolation: Isolation
    ) -> ReadResult | ErrorCode:
        """Find what a reader at `offset` may be sent: whole batches below the high watermark.

        Args:
            max_bytes: of batches; with `whole_first_batch` the first one may be larger (KIP-74).

        Raises:
            LogOffline: the log is out of service.
            DiskError, CorruptLog: what is on disk cannot be read.
        """
        self._check_online()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        committed = isolation is Isolation.READ_COMMITTED
        bound = self.last_stable_offset if committed else self.high_watermark
        region = None
        if offset < bound:
            region = self._with_segments(
                lambda segments: find_region(
                    segments,
                    offset,
                    bound=bound,
                    max_bytes=max_bytes,
                    whole_first_batch=whole_first_batch,
                )
            )
        return ReadResult(
            regions=() if region is None else (region,),
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
        )

    def _with_segments(self, look: Callable[[Sequence[Segment]], T]) -> T:
        """Look at the segments, again if a swap removed one meanwhile."""
        for _ in range(READ_TRIES - 1):
            try:
                return look(self._segments)
            except SegmentRemoved:
                continue
        return look(self._segments)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with this timestamp or a later one; None if there is none."""
        start = self.log_start_offset
        return self._with_segments(
            lambda segments: first_at_or_after(segments, timestamp, start_offset=start)
        )

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None if there is no record."""
        start = self.log_start_offset
        return self._with_segments(lambda segments: youngest(segments, start_offset=start))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and its end offset; (-1, -1) if unknown (KIP-320)."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    # ---------------------------------------------------------------- cleaning

    def cleaning_view(self) -> CleaningView:
        """A frozen picture for the cleaner to plan by. Any thread."""
        producers = self.producers
        with self._state_lock:
            segments = self._segments
            return CleaningView(
                topic_partition=self.topic_partition,
                config=self.config,
                segments=tuple(CleanableSegment(each.row(), each) for each in segments[:-1]),
                generation=self.generation,
                clean_offset=max(self._clean_offset, self.log_start_offset),
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
        self._check_online()
        version = self._next_version()
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
            StorageError: the disk failed.
        """
        with self._commit_lock:
            self._check_online()
            self._list_rolled()
            with self._state_lock:
                check_swap(self, sources, generation)
            new = [self._segment_of(each.row) for each in cleaned]
            self._commit_swap(swapped(self._listed, sources, new), cleaned, clean_offset)
            with self._state_lock:
                before = self._segments
                self._segments = swapped(before, sources, new)
            after = set(self._segments)
            for segment in before:
                if segment not in after:
                    segment.retire()

    def _segment_of(self, row: SegmentRow) -> Segment:
        return Segment(self._fs, self.directory, row, background=self._remove_in_background)

    def _commit_swap(
        self,
        segments: Sequence[Segment],
        cleaned: Sequence[CleanedSegment],
        clean_offset: int | None,
    ) -> None:
        try:
            self._commit(segments, clean_offset=clean_offset)
        except NoSpace:
            # The old manifest stands, and on a full disk what it doesn't list must go at once.
            for each in cleaned:
                discard_staged(
                    self._fs, self.directory, each.row.base_offset, each.row.file_version
                )
            raise
        except StorageError as error:
            self._fail(error)
            raise
        try:
            place_files(self._fs, self.directory, cleaned)
        except StorageError as error:
            self._fail(error)
            raise

    # ---------------------------------------------------------------- changing and ending

    def update_config(self, config: LogConfig) -> None:
        """Use another configuration; a changed cleanup policy ends passes planned before."""
        with self._state_lock:
            if config.cleanup_policy != self.config.cleanup_policy:
                self.generation += 1
            self.config = config

    def truncate_to(self, offset: int) -> None:
        """Cut the log back so that nothing reaches `offset`. See `storage/truncate.py`.

        A worker thread, while nothing is appended. A batch across `offset` goes as a whole, and the
        log then ends where it began.

        Raises:
            ValueError: `offset` is below the log start offset.
            StorageError: the disk failed.
        """
        if offset < self.log_start_offset:
            raise ValueError(f"offset {offset} is below the log start {self.log_start_offset}")
        with self._commit_lock:
            self._check_online()
            if offset < self.log_end_offset:
                cut = plan_cut(self._segments, offset)
                self._truncate(cut, start_offset=min(self.log_start_offset, cut.end_offset))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`, which becomes the log's start and end."""
        with self._commit_lock:
            self._check_online()
            self._truncate(Cut((), 0, offset), start_offset=offset)

    def _truncate(self, cut: Cut, *, start_offset: int) -> None:
        try:
            self._commit_truncation(cut, start_offset)
        except StorageError as error:
            self._fail(error)
            raise

    def _commit_truncation(self, cut: Cut, start_offset: int) -> None:
        self._list_rolled()
        for segment in cut.kept[-1:]:
            segment.file().sync()
        new = self._new_segment(cut.end_offset, self._segments[-1].created_ms)
        gone = self._forget((*cut.kept, new), start_offset)
        clean_offset = max(start_offset, min(self._clean_offset, cut.end_offset))
        self._commit(
            self._segments,
            rows=(*cut.rows, new.active_row()),
            clean_offset=clean_offset,
            truncate_to=cut.end_offset,
        )
        for segment in gone:
            segment.remove_at_once()
        remove_snapshots_past(self._fs, self.directory, cut.end_offset)
        make_cut(cut)
        self._fs.sync_directory(self.directory)
        self.epochs.truncate_from_end(cut.end_offset)
        self._epochs_are_dirty = True
        self._producers = producers_of(self._fs, self.directory, cut.kept, cut.end_offset)
        self._write_snapshot(cut.end_offset, self._producers)
        self._commit(self._segments)

    def _forget(self, kept: tuple[Segment, ...], start_offset: int) -> list[Segment]:
        """Let nobody read past the cut any more; the segments that are no longer in the log."""
        with self._state_lock:
            gone = [segment for segment in self._segments if segment not in kept]
            self.generation += 1
            self._segments = kept
            self._unsynced = [kept[-1]]
            self.log_end_offset = kept[-1].base_offset
            self.log_start_offset = start_offset
            self.high_watermark = max(start_offset, min(self.high_watermark, self.log_end_offset))
        return gone

    def close(self) -> None:
        """Write down all that the next start would otherwise have to find out, and let go.

        A worker thread, after the last append. Raises StorageError.
        """
        with self._commit_lock:
            if self.offline_reason is None and not self._is_as_stopped:
                self._write_everything()
            self.go_offline("it is closed")
        for segment in self._segments:
            segment.close()

    def _write_everything(self) -> None:
        try:
            self._list_rolled()
            self._sync()
            active = self._segments[-1]
            active.write_index()
            self._write_snapshot(self.log_end_offset, self.producers)
            rows = [segment.full_row() for segment in self._segments]
            self._commit(self._segments, rows=rows)
            self._remove_snapshots(keep=SNAPSHOTS_KEPT)
        except StorageError as error:
            self._fail(error)
            raise

    def retire(self) -> None:
        """Serve no more: the topic is deleted. The files go with the directory."""
        with self._state_lock:
            self.generation += 1
        self.go_offline("its topic was deleted")


def _rows(segments: Sequence[Segment]) -> list[SegmentRow]:
    """The rows of a log whose last segment is active: its end is for a scan to find."""
    return [*(segment.full_row() for segment in segments[:-1]), segments[-1].active_row()]


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
