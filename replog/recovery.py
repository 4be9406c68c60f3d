"""What a start does with the files that it finds: pure decisions over what was read.

    1. The log is the newest run of segments that follow each other. A reset segment begins a log of its
       own; it counts once its snapshot is there, because that is written last.
    2. The state is that of the newest sound snapshot, and then the entries from its end on. The log
       must have all of these: a segment begins where a snapshot ends, and is written before it.
    3. Everything else is a leftover.

A start never begins with less than was acknowledged: what is missing or damaged is an error that names
the file, what is lost, and what heals it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from replog.control import LogSnapshot, snapshot_in
from replog.entry import EMPTY, Kind, SnapshotId
from replog.segment import FoundSegment, segment_name
from storage.files.errors import CorruptLog, DamagedFile

HEAL = (
    "the entries before it are gone, so the state cannot be rebuilt here: restore the directory from a"
    " backup, or copy it from a follower that is whole"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSnapshot:
    """A snapshot's file, and why it cannot be used."""

    snapshot: SnapshotId
    path: str
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to start."""

    log: Sequence[FoundSegment]
    """The segments of the log; empty for a new one. All others are leftovers."""
    snapshot: SnapshotId
    """The snapshot whose file to restore; EMPTY for none."""
    in_log: LogSnapshot | None = None
    """The snapshot in the log to restore, if there is no file."""

    @property
    def end(self) -> int:
        """The index after the last entry."""
        return self.log[-1].segment.end if self.log else self.snapshot.end


def plan_start(
    directory: str, segments: Sequence[FoundSegment], snapshots: Sequence[FoundSnapshot]
) -> Plan:
    """Returns how to start with these files.

    Args:
        segments: every segment whose header was written, in any order.
        snapshots: every complete snapshot; all are checked that may be needed.

    Raises:
        CorruptLog, DamagedFile: acknowledged entries can no longer be read.
    """
    newest = _newest(snapshots)
    log = _log_of(segments, snapshots)
    _check_followed(log)
    in_log = None
    if log and log[0].segment.base > newest.end:
        in_log, log = _first_in_log(log)
    if log:
        start = in_log.snapshot if in_log else newest
        _check_reaches(directory, log, start, snapshots)
    elif snapshots:
        _refuse_without_log(directory, snapshots[-1])
    return Plan(log=log, snapshot=newest, in_log=in_log)


def _newest(snapshots: Sequence[FoundSnapshot]) -> SnapshotId:
    sound = [each.snapshot for each in snapshots if each.problem is None]
    return sound[-1] if sound else EMPTY


def _log_of(
    segments: Sequence[FoundSegment], snapshots: Sequence[FoundSnapshot]
) -> list[FoundSegment]:
    """Returns the segments of the log, without those of an unfinished installation."""
    ordered = sorted(segments, key=lambda each: (each.segment.base, not _is_reset(each)))
    while True:
        resets = [each for each in ordered if _is_reset(each)]
        if not resets:
            return _last_run(ordered)
        log = _run_from(resets[-1], ordered)
        if _is_installed(log, snapshots):
            return log
        # The power went while a snapshot was being installed: the old log is the log.
        ordered = [each for each in ordered if each not in log]


def _is_reset(found: FoundSegment) -> bool:
    return found.segment.header.is_reset


def _run_from(reset: FoundSegment, ordered: Sequence[FoundSegment]) -> list[FoundSegment]:
    """Returns the log that begins with a reset segment."""
    run = [reset]
    if reset.segment.end > reset.segment.base:
        # Before the first entry is appended, no segment of the old log is left.
        after = [each for each in ordered if not _is_reset(each)]
        run += [each for each in after if each.segment.base > reset.segment.base]
    return run


def _is_installed(log: Sequence[FoundSegment], snapshots: Sequence[FoundSnapshot]) -> bool:
    """Returns whether the snapshot with which a reset segment begins is there."""
    first = log[0].segment
    begins = SnapshotId(first.base, first.header.previous_term)
    if any(each.snapshot == begins or each.snapshot.end > first.base for each in snapshots):
        return True
    return _in_log_snapshot(log) is not None


def _first_in_log(
    log: list[FoundSegment],
) -> tuple[LogSnapshot | None, list[FoundSegment]]:
    """Returns the first complete snapshot in the log, and the log that begins with it.

    Segments before it are back because their removal was not durable.
    """
    for number in range(len(log)):
        found = _in_log_snapshot(log[number:])
        if found is not None:
            return found, log[number:]
    return None, log


def _last_run(ordered: Sequence[FoundSegment]) -> list[FoundSegment]:
    """Returns the last segments that follow each other.

    Removed segments whose removal was not durable may be back, with gaps between them.
    """
    run: list[FoundSegment] = []
    for found in reversed(ordered):
        if run and not _follows(found, run[0]):
            break
        run.insert(0, found)
    return run


def _follows(before: FoundSegment, after: FoundSegment) -> bool:
    segment, header = before.segment, after.segment.header
    return segment.end == header.base_index and segment.last_term == header.previous_term


def _check_followed(log: Sequence[FoundSegment]) -> None:
    for before, after in pairwise(log):
        if before.torn:
            text = before.damage or "an older segment ends in a torn frame"
            raise CorruptLog(before.segment.path, before.segment.size, text)
        if not _follows(before, after):
            text = f"the entries from {before.segment.end} on are missing before it"
            raise CorruptLog(after.segment.path, 0, text)
    if log and log[-1].damage:
        raise CorruptLog(log[-1].segment.path, log[-1].segment.size, log[-1].damage)


def _in_log_snapshot(log: Sequence[FoundSegment]) -> LogSnapshot | None:
    """Returns the snapshot with which these segments begin, if there is one and it is complete."""
    frames = log[0].frames
    if not frames or frames[0].contents[0][0] is not Kind.START:
        return None
    entries = (entry for found in log for frame in found.frames for entry in frame.entries())
    return snapshot_in(entries, log[0].segment.base)


def _check_reaches(
    directory: str,
    log: Sequence[FoundSegment],
    snapshot: SnapshotId,
    snapshots: Sequence[FoundSnapshot],
) -> None:
    """Refuse a log without the snapshot that it continues, and a snapshot without its log."""
    first = log[0].segment
    if first.base > snapshot.end:
        _refuse_without_snapshot(log, snapshots)
    is_whole = any(each.segment.base == snapshot.end for each in log)
    # A snapshot in the log covers its START, which is in the segment that begins with it.
    is_whole = is_whole or first.base == snapshot.end - 1
    if not is_whole:
        path = f"{directory}/{segment_name(snapshot.end, is_reset=False)}"
        raise DamagedFile(
            path, "it is missing, and the snapshot before it is not all that there was"
        )


def _refuse_without_snapshot(
    log: Sequence[FoundSegment], snapshots: Sequence[FoundSnapshot]
) -> None:
    for each in reversed(snapshots):
        if each.problem is not None:
            raise DamagedFile(each.path, f"{each.problem}; {HEAL}")
    first = log[0].segment
    directory = first.path.rpartition("/")[0]
    name = f"{first.base:020d}-{first.header.previous_term:010d}.checkpoint"
    following = first.path.rpartition("/")[2]
    raise DamagedFile(f"{directory}/{name}", f"it is missing before {following}; {HEAL}")


def _refuse_without_log(directory: str, newest: FoundSnapshot) -> None:
    path = f"{directory}/{segment_name(newest.snapshot.end, is_reset=False)}"
    raise DamagedFile(path, "no log is left beside the snapshot")
