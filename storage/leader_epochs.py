"""Where each leader epoch of a log begins, as Kafka's `leader-epoch-checkpoint` says it.

    0                       version of the format
    <count>
    <epoch> <start offset>  one line an epoch, both growing

A follower or a consumer asks where an epoch ended to find out where its log and ours part (KIP-101,
KIP-320). An epoch gets its entry at its first append.
Source: Apache Kafka, LeaderEpochFileCache.java, LeaderEpochCheckpointFile.java.
"""

from __future__ import annotations

from bisect import bisect_right

from storage.errors import DamagedFile, FormatFromTheFuture

VERSION = 0


class LeaderEpochs:
    """The epochs of one log, in order. Owned by its `PartitionLog`."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        # (epoch, start offset); both grow strictly in the first and weakly in the second column.
        self._entries = entries if entries is not None else []

    @property
    def latest(self) -> int:
        """The newest epoch with an entry; -1 if there is none."""
        return self._entries[-1][0] if self._entries else -1

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset` unless it is known; whether it was new."""
        if epoch <= self.latest:
            return False
        # An epoch that began where the new one does never had a record.
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        return True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and where it ended; (-1, -1) if there is none."""
        if epoch < 0 or not self._entries or epoch > self.latest:
            return -1, -1
        found = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if found == 0:
            return epoch, self._entries[0][1]
        end = self._entries[found][1] if found < len(self._entries) else log_end_offset
        return self._entries[found - 1][0], end

    def epoch_at(self, offset: int) -> int:
        """The epoch that the record at `offset` was or would be written in; -1 if unknown."""
        found = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[found - 1][0] if found else -1

    def divergence(self, epoch: int, offset: int, log_end_offset: int) -> tuple[int, int] | None:
        """Where a reader that has read up to `offset`, the end in `epoch`, leaves this log.

        None if what it has read is this log's; else the epoch and end offset to go back to
        (KIP-595), which are (-1, -1) if this log cannot know.
        """
        known, end_offset = self.end_offset(epoch, log_end_offset)
        return None if known == epoch and offset <= end_offset else (known, end_offset)

    def led_in(self, epoch: int, log_end_offset: int) -> LeaderEpochs:
        """These epochs as the leader in `epoch` tells them.

        Kafka's leader notes its epoch before its first append, so that a client which learnt it
        from metadata gets an answer.
        """
        if epoch <= self.latest:
            return self
        led = LeaderEpochs(list(self._entries))
        led.assign(epoch, log_end_offset)
        return led

    def set_back(self, end_offset: int, *, is_empty: bool) -> None:
        """Forget epochs that begin at or past `end_offset`, and all of a log that holds nothing.

        An empty log may go on at an offset that it never had, and must not tell of what is below.
        """
        if is_empty:
            self._entries.clear()
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget epochs that ended at or before `start_offset`; whether anything has changed.

        The epoch that goes on there begins there from now on.
        """
        past = [entry for entry in self._entries if entry[1] <= start_offset]
        if not past or past == [(past[0][0], start_offset)]:
            return False
        self._entries[: len(past)] = [(past[-1][0], start_offset)]
        return True

    def encode(self) -> bytes:
        """The bytes of the checkpoint file."""
        # One step, because the log may be assigned an epoch while a worker writes.
        entries = tuple(self._entries)
        lines = [str(VERSION), str(len(entries))]
        lines += [f"{epoch} {start}" for epoch, start in entries]
        return ("\n".join(lines) + "\n").encode()


def decode_leader_epochs(data: bytes, path: str) -> LeaderEpochs:
    """Read a checkpoint file's bytes; `path` only serves the messages.

    Raises:
        FormatFromTheFuture: its version is newer than 0.
        DamagedFile: it is not such a file, or contradicts itself.
    """
    try:
        lines = data.decode("ascii").splitlines()
        version, count = int(lines[0]), int(lines[1])
        entries = [(int(epoch), int(start)) for epoch, start in map(str.split, lines[2:])]
    except (ValueError, IndexError) as error:
        raise DamagedFile(path, "it is not a leader epoch checkpoint") from error
    if version > VERSION:
        raise FormatFromTheFuture(path, version, VERSION)
    if len(entries) != count or sorted(entries) != entries:
        raise DamagedFile(path, f"it announces {count} epochs and holds {len(entries)}")
    return LeaderEpochs(entries)
