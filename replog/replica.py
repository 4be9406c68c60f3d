"""One copy of a state machine on one machine: its log, its snapshots, and the state.

A leader appends; an entry is committed when it is durable there, because no one votes. A learner applies
what the leader has confirmed. Both recover alike: the newest snapshot, then the entries after it.

    applied_end <= confirmed_end <= log.end        ends: the entry itself is not included

`compactor.py` decides when to snapshot, and the placements (`independent.py`, `leader_external.py`,
`in_log.py`) where snapshots go.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from replog.checkpoints import (
    PART,
    Checkpoint,
    Checkpoints,
    received_part,
    restore_rows,
    snapshots_in,
    verify_bytes,
)
from replog.control import LogSnapshot, abandoned_payload
from replog.entry import EMPTY, Entry, Frame, Kind, SnapshotId
from replog.entry_log import EntryLog
from replog.machine import StateMachine
from replog.recovery import FoundSnapshot, Plan, plan_start
from replog.segment import NAME as SEGMENT_NAME
from replog.segment import FoundSegment, read_segments, remove_segments
from replog.trigger import ReplayRate
from storage.files.errors import DamagedFile, StorageError
from storage.files.files import FileSystem

_log = logging.getLogger("replog.replica")


class Role(enum.Enum):
    """What a copy may do."""

    LEADER = "leader"
    LEARNER = "learner"
    INSTALLING = "installing"
    """A learner that lacks entries which only a snapshot has: it can never be promoted."""


def read_directory(
    files: FileSystem, directory: str
) -> tuple[list[FoundSegment], list[FoundSnapshot]]:
    """Read the segments, and check the snapshots that a start may need; change nothing.

    Raises:
        CorruptLog: a segment's header or its indexes are damaged.
        FormatFromTheFuture: a later release wrote a file.
    """
    names = files.list(directory)
    snapshots = _checked(Checkpoints(files, directory), snapshots_in(names))
    covered = max((each.snapshot.end for each in snapshots if each.problem is None), default=0)
    return read_segments(files, directory, names, covered), snapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much a start reads."""

    snapshot_bytes: int
    log_bytes: int
    """Bytes of the segments after the snapshot."""
    log_entries: int


def sizes_in(files: FileSystem, directory: str) -> Sizes:
    """Returns how much a start would read in this directory; changes nothing.

    Raises:
        CorruptLog, DamagedFile: it could not read everything.
        FormatFromTheFuture: a later release wrote a file.
    """
    plan = plan_start(directory, *read_directory(files, directory))
    snapshot = plan.in_log.snapshot if plan.in_log else plan.snapshot
    after = [each.segment for each in plan.log if each.segment.end > snapshot.end]
    path = Checkpoints(files, directory).path(snapshot)
    in_file = files.size(path) if plan.snapshot != EMPTY else 0
    return Sizes(
        snapshot_bytes=len(plan.in_log.data) if plan.in_log else in_file,
        log_bytes=sum(segment.size for segment in after),
        log_entries=plan.end - snapshot.end,
    )


def _checked(checkpoints: Checkpoints, snapshots: Sequence[SnapshotId]) -> list[FoundSnapshot]:
    """Check the snapshots from the newest on, up to the first sound one."""
    found: list[FoundSnapshot] = []
    is_sound = False
    for snapshot in reversed(snapshots):
        problem = "an older snapshot than the one that is used" if is_sound else None
        if not is_sound:
            try:
                checkpoints.verify(snapshot)
                is_sound = True
            except DamagedFile as error:
                problem = error.reason
        path = checkpoints.path(snapshot)
        found.insert(0, FoundSnapshot(snapshot=snapshot, path=path, problem=problem))
    return found


class Replica:
    """A log with its snapshots and its state machine. One thread at a time."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        machine: StateMachine,
        *,
        clock_ms: Callable[[], float],
        segment_bytes: int = 1 << 20,
    ) -> None:
        """Create the copy closed; `open` recovers it.

        Args:
            clock_ms: a clock that only moves forward.
            segment_bytes: a segment that has reached this size is not appended to.
        """
        # Constant after construction
        self.files = files
        self.directory = directory
        self.checkpoints = Checkpoints(files, directory)
        self.clock_ms = clock_ms
        self._segment_bytes = segment_bytes
        # State
        self.machine = machine
        self.log: EntryLog
        self.role = Role.LEARNER
        self.term = 0
        self.applied_end = EMPTY.end
        self.confirmed_end = EMPTY.end
        self.snapshot = EMPTY
        """The last complete snapshot: a replay begins with it."""
        self.snapshot_bytes = 0
        self.snapshot_digest = 0
        self.is_snapshot_in_log = False
        self.covered_ms = 0.0
        """When the last snapshot became complete; at first, the start."""
        self.replay_rate = ReplayRate()
        self.on_control: Callable[[Entry], None] = lambda _: None
        """Called with each applied entry that is not a command."""
        self._at_hand: list[Entry] = []
        # The last entries of the log, if a start has read them or the leader has just sent them.
        self._open_start: int | None = None
        # The START without an END among those applied.
        self.received: SnapshotId | None = None
        """The leader's snapshot of which an earlier process has received a part."""
        self.wanted: SnapshotId | None = None
        """The leader's snapshot that must replace the state here, which differs from it."""

    def read(self) -> Plan:
        """Read the state of the newest snapshot; change nothing. Returns the log that continues it.

        Raises:
            CorruptLog, DamagedFile: acknowledged entries can no longer be read.
            FormatFromTheFuture: a later release wrote a file.
        """
        segments, snapshots = read_directory(self.files, self.directory)
        plan = plan_start(self.directory, segments, snapshots)
        self._restore(plan)
        return plan

    def open(
        self, check_new: Callable[[], None] = lambda: None, *, continues_download: bool = False
    ) -> None:
        """Recover from the files the state of the newest snapshot, and the log.

        Args:
            check_new: called before a log that has no entry and no snapshot is opened or created; it
                raises an error if there should be some.
            continues_download: whether a received part of a snapshot stays, for a `Follower`.

        Raises:
            CorruptLog, DamagedFile: acknowledged entries can no longer be read; nothing was changed.
            FormatFromTheFuture: a later release wrote a file; nothing was changed.
        """
        plan = self.read()
        if plan.end == EMPTY.end:
            check_new()
        self._remove_leftovers(plan, continues_download=continues_download)
        if plan.log:
            self.log = EntryLog.adopt(self.files, self.directory, plan.log)
        else:
            self.log = EntryLog.create(self.files, self.directory)
        self.files.restrict(self.directory)
        self.covered_ms = self.clock_ms()

    def lead(self, term: int) -> None:
        """Become the leader of this term: everything in the log is committed, and is applied now.

        Raises:
            StorageError: the state turned out to be another one than the log's last snapshot has.
        """
        assert self.role is not Role.INSTALLING, "a copy without its snapshot cannot lead"
        assert term >= self.log.last_term, "terms never decrease"
        self.role, self.term = Role.LEADER, term
        began, first = self.clock_ms(), self.applied_end
        self.confirm(self.log.end)
        if self.wanted is not None:
            raise StorageError(
                f"{self.directory}: this copy's state differs from that of the leader whose log it has:"
                " it needs a snapshot of another copy, and cannot lead"
            )
        self.replay_rate.measured(self.applied_end - first, self.clock_ms() - began)
        if self._open_start is not None:
            self.append([(Kind.ABANDONED, abandoned_payload(self._open_start))])
            self.apply_confirmed()

    def follow(self) -> None:
        """Stop leading: another copy confirms what is committed from here on."""
        if self.role is Role.LEADER:
            self.role = Role.LEARNER

    def append(self, contents: Sequence[tuple[Kind, bytes]]) -> Frame:
        """Write entries as the leader, in one frame, and sync them: they are committed, not yet applied.

        Raises:
            StorageError: they were not written; after SyncFailed, nothing more can be written.
        """
        assert self.role is Role.LEADER, "only a leader appends"
        frame = Frame(self.log.end, self.term, tuple(contents))
        append_rolling(self.log, frame, self._segment_bytes)
        self.confirmed_end = self.log.end
        return frame

    def append_confirmed(self, frame: Frame) -> None:
        """Write entries that the leader has committed, as a learner, and apply them."""
        assert self.role is not Role.LEADER
        append_rolling(self.log, frame, self._segment_bytes)
        # To read them back would read their segment once for each frame.
        self._at_hand = list(frame.entries())
        self.confirm(self.log.end)

    def confirm(self, end: int) -> None:
        """Apply what is below `end`: the leader has committed it."""
        self.confirmed_end = max(self.confirmed_end, min(end, self.log.end))
        self.apply_confirmed()

    def apply_confirmed(self) -> None:
        """Apply the committed entries that are not applied yet."""
        if self.applied_end == self.confirmed_end:
            return
        first = self._at_hand[0].index if self._at_hand else None
        is_read = first == self.applied_end and self._at_hand[-1].index == self.log.end - 1
        entries = self._at_hand if is_read else self.entries(self.applied_end)
        self._at_hand = []
        for entry in entries:
            if entry.index >= self.confirmed_end:
                break
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        """Apply one committed entry, the next one."""
        self.note_applied(entry)
        if entry.kind is Kind.COMMAND:
            self.machine.apply(entry.index, entry.payload)
        else:
            self.on_control(entry)

    def note_applied(self, entry: Entry) -> None:
        """Note that the caller has applied the next committed entry itself."""
        assert entry.index == self.applied_end < self.confirmed_end, "entries are applied in order"
        self.applied_end = entry.index + 1
        if entry.kind is Kind.START:
            self._open_start = entry.index
        elif entry.kind in (Kind.END, Kind.ABANDONED):
            self._open_start = None

    def entries(self, start: int) -> list[Entry]:
        """Returns the entries of the log from `start` on."""
        frames = self.log.frames(start)
        return [entry for frame in frames for entry in frame.entries() if entry.index >= start]

    def bytes_from(self, end: int) -> int:
        """Returns the bytes of the segments from `end` on, where one begins."""
        # Metrics ask in another thread, while the compactor drops segments.
        segments = tuple(self.log.segments)
        return sum(each.size for each in segments if each.base >= end)

    def truncate(self, end: int) -> None:
        """Remove the entries from `end` on, which the leader does not have."""
        assert end >= self.confirmed_end, "a committed entry is never removed"
        self._at_hand = []
        self.log.truncate(end)

    def close(self) -> None:
        """Close the files. Everything appended is durable."""
        self.log.close()

    # Snapshots.

    def covered(self, checkpoint: Checkpoint, *, in_log: bool = False) -> None:
        """Note a complete snapshot of the state that the log leads to."""
        self.snapshot, self.snapshot_bytes = checkpoint.snapshot, checkpoint.size
        self.snapshot_digest = checkpoint.digest
        self.is_snapshot_in_log = in_log
        self.covered_ms = self.clock_ms()

    def install(self, checkpoint: Checkpoint, machine: StateMachine) -> None:
        """Replace state and log by a received snapshot, whose file is checked but still a part.

        Args:
            machine: a machine with the state of the snapshot.
        """
        snapshot = checkpoint.snapshot
        self.log.prepare_reset(snapshot.end, snapshot.term)
        self.checkpoints.publish(snapshot)
        self.log.reset(snapshot.end, snapshot.term)
        self.checkpoints.remove_others(snapshot)
        self._installed(checkpoint, machine, in_log=False)

    def install_log(self, log: EntryLog, checkpoint: Checkpoint, machine: StateMachine) -> None:
        """Replace state and log by a received log that begins with a complete snapshot."""
        self.log.replace_with(log)
        self.checkpoints.remove_all()
        self._installed(checkpoint, machine, in_log=True)

    def _installed(self, checkpoint: Checkpoint, machine: StateMachine, *, in_log: bool) -> None:
        self.machine = machine
        self._at_hand, self._open_start = [], None
        self.applied_end = self.confirmed_end = checkpoint.snapshot.end
        self.covered(checkpoint, in_log=in_log)
        self.role, self.wanted = Role.LEARNER, None

    def _restore(self, plan: Plan) -> None:
        if plan.in_log is not None:
            checkpoint = restore_from_log(plan.in_log, self.machine, self.directory)
            self.covered(checkpoint, in_log=True)
        elif plan.snapshot != EMPTY:
            self.covered(self.checkpoints.restore(plan.snapshot, self.machine))
        self.applied_end = self.confirmed_end = self.snapshot.end
        self._at_hand = [
            entry
            for found in plan.log
            for frame in found.frames
            if frame.end > self.snapshot.end
            for entry in frame.entries()
            if entry.index >= self.snapshot.end
        ]

    def _remove_leftovers(self, plan: Plan, *, continues_download: bool) -> None:
        names = self.files.list(self.directory)
        kept = {each.segment.path for each in plan.log}
        paths = [f"{self.directory}/{name}" for name in names if SEGMENT_NAME.fullmatch(name)]
        leftovers = [path for path in paths if path not in kept]
        if continues_download:
            self.received = received_part(names, plan.end)
        kept.add(self.checkpoints.path(self.received or EMPTY) + PART)
        parts = [f"{self.directory}/{name}" for name in names if name.endswith(PART)]
        parts = [path for path in parts if path not in kept]
        for path in (*leftovers, *parts):
            _log.info("%s: removing what an interrupted snapshot or installation has left", path)
        remove_segments(self.files, self.directory, leftovers)
        for path in parts:
            self.files.unlink(path)
        if parts:
            self.files.sync_directory(self.directory)


def append_rolling(log: EntryLog, frame: Frame, segment_bytes: int) -> None:
    """Append to a log, in a new segment if the last one is large enough.

    A START is alone in its segment, so that a log can be cut before it and after it.
    """
    is_start = frame.contents[0][0] is Kind.START
    if is_start or log.ends_in_start or log.segments[-1].size >= segment_bytes:
        log.roll()
    log.append(frame)
    if is_start:
        log.roll()


def restore_from_log(found: LogSnapshot, machine: StateMachine, name: str) -> Checkpoint:
    """Give a machine the state of a snapshot in the log. Raises DamagedFile."""
    checkpoint = check_in_log(found, name)
    restore_rows(memoryview(found.data), name, machine, checkpoint.digest)
    return checkpoint


def check_in_log(found: LogSnapshot, name: str) -> Checkpoint:
    """Check a snapshot in the log against its own checksums and its END. Raises DamagedFile."""
    checkpoint = verify_bytes(memoryview(found.data), name, found.snapshot)
    end = found.end
    if (checkpoint.size, checkpoint.digest, checkpoint.checksum) != (
        end.size, end.digest, end.checksum,
    ):  # fmt: skip
        raise DamagedFile(name, "the snapshot in the log is not the one that its END describes")
    return checkpoint
