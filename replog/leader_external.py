"""Leader-initiated, stored externally: START and END are in the log, each copy writes its own file.

    START   every copy begins a snapshot of the entries up to and including it, and notes its digest
    END     appended when the leader's file is durable; names its size, its checksum and its digest

At the END a copy compares digests: if its own differs, it has applied a command differently, says so,
and asks for the leader's snapshot. Otherwise its own file, once it is durable, gets its final
name, and the prefix is dropped. The paper compares checksums of files and lets followers reject an
END; a digest is there at once.

Source: Ongaro, Log Compaction in Raft, section 5.2.
"""

from __future__ import annotations

import logging

from replog.checkpoints import Checkpoint
from replog.compactor import LogCompactor
from replog.control import End, decode_end, end_payload, start_payload
from replog.entry import Entry, Kind, SnapshotId
from replog.replica import Role
from replog.trigger import Reason

_log = logging.getLogger("replog.leader_external")


class LeaderExternal(LogCompactor):
    """Snapshots of all copies at the points that the leader chooses."""

    _snapshot: SnapshotId | None = None
    _digest = 0
    _own: Checkpoint | None = None
    _end: End | None = None

    def due(self, *, is_quiet: bool = False) -> Reason | None:
        """Returns why the leader should begin a snapshot now; None for a learner."""
        reason = super().due(is_quiet=is_quiet)
        return reason if self.replica.role is Role.LEADER else None

    def begin(self) -> None:
        """Append the START; applying it begins the snapshot here, and on each follower there."""
        replica = self.replica
        replica.append([(Kind.START, start_payload(replica.log.last_term))])
        replica.apply_confirmed()

    def finish(self) -> None:
        """Make the own file durable; a leader then appends the END.

        The file keeps its temporary name until the END: a start must not take a snapshot that no END has
        confirmed.
        """
        assert self.writer is not None
        own = self._own = self.writer.finish()
        self.writer = None
        if self.replica.role is Role.LEADER:
            self._append_end(own)
        self._conclude()

    def applied(self, entry: Entry) -> None:
        """Begin, compare, or give up a snapshot, as the entry says."""
        if entry.kind is Kind.START:
            self._start(SnapshotId(entry.index + 1, entry.term))
        elif entry.kind is Kind.ABANDONED:
            self.abandon()
        elif entry.kind is Kind.END:
            self._ended(decode_end(entry.payload))

    def abandon(self) -> None:
        """Give up the snapshot that was begun, if any."""
        super().abandon()
        if self._own is not None:
            self.replica.checkpoints.discard_part(self._own.snapshot)
        self._snapshot = self._own = self._end = None

    def _start(self, snapshot: SnapshotId) -> None:
        replica = self.replica
        self.abandon()
        self.begun(snapshot.end)
        self._snapshot, self._digest = snapshot, replica.machine.digest()
        self.writer = replica.checkpoints.begin(snapshot, replica.machine.snapshot(), self._digest)

    def _append_end(self, checkpoint: Checkpoint) -> None:
        end = End(
            start_index=checkpoint.snapshot.end - 1,
            chunks=0,
            size=checkpoint.size,
            digest=checkpoint.digest,
            checksum=checkpoint.checksum,
        )
        self.replica.append([(Kind.END, end_payload(end))])
        self.replica.apply_confirmed()

    def _ended(self, end: End) -> None:
        replica = self.replica
        if end.chunks:
            return
        if self._snapshot is not None and self._snapshot.end == end.start_index + 1:
            self._end = end
            if self._digest != end.digest:
                self._differs(self._snapshot)
            else:
                self._conclude()
        elif replica.snapshot.end == end.start_index + 1 and replica.snapshot_digest != end.digest:
            self._differs(replica.snapshot)

    def _conclude(self) -> None:
        """Drop the prefix once the END is there and the own file is durable."""
        if self._own is not None and self._end is not None:
            checkpoint = self._own
            self.replica.checkpoints.publish(checkpoint.snapshot)
            self._own = self._end = None
            self.covered(checkpoint)

    def _writing_bytes(self) -> int:
        return super()._writing_bytes() + (self._own.size if self._own is not None else 0)

    def _differs(self, snapshot: SnapshotId) -> None:
        replica = self.replica
        _log.error(
            "%s: the state differs from the leader's (index %d); replacing it by the leader's snapshot",
            replica.directory, snapshot.end,
        )  # fmt: skip
        self.abandon()
        replica.wanted, replica.role = snapshot, Role.INSTALLING
