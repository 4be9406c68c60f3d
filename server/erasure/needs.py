"""What an erasure needs next in a partition, and whether its deadline is at risk. Pure.

    records below X:   covered by a pass -> PROVE
                       a damaged segment is not above X -> that is the holder
                       a pass could cover X now -> PASS
                       else the holder that prevents it
    tombstone at X:    gone -> PROVE
                       a damaged segment is not above X, or records have versions -> that is the holder
                       due, and a pass could drop it now -> PASS
                       else the holder that keeps it

A holder has a name, what makes it let go and, if that is known, when it will by itself.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from cleaner.rules.fence import Fence
from cleaner.rules.hold import NO_HOLD, Hold
from cleaner.rules.pick import Blocker
from cleaner.rules.text import duration_text, moment_text

RISK_SHARE = 0.25
"""In this last part of its time, an erasure is at risk if something with no known end holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Something that an erasure waits for."""

    partition: int | None
    """None: it concerns the whole topic."""
    text: str
    remedy: str
    until_ms: int | None = None
    """When it ends by itself; None: not known."""


class Next(enum.Enum):
    """What the broker does next for an erasure in a partition."""

    PASS = "pass"  # noqa: S105 - a cleaning pass
    PROVE = "prove"
    WAIT = "wait"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Need:
    """What has to happen next, and what prevents it."""

    next: Next
    holder: Holder | None = None
    """With WAIT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """A log at the moment of a look."""

    name: str
    """TOPIC-N."""
    partition: int
    obstacle: Holder | None
    """What prevents any pass over it; None if a pass could begin."""
    clean_offset: int
    first_uncleanable_offset: int
    """Of a pass that rolls first."""
    limited_by: Blocker
    limited_until_ms: int | None
    """When the limit ends by itself, if it is one of time."""
    log_end_offset: int
    fence: Fence | None = None
    """The first damaged segment, if the last pass has found one."""
    has_versions: bool = False
    """Whether a tombstone may outrank records above it: then a damaged segment holds all tombstones."""
    hold: Hold = NO_HOLD
    delete_retention_ms: int


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The tombstone of an erasure, as a pass has left it."""

    is_gone: bool
    horizon_ms: int | None = None
    """When a pass may drop it; None while no pass has set it."""


def need_of_records(facts: LogFacts, offset: int, *, has_tombstone: bool) -> Need:
    """Returns what it takes until no record of the key is below an offset."""
    if not has_tombstone or facts.clean_offset > offset:
        return Need(Next.PROVE)
    if facts.fence is not None and facts.fence.base_offset <= offset:
        return Need(Next.WAIT, _fenced(facts, facts.fence, "it may have records of the key"))
    if facts.obstacle is not None:
        return Need(Next.WAIT, facts.obstacle)
    if facts.first_uncleanable_offset <= offset:
        return Need(Next.WAIT, _limit(facts, "records"))
    return Need(Next.PASS)


def need_of_tombstone(facts: LogFacts, offset: int, tombstone: Tombstone, now_ms: int) -> Need:
    """Returns what it takes until the tombstone at an offset is gone."""
    if tombstone.is_gone:
        return Need(Next.PROVE)
    if tombstone.horizon_ms is not None and tombstone.horizon_ms > now_ms:
        return Need(Next.WAIT, _retention(facts, tombstone.horizon_ms))
    if facts.fence is not None and (facts.has_versions or facts.fence.base_offset <= offset):
        return Need(Next.WAIT, _fenced(facts, facts.fence, "the tombstone stays"))
    if facts.hold.offset <= offset:
        return Need(
            Next.WAIT,
            Holder(
                partition=facts.partition,
                text=f"{facts.hold.by} has not read the tombstone in {facts.name} and holds it",
                remedy="let it read on; see compaction.hold.groups and compaction.hold.max.ms",
            ),
        )
    if facts.log_end_offset == offset + 1:
        return Need(
            Next.WAIT,
            Holder(
                partition=facts.partition,
                text=f"the tombstone is the last record of {facts.name}, which stays until something"
                " follows it",
                remedy=f"produce any record to {facts.name}",
            ),
        )
    if facts.obstacle is not None:
        return Need(Next.WAIT, facts.obstacle)
    if facts.first_uncleanable_offset <= offset + 1:
        return Need(Next.WAIT, _limit(facts, "the tombstone"))
    return Need(Next.PASS)


def _retention(facts: LogFacts, horizon_ms: int) -> Holder:
    retention = facts.delete_retention_ms
    return Holder(
        partition=facts.partition,
        text=f"the tombstone in {facts.name} stays until {moment_text(horizon_ms)}, so that readers see"
        f" it: delete.retention.ms={retention} ({duration_text(retention / 1000)})",
        remedy="wait; a lower delete.retention.ms counts for tombstones that no pass has seen",
        until_ms=horizon_ms,
    )


def _fenced(facts: LogFacts, fence: Fence, so: str) -> Holder:
    return Holder(
        partition=facts.partition,
        text=f"{fence} of {facts.name} cannot be read ({fence.reason}), so {so}",
        remedy=f"restore the segment's file, then kompakt compact now {facts.name}, because the erasure"
        f" tries no pass itself; or give up its records: kompakt compact explain {facts.name} says how",
    )


_LIMITS = {
    Blocker.HIGH_WATERMARK: ("it is not durable yet", "wait for the disk"),
    Blocker.LAST_STABLE_OFFSET: (
        "a transaction that began before is still open",
        "wait until it ends; if it hangs: kompakt transactions find-hanging",
    ),
    Blocker.MIN_LAG: (
        "records are younger than min.compaction.lag.ms",
        "wait, or lower min.compaction.lag.ms",
    ),
    Blocker.MIN_LAG_BYTES: (
        "it is within min.compaction.lag.bytes of the log's end",
        "lower min.compaction.lag.bytes",
    ),
}


def _limit(facts: LogFacts, what: str) -> Holder:
    why, remedy = _LIMITS.get(facts.limited_by, (facts.limited_by.value, "wait"))
    return Holder(
        partition=facts.partition,
        text=f"no pass may reach {what} of the key in {facts.name} now: {why}",
        remedy=remedy,
        until_ms=facts.limited_until_ms,
    )


class Risk(enum.StrEnum):
    """Whether an erasure is complete in time. The values are shown to users."""

    NONE = "none"
    AT_RISK = "at risk"
    OVERDUE = "overdue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When an erasure can be complete, as far as that is known."""

    earliest_ms: int
    is_open: bool
    """Whether something of unknown length lies before that."""


def forecast(
    needs: Iterable[tuple[Need, int]], now_ms: int, kept: Iterable[Holder] = ()
) -> Forecast:
    """Returns the forecast of an erasure.

    Args:
        needs: of its partitions, each with the time that its tombstone stays after this need.
        kept: the files that are left.
    """
    earliest_ms, is_open = now_ms, any(True for _ in kept)
    for need, then_ms in needs:
        until_ms = now_ms
        if need.holder is not None and need.holder.until_ms is not None:
            until_ms = max(need.holder.until_ms, now_ms)
        elif need.next is not Next.NOTHING:
            is_open = True
        earliest_ms = max(earliest_ms, until_ms + then_ms)
    return Forecast(earliest_ms=earliest_ms, is_open=is_open)


def risk_of(
    found: Forecast, *, requested_ms: int, deadline_ms: int, now_ms: int, is_final: bool
) -> Risk:
    """Returns whether a deadline is at risk."""
    if is_final:
        return Risk.NONE
    if now_ms > deadline_ms:
        return Risk.OVERDUE
    if found.earliest_ms > deadline_ms:
        return Risk.AT_RISK
    is_late = deadline_ms - now_ms < RISK_SHARE * (deadline_ms - requested_ms)
    return Risk.AT_RISK if is_late and found.is_open else Risk.NONE
