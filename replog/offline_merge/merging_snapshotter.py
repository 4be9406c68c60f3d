"""Snapshots by offline merge: a child process writes the part, and this one checks all of it.

    begin    note the live digest; nothing of the state is copied
    step     start the child, wait for it, then check and sync its file
    finish   the file, or SnapshotNotMade: the caller makes the snapshot in process

The child's file is read again: each checksum must be right, and the digest in its footer that of the
live state. The child sums that digest over the rows as it has encoded them. So a child that crashes, is
killed, hangs or loses a part of its file costs only its work.

Source: Ongaro, Log Compaction in Raft, section 6 (a second state machine), without its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from replog.checkpoints import PART, Checkpoint
from replog.entry import EMPTY, SnapshotId
from replog.offline_merge.child_process import MergeProcess
from replog.offline_merge.plan import MergePlan
from replog.offline_merge.snapshot_reader import SnapshotReader
from replog.replica import Replica
from replog.snapshotter import InProcess, SnapshotInProgress, SnapshotNotMade
from storage.files.errors import DamagedFile, DiskError, MissingFile, SyncFailed
from storage.files.files import FileSystem

READ_BYTES_PER_SECOND_MIN = 1_000_000
SECONDS_MIN = 60.0
"""A child may take this long, and as long as reading its input at the lowest rate takes."""


class Run(Protocol):
    """The work of a child."""

    def step(self) -> bool:
        """Wait a moment. Returns whether it is still working."""

    def failure(self) -> str | None:
        """Returns why the work that has ended has failed; None if it says that it has not."""

    def kill(self) -> None:
        """End it at once. Any thread may call."""

    def close(self) -> None:
        """End it, and wait until it has ended."""


Start = Callable[[MergePlan, float], Run]
"""Starts the work of a plan that may take so many seconds. Raises OSError: it did not start."""


class OfflineMerge:
    """Lets a child merge, unless the state is small or the last snapshot is in the log."""

    def __init__(self, merger: str, *, bytes_min: int, start: Start = MergeProcess) -> None:
        """Make snapshots with a machine's merger.

        Args:
            merger: its name, `package.module:Class`: the child imports it.
            bytes_min: a smaller state is written in process.
            start: starts a child, which opens the operating system's files.
        """
        # Constant after construction
        self._merger = merger
        self._start = start
        self._bytes_min = bytes_min
        self._in_process = InProcess()

    def begin(self, replica: Replica, snapshot: SnapshotId) -> SnapshotInProgress:
        """Note what to merge. The child starts with the first step."""
        size = replica.machine.size_bytes()
        if replica.is_snapshot_in_log or (size is not None and size < self._bytes_min):
            return self._in_process.begin(replica, snapshot)
        replica.checkpoints.discard_part(snapshot)
        plan = MergePlan(
            directory=replica.directory,
            base=replica.snapshot,
            snapshot=snapshot,
            digest=replica.machine.digest(),
            merger=self._merger,
        )
        read_bytes = replica.snapshot_bytes + replica.bytes_from(EMPTY.end)
        seconds = SECONDS_MIN + read_bytes / READ_BYTES_PER_SECOND_MIN
        path = replica.checkpoints.path(snapshot) + PART
        return MergeInProgress(replica.files, path, plan, lambda: self._start(plan, seconds))


class MergeInProgress:
    """One snapshot that a child makes. One thread at a time, except for `stop`."""

    __slots__ = (
        "_checkpoint", "_failure", "_files", "_is_stopped", "_path", "_plan", "_run", "_size", "_start",
    )  # fmt: skip

    def __init__(
        self, files: FileSystem, path: str, plan: MergePlan, start: Callable[[], Run]
    ) -> None:
        # Constant after construction
        self._files = files
        self._path = path
        self._plan = plan
        self._start = start
        # State
        self._run: Run | None = None
        self._is_stopped = False
        self._size = 0
        self._failure: str | None = None
        self._checkpoint: Checkpoint | None = None

    @property
    def snapshot(self) -> SnapshotId:
        """Which one it is."""
        return self._plan.snapshot

    @property
    def size_bytes(self) -> int:
        """The bytes that the child had written at the last step."""
        return self._size

    def step(self) -> bool:
        """Wait a moment for the child; check its file once it has ended.

        Raises:
            SyncFailed: what the disk has is unknown.
        """
        run = self._run or self._started()
        if run is None:
            return False
        is_working = run.step()
        self._size = self._size_now()
        if is_working:
            return True
        self._failure = run.failure()
        if self._failure is None:
            self._check()
        return False

    def finish(self) -> Checkpoint:
        """Returns the checked snapshot. Raises SnapshotNotMade."""
        if self._checkpoint is None:
            raise SnapshotNotMade(f"{self._path} was not made: {self._failure}")
        return self._checkpoint

    def stop(self) -> None:
        """Kill the child; no other will be started."""
        self._is_stopped = True
        if self._run is not None:
            self._run.kill()

    def close(self) -> None:
        """Wait until no child can write to the part."""
        if self._run is not None:
            self._run.close()

    def _started(self) -> Run | None:
        if self._is_stopped:
            self._failure = "stopped"
            return None
        try:
            self._run = self._start()
        except OSError as error:
            self._failure = f"the child process did not start: {error}"
            return None
        if self._is_stopped:
            # `stop` may have looked before there was a child.
            self._run.kill()
        return self._run

    def _size_now(self) -> int:
        try:
            return self._files.size(self._path)
        except MissingFile:
            return 0

    def _check(self) -> None:
        """Check the child's file with all its bytes, and sync it."""
        try:
            file = self._files.open(self._path)
            try:
                found = SnapshotReader(file, self.snapshot).check()
                # It was synced by the child: this one learns of a write that has failed since.
                file.sync()
            finally:
                file.close()
        except SyncFailed:
            raise
        except (DamagedFile, DiskError) as error:
            self._failure = f"the child's file cannot be used: {error}"
            return
        if found.digest != self._plan.digest:
            self._failure = "the digest of the child's rows differs from that of the state"
            return
        self._checkpoint = found
