"""A resync: a new copy of a partition, filled beside its log from the source's start on.

Pure decisions about it: whether it may begin, when the copy is complete, and whether the old log is put
aside when the copy takes its place. `writer.py` begins, fills, swaps and drops the copy.

Source: docs/design/replication.md, "Resync"; Ongaro's dissertation, section 5.3 (snapshots for slow
followers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from protocol.wire.numbers import Offset
from server.replication.divergence import Place, Remedy, remedy_for
from server.replication.slot_content import ResyncMemory
from server.replication.state_table import Guard, MirrorState
from server.replication.target import Target
from storage.state.leader_epochs import LeaderEpochs
from storage.threads import loop_thread

NEEDS_PUT_ASIDE = frozenset({Guard.SOURCE_LOST, Guard.RECORDS_GONE})
"""Causes after which the log here has records that the new copy will lack."""
NEVER: Mapping[Guard, str] = {
    Guard.OTHER_TOPIC: (
        "the source's topic was deleted and created again, and its partitions must not mix with copies"
        " of the old one: promote the mirror, delete it, and resume the link"
    ),
    Guard.GONE: "the source no longer has it, so there is nothing to copy from",
}
"""Causes after which no resync begins."""

BEGINS_BY_ITSELF: Mapping[str, frozenset[Guard]] = {
    "manual": frozenset(),
    "auto": frozenset({Guard.MISSED_TOMBSTONES}),
    "aside": frozenset(
        {
            Guard.MISSED_TOMBSTONES,
            Guard.DIVERGES_IN_CLEAN,
            Guard.SOURCE_LOST,
            Guard.RECORDS_GONE,
        }
    ),
}
"""The causes after which a resync begins without an operator, by the link's mode."""


@loop_thread
@dataclass(slots=True, kw_only=True)
class Resync:
    """A resync under way."""

    cause: Guard
    """Why the partition failed."""
    puts_aside: bool
    """Whether the old log is put aside in any case."""
    started_ms: int
    id: UUID = field(default_factory=uuid4)
    """The log has it once the new copy has replaced it (`PartitionLog.copy_id`)."""
    target: Target | None = None
    """The new copy; None until its files are made."""

    @property
    def memory(self) -> ResyncMemory:
        """What the slot at the source remembers of it."""
        safe_ms = None if self.target is None else self.target.tombstones.safe_ms
        return ResyncMemory(self.cause, self.puts_aside, str(self.id), safe_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncFacts:
    """What people see of a resync."""

    started_ms: int
    cause: str
    copied: int
    """Offsets that the new copy has, from the source's start on."""
    goal: int
    """Offsets that it will have when it takes the log's place."""
    remaining_ms: int | None
    """At the rate so far; None if that is not known."""


def refusal_of_resync(
    state: MirrorState, cause: Guard | None, *, puts_aside: bool, is_offline: bool
) -> str:
    """Returns why a partition cannot be resynced, as a sentence; empty if it can.

    Args:
        cause: the guard that made it fail; None if its disk failed.
    """
    if state is MirrorState.RESYNC:
        return "a resync is under way"
    if state is not MirrorState.FAILED:
        return f"it is {state}: only a partition that has failed is copied once more"
    if is_offline or cause is None:
        return "its disk failed, so there is no place for a new copy"
    if cause in NEVER:
        return NEVER[cause]
    if cause in NEEDS_PUT_ASIDE and not puts_aside:
        return (
            "its log has records that the source has lost: --put-aside keeps it beside the new copy"
        )
    return ""


def begins_by_itself(
    mode: str, state: MirrorState, cause: Guard | None, *, has_failed: bool, has_aside: bool
) -> bool:
    """Returns whether a link begins a resync without an operator.

    In the mode `auto` only missing tombstones begin one: the source has everything else that is here. In
    the mode `aside` also logs that diverge, which are put aside. The disk grows by one copy at most,
    and a resync that has failed is not repeated, because it reads everything.

    Args:
        mode: the link's, `LinkSpec.resync`.
        has_failed: whether the last resync of this run of the broker has.
        has_aside: whether an old log of the partition is still put aside, and this one would also be.
    """
    is_meant = state is MirrorState.FAILED and cause in BEGINS_BY_ITSELF[mode]
    return is_meant and not has_failed and not has_aside


def needs_aside(cause: Guard | None, *, is_compacted: bool, may_have_own: bool) -> bool:
    """Returns whether a resync puts the old log aside, as far as that is known before there is a new
    copy: that may still show that the source has lost records.

    Args:
        is_compacted, may_have_own: see `goes_aside`.
    """
    return cause is not Guard.MISSED_TOMBSTONES or not is_compacted or may_have_own


def is_complete(*, copy_end: Offset, old_end: Offset, source_end: Offset) -> bool:
    """Returns whether a new copy may take the old log's place: readers then find what they had, or what
    the source still has.

    Args:
        source_end: the source's high watermark as it has answered for the copy.
    """
    return copy_end >= min(old_end, source_end)


def goes_aside(
    memory: ResyncMemory, old: Place, new: Place, *, is_compacted: bool, may_have_own: bool
) -> bool:
    """Returns whether the old log is put aside: unless the source has everything that cleaning here
    would have kept.

    That takes more than the cause: a partition may also have failed before its log was compared, so the
    epochs of both logs must not show that the old one has records of its own.

    Args:
        is_compacted: whether this broker compacts the mirror.
        may_have_own: whether the old log may have records that the source never had. The epochs alone do
            not show it if the source has deleted the records of the last one.
    """
    cause = memory.cause
    if memory.puts_aside or needs_aside(
        cause, is_compacted=is_compacted, may_have_own=may_have_own
    ):
        return True
    return new.end < old.end or _has_own_records(old, new)


def _has_own_records(old: Place, new: Place) -> bool:
    found = LeaderEpochs(list(new.epochs)).end_offset(old.last_epoch, new.end)
    if not old.epochs:
        return False
    remedy, _ = remedy_for(found, old)
    return remedy is not Remedy.NOTHING


def progress(resync: Resync, old_end: Offset, source_end: Offset, now_ms: int) -> ResyncFacts:
    """Returns how far a resync is.

    Args:
        source_end: the source's high watermark; negative if it is not known.
    """
    start = end = Offset(0)
    if resync.target is not None:
        start, end = resync.target.log.log_start_offset, resync.target.log.log_end_offset
    last = old_end if source_end < 0 else min(old_end, source_end)
    copied, goal = end - start, max(last, end) - start
    passed_ms = now_ms - resync.started_ms
    return ResyncFacts(
        started_ms=resync.started_ms,
        cause=str(resync.cause),
        copied=copied,
        goal=goal,
        remaining_ms=(goal - copied) * passed_ms // copied if copied > 0 else None,
    )
