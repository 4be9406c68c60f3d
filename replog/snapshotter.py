"""How a snapshot is written while requests continue: in this process, or by another one.

    in-process       a frozen copy of references, which a second thread encodes
    offline-merge    a child process merges the last snapshot with the log after it (`offline_merge/`)

Source: Ongaro, Log Compaction in Raft, section 6.
"""

from __future__ import annotations

from typing import Protocol

from replog.checkpoints import Checkpoint
from replog.entry import SnapshotId
from replog.replica import Replica
from storage.files.errors import StorageError


class SnapshotNotMade(StorageError):
    """Another process did not make the snapshot. The state is as it was, and so is the disk."""


class SnapshotInProgress(Protocol):
    """A snapshot that is being written. One thread at a time, except for `stop`."""

    @property
    def snapshot(self) -> SnapshotId:
        """Which one it is."""

    @property
    def size_bytes(self) -> int:
        """The bytes written, as of the last step."""

    def step(self) -> bool:
        """Write a part, or wait a moment for another process. Returns whether more steps are needed.

        Raises:
            StorageError: the disk failed.
        """

    def finish(self) -> Checkpoint:
        """Returns the snapshot, which is whole and synced, and still has its temporary name.

        Raises:
            SnapshotNotMade: it must be made in this process instead.
            StorageError: the disk failed, or the state machine has applied a command wrongly.
        """

    def stop(self) -> None:
        """Let `step` end soon; any thread may call. A snapshot written in process is completed."""

    def close(self) -> None:
        """Release what it uses, complete or not. The part stays."""


class Snapshotter(Protocol):
    """Begins snapshots of a replica's state as it is now."""

    def begin(self, replica: Replica, snapshot: SnapshotId) -> SnapshotInProgress:
        """Begin the snapshot of the state at `snapshot.end`, where everything is applied."""


class InProcess:
    """Writes the rows of the state in the process that serves it."""

    def begin(self, replica: Replica, snapshot: SnapshotId) -> SnapshotInProgress:
        """Freeze the state, and create the snapshot's part."""
        machine = replica.machine
        return replica.checkpoints.begin(snapshot, machine.snapshot(), machine.digest())
