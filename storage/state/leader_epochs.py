"""The start offset of each leader epoch of a log, in the format of Kafka's `leader-epoch-checkpoint`.

    0                       version of the format
    <count>
    <epoch> <start offset>  one line an epoch, both growing

A follower or a consumer asks where an epoch ended to find out where its log and ours diverge (KIP-101,
KIP-320). An epoch gets its entry at its first append.
Source: Apache Kafka, LeaderEpochFileCache.java, LeaderEpochCheckpointFile.java.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import DamagedFile, FormatFromTheFuture

VERSION = 0


EpochStart: TypeAlias = tuple[Epoch, Offset]
"""An epoch and the offset of its first record."""

EpochEnd: TypeAlias = tuple[Epoch, Offset]
"""An epoch and the offset after its last record."""

UNKNOWN_EPOCH = Epoch(-1)
UNKNOWN_END: EpochEnd = (UNKNOWN_EPOCH, Offset(-1))


class LeaderEpochs:
    """The epochs of one log, in order. Its `PartitionLog` owns it."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        # State: epochs grow strictly, start offsets never decrease.
        self._entries = entries if entries is not None else []

    @property
    def latest(self) -> Epoch:
        """The newest epoch with an entry; -1 if there is none."""
        return self._entries[-1][0] if self._entries else UNKNOWN_EPOCH

    @property
    def last_start(self) -> int:
        """Where the newest epoch begins; -1 if there is none."""
        return self._entries[-1][1] if self._entries else -1

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    def assign(self, epoch: Epoch, start_offset: Offset) -> bool:
        """Add `epoch` with its start offset unless it is known. Returns whether it was new."""
        if epoch <= self.latest:
            return False
        # A known epoch that starts there or later has no record.
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self._check_last_entry_grows()
        return True

    def _check_last_entry_grows(self) -> None:
        if len(self._entries) > 1:
            (epoch, start), (last_epoch, last_start) = self._entries[-2:]
            assert epoch < last_epoch
            assert start < last_start

    def end_offset(self, epoch: Epoch, log_end_offset: Offset) -> EpochEnd:
        """Returns the largest known epoch up to `epoch` and its end offset; (-1, -1) without one."""
        if epoch < 0 or not self._entries or epoch > self.latest:
            return UNKNOWN_END
        found = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if found == 0:
            return epoch, self._entries[0][1]
        end = self._entries[found][1] if found < len(self._entries) else log_end_offset
        return self._entries[found - 1][0], end

    def epoch_at(self, offset: Offset) -> Epoch:
        """Returns the epoch in which the record at `offset` was or would be written; -1 if unknown."""
        found = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[found - 1][0] if found else UNKNOWN_EPOCH

    def divergence(self, epoch: Epoch, offset: Offset, log_end_offset: Offset) -> EpochEnd | None:
        """Returns where a reader that has read up to `offset`, in `epoch`, diverges from this log.

        None if it has not diverged; else the epoch and end offset to which it must truncate (KIP-595),
        which are (-1, -1) if this log does not know them.
        """
        known, end_offset = self.end_offset(epoch, log_end_offset)
        return None if known == epoch and offset <= end_offset else (known, end_offset)

    def with_leader_epoch(self, epoch: Epoch, log_end_offset: Offset) -> LeaderEpochs:
        """Returns these epochs with `epoch`, in which this broker leads, added at the log's end.

        Kafka's leader adds its epoch before its first append, so that a client that learnt the epoch
        from metadata gets an answer.
        """
        if epoch <= self.latest:
            return self
        led = LeaderEpochs(list(self._entries))
        led.assign(epoch, log_end_offset)
        return led

    def truncate_from_end(self, end_offset: Offset, *, is_empty: bool) -> None:
        """Forget epochs that begin at or past `end_offset`; all epochs if the log is empty.

        An empty log may continue at an offset that it never had, so it must not answer for older ones.
        """
        if is_empty:
            self._entries.clear()
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """Forget epochs that ended at or before `start_offset`. Returns whether anything changed.

        The epoch that continues at `start_offset` now begins there.
        """
        past = [entry for entry in self._entries if entry[1] <= start_offset]
        if not past or past == [(past[0][0], start_offset)]:
            return False
        self._entries[: len(past)] = [(past[-1][0], start_offset)]
        return True

    def encode(self) -> bytes:
        """Returns the bytes of the checkpoint file."""
        # One step, because the log may be assigned an epoch while a worker writes.
        entries = tuple(self._entries)
        lines = [str(VERSION), str(len(entries))]
        lines += [f"{epoch} {start}" for epoch, start in entries]
        return ("\n".join(lines) + "\n").encode()


def decode_leader_epochs(data: bytes, path: str) -> LeaderEpochs:
    """Decode a checkpoint file; `path` is for messages only.

    Raises:
        FormatFromTheFuture: its version is newer than 0.
        DamagedFile: it is no such file, or it contradicts itself.
    """
    try:
        lines = data.decode("ascii").splitlines()
        version, count = int(lines[0]), int(lines[1])
        rows = map(str.split, lines[2:])
        entries = [(Epoch(int(epoch)), Offset(int(start))) for epoch, start in rows]
    except (ValueError, IndexError) as error:
        raise DamagedFile(path, "it is not a leader epoch checkpoint") from error
    if version > VERSION:
        raise FormatFromTheFuture(path, version, VERSION)
    if len(entries) != count or sorted(entries) != entries:
        raise DamagedFile(path, f"it announces {count} epochs and holds {len(entries)}")
    return LeaderEpochs(entries)
