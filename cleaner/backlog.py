"""What of a log waits for the cleaner, for those who look on: a scrape, a command.

The rules are `cleaner/pick.py`'s, so an onlooker sees what the pool decides by, at the moment of the
look and not of the pool's last one, which a long pass puts off. Ten thousand logs may be asked about
at once, in any thread; so what was found is kept until the log changes, or until time alone may
change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from cleaner.lookout import sketch
from cleaner.pick import assess
from storage.config_property import LONG_MAX
from storage.log import PartitionLog
from storage.manifest import UNKNOWN

KEPT_MS_MAX = 60_000
"""What was found is not believed for longer, whatever `Assessment.wake_ms` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What of one log waits for the cleaner."""

    dirty_bytes: int
    """Of the segments, the active one included, that no pass has read to their ends."""
    clean_bytes: int
    cleanable_bytes: int
    """The part of the dirty bytes that a pass could clean now."""
    dirty_ratio: float
    """Cleanable bytes over clean and cleanable ones: what min.cleanable.dirty.ratio is about."""
    offset_lag: int
    """Offsets between the first dirty one and the log's end."""
    deadline_ms: int
    """Wall time at which max.compaction.lag.ms is over for the oldest dirty record; LONG_MAX: never."""
    tombstones_count: int
    """In segments that were cleaned; others are not counted."""
    key_sidecar_bytes: int
    """What the key sidecars of its segments take on disk, beside the segments."""
    horizon_ms: int | None
    """The earliest delete horizon, wall time; None if no segment has one."""

    def overdue_ms(self, now_ms: int) -> int:
        """By how much max.compaction.lag.ms has been missed; 0 if it has not."""
        return max(now_ms - self.deadline_ms, 0)


State: TypeAlias = tuple[object, ...]
"""All of a log that its backlog depends on, but for the time."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A backlog, and what it holds for."""

    state: State
    until_ms: int
    backlog: Backlog


class Backlogs:
    """The backlogs of logs, kept from one survey to the next. One thread at a time."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[PartitionLog, Kept] = {}

    def survey(
        self, logs: Iterable[PartitionLog], now_ms: int
    ) -> Iterator[tuple[PartitionLog, Backlog | None]]:
        """Each log with its backlog, None where it is not compacted; forgets all other logs."""
        former, self._kept = self._kept, {}
        for log in logs:
            if not log.config.is_compacted:
                yield log, None
                continue
            kept = former.get(log)
            state = _state_of(log)
            if kept is None or now_ms >= kept.until_ms or kept.state != state:
                kept = _assess(log, state, now_ms)
            self._kept[log] = kept
            yield log, kept.backlog


def _state_of(log: PartitionLog) -> State:
    # The tuple of segments and the config are compared by identity first, which is all it takes.
    return (
        log.segments,
        log.config,
        log.clean_offset,
        log.log_start_offset,
        log.high_watermark,
        log.log_end_offset,
    )


def _assess(log: PartitionLog, state: State, now_ms: int) -> Kept:
    drawn = sketch(log)
    found = assess(drawn, log.config, now_ms)
    first_dirty = found.bounds.first_dirty_offset
    segments = [*drawn.sealed_rows, drawn.active_row]
    horizons = [s.least_delete_horizon_ms for s in segments if s.least_delete_horizon_ms > UNKNOWN]
    backlog = Backlog(
        dirty_bytes=sum(each.size for each in segments if each.end_offset > first_dirty),
        clean_bytes=found.clean_bytes,
        cleanable_bytes=found.cleanable_bytes,
        dirty_ratio=found.dirty_ratio,
        offset_lag=max(drawn.log_end_offset - first_dirty, 0),
        deadline_ms=found.deadline_ms,
        tombstones_count=sum(max(each.tombstone_count, 0) for each in segments),
        key_sidecar_bytes=sum(each.key_sidecar_bytes() for each in log.segments[:-1]),
        horizon_ms=min(horizons, default=None),
    )
    return Kept(state, min(found.wake_ms, now_ms + KEPT_MS_MAX, LONG_MAX), backlog)
