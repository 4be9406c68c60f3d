"""What a log remembers of its leader epochs, producers and transactions, and how that stays on disk.

All is written before each manifest, so that together with a scan of what no manifest lists it is
always known: the epochs as a checkpoint, the producers as a snapshot at the end of what is listed, and
before that snapshot the transactions that were aborted.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from protocol.control_record import ControlType, TransactionMarker
from storage.aborted_recovery import load_aborted, write_aborted
from storage.aborted_transactions import AbortedTransactions
from storage.epoch_recovery import load_epochs
from storage.errors import StorageError
from storage.files import FileSystem
from storage.leader_epochs import LeaderEpochs
from storage.open_transactions import OpenTransactions
from storage.paths import (
    ABORTED_TRANSACTIONS,
    LEADER_EPOCH_CHECKPOINT,
    join,
    snapshot_file,
)
from storage.producer_recovery import (
    producers_at_stop,
    producers_of,
    remove_snapshots_past,
    snapshot_offsets,
    write_snapshot,
)
from storage.producer_state import ProducerStates
from storage.segment import Segment
from storage.validate import ValidBatch

SNAPSHOTS_KEPT = 2
"""Producer snapshots of the last rolls; one more than needed, in case the newest is damaged."""

# What a start has not read is read once, whichever thread needs it first.
_loading = threading.Lock()

# An append adds an epoch at the end while a worker takes some off the start. Both are rare.
_changing_epochs = threading.Lock()


class LogStates:
    """The epochs and producers of one log. Changed by its `PartitionLog`, written by its commits."""

    __slots__ = (
        "_aborted",
        "_aborted_are_dirty",
        "_directory",
        "_epochs",
        "_epochs_are_dirty",
        "_expiration_ms",
        "_expired_ms",
        "_fs",
        "_producers",
        "_segments_at_start",
        "_start_clean_offset",
        "_start_end_offset",
        "_start_offset",
        "_transactions",
        "has_aborted_file",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        segments: Sequence[Segment],
        *,
        log_start_offset: int,
        clean_offset: int,
        epochs: LeaderEpochs | None,
        producers: ProducerStates | None,
        aborted: AbortedTransactions | None,
        producer_expiration_ms: int,
        has_aborted_file: bool = False,
        is_written: bool = True,
    ) -> None:
        """Take what is known of a log of `segments`; None is read from its files when needed.

        Args:
            clean_offset: no record of an aborted transaction is left below it.
            has_aborted_file: whether the manifest says that there is a file of aborted transactions.
            is_written: whether the files say the same.
        """
        # Constant after construction
        self._expiration_ms = producer_expiration_ms
        self._fs = fs
        self._directory = directory
        self._segments_at_start = segments
        self._start_clean_offset = clean_offset
        self._start_end_offset = segments[-1].end_offset
        # State: None until it is needed.
        self._epochs = epochs
        self._epochs_are_dirty = not is_written
        self._producers = producers
        self._transactions = None if producers is None else _open_in(producers)
        self._aborted = aborted
        self._aborted_are_dirty = not is_written
        self.has_aborted_file = has_aborted_file
        self._expired_ms = 0
        self._start_offset = log_start_offset
        if epochs is not None:
            epochs.truncate_from_start(log_start_offset)

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers that have written to the log. May read files, once."""
        if self._producers is None:
            with _loading:
                if self._producers is None:
                    producers = self._load_producers()
                    self._transactions = _open_in(producers)
                    self._producers = producers
        return self._producers

    @property
    def transactions(self) -> OpenTransactions:
        """The transactions that are undecided in the log. May read files, once."""
        if self._transactions is None:
            _ = self.producers
        assert self._transactions is not None
        return self._transactions

    @property
    def aborted(self) -> AbortedTransactions:
        """The transactions that were aborted. May read a file, once."""
        if self._aborted is None:
            with _loading:
                if self._aborted is None:
                    self._aborted = self._load_aborted()
        return self._aborted

    @property
    def epochs(self) -> LeaderEpochs:
        """Where the log's leader epochs begin. May read a file, once."""
        if self._epochs is None:
            with _loading:
                if self._epochs is None:
                    self._epochs = self._load_epochs()
        return self._epochs

    def load(self) -> None:
        """Read what is still to be read, before the log loses segments that may have to tell it."""
        _ = self.producers, self.epochs, self.aborted

    def _load_producers(self) -> ProducerStates:
        """Read the snapshot; a log that nothing was ever appended to has none to look for."""
        end_offset = self._start_end_offset
        if end_offset == 0:
            return ProducerStates()
        return producers_at_stop(self._fs, self._directory, self._segments_at_start, end_offset)

    def _load_aborted(self) -> AbortedTransactions:
        """Read the file; a log that nothing was ever appended to has none to look for."""
        if self._start_end_offset == 0:
            return AbortedTransactions()
        must_exist = self.has_aborted_file
        segments = self._segments_at_start
        aborted = load_aborted(self._fs, self._directory, segments, must_exist=must_exist)
        exists = self._fs.exists(join(self._directory, ABORTED_TRANSACTIONS))
        self._aborted_are_dirty |= must_exist and not exists
        self.has_aborted_file |= exists
        # It may have the row of a marker that a crash has lost, and rows that no reader needs.
        aborted.set_back(self._start_end_offset)
        aborted.forget_below(max(self._start_offset, self._start_clean_offset))
        return aborted

    def _load_epochs(self) -> LeaderEpochs:
        """Read the checkpoint; a log that nothing was ever appended to has none to look for."""
        if self._start_end_offset == 0:
            return LeaderEpochs()
        epochs = load_epochs(self._fs, self._directory, self._segments_at_start)
        # A checkpoint may have the epoch of a batch that a crash has lost.
        epochs.set_back(self._start_end_offset, is_empty=False)
        epochs.truncate_from_start(self._start_offset)
        return epochs

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note where an epoch begins; the batch carries it until the next commit writes it down."""
        if epoch <= self.epochs.latest:
            return
        with _changing_epochs:
            if self.epochs.assign(epoch, start_offset):
                self._epochs_are_dirty = True

    def appended(self, batch: ValidBatch, *, last_offset: int, now_ms: int) -> None:
        """Remember the producer of a batch that is now in the log."""
        header = batch.header
        if header.producer_id < 0:
            return
        marker = None
        if header.is_control:
            marker = batch.marker
            self._end_transaction(header.producer_id, marker, last_offset)
        elif header.is_transactional:
            base_offset = last_offset - (header.last_offset - header.base_offset)
            self.transactions.begin(header.producer_id, base_offset)
        self.producers.appended(header, last_offset=last_offset, now_ms=now_ms, marker=marker)

    def _end_transaction(
        self, producer_id: int, marker: TransactionMarker | None, marker_offset: int
    ) -> None:
        first_offset = self.transactions.end(producer_id, marker_offset)
        is_abort = marker is not None and marker.type is ControlType.ABORT
        if is_abort and first_offset >= 0:
            self.aborted.extend([(producer_id, first_offset, marker_offset)])
            self._aborted_are_dirty = True

    def advance_high_watermark(self, offset: int) -> None:
        """Learn that the markers below `offset` may be read."""
        if self._transactions is not None:
            self._transactions.advance(offset)

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Forget producers that are idle for so long, from now on."""
        self._expiration_ms = expiration_ms

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that were idle for producer.id.expiration.ms; looks now and then."""
        if self._producers is None or now_ms - self._expired_ms < self._expiration_ms // 16:
            return
        self._expired_ms = now_ms
        self._producers.expire(now_ms - self._expiration_ms)

    def write_epochs(self) -> None:
        """Bring the checkpoint up to date, durably. Raises StorageError."""
        if not self._epochs_are_dirty:
            return
        self._epochs_are_dirty = False
        try:
            path = join(self._directory, LEADER_EPOCH_CHECKPOINT)
            self._fs.replace_durably(path, self.epochs.encode())
        except StorageError:
            self._epochs_are_dirty = True
            raise

    def write_snapshot(self, offset: int, producers: ProducerStates) -> None:
        """Keep the producers of everything below `offset`, which is synced, durably.

        Before them the aborted transactions: recovery looks for those only behind its snapshot.
        """
        self._write_aborted()
        write_snapshot(self._fs, self._directory, offset, producers)

    def _write_aborted(self) -> None:
        if not self._aborted_are_dirty:
            return
        self._aborted_are_dirty = False
        try:
            self.has_aborted_file = write_aborted(
                self._fs, self._directory, self.aborted, must_exist=self.has_aborted_file
            )
        except StorageError:
            self._aborted_are_dirty = True
            raise

    def cleaned_up_to(self, clean_offset: int) -> None:
        """Forget the aborted transactions below: no reader meets a record of theirs any more.

        Not before readers see the segments without those records, nor on disk before the manifest.
        """
        if self.aborted.forget_below(clean_offset):
            self._aborted_are_dirty = True

    def remove_old_snapshots(self) -> None:
        """Remove what recovery has no use for any more."""
        for offset in snapshot_offsets(self._fs, self._directory)[:-SNAPSHOTS_KEPT]:
            self._fs.unlink(join(self._directory, snapshot_file(offset)))

    def forget_below(self, start_offset: int, first_base_offset: int) -> None:
        """Forget epochs and aborted transactions below the log start, snapshots below its first segment.

        Between such a snapshot and that segment batches are gone, so that it would tell of the
        producers as they no longer are; without it they are unknown, and may go on anyhow.
        """
        with _changing_epochs:
            self._epochs_are_dirty |= self.epochs.truncate_from_start(start_offset)
        if self.aborted.forget_below(start_offset):
            self._aborted_are_dirty = True
        for offset in snapshot_offsets(self._fs, self._directory)[:-1]:
            if offset < first_base_offset:
                self._fs.unlink(join(self._directory, snapshot_file(offset)))

    def forget_past(self, end_offset: int) -> None:
        """Remove the snapshots of what was truncated away."""
        remove_snapshots_past(self._fs, self._directory, end_offset)

    def set_back(self, segments: Sequence[Segment], end_offset: int, *, start_offset: int) -> None:
        """Be as the log was when it ended at `end_offset`, where `segments` end now.

        One that also starts there is another log than before, of which no producer is known.
        """
        self.epochs.set_back(end_offset, is_empty=not any(each.size for each in segments))
        self._epochs_are_dirty = True
        is_changed = self.aborted.set_back(end_offset) | self.aborted.forget_below(start_offset)
        if is_changed:
            self._aborted_are_dirty = True
        producers = ProducerStates()
        if start_offset < end_offset:
            producers = producers_of(self._fs, self._directory, segments, end_offset)
        self.write_snapshot(end_offset, producers)
        before, transactions = self._transactions, _open_in(producers)
        if before is not None:
            transactions.keep_ended(before, end_offset)
        self._producers, self._transactions = producers, transactions


def _open_in(producers: ProducerStates) -> OpenTransactions:
    found = producers.open_transactions()
    return OpenTransactions((each.producer_id, each.first_offset) for each in found)
