"""Keeps a log's leader epochs, producers and transactions, in memory and on disk.

All of them are written before each manifest: the epochs as a checkpoint, the aborted transactions, and
then the producers as a snapshot at the end of the listed segments. Together with a scan of the batches
that no manifest lists, these files always give the current state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from protocol.records.batch_tally import BatchTally
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.wire.numbers import Epoch, Offset, ProducerId
from storage.batches.validate import ValidBatch
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.paths import (
    ABORTED_TRANSACTIONS,
    LEADER_EPOCH_CHECKPOINT,
    join,
    snapshot_file,
)
from storage.segment.segment import Segment
from storage.state.aborted_recovery import load_aborted, write_aborted
from storage.state.aborted_transactions import AbortedTransactions, Row
from storage.state.epoch_recovery import load_epochs
from storage.state.leader_epochs import LeaderEpochs
from storage.state.open_transactions import OpenTransactions
from storage.state.producer_recovery import (
    ProducerReplay,
    producers_at_stop,
    producers_of,
    remove_snapshots_past,
    snapshot_offsets,
    write_snapshot,
)
from storage.state.producer_state import ProducerStates
from storage.threads import any_thread, loop_thread

PRODUCER_EXPIRATION_MS = 86_400_000
"""Kafka's default of producer.id.expiration.ms."""

SNAPSHOTS_KEPT = 2
"""The producer snapshots of the last rolls; one more than needed, in case the newest is damaged."""

# Guards lazy loading: a file that the start has not read is read once, by the first thread to need it.
_loading = threading.Lock()

# An append adds an epoch at the end while a worker removes some at the start. Both are rare.
_changing_epochs = threading.Lock()


@any_thread
class LogStates:
    """The epochs, producers and transactions of one log. Its `PartitionLog` changes them, and its
    commits write them."""

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
        log_start_offset: Offset,
        clean_offset: Offset,
        epochs: LeaderEpochs | None,
        producers: ProducerStates | None,
        aborted: AbortedTransactions | None,
        producer_expiration_ms: int,
        has_aborted_file: bool = False,
        is_written: bool = True,
    ) -> None:
        """Take the known states of a log with `segments`; a None is read from its files when needed.

        Args:
            clean_offset: no record of an aborted transaction is left below it.
            has_aborted_file: whether the manifest says that the file of aborted transactions exists.
            is_written: whether the files have the same states.
        """
        # Constant after construction
        self._expiration_ms = producer_expiration_ms
        self._fs = fs
        self._directory = directory
        self._segments_at_start = segments
        self._start_clean_offset = clean_offset
        self._start_end_offset = segments[-1].end_offset
        # State: None until it is loaded.
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
        """The idempotent producers that have written to the log. The first use may read files."""
        if self._producers is None:
            with _loading:
                if self._producers is None:
                    producers = self._load_producers()
                    self._transactions = _open_in(producers)
                    self._producers = producers
        return self._producers

    @property
    def transactions(self) -> OpenTransactions:
        """The undecided transactions of the log. The first use may read files."""
        if self._transactions is None:
            _ = self.producers
        assert self._transactions is not None
        return self._transactions

    @property
    def aborted(self) -> AbortedTransactions:
        """The aborted transactions of the log. The first use may read a file."""
        if self._aborted is None:
            with _loading:
                if self._aborted is None:
                    self._aborted = self._load_aborted()
        return self._aborted

    @property
    def epochs(self) -> LeaderEpochs:
        """The start offsets of the log's leader epochs. The first use may read a file."""
        if self._epochs is None:
            with _loading:
                if self._epochs is None:
                    self._epochs = self._load_epochs()
        return self._epochs

    def load(self) -> None:
        """Load everything now, before the log loses segments from which it may have to be read."""
        _ = self.producers, self.epochs, self.aborted

    def _load_producers(self) -> ProducerStates:
        """Read the snapshot; a log that never had an append has none."""
        end_offset = self._start_end_offset
        if end_offset == 0:
            return ProducerStates()
        return producers_at_stop(self._fs, self._directory, self._segments_at_start, end_offset)

    def _load_aborted(self) -> AbortedTransactions:
        """Read the file; a log that never had an append has none."""
        if self._start_end_offset == 0:
            return AbortedTransactions()
        must_exist = self.has_aborted_file
        segments = self._segments_at_start
        aborted = load_aborted(self._fs, self._directory, segments, must_exist=must_exist)
        exists = self._fs.exists(join(self._directory, ABORTED_TRANSACTIONS))
        self._aborted_are_dirty |= must_exist and not exists
        self.has_aborted_file |= exists
        # The file may list a marker that a crash has lost, and transactions that no reader needs.
        aborted.truncate_from_end(self._start_end_offset)
        aborted.forget_below(max(self._start_offset, self._start_clean_offset))
        return aborted

    def _load_epochs(self) -> LeaderEpochs:
        """Read the checkpoint; a log that never had an append has none."""
        if self._start_end_offset == 0:
            return LeaderEpochs()
        epochs = load_epochs(self._fs, self._directory, self._segments_at_start)
        # The checkpoint may have the epoch of a batch that a crash has lost.
        epochs.truncate_from_end(self._start_end_offset, is_empty=False)
        epochs.truncate_from_start(self._start_offset)
        return epochs

    @loop_thread
    def assign_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Add an epoch. Until the next commit writes the checkpoint, only the batch has it."""
        if epoch <= self.epochs.latest:
            return
        with _changing_epochs:
            if self.epochs.assign(epoch, start_offset):
                self._epochs_are_dirty = True

    @loop_thread
    def appended(self, batch: ValidBatch, *, last_offset: Offset, now_ms: int) -> None:
        """Update the states with a batch that was appended."""
        header = batch.header
        if header.producer_id < 0:
            return
        marker = None
        if header.is_control:
            marker = batch.marker
            self._end_transaction(header.producer_id, marker, last_offset)
        elif header.is_transactional:
            base_offset = Offset(last_offset - (header.last_offset - header.base_offset))
            self.transactions.begin(header.producer_id, base_offset)
        self.producers.appended(header, last_offset=last_offset, now_ms=now_ms, marker=marker)

    @loop_thread
    def appended_run(self, tally: BatchTally, *, now_ms: int) -> None:
        """Update the states with the batches that `tally` has found (`Segment.tally`)."""
        for epoch, start_offset in tally.epochs:
            self.assign_epoch(epoch, start_offset)
        if not tally.has_producers:
            return
        replay = ProducerReplay(Offset(0), self.producers)
        replay.take(tally, now_ms)
        self.transactions.take_run(
            [each[:3] for each in tally.ended],
            [(each[0], each[1]) for each in tally.transactions() if each[1] >= 0],
        )
        if replay.aborted:
            self.aborted.extend(replay.aborted)
            self._aborted_are_dirty = True

    def _end_transaction(
        self, producer_id: ProducerId, marker: TransactionMarker | None, marker_offset: Offset
    ) -> None:
        first_offset = self.transactions.end(producer_id, marker_offset)
        is_abort = marker is not None and marker.type is ControlType.ABORT
        if is_abort and first_offset >= 0:
            self.aborted.extend([(producer_id, first_offset, marker_offset)])
            self._aborted_are_dirty = True

    @loop_thread
    def forget_transactions_below(self, offset: Offset) -> None:
        """Forget ended transactions whose markers are below `offset`, which is now readable."""
        if self._transactions is not None:
            self._transactions.advance(offset)

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Set the idle time after which producers are forgotten, in milliseconds."""
        self._expiration_ms = expiration_ms

    @loop_thread
    def forget_producers(self) -> None:
        """Forget every producer; none may have an open transaction."""
        if self._producers is not None:
            assert not self._producers.open_transactions(), "their end would no longer be known"
            self._producers.clear()

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that were idle for producer.id.expiration.ms; checks only now and then."""
        if self._producers is None or now_ms - self._expired_ms < self._expiration_ms // 16:
            return
        self._expired_ms = now_ms
        self._producers.expire(now_ms - self._expiration_ms)

    def write_epochs(self) -> None:
        """Write the checkpoint if it is out of date, durably. Raises StorageError."""
        if not self._epochs_are_dirty:
            return
        self._epochs_are_dirty = False
        try:
            path = join(self._directory, LEADER_EPOCH_CHECKPOINT)
            self._fs.replace_durably(path, self.epochs.encode())
        except StorageError:
            self._epochs_are_dirty = True
            raise

    def write_snapshot(self, offset: Offset, producers: ProducerStates) -> None:
        """Write the snapshot of the producers of everything below `offset`, which is synced, durably.

        The aborted transactions are written first: recovery looks for them only after its snapshot.
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

    def cleaned_up_to(self, clean_offset: Offset) -> None:
        """Forget the aborted transactions below: cleaning has removed their records.

        Call it after the manifest is committed and readers see the segments without these records.
        """
        if self.aborted.forget_below(clean_offset):
            self._aborted_are_dirty = True

    def write_aborted_with(self, rows: Sequence[Row]) -> None:
        """Write the aborted transactions together with forgotten ones, durably, before a commit that
        brings back their records.

        Until then these rows do no harm: each start forgets those below the clean offset.
        """
        if not rows:
            return
        aborted = AbortedTransactions(self.aborted.rows)
        aborted.restore(rows)
        self.has_aborted_file = write_aborted(
            self._fs, self._directory, aborted, must_exist=self.has_aborted_file
        )

    def restore_aborted(self, rows: Sequence[Row]) -> None:
        """Show forgotten transactions to readers again; `write_aborted_with` has written them. Short."""
        self.aborted.restore(rows)
        self._aborted_are_dirty = True

    def remove_old_snapshots(self) -> None:
        """Remove the snapshots that recovery no longer needs."""
        for offset in snapshot_offsets(self._fs, self._directory)[:-SNAPSHOTS_KEPT]:
            self._fs.unlink(join(self._directory, snapshot_file(offset)))

    def forget_below(self, start_offset: Offset, first_base_offset: Offset) -> None:
        """Forget epochs and aborted transactions below the log start, and older snapshots.

        Batches between a snapshot below the first segment and that segment are gone, so the snapshot
        would give out-of-date producers; without it they are unknown, and may continue anyway.
        """
        with _changing_epochs:
            self._epochs_are_dirty |= self.epochs.truncate_from_start(start_offset)
        if self.aborted.forget_below(start_offset):
            self._aborted_are_dirty = True
        for offset in snapshot_offsets(self._fs, self._directory)[:-1]:
            if offset < first_base_offset:
                self._fs.unlink(join(self._directory, snapshot_file(offset)))

    def forget_past(self, end_offset: Offset) -> None:
        """Remove the snapshots past the end of a truncated log."""
        remove_snapshots_past(self._fs, self._directory, end_offset)

    def truncate_from_end(
        self, segments: Sequence[Segment], end_offset: Offset, *, start_offset: Offset
    ) -> None:
        """Go back to the states of the log at `end_offset`, at which `segments` now end.

        A log that also starts there has started over, without known producers.
        """
        self.epochs.truncate_from_end(end_offset, is_empty=not any(each.size for each in segments))
        self._epochs_are_dirty = True
        is_changed = self.aborted.truncate_from_end(end_offset) | self.aborted.forget_below(
            start_offset
        )
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

    def replacement_by(self, other: LogStates) -> Callable[[], None]:
        """Returns the short function that takes the states of another log, all of which is readable.

        Call `load` on both before: a reader's thread that loads must not overwrite what this sets. The
        files are those of the old log until `write_replaced`.
        """
        producers, epochs, aborted = other.producers, other.epochs, other.aborted
        transactions = _open_in(producers)

        def take() -> None:
            self._producers, self._transactions = producers, transactions
            self._epochs, self._epochs_are_dirty = epochs, True
            self._aborted, self._aborted_are_dirty = aborted, True

        return take

    def write_replaced(self, end_offset: Offset) -> None:
        """Write the states of the other log, whose end is `end_offset`, in place of the old files."""
        for offset in snapshot_offsets(self._fs, self._directory):
            self._fs.unlink(join(self._directory, snapshot_file(offset)))
        self.write_snapshot(end_offset, self.producers)
        self.write_epochs()

    def files_at(self, end_offset: Offset, producers: ProducerStates) -> dict[str, bytes]:
        """Returns the files of the states, by name, for a copy of the log that ends at `end_offset`.

        There is no file of aborted transactions without any.

        Args:
            producers: those at that end.
        """
        epochs = LeaderEpochs(list(self.epochs.entries))
        epochs.truncate_from_end(end_offset, is_empty=False)
        aborted = AbortedTransactions(self.aborted.rows)
        aborted.truncate_from_end(end_offset)
        files = {
            LEADER_EPOCH_CHECKPOINT: epochs.encode(),
            snapshot_file(end_offset): producers.encode(),
        }
        if len(aborted):
            files[ABORTED_TRANSACTIONS] = aborted.encode()
        return files


def _open_in(producers: ProducerStates) -> OpenTransactions:
    found = producers.open_transactions()
    return OpenTransactions((each.producer_id, each.first_offset) for each in found)
