"""Computes how much of each log waits for the cleaner, for metric scrapes and for commands.

The rules are those of `cleaner/rules/pick.py`, so an observer sees what the pool would decide at this
moment, not what its last look found, which may be old during a long pass. A scrape may ask about ten
thousand logs at once, from any thread; so results are cached until the log changes or until time alone
may change them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cleaner.pool.lookout import sketch
from cleaner.rules.pick import Remainder, assess
from cleaner.rules.tombstone_debt import TombstoneDebt, tombstone_debt
from storage.formats.config_property import LONG_MAX
from storage.formats.manifest import UNKNOWN
from storage.log.log import PartitionLog
from storage.threads import any_thread

CACHE_MS_MAX = 60_000
"""A result is recomputed after this time, even if `Assessment.wake_ms` is later."""
LOGS_PER_YIELD = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The cleaning work that one log still needs."""

    dirty_bytes: int
    """Size of the segments that no pass has judged to their ends, including the active one."""
    clean_bytes: int
    cleanable_bytes: int
    """The part of the dirty bytes that a pass could clean now."""
    dirty_ratio: float
    """Cleanable bytes / (clean + cleanable bytes); compared with min.cleanable.dirty.ratio."""
    offset_lag: int
    """Offsets between the first dirty offset and the log end."""
    deadline_ms: int
    """Wall time at which the oldest dirty record reaches max.compaction.lag.ms; LONG_MAX: never."""
    tombstones_count: int
    """Tombstones in cleaned segments; those in other segments are not counted."""
    tombstone_bytes: int | None
    """Their encoded, uncompressed size; None if an earlier release has counted some of them."""
    tombstones_due_ms: int | None
    """Wall time at which all of them are due; None if there is none, or it is not known."""
    key_sidecar_bytes: int
    """Disk space of the key sidecars, which are files beside the segments."""
    horizon_ms: int | None
    """The earliest delete horizon, wall time; None if no segment has one."""

    def overdue_ms(self, now_ms: int) -> int:
        """Returns by how much the log has missed max.compaction.lag.ms; 0 if it has not."""
        return max(now_ms - self.deadline_ms, 0)


RemainderOf: TypeAlias = Callable[[PartitionLog], Remainder | None]
"""Returns what the last pass has left above the fences of a log; None if it has none. Any thread."""

State: TypeAlias = tuple[object, ...]
"""All properties of a log that its backlog depends on, except the time."""


@dataclass(frozen=True, slots=True)
class CachedBacklog:
    """A backlog with the state and the time that it is valid for."""

    state: State
    until_ms: int
    backlog: Backlog


class Backlogs:
    """Computes backlogs and caches them from one survey to the next. For one thread at a time."""

    __slots__ = ("_cache",)

    def __init__(self) -> None:
        self._cache: dict[PartitionLog, CachedBacklog] = {}

    def survey(
        self,
        logs: Iterable[PartitionLog],
        now_ms: int,
        remainder_of: RemainderOf = lambda _log: None,
    ) -> Iterator[tuple[PartitionLog, Backlog | None]]:
        """Yields each log with its backlog, or None if it is not compacted; forgets all other logs."""
        former, self._cache = self._cache, {}
        for log in logs:
            if not log.config.is_compacted:
                yield log, None
                continue
            cached = former.get(log)
            remainder = remainder_of(log)
            state = _state_of(log, remainder)
            if cached is None or now_ms >= cached.until_ms or cached.state != state:
                cached = _assess(log, state, now_ms, remainder)
            self._cache[log] = cached
            yield log, cached.backlog


@any_thread
def debts_of(logs: Sequence[PartitionLog]) -> list[TombstoneDebt]:
    """Returns the tombstones of each log that passes have counted."""
    debts = []
    for number, log in enumerate(logs):
        if number % LOGS_PER_YIELD == 0:
            # Releases the interpreter, so that the event loop can run.
            time.sleep(0)
        debts.append(tombstone_debt(log.segments))
    return debts


def _state_of(log: PartitionLog, remainder: Remainder | None) -> State:
    # Tuples compare their items by identity first, so this comparison is cheap for an unchanged log.
    return (
        log.segments,
        log.config,
        log.clean_offset,
        log.log_start_offset,
        log.high_watermark,
        log.log_end_offset,
        remainder,
    )


def _assess(
    log: PartitionLog, state: State, now_ms: int, remainder: Remainder | None
) -> CachedBacklog:
    drawn = sketch(log)
    found = assess(drawn, log.config, now_ms, remainder=remainder)
    first_dirty = found.bounds.first_dirty_offset
    settled = remainder.first_uncleanable_offset if remainder and found.known_fences else 0
    segments = [*drawn.sealed_rows, drawn.active_row]
    debt = tombstone_debt(segments)
    horizons = [s.least_delete_horizon_ms for s in segments if s.least_delete_horizon_ms > UNKNOWN]
    backlog = Backlog(
        dirty_bytes=sum(
            each.size for each in segments if each.end_offset > max(first_dirty, settled)
        ),
        clean_bytes=found.clean_bytes,
        cleanable_bytes=found.cleanable_bytes,
        dirty_ratio=found.dirty_ratio,
        offset_lag=max(drawn.log_end_offset - first_dirty, 0),
        deadline_ms=found.deadline_ms,
        tombstones_count=debt.tombstones,
        tombstone_bytes=debt.bytes,
        tombstones_due_ms=debt.all_due_ms,
        key_sidecar_bytes=sum(each.key_sidecar_bytes() for each in log.segments[:-1]),
        horizon_ms=min(horizons, default=None),
    )
    return CachedBacklog(state, min(found.wake_ms, now_ms + CACHE_MS_MAX, LONG_MAX), backlog)
