"""Verifies a log's epoch checkpoint and producer snapshots against its batches.

Both kinds of files are written before the manifest that needs them, so they must be right up to the
recovery point; a scan finds later batches. Compaction keeps the order of epochs and each active
producer's last batch, but not the batches before it: a replay may know less than a snapshot, never more.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.records.batch_header import BatchHeader
from protocol.records.batch_scan import ScannedBatch
from protocol.wire.numbers import Epoch, ProducerId
from storage.files.errors import DamagedFile, FormatFromTheFuture, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import LEADER_EPOCH_CHECKPOINT, join, snapshot_file
from storage.state.leader_epochs import LeaderEpochs, decode_leader_epochs
from storage.state.producer_state import AppendedBatch, ProducerStates, decode_producer_states
from storage.verify.findings import Check, Findings


class EpochVerification:
    """Compares the batches of a log with its epoch checkpoint. `finish` ends it."""

    __slots__ = ("_entries", "_findings", "_is_foreign", "_is_known", "_log_start_offset", "_next",
                 "_path", "_recovery_point", "latest")  # fmt: skip

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        log_start_offset: int,
        recovery_point: int,
        findings: Findings,
        is_foreign: bool,
    ) -> None:
        """`is_foreign`: the checkpoint is that of another log, so it is not compared."""
        # Constant after construction
        self._is_foreign = is_foreign
        self._log_start_offset = log_start_offset
        self._recovery_point = recovery_point
        self._path = join(directory, LEADER_EPOCH_CHECKPOINT)
        # State
        self._findings = findings
        self.latest = -1
        """The largest epoch so far."""
        self._is_known = not is_foreign
        self._entries = LeaderEpochs().entries if is_foreign else self._read(fs).entries
        self._next = 0

    def _read(self, fs: FileSystem) -> LeaderEpochs:
        try:
            return decode_leader_epochs(fs.read_bytes(self._path), self._path)
        except MissingFile:
            self._is_known = False
        except DamagedFile as error:
            self._is_known = False
            text = f"{error.reason}; the epochs are read from the batches instead"
            self._findings.warn(Check.EPOCH, self._path, text)
        except FormatFromTheFuture as error:
            self._is_known = False
            self._findings.error(Check.EPOCH, self._path, str(error))
        return LeaderEpochs()

    def take(self, batch: ScannedBatch, path: str, position: int) -> None:
        """Compare with the log's next batch."""
        if batch.leader_epoch < self.latest:
            text = f"leader epoch {batch.leader_epoch} follows {self.latest}"
            self._findings.error(Check.EPOCH, path, text, position)
        elif self._is_known and batch.base_offset >= self._log_start_offset:
            self._compare(batch, path, position)
        self.latest = max(self.latest, batch.leader_epoch)

    def _compare(self, batch: ScannedBatch, path: str, position: int) -> None:
        entries = self._entries
        while self._next < len(entries) and entries[self._next][1] <= batch.base_offset:
            self._next += 1
        listed = entries[self._next - 1][0] if self._next else -1
        is_new = batch.base_offset >= self._recovery_point and batch.leader_epoch > listed
        if listed != batch.leader_epoch and not (is_new and self._next == len(entries)):
            text = f"the batch has leader epoch {batch.leader_epoch}, the checkpoint {listed}"
            self._findings.error(Check.EPOCH, path, text, position)

    def finish(self, log_end_offset: int) -> None:
        """Report epochs of the checkpoint that the log does not have."""
        if (
            not self._is_known
            and not self._is_foreign
            and self.latest >= 0
            and self._recovery_point > self._log_start_offset
        ):
            text = "the checkpoint is missing or unreadable; the epochs are read from the batches"
            self._findings.warn(Check.EPOCH, self._path, text)
        for epoch, start_offset in self._entries:
            if start_offset > log_end_offset:
                text = f"epoch {epoch} begins at {start_offset}, past the log's end: its records"
                self._findings.note(Check.EPOCH, self._path, f"{text} were lost in a crash")


class ProducerVerification:
    """Replays the batches of a log and compares each producer snapshot with that. `finish` ends it."""

    __slots__ = ("_findings", "_replayed", "_snapshots")

    def __init__(
        self, fs: FileSystem, directory: str, offsets: Sequence[int], findings: Findings
    ) -> None:
        """`offsets`: of the existing snapshots, in order."""
        self._findings = findings
        self._replayed: dict[ProducerId, tuple[Epoch, AppendedBatch]] = {}
        """Producer id -> epoch and last batch."""
        self._snapshots = [
            (offset, path, states)
            for offset in offsets
            if (
                states := _read_snapshot(
                    fs, path := join(directory, snapshot_file(offset)), findings
                )
            )
            is not None
        ]

    def take(self, batch: ScannedBatch, _position: int, _data: memoryview) -> None:
        """Replay the log's next batch."""
        while self._snapshots and self._snapshots[0][0] <= batch.base_offset:
            self._compare(*self._snapshots.pop(0))
        if batch.producer_id < 0:
            return
        header = _header_of(batch)
        if not header.is_control:
            appended = AppendedBatch(header.base_sequence, header.last_sequence, batch.last_offset)
            self._replayed[batch.producer_id] = (batch.producer_epoch, appended)

    def finish(self, log_end_offset: int, *, is_truncating: bool) -> None:
        """Compare the snapshots at the log's end, and report those after it."""
        for offset, path, states in self._snapshots:
            if offset <= log_end_offset:
                self._compare(offset, path, states)
            else:
                text = f"its offset is {offset}, but the log ends at {log_end_offset}"
                report = self._findings.note if is_truncating else self._findings.warn
                report(Check.PRODUCERS, path, text)
        self._snapshots = []

    def _compare(self, offset: int, path: str, states: ProducerStates) -> None:
        expired = 0
        for producer_id, (epoch, last) in self._replayed.items():
            state = states.get(producer_id)
            if state is None:
                expired += 1
                continue
            known = {batch.last_offset: batch for batch in state.batches}
            newest = max(known, default=-1)
            is_behind = (state.producer_epoch, newest) < (epoch, last.last_offset)
            is_other = known.get(last.last_offset, last) != last
            if is_behind or is_other:
                text = f"it has producer {producer_id} at epoch {state.producer_epoch}, offset {newest}"
                text += f"; the batches have epoch {epoch}, {last}"
                self._findings.error(Check.PRODUCERS, path, text)
        if expired:
            text = (
                f"{expired} producers of the batches are not in it, as is normal once they expire"
            )
            self._findings.note(Check.PRODUCERS, path, text)
        for producer_id, state in states.items():
            if any(batch.last_offset >= offset for batch in state.batches):
                text = f"producer {producer_id} has an offset past the snapshot's own"
                self._findings.error(Check.PRODUCERS, path, text)


def _read_snapshot(fs: FileSystem, path: str, findings: Findings) -> ProducerStates | None:
    try:
        return decode_producer_states(fs.read_bytes(path), path)
    except DamagedFile as error:
        text = f"{error.reason}; an older snapshot or the batches are used instead"
        findings.warn(Check.PRODUCERS, path, text)
    except FormatFromTheFuture as error:
        findings.error(Check.PRODUCERS, path, str(error))
    return None


def _header_of(batch: ScannedBatch) -> BatchHeader:
    """Returns a scanned batch's header as a `BatchHeader`."""
    return BatchHeader(
        size_bytes=batch.size_bytes,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        leader_epoch=batch.leader_epoch,
        crc=0,
        attributes=batch.attributes,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        record_count=batch.record_count,
    )
