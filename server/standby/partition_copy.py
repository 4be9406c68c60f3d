"""A standby's copy of one coordinator's partition: a checkpoint, and the log after its end.

    <partition>/              the log: from the checkpoint's end on, or from somewhat before it; from 0
                              on without a checkpoint
    <partition>.checkpoint    the state at that end: the leader's, or one that the copy has made itself

The log grows by whole batches that follow each other without a gap: only then nothing is missing that
the leader's cleaner has dropped, perhaps a tombstone or a marker. If something is, or if the leader's
log is not the one that was copied, or starts elsewhere (DeleteRecords), the copy needs the leader's
checkpoint (`Wanted`), and keeps what it has until that is whole. A checkpoint is taken in three steps,
each durable before the next:

    checkpoint.download -> checkpoint.install      it is whole: from now on it will be taken
    the log starts over at its end                 (`truncate_fully_and_start_at`)
    checkpoint.install -> checkpoint

A start that finds the `.install` file repeats the last two. Its own checkpoint bounds the copy's disk,
by the same rule as a broker's (`server/coordination/checkpoints.py`): once it is durable, the log before
its end is dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cleaner.checkpoints.making import (
    CheckpointOrder,
    LiveDigest,
    MadeCheckpoint,
    live_digest,
    make_checkpoint,
)
from cleaner.checkpoints.reading import CheckpointReader
from cleaner.checkpoints.validity import objection, place_in
from cleaner.pacing.meter import CleaningAborted, PassMeter
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.throttle import Throttle
from protocol.records.batch_header import BatchHeader, is_intact, read_header
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Epoch, Offset
from replog.entry import SnapshotId
from replog.trigger import CompactionSettings
from server.coordination.checkpoints import TopicCheckpoints
from server.coordination.state_loading import LoadedCheckpoint, LoadReport
from server.standby.checkpoint_download import CheckpointDownload
from storage.batches.batch_run import run_of_one
from storage.files.errors import DamagedFile, MissingFile, SegmentRemoved, StorageError
from storage.files.files import Buffer, FileSystem, unlink_if_there
from storage.files.paths import INSTALL, checkpoint_path
from storage.formats.coordinator_checkpoint import CheckpointHeader
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.log.log import PartitionLog
from storage.log.opening import LogOpening, create_log, open_log
from storage.recovery.was_used import was_used

_log = logging.getLogger("server.standby")

CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=16 << 20)
"""A copy is not cleaned: its checkpoints drop what is superseded. Small segments, which go soon."""
MEMORY_BYTES = 64 << 20
"""The most memory for the keys of a copy's own checkpoint."""
NO_EPOCH = Epoch(-1)
START = Offset(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Why a copy needs the leader's checkpoint, and the least end that helps."""

    reason: str
    end_min: Offset


class PartitionCopy:
    """The copy of one partition.

    One thread calls all methods, except `make_checkpoint` and `digest`: any other thread may call these,
    with an order that the first one has made.
    """

    __slots__ = (
        "_checkpoint_end",
        "_checkpoint_epoch",
        "_checkpoint_size",
        "_checkpoints",
        "_download",
        "_fs",
        "_identity",
        "_is_whole",
        "_log",
        "_making",
        "_now_ms",
        "_state_start",
        "_stops_making",
        "installs",
        "wanted",
    )

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        checkpoints: TopicCheckpoints,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Open the copy, or create it, and finish what a crash has interrupted.

        Args:
            checkpoints: of the partition's topic; decides when an own one is due.

        Raises:
            CorruptLog, DamagedFile: records that were synced can no longer be read.
            FormatFromTheFuture: a later release wrote the files.
            DiskError: the disk failed.
        """
        # Constant after construction
        self._fs = fs
        self._identity = identity
        self._checkpoints = checkpoints
        self._now_ms = now_ms
        self._making = threading.Lock()
        """Held while an own checkpoint or a digest is made, and while the leader's is taken."""
        self._stops_making = threading.Event()
        # State
        self.installs = 0
        """Checkpoints of the leader that were taken since the start."""
        self.wanted: Wanted | None = None
        self._is_whole = True
        """Whether the copy has the state at its end."""
        self._checkpoint_end: Offset | None = None
        self._checkpoint_epoch = NO_EPOCH
        self._checkpoint_size = 0
        self._state_start = START
        """The start of the leader's log when its records began to make up this state."""
        self._log = self._opened_log()
        self._finish_install()
        self._fit_to_checkpoint()
        self._download = CheckpointDownload(fs, identity)

    # ---------------------------------------------------------------- what it has

    @property
    def log(self) -> PartitionLog:
        """The log after the checkpoint."""
        return self._log

    @property
    def end(self) -> Offset:
        """The offset up to which it has everything, durably after `sync`."""
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> Epoch:
        """The leader epoch of the last record before the end; -1 if there is none."""
        return max(self._log.epochs.latest, self._checkpoint_epoch)

    @property
    def checkpoint_end(self) -> Offset | None:
        """Where its checkpoint ends; None without one."""
        return self._checkpoint_end

    @property
    def checkpoint_epoch(self) -> Epoch:
        """The epoch of the batch that ended where its checkpoint ends; -1 without one."""
        return self._checkpoint_epoch

    @property
    def is_whole(self) -> bool:
        """Whether it has the state at its end: false only if its checkpoint was lost."""
        return self._is_whole

    @property
    def disk_bytes(self) -> int:
        """The bytes of the log, the checkpoint and the download."""
        return self._log.size_bytes + self._checkpoint_size + self._download.position

    # ---------------------------------------------------------------- following the log

    def append(self, data: memoryview) -> None:
        """Append whole batches from the leader; what comes after a gap is left out (see `wanted`).

        Raises:
            CorruptBatch, UnsupportedMagic: these bytes are no batches. Those before are appended.
            StorageError: the disk failed.
        """
        position = 0
        while position < len(data) and self.wanted is None:
            header = read_header(data, position)
            batch = data[position : position + header.size_bytes]
            if len(batch) < header.size_bytes or not is_intact(batch):
                raise CorruptBatch(f"batch at offset {header.base_offset} is not what was sent")
            self._append(header, batch)
            position += header.size_bytes

    def _append(self, header: BatchHeader, batch: memoryview) -> None:
        end = self.end
        if header.base_offset < end or header.leader_epoch < self.last_epoch:
            self.want(
                f"the leader's batch at {header.base_offset} in epoch {header.leader_epoch} does not"
                f" continue the log up to {end} in epoch {self.last_epoch}"
            )
        elif header.base_offset > end:
            self._want_after_gap(header.base_offset)
        elif header.record_count != header.next_offset - header.base_offset:
            self._want_after_gap(header.next_offset)
        else:
            self._log.appender.append_as_follower(run_of_one(header, batch), now_ms=self._now_ms())

    def leader_starts_at(self, offset: Offset) -> None:
        """Compare the start of the leader's log with that of the log whose records make up the state.

        DeleteRecords moves it, and what was deleted must not count here either.
        """
        if offset != self._state_start:
            self.want(f"the leader's log starts at {offset}, the copied one at {self._state_start}")

    def nothing_until(self, end: Offset) -> None:
        """Note that the leader has no record from this log's end up to `end`."""
        if end > self.end:
            self._want_after_gap(end)

    def _want_after_gap(self, end: Offset) -> None:
        self.want(f"the leader has cleaned away records from {self.end} to {end}", end)

    def want(self, reason: str, end_min: Offset = START) -> None:
        """Stop to follow the log until a checkpoint is here that ends at `end_min` or later."""
        self.wanted = Wanted(reason=reason, end_min=end_min)
        if self._download.snapshot is not None and self._download.snapshot.end < end_min:
            self._download.drop()

    def drop_download(self) -> None:
        """Forget what was downloaded, because the leader no longer has that checkpoint."""
        self._download.drop()

    def ask_again(self) -> None:
        """Follow the log once more, because the leader has no such checkpoint.

        A copy without a state still needs one.
        """
        self._download.drop()
        if self._is_whole:
            self.wanted = None

    def sync(self) -> None:
        """Make durable what was appended; only then it counts. Raises StorageError."""
        if self._log.high_watermark < self._log.log_end_offset:
            self._log.advance_high_watermark(self._log.sync())

    # ---------------------------------------------------------------- taking the leader's checkpoint

    @property
    def next_piece(self) -> tuple[SnapshotId | None, int]:
        """The checkpoint that is being downloaded, None for the newest, and the next position in it."""
        return self._download.snapshot, self._download.position

    def receive(self, snapshot: SnapshotId, position: int, data: Buffer, size: int) -> bool:
        """Take bytes of a checkpoint, and then the whole of it.

        Args:
            size: of the whole.

        Returns:
            False if the whole was damaged, so that it must be downloaded again.

        Raises:
            StorageError: the disk failed.
        """
        if self.wanted is None or snapshot.end < self.wanted.end_min:
            return True
        self._download.add(snapshot, position, data)
        if self._download.snapshot == snapshot and self._download.position >= size:
            header = self._download.finish()
            if header is None:
                return False
            self._take(header)
        return True

    def _take(self, header: CheckpointHeader) -> None:
        """Replace the state by the one of a checkpoint that is whole."""
        before = self.end
        # A checkpoint that is being made must not replace this one.
        self._stops_making.set()
        with self._making:
            self._stops_making.clear()
            self._start_over_at(header)
        self.installs += 1
        if header.end_offset < before:
            _log.warning(
                "%s: went back from offset %d to %d, because %s",
                self._identity.topic_partition,
                before,
                header.end_offset,
                "its checkpoint was lost" if self.wanted is None else self.wanted.reason,
            )
        self.wanted = None

    def _start_over_at(self, header: CheckpointHeader) -> None:
        path = checkpoint_path(self._identity.directory)
        self._log.truncate_fully_and_start_at(header.end_offset)
        self._fs.rename(path + INSTALL, path)
        self._fs.sync_directory(path.rpartition("/")[0])
        self._note(header, self._fs.size(path))
        self._is_whole = True

    def _note(self, header: CheckpointHeader, size: int) -> None:
        self._checkpoint_end, self._checkpoint_epoch = header.end_offset, header.last_epoch
        self._state_start = header.start_offset
        self._checkpoint_size = size
        used = LoadedCheckpoint(end_offset=header.end_offset, size=size, records=0)
        partition = self._identity.topic_partition.partition
        report = LoadReport(checkpoint=used, bytes_read=0, seconds=0)
        self._checkpoints.loaded(partition, report)

    # ---------------------------------------------------------------- its own checkpoints

    def is_checkpoint_due(self, settings: CompactionSettings) -> bool:
        """Returns whether its log should be replaced by a checkpoint."""
        return self.wanted is None and self._checkpoints.is_due(self._log, settings)

    def order(self) -> CheckpointOrder:
        """Returns what `make_checkpoint` needs. The log rolls, so that its prefix can go afterwards.

        Raises StorageError.
        """
        self.sync()
        self._log.roll(self._now_ms())
        return self._order()

    def _order(self) -> CheckpointOrder:
        return CheckpointOrder(
            log=self._log,
            view=self._log.cleaning_view(as_if_rolled=True),
            has_commits=self._checkpoints.has_commits,
            memory_bytes=MEMORY_BYTES,
            is_copy=True,
        )

    def make_checkpoint(self, order: CheckpointOrder) -> MadeCheckpoint | None:
        """Make a checkpoint up to the high watermark, then drop the log before its end. Blocks.

        Call `made` with the result. Returns None if there is nothing new.

        Raises:
            CleaningAborted: the leader's checkpoint was taken meanwhile, an own one has dropped the log
                of the order, or `stop` was called.
            ProtocolError, StorageError: it cannot be made; the copy is as before.
        """
        with self._making, _aborting_if_dropped():
            made = make_checkpoint(order, self._checked_meter(order))
            if made is not None:
                gone = self._log.delete_records(made.end_offset)
                assert not isinstance(gone, ErrorCode), "it ends below the high watermark"
            return made

    def made(self, made: MadeCheckpoint) -> None:
        """Note an own checkpoint."""
        with CheckpointReader(self._fs, checkpoint_path(self._identity.directory)) as reader:
            if reader.header.end_offset == made.end_offset:
                self._note(reader.header, reader.size)

    def digest_order(self, end_offset: Offset) -> CheckpointOrder | None:
        """Returns what `digest` needs for the digest at an offset; None if the copy cannot tell it."""
        start = self.checkpoint_end or START
        if not (self._is_whole and start <= end_offset <= self._log.high_watermark):
            return None
        order = self._order()
        return replace(order, view=replace(order.view, high_watermark=end_offset))

    def digest(self, order: CheckpointOrder) -> LiveDigest:
        """Returns the digest of the state. Blocks. Raises as `make_checkpoint`."""
        with self._making, _aborting_if_dropped():
            return live_digest(order, self._checked_meter(order))

    def _checked_meter(self, order: CheckpointOrder) -> PassMeter:
        """Returns the meter of a pass. Raises CleaningAborted if the log has started over since."""
        generation = order.view.generation
        meter = PassMeter(
            throttle=Throttle(clock=lambda: 0.0),
            probe=SilentProbe(),
            sleep=self._stops_making.wait,
            is_stale=lambda: self._log.generation != generation,
        )
        meter.check()
        return meter

    # ---------------------------------------------------------------- opening and closing

    def stop(self) -> None:
        """Let a checkpoint that is being made be given up soon; any thread may call."""
        self._stops_making.set()

    def close(self) -> None:
        """Close the files, once no checkpoint is being made. Raises StorageError."""
        self._stops_making.set()
        with self._making:
            self._download.close()
            self._log.close()

    def _opened_log(self) -> PartitionLog:
        fs, directory = self._fs, self._identity.directory
        opening = LogOpening(
            leader_epoch=Epoch(0),
            background=_at_once,
            on_failure=_ignore,
            now_ms=self._now_ms(),
            is_clean=False,
        )
        if fs.exists(directory):
            if was_used(fs, directory):
                return open_log(fs, self._identity, CONFIG, opening)
            fs.remove_tree(directory)
        log = create_log(fs, self._identity, CONFIG, opening)
        log.new_files.make_safe()
        return log

    def _finish_install(self) -> None:
        path = checkpoint_path(self._identity.directory) + INSTALL
        try:
            with CheckpointReader(self._fs, path) as reader:
                header = reader.header
        except MissingFile:
            return
        except DamagedFile as error:
            _log.warning("not taking a damaged checkpoint: %s", error)
            unlink_if_there(self._fs, path)
            return
        self._start_over_at(header)

    def _fit_to_checkpoint(self) -> None:
        """Check that the log continues the checkpoint; else let it start over at its end."""
        path = checkpoint_path(self._identity.directory)
        try:
            with CheckpointReader(self._fs, path) as reader:
                header, size = reader.header, reader.size
            self._check_is_ours(header, path)
        except MissingFile:
            self._do_without(f"{path} is missing")
            return
        except DamagedFile as error:
            self._do_without(str(error))
            return
        reason = objection(header, place_in(self._log, header.end_offset), is_copy=True)
        if reason is not None:
            _log.warning("%s: the log does not continue it, starting over: %s", path, reason)
            self._log.truncate_fully_and_start_at(header.end_offset)
        self._note(header, size)

    def _check_is_ours(self, header: CheckpointHeader, path: str) -> None:
        partition = self._identity.topic_partition.partition
        if (header.topic_id, header.partition) != (self._identity.topic_id, partition):
            raise DamagedFile(path, "it belongs to another topic or partition")

    def _do_without(self, reason: str) -> None:
        """Continue without a checkpoint: a log from offset 0 on needs none."""
        if self._log.log_start_offset > 0:
            self._is_whole = False
            self.wanted = Wanted(reason=reason, end_min=START)


@contextmanager
def _aborting_if_dropped() -> Iterator[None]:
    """Turn SegmentRemoved into CleaningAborted: the order is older than the last own checkpoint."""
    try:
        yield
    except SegmentRemoved as error:
        raise CleaningAborted(str(error)) from error


def _at_once(work: Callable[[], None]) -> None:
    """Run what the log would do in the background: all of a copy's work is in one worker thread."""
    work()


def _ignore(error: StorageError) -> None:
    """The log that failed raises the same error to its caller, which ends the standby."""
