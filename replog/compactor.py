"""The compactor of a log: when a snapshot begins, and what a complete one lets go.

    due -> begin -> step, step, ... -> finish        steps are short, and entries are appended in between

Where snapshots go is the placement: `independent.py`, `leader_external.py`, `in_log.py`. They share this
class, and differ in who begins and in what happens when a snapshot is complete.
"""

from __future__ import annotations

import abc
import enum
import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from replog.bound import DiskUse, bound_bytes
from replog.checkpoints import Checkpoint
from replog.control import snapshot_in
from replog.entry import EMPTY, Entry, SnapshotId
from replog.replica import Replica, check_in_log
from replog.snapshotter import SnapshotInProgress
from replog.trigger import CompactionSettings, Measures, Reason, due, reference_bytes

_log = logging.getLogger("replog.compactor")


class Placement(enum.Enum):
    """Where snapshots are stored, and who decides to take one."""

    INDEPENDENT = "independent"
    """Each copy snapshots for itself, into a file."""
    LEADER_EXTERNAL = "leader-external"
    """The leader says when, in the log; each copy writes its own file, and digests are compared."""
    IN_LOG = "in-log"
    """The leader writes the snapshot into the log, in chunks between other entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionFacts:
    """A log and its snapshots in numbers."""

    disk_bytes: int
    bound_bytes: float
    log_bytes: int
    """Bytes of the entries that the last snapshot does not cover."""
    snapshot_bytes: int
    replay_seconds: float
    """The estimated time of their replay at the next start."""
    snapshot_seconds: float | None
    """How long the last snapshot took; None before the first since the start."""
    u: float


class LogCompactor(abc.ABC):
    """What all placements share: triggers, the disk bound, and what a complete snapshot replaces."""

    def __init__(self, replica: Replica, settings: CompactionSettings) -> None:
        # Constant after construction
        self.replica = replica
        self.settings = settings
        # State
        self.writer: SnapshotInProgress | None = None
        self._began_ms = 0.0
        self.last_ms: float | None = None
        """How long the last snapshot took; None before the first."""
        self._first_end: int | None = None
        """Where the first attempt since the last complete snapshot began."""
        self._references: deque[int] = deque(maxlen=settings.snapshots_keep)
        self._during: deque[int] = deque([0], maxlen=settings.snapshots_keep)
        self._seen_bytes = self._unseen_max = 0
        # The complete snapshots with their sizes, as of the last change.
        self._sizes: dict[SnapshotId, int] = {}
        self.pinned: Callable[[], Collection[SnapshotId]] = lambda: ()
        """Returns the snapshots that followers fetch now: they stay, with the log after them."""
        replica.on_control = self.applied

    def opened(self) -> None:
        """Begin to count: the replica was opened."""
        self.look()
        self._references.append(self._reference())
        self._prune()
        # What an attempt that a crash ended has let grow, and the log between the kept snapshots.
        u = self.settings.u
        allowed = self._references[-1] / u if u else 0
        excess = max(0, int(self._client_bytes() - allowed))
        newest = self.replica.snapshot.end
        between = self.replica.bytes_from(min(self.oldest_needed(), newest))
        self._during[-1] = excess + between - self.replica.bytes_from(newest)

    @property
    def is_snapshotting(self) -> bool:
        """Whether a snapshot has begun and is not complete."""
        return self.writer is not None

    def due(self, *, is_quiet: bool = False) -> Reason | None:
        """Returns why a snapshot should begin now; None if none should.

        Args:
            is_quiet: whether the process has little to do (`trigger.py`).
        """
        replica, measures = self.replica, self.measures()
        reference = reference_bytes(self.settings, measures)
        self._references[-1] = max(self._references[-1], reference)
        appended = replica.log.appended_bytes
        self._unseen_max = max(self._unseen_max, appended - self._seen_bytes)
        self._seen_bytes = appended
        if self.is_snapshotting or replica.applied_end < replica.log.end:
            return None
        return due(self.settings, measures, is_quiet=is_quiet)

    def measures(self) -> Measures:
        """Returns what the triggers look at."""
        replica = self.replica
        entries = replica.log.end - replica.snapshot.end
        return Measures(
            log_bytes=self._client_bytes(),
            log_entries=entries,
            snapshot_bytes=replica.snapshot_bytes,
            next_bytes=replica.machine.size_bytes(),
            replay_ms=replica.replay_rate.estimate_ms(entries),
            age_ms=replica.clock_ms() - replica.covered_ms,
        )

    def applied(self, entry: Entry) -> None:
        """Look at an applied entry that is not a command: placements without such entries skip it."""
        _log.debug("%s: skipping %s", self.replica.directory, entry.kind.name)

    @abc.abstractmethod
    def begin(self) -> None:
        """Begin a snapshot of the state as it is now; everything in the log must be applied."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Complete the snapshot, and drop what it replaces."""

    def step(self) -> bool:
        """Write a part of the snapshot. Returns whether parts may be left."""
        assert self.writer is not None
        return self.writer.step()

    def abandon(self) -> None:
        """Give up the snapshot that was begun, if any."""
        if self.writer is not None:
            self.writer.close()
            self.replica.checkpoints.discard_part(self.writer.snapshot)
            self.writer = None

    def installed(self) -> None:
        """Begin to count again: the replica's state and log were replaced."""
        self.look()
        self._first_end = None
        self._seen_bytes = 0
        self._during.append(0)
        self._references.append(self._reference())

    def disk_use(self) -> DiskUse:
        """Returns what the files take."""
        replica = self.replica
        oldest = self.oldest_needed()
        during = replica.bytes_from(self._first_end) if self._first_end is not None else 0
        in_log = replica.snapshot_bytes if replica.is_snapshot_in_log else 0
        log_bytes = replica.bytes_from(EMPTY.end)
        return DiskUse(
            snapshots_bytes=sum(self._sizes.values()) + in_log,
            writing_bytes=self._writing_bytes(),
            log_bytes=log_bytes - in_log,
            reference_bytes=sum(self._references),
            during_bytes=sum(self._during) + during,
            catchup_bytes=log_bytes - replica.bytes_from(oldest),
            unseen_bytes=self._unseen_max,
        )

    def bound_bytes(self) -> float:
        """Returns the most bytes that the files may take."""
        return bound_bytes(self.settings, self.disk_use())

    def facts(self) -> CompactionFacts:
        """Returns what metrics show. Any thread may ask; it waits for no disk."""
        measures = self.measures()
        last_ms = self.last_ms
        return CompactionFacts(
            disk_bytes=self.disk_use().total_bytes,
            bound_bytes=self.bound_bytes(),
            log_bytes=measures.log_bytes,
            snapshot_bytes=measures.snapshot_bytes,
            replay_seconds=measures.replay_ms / 1000,
            snapshot_seconds=None if last_ms is None else last_ms / 1000,
            u=self.settings.u,
        )

    # For the placements.

    def look(self) -> None:
        """Read which complete snapshots there are."""
        self._sizes = self.replica.checkpoints.sizes()

    def begun(self, end: int) -> None:
        """Note that a snapshot of the entries below `end` has begun."""
        self._began_ms = self.replica.clock_ms()
        if self._first_end is None:
            self._first_end = end

    def covered(self, checkpoint: Checkpoint) -> None:
        """Note that a snapshot's file is durable; remove what it replaces."""
        self._completed()
        self.replica.covered(checkpoint)
        self._references.append(self._reference())
        self._prune()

    def covered_in_log(self, start_index: int) -> None:
        """Check the complete snapshot in the log, and drop what precedes its START."""
        replica = self.replica
        found = snapshot_in(replica.entries(start_index), start_index)
        if found is None:
            # It began before a restart, or another leader's chunks are missing: the log stays whole.
            _log.warning("%s: the snapshot from %d is incomplete", replica.directory, start_index)
            return
        checkpoint = check_in_log(found, replica.directory)
        self._completed()
        replica.covered(checkpoint, in_log=True)
        self._references.append(self._reference())
        replica.log.drop_before(start_index)
        replica.checkpoints.remove_all()
        self.look()

    def _completed(self) -> None:
        replica = self.replica
        self.last_ms = replica.clock_ms() - self._began_ms
        during = replica.bytes_from(self._first_end) if self._first_end is not None else 0
        self._during.append(during)
        self._first_end = None

    def _prune(self) -> None:
        """Remove the snapshots and entries that the kept snapshots replace."""
        replica = self.replica
        if replica.is_snapshot_in_log:
            replica.log.drop_before(replica.snapshot.end - 1)
            return
        self.look()
        kept = self._kept()
        if kept:
            pinned = [each for each in self.pinned() if each in self._sizes]
            replica.checkpoints.remove_before(kept[0], pinned)
            needed = kept[0].end - self.settings.catchup_entries
            replica.log.drop_before(min([needed, *(each.end for each in pinned)]))
            self.look()

    def oldest_needed(self) -> int:
        """Returns the index from which on the log must have all entries."""
        replica = self.replica
        if replica.is_snapshot_in_log:
            return replica.snapshot.end - 1
        kept = self._kept()
        return kept[0].end if kept else EMPTY.end

    def _kept(self) -> list[SnapshotId]:
        """Returns the snapshots to keep, oldest first: without one that is not in use yet."""
        used = [each for each in sorted(self._sizes) if each.end <= self.replica.snapshot.end]
        return used[-self.settings.snapshots_keep :]

    def _reference(self) -> int:
        return reference_bytes(self.settings, self.measures())

    def _client_bytes(self) -> int:
        """Returns the bytes after the last snapshot, without those of a snapshot in the log."""
        replica = self.replica
        if replica.is_snapshot_in_log:
            return replica.bytes_from(replica.snapshot.end - 1) - replica.snapshot_bytes
        return replica.bytes_from(replica.snapshot.end)

    def _writing_bytes(self) -> int:
        return self.writer.size_bytes if self.writer is not None else 0
