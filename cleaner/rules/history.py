"""Which older values of a key stay beside its last one. Pure.

Of the records of a key, by offset, an older one stays if

    no tombstone of the key comes after it: a deletion ends what was before it; and
    fewer than `compaction.versions` records of the key come after it,
    or none of them is in its cell.

Thinning (`compaction.thinning`) puts records into cells. The periods of a step divide all time since
1970. A record is in the cell of the last step for which its whole period is older than the step before
reaches. Records younger than the first step are in no cell and stay. All that is older than the last
step reaches is one cell: its last record is the key's value when the history begins.

    all for 1h, one per 1h for 1d          now
    ...older than 1d ]|[ hour | hour | hour |  ...  all
         one cell        a cell for each

All records of a period change to a longer one at the same moment, and each period is a multiple of the
one before. So what stays depends on the time alone, and not on when passes run.

The kernel has the same rule in compiled form (`cleaner/kernel/history.pxi`). docs/design/history.md says
why it is this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from storage.formats.compaction_history import CompactionHistory
from storage.formats.config_property import LONG_MAX

TIMESTAMP_MAX = LONG_MAX // 8
"""Later timestamps count as this one."""


REST_PERIODS, REST_PERIOD_MS_MIN = 64, 1000
"""With `all for 64h` alone, values go an hour's worth at a time."""


class PastRecord(NamedTuple):
    """What the rule must know of a record."""

    offset: int
    timestamp: int
    """In ms; with LogAppendTime that of its batch."""
    is_tombstone: bool


class Cell(NamedTuple):
    """Records of one key of which only the last stays by its age."""

    level: int
    bucket: int
    """The number of the period since 1970."""


class Level(NamedTuple):
    """One length of cells."""

    period_ms: int
    """A record gets into such a cell once its whole period is older than `from_age_ms`."""
    from_age_ms: int
    is_rest: bool
    """Whether all older records are in one cell."""


def levels_of(history: CompactionHistory) -> tuple[Level, ...]:
    """Returns the lengths of cells, from short to long; none if age keeps no records."""
    levels = list[Level]()
    period_ms, from_age_ms = 0, 0
    for step in history.steps:
        if step.period_ms:
            period_ms = step.period_ms
            levels.append(Level(period_ms, from_age_ms, is_rest=False))
        from_age_ms = step.age_ms
    if history.steps:
        # Without a period each record would grow too old at a moment of its own.
        period_ms = period_ms or max(from_age_ms // REST_PERIODS, REST_PERIOD_MS_MIN)
        levels.append(Level(period_ms, from_age_ms, is_rest=True))
    return tuple(levels)


def cell_of(levels: Sequence[Level], timestamp: int, now_ms: int) -> Cell | None:
    """Returns the cell of a record; None if it stays in any case."""
    found = None
    for number, level in enumerate(levels):
        if _enters_ms(level, timestamp) > now_ms:
            break
        found = Cell(number, 0 if level.is_rest else max(timestamp, 0) // level.period_ms)
    return found


def next_cell_ms(levels: Sequence[Level], timestamp: int, now_ms: int) -> int:
    """Returns when a record gets into its next cell, with others perhaps; LONG_MAX: never."""
    moments = (_enters_ms(level, timestamp) for level in levels)
    return min(next((moment for moment in moments if moment > now_ms), LONG_MAX), LONG_MAX)


def due_ms_of(records: Sequence[PastRecord], history: CompactionHistory, now_ms: int) -> int:
    """Returns when one of a key's older values may have to go by the clock; LONG_MAX: never.

    It may when it gets into its next cell; or when the last record gets into the one that has everything
    older than the last step.
    """
    levels, older = levels_of(history), older_values(records, history, now_ms)
    moments = [next_cell_ms(levels, each.timestamp, now_ms) for each in older]
    if older and levels:
        moments.append(next_cell_ms(levels[-1:], records[-1].timestamp, now_ms))
    return min(moments, default=LONG_MAX)


def _enters_ms(level: Level, timestamp: int) -> int:
    timestamp = min(max(timestamp, 0), TIMESTAMP_MAX)
    end_of_period = (timestamp // level.period_ms + 1) * level.period_ms
    return end_of_period + level.from_age_ms


def older_values(
    records: Sequence[PastRecord], history: CompactionHistory, now_ms: int
) -> list[PastRecord]:
    """Returns those of all records of a key, in the order of their offsets, that stay beside the last.

    The same rule as `stays_as_history`, in one walk from the last record to the first.
    """
    levels, found = levels_of(history), list[PastRecord]()
    cells = set[Cell]()
    for after, record in enumerate(reversed(records)):
        cell = cell_of(levels, record.timestamp, now_ms) if levels else None
        is_last_of_cell = bool(levels) and (cell is None or cell not in cells)
        if after and (after < history.versions or is_last_of_cell):
            found.append(record)
        if cell is not None:
            cells.add(cell)
        if record.is_tombstone:
            break
    return found[::-1]


def stays_as_history(
    record: PastRecord, later: Iterable[PastRecord], history: CompactionHistory, now_ms: int
) -> bool:
    """Returns whether a record stays although others of its key come after it.

    Args:
        later: the records of its key after it, as far as the pass knows them.
    """
    after = [each for each in later if each.offset > record.offset]
    if any(each.is_tombstone for each in after):
        return False
    if len(after) < history.versions:
        return True
    levels = levels_of(history)
    if not levels:
        return False
    cell = cell_of(levels, record.timestamp, now_ms)
    return cell is None or all(cell_of(levels, each.timestamp, now_ms) != cell for each in after)
