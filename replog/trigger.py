"""When to snapshot: pure decisions over a log's measures.

    u          log bytes * u > max(bytes of the last snapshot, estimated bytes of the next one, floor)
    replay     replaying the log at the next start is estimated to take longer than `replay_ms`
    age        there are entries that no snapshot covers, and the last snapshot, or the start, is older
               than `age_ms`

The first that holds counts. While the process is quiet, `QUIET_SHARE` of the log that `u` allows, and of
`replay`, is enough: so fewer snapshots fall into busy times. The bound on the disk holds as before. Up
to u / QUIET_SHARE bytes are then written to snapshots for each byte that clients write.

Source: Ongaro, Log Compaction in Raft, section 4. There the estimated size of the next snapshot is a
more complex alternative; a machine that knows its size makes it free. Without it, a state that only
grows would write up to 1 + u bytes to snapshots for each byte that clients write, not u.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

FLOOR_BYTES = 64 << 10
"""Snapshots count as at least this large, so that a small state is not written with every command."""
REPLAY_ENTRIES_MIN = 1_000
"""Rates that were measured over fewer entries are too rough; until then, the assumed rate holds."""
ASSUMED_US_PER_ENTRY = 20.0
RETRY_SECONDS = 60.0
"""The time from a failed snapshot to the next one: an attempt may write as much as the whole state."""
QUIET_SHARE = 0.8
"""The share of a limit at which a quiet process snapshots."""


class Reason(enum.Enum):
    """Why a snapshot is due."""

    U = "u"
    REPLAY = "replay"
    AGE = "age"


class SnapshotterName(enum.Enum):
    """Who writes a snapshot while requests continue: `replog.snapshotter`."""

    IN_PROCESS = "in-process"
    OFFLINE_MERGE = "offline-merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """The settings of one log, from `replog.*`."""

    u: float = 0.1
    """Snapshot bytes per byte of log that may be written; the log may grow to 1/u snapshots."""
    replay_ms: float = 200.0
    age_ms: float = 3_600_000.0
    snapshots_keep: int = 1
    """The last snapshots to keep; the log is kept back to the oldest of them."""
    catchup_entries: int = 5_000
    """Entries to keep below the snapshot, so that fewer followers need it."""
    floor_bytes: int = field(default_factory=lambda: FLOOR_BYTES)
    segment_bytes: int = 1 << 20
    """A segment that has reached this size is not appended to."""
    snapshotter: SnapshotterName = SnapshotterName.IN_PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What the triggers look at."""

    log_bytes: int
    """Bytes of the entries that the last snapshot does not cover."""
    log_entries: int
    snapshot_bytes: int
    """Bytes of the last snapshot; 0 without one."""
    next_bytes: int | None
    """Estimated bytes of a snapshot now."""
    replay_ms: float
    """Estimated time to replay the entries."""
    age_ms: float
    """Time since the last snapshot was completed; at first, since the start."""


def due(
    settings: CompactionSettings, measures: Measures, *, is_quiet: bool = False
) -> Reason | None:
    """Returns why a snapshot should begin now; None if none should.

    Args:
        is_quiet: whether the process has little to do (section 4 suggests to look at the load).
    """
    if not measures.log_entries:
        return None
    share = QUIET_SHARE if is_quiet else 1.0
    if measures.log_bytes * settings.u > share * reference_bytes(settings, measures):
        return Reason.U
    if measures.replay_ms > share * settings.replay_ms:
        return Reason.REPLAY
    return Reason.AGE if measures.age_ms > settings.age_ms else None


def reference_bytes(settings: CompactionSettings, measures: Measures) -> int:
    """Returns the size to which `u` relates the log: the paper's p, with a floor."""
    return max(measures.snapshot_bytes, measures.next_bytes or 0, settings.floor_bytes)


class ReplayRate:
    """How long it takes to apply an entry, measured at the last replay."""

    __slots__ = ("_us_per_entry",)

    def __init__(self) -> None:
        self._us_per_entry = ASSUMED_US_PER_ENTRY

    def measured(self, entries: int, ms: float) -> None:
        """Note that replaying `entries` took so long."""
        if entries >= REPLAY_ENTRIES_MIN:
            self._us_per_entry = ms * 1000 / entries

    def estimate_ms(self, entries: int) -> float:
        """Returns how long a replay of `entries` takes."""
        return entries * self._us_per_entry / 1000
