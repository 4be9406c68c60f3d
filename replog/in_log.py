"""Leader-initiated, stored in the log: chunks of the snapshot's file between START and END.

    START | command | CHUNK CHUNK | command | command | CHUNK | END | command ...
    ^ the log begins here once the END is committed

At most `CHUNKS_IN_FLIGHT` chunks are appended at a time; commands get in between. A copy that has the
END checks the snapshot and drops what precedes the START. Each follower receives each snapshot over the
network, and what an abandoned snapshot has appended stays until the next one is complete: the costly
placement.

Source: Ongaro, Log Compaction in Raft, section 5.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from replog.checkpoints import SnapshotWriter
from replog.compactor import LogCompactor
from replog.control import (
    CHUNK_BYTES,
    End,
    chunk_payload,
    decode_end,
    end_payload,
    start_payload,
)
from replog.entry import Entry, Kind, SnapshotId
from replog.replica import Role
from replog.trigger import Reason
from storage.files.files import Buffer

CHUNKS_IN_FLIGHT = 4


class ChunkSink:
    """Collects the bytes of a snapshot and returns them in chunks."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        self._data = bytearray()

    def append(self, parts: Sequence[Buffer]) -> int:
        for part in parts:
            self._data += part
            self.size += len(part)
        return self.size

    def sync(self) -> None:
        """Do nothing: the entries are synced."""

    def close(self) -> None:
        """Do nothing: there is no file."""

    def take(self, *, is_complete: bool, chunk_bytes: int, limit: int | None) -> list[bytes]:
        """Returns full chunks, and the rest too if the snapshot is complete."""
        chunks: list[bytes] = []
        while self._data and (limit is None or len(chunks) < limit):
            if len(self._data) < chunk_bytes and not is_complete:
                break
            chunks.append(bytes(self._data[:chunk_bytes]))
            del self._data[:chunk_bytes]
        return chunks


class InLog(LogCompactor):
    """Snapshots as entries of the log."""

    chunk_bytes = CHUNK_BYTES
    _sink: ChunkSink | None = None
    _start_index = 0
    _chunks = 0

    def due(self, *, is_quiet: bool = False) -> Reason | None:
        """Returns why the leader should begin a snapshot now; None for a learner."""
        reason = super().due(is_quiet=is_quiet)
        return reason if self.replica.role is Role.LEADER else None

    def begin(self) -> None:
        """Append the START, and freeze the state."""
        replica = self.replica
        assert replica.applied_end == replica.log.end
        self._start_index, self._chunks = replica.log.end, 0
        replica.append([(Kind.START, start_payload(replica.log.last_term))])
        replica.apply_confirmed()
        snapshot = SnapshotId(self._start_index + 1, replica.term)
        self._sink = ChunkSink(replica.directory)
        machine = replica.machine
        self.writer = SnapshotWriter(self._sink, snapshot, machine.snapshot(), machine.digest())

    def step(self) -> bool:
        """Encode a block, and append what chunks are full. Returns whether parts may be left."""
        assert self.writer is not None
        is_more = self.writer.step()
        self._append_chunks(is_complete=False)
        return is_more

    def finish(self) -> None:
        """Append the last chunks and the END."""
        assert self.writer is not None
        checkpoint = self.writer.finish()
        while self._append_chunks(is_complete=True):
            pass
        end = End(
            start_index=self._start_index,
            chunks=self._chunks,
            size=checkpoint.size,
            digest=checkpoint.digest,
            checksum=checkpoint.checksum,
        )
        self.writer = self._sink = None
        self.replica.append([(Kind.END, end_payload(end))])
        self.replica.apply_confirmed()

    def applied(self, entry: Entry) -> None:
        """Drop the prefix at an END. Chunks need no processing."""
        if entry.kind is Kind.START:
            self.begun(entry.index)
        elif entry.kind is Kind.END:
            end = decode_end(entry.payload)
            if end.chunks:
                self.covered_in_log(end.start_index)

    def abandon(self) -> None:
        """Give up the snapshot that was begun, if any; the next leader says so in the log."""
        self.writer = self._sink = None

    def _append_chunks(self, *, is_complete: bool) -> int:
        assert self._sink is not None
        chunks = self._sink.take(
            is_complete=is_complete, chunk_bytes=self.chunk_bytes, limit=CHUNKS_IN_FLIGHT
        )
        contents = [
            (Kind.CHUNK, chunk_payload(self._start_index, number, chunk))
            for number, chunk in enumerate(chunks, self._chunks)
        ]
        if contents:
            self._chunks += len(contents)
            self.replica.append(contents)
            self.replica.apply_confirmed()
        return len(contents)

    def _writing_bytes(self) -> int:
        # The chunks are in the log, and are counted as what is appended meanwhile.
        return 0
