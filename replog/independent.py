"""Independently initiated, stored externally: each copy snapshots what it has applied, into a file.

The default. Source: Ongaro, Log Compaction in Raft, section 5.3.

Only here may another process make the snapshot (`snapshotter.py`). If that fails, a snapshot of the
state as it is then, made in this process, replaces it; under a START of the leader it could not, since
its state has gone.
"""

from __future__ import annotations

import logging

from replog.compactor import LogCompactor
from replog.entry import SnapshotId
from replog.replica import Replica
from replog.snapshotter import InProcess, SnapshotNotMade, Snapshotter
from replog.trigger import CompactionSettings

_log = logging.getLogger("replog.independent")


class Independent(LogCompactor):
    """Snapshots of one copy, whatever the others do."""

    def __init__(
        self,
        replica: Replica,
        settings: CompactionSettings,
        snapshotter: Snapshotter | None = None,
    ) -> None:
        """Compact a log.

        Args:
            snapshotter: writes the snapshots; in this process, unless one is given.
        """
        super().__init__(replica, settings)
        # Constant after construction
        self._in_process = InProcess()
        self._snapshotter = snapshotter or self._in_process
        # State
        self._has_failed = False
        # Whether another process has not made the last snapshot.
        self._is_stopping = False

    def begin(self) -> None:
        """Begin a snapshot of the state as it is now; everything in the log must be applied."""
        replica = self.replica
        assert replica.applied_end == replica.log.end, "the log is cut where the snapshot ends"
        # The segment from which a replay continues is durable before the snapshot is.
        replica.log.roll()
        snapshot = SnapshotId(replica.log.end, replica.log.last_term)
        self.begun(snapshot.end)
        snapshotter = self._in_process if self._has_failed else self._snapshotter
        self.writer = snapshotter.begin(replica, snapshot)

    def finish(self) -> None:
        """Make the snapshot durable, then drop what it replaces.

        If another process did not make it, begin one in this process: `is_snapshotting` says so.
        """
        assert self.writer is not None
        try:
            checkpoint = self.writer.finish()
        except SnapshotNotMade as error:
            self._begin_in_process(error)
            return
        self.replica.checkpoints.publish(checkpoint.snapshot)
        self.writer.close()
        self.writer, self._has_failed = None, False
        self.covered(checkpoint)

    def stop(self) -> None:
        """Let the steps end soon, and begin no other snapshot; any thread may call."""
        self._is_stopping = True
        writer = self.writer
        if writer is not None:
            writer.stop()

    def _begin_in_process(self, error: SnapshotNotMade) -> None:
        self.abandon()
        if self._is_stopping:
            return
        _log.error("%s; making one in this process", error)
        self._has_failed = True
        if self.replica.applied_end == self.replica.log.end:
            self.begin()
