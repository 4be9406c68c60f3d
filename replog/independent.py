"""Independently initiated, stored externally: each copy snapshots what it has applied, into a file.

The default. Source: Ongaro, Log Compaction in Raft, section 5.3.
"""

from __future__ import annotations

from replog.compactor import LogCompactor
from replog.entry import SnapshotId


class Independent(LogCompactor):
    """Snapshots of one copy, whatever the others do."""

    def begin(self) -> None:
        """Begin a snapshot of the state as it is now; everything in the log must be applied."""
        replica = self.replica
        assert replica.applied_end == replica.log.end, "the log is cut where the snapshot ends"
        # The segment from which a replay continues is durable before the snapshot is.
        replica.log.roll()
        snapshot = SnapshotId(replica.log.end, replica.log.last_term)
        self.begun(snapshot.end)
        machine = replica.machine
        self.writer = replica.checkpoints.begin(snapshot, machine.snapshot(), machine.digest())

    def finish(self) -> None:
        """Make the snapshot durable, then drop what it replaces."""
        assert self.writer is not None
        checkpoint = self.writer.finish()
        self.replica.checkpoints.publish(checkpoint.snapshot)
        self.writer = None
        self.covered(checkpoint)
